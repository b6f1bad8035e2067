"""Self-supervised losses on a sampled graph."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from reproduction.self_supervision.anchor import Anchor
from reproduction.self_supervision.functional import list_sources
from reproduction.self_supervision.networks import Contrast, Denoiser
from torch_geometric_gsl._checks import (
    check_compared,
    check_count,
    check_generator,
    check_parameter_match,
    check_type,
)
from torch_geometric_gsl.nn.linear import check_input
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.ops.edges import Edges
from torch_geometric_gsl.ops.runtime import check_not_batched
from torch_geometric_gsl.typing import SampledGraph


class SampledGraphLoss(torch.nn.Module):
    """Base class of the self-supervised losses on a sampled graph."""

    network: Contrast | Denoiser

    def __init__(
        self, sampler: GumbelKNNSampler, in_channels: int, hidden_channels: int
    ) -> None:
        super().__init__()
        check_type(sampler, GumbelKNNSampler, 'sampler', 'a GumbelKNNSampler')
        check_count(in_channels, 'in_channels')
        check_count(hidden_channels, 'hidden_channels')
        self.sampler = sampler
        self.in_channels = in_channels
        self.hidden_channels = hidden_channels

    def reset_parameters(self) -> None:
        r"""Reset all learnable parameters of the module and its sampler."""
        self.network.reset_parameters()
        self.sampler.reset_parameters()

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | None = None,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        *,
        z: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        r"""Compute the loss on a sampled graph, a scalar.

        :obj:`edge_index`, :obj:`edge_weight` and :obj:`batch` are passed to the
        sampler, and so is the :obj:`generator`, the source of all randomness. The
        similarity compares the features, or rows :obj:`z` such as the output of an
        encoder, with gradients.
        """
        check_not_batched(self, (x, z), self.parameters())
        graph = self.graph(x, edge_index, edge_weight, batch, z=z, generator=generator)
        edges = Edges(list_sources(graph.edge_index, x.size(0)), graph.edge_weight)
        loss: Tensor = self.network(x, edges, generator)
        return loss

    def graph(
        self,
        x: Tensor,
        *args: Any,
        z: Tensor | None = None,
        generator: torch.Generator | None = None,
        **kwargs: Any,
    ) -> SampledGraph:
        r"""Sample the graph, noise-free in evaluation mode, sorted by target; the
        arguments are those of :meth:`forward`.
        """
        check_input(x, self.network.first.lin)
        check_generator(generator, x.device)
        if z is None:
            z = x
        else:
            check_compared(z, self.sampler.similarity.in_channels, x.size(0))
            check_parameter_match(z, next(self.sampler.parameters(), None), 'z')
        graph: SampledGraph = self.sampler(z, *args, generator=generator, **kwargs)
        return graph

    def _shown(self, option: str) -> str:
        sizes = f'{self.in_channels}, {self.hidden_channels}'
        return f'{self.__class__.__name__}({sizes}, {option}, sampler={self.sampler})'


class GraphDenoising(SampledGraphLoss):
    r"""Loss of a denoising autoencoder on a sampled graph, as in the
    `"SLAPS: Self-Supervision Improves Structure Learning for Graph Neural Networks"
    <https://arxiv.org/abs/2102.05034>`_ paper.

    .. math::
        \mathbf{A} \sim \mathrm{Sampler} (\mathbf{Z}), \qquad
        \hat{\mathbf{X}} = \mathbf{A} \, \mathrm{ReLU} \left( \mathbf{A}
        \tilde{\mathbf{X}} \mathbf{W}_1 + \mathbf{b}_1 \right) \mathbf{W}_2 +
        \mathbf{b}_2, \qquad
        \mathcal{L} = \frac{1}{|I|} \sum_{(i, f) \in I} \left( \hat{x}_{if} - x_{if}
        \right)^2

    where :math:`\tilde{\mathbf{X}}` are the features without the hidden set :math:`I`,
    drawn anew at each call, and :math:`\mathbf{Z}` is an embedding of the nodes, by
    default :math:`\mathbf{X}` itself. Gradients flow to the parameters of the
    similarity, its scale, and the embedding. Train the sampler with this loss, then
    use it in a layer or a network.

    .. note::
        Features are also hidden in evaluation mode; the graph is noise-free then, and
        there is no dropout. The sampler is not reset at construction, but
        :meth:`reset_parameters` resets it. Use a sampler with :obj:`loop=False`, so
        that no node reconstructs itself.

    Args:
        sampler (GumbelKNNSampler): The sampler of the graph.
        in_channels (int): Size of each input sample.
        hidden_channels (int, optional): Hidden size. (default: :obj:`512`)
        binary (bool, optional): If :obj:`True`, features are binary (:math:`x > 0`),
            and the loss is the cross-entropy of hidden ones and of
            :obj:`negative_ratio` times as many zeros. (default: :obj:`False`)
        mask_ratio (float, optional): The ratio :math:`r`: a feature (a one if binary)
            is hidden with probability :math:`1/r`. (default: :obj:`10.0`)
        negative_ratio (float, optional): The ratio of hidden zeros to hidden ones.
            (default: :obj:`5.0`)
        dropout (float, optional): Dropout probability. (default: :obj:`0.5`)
        adjacency_dropout (float, optional): Dropout probability of the sampled edges.
            (default: :obj:`0.0`)

    Shapes:
        - **input:** node features :math:`(|\mathcal{V}|, F_{in})`, dense or sparse
          CSR, candidate edges :math:`(2, |\mathcal{E}_c|)` *(optional)*, batch vector
          :math:`(|\mathcal{V}|)` *(optional)*, compared rows
          :math:`(|\mathcal{V}|, F_{z})` *(optional)*
        - **output:** the loss, a scalar

    Raises:
        ValueError: If :obj:`binary` features are negative.

    Example:
        >>> from torch_geometric_gsl import GumbelKNNSampler, LinearSimilarity
        >>> sampler = GumbelKNNSampler(LinearSimilarity(16, 8), train_scale=True)
        >>> denoising = GraphDenoising(sampler, 16, hidden_channels=32)
        >>> denoising(torch.randn(100, 16)).backward()
        >>> bool(sampler.log_scale.grad)
        True
    """

    network: Denoiser

    def __init__(
        self,
        sampler: GumbelKNNSampler,
        in_channels: int,
        hidden_channels: int = 512,
        *,
        binary: bool = False,
        mask_ratio: float = 10.0,
        negative_ratio: float = 5.0,
        dropout: float = 0.5,
        adjacency_dropout: float = 0.0,
    ) -> None:
        super().__init__(sampler, in_channels, hidden_channels)
        self.network = Denoiser(
            in_channels,
            hidden_channels,
            binary=binary,
            mask_ratio=mask_ratio,
            negative_ratio=negative_ratio,
            dropout=dropout,
            adjacency_dropout=adjacency_dropout,
        )
        self.network.reset_parameters()

    def __repr__(self) -> str:
        return self._shown(f'binary={self.network.binary}')


class GraphContrast(SampledGraphLoss):
    r"""Contrastive loss of a sampled graph and an anchor graph, as in the
    `"Towards Unsupervised Deep Graph Structure Learning"
    <https://arxiv.org/abs/2201.06367>`_ paper.

    .. math::
        \mathbf{A} &\sim \mathrm{Sampler} (\mathbf{E}), \qquad
        \mathbf{Z} = f (\mathbf{X} \mathbf{M}, \mathbf{A}), \qquad
        \mathbf{Z}' = f (\mathbf{X} \mathbf{M}', \mathbf{A}_{\mathrm{anchor}})

        \mathcal{L} &= - \frac{1}{2 n} \sum_{i=1}^{n} \left( \log
        \frac{e^{\cos (\mathbf{z}_i, \mathbf{z}'_i) / t}}
        {\sum_j e^{\cos (\mathbf{z}_i, \mathbf{z}'_j) / t}} + \log
        \frac{e^{\cos (\mathbf{z}_i, \mathbf{z}'_i) / t}}
        {\sum_j e^{\cos (\mathbf{z}_j, \mathbf{z}'_i) / t}} \right)

        \mathbf{A}_{\mathrm{anchor}} &\leftarrow \tau \, \mathbf{A}_{\mathrm{anchor}} +
        (1 - \tau) \, \mathbf{A}

    where :math:`\mathbf{E}` is an embedding of the nodes, by default :math:`\mathbf{X}`
    itself, :math:`\mathbf{M}` and :math:`\mathbf{M}'` hide features, drawn anew at each
    call and the same for all nodes, and :math:`f` is a network of two layers
    :math:`\mathbf{A} \mathbf{H} \mathbf{W} + \mathbf{b}` and a projection of two. Train
    it as :class:`GraphDenoising`; the note there applies here too.

    The anchor graph starts as the identity, or as given edges, and moves towards each
    sampled graph in training mode, unless :obj:`tau=1`. It is part of the state, like
    running statistics, and belongs to one set of nodes; an unchanged identity fits any.

    Args:
        sampler (GumbelKNNSampler): The sampler of the graph.
        in_channels (int): Size of each input sample.
        hidden_channels (optional): As in :class:`GraphDenoising`.
        embedding_channels (int, optional): Size of its output. (default: :obj:`256`)
        projected_channels (int, optional): Size of the contrasted vectors.
            (default: :obj:`256`)
        temperature (float, optional): Temperature :math:`t`. (default: :obj:`0.2`)
        contrast_batch_size (int or None, optional): The number of nodes contrasted with
            each other, in random groups in training mode; all nodes if :obj:`None`, in
            quadratic time. (default: :obj:`2048`)
        mask_rate (float or tuple, optional): The share of hidden features in a view, or
            one for the anchor view and one for the sampled view.
            (default: :obj:`(0.7, 0.8)`)
        anchor (torch.Tensor or tuple, optional): The initial edges of the anchor graph,
            or a pair :obj:`(edge_index, edge_weight)`; the identity if :obj:`None`.
            Weights are normalised to sum to 1 per target, and nodes without edges get a
            self-loop. (default: :obj:`None`)
        tau (float, optional): The decay :math:`\tau` of the anchor graph per update.
            (default: :obj:`0.9999`)
        max_anchor_neighbours (int, optional): The number of heaviest edges per target
            that the anchor graph keeps in an update. (default: :obj:`64`)
        dropout, adjacency_dropout (optional): As in :class:`GraphDenoising`.

    Shapes:
        - **input and output:** as in :class:`GraphDenoising`

    Raises:
        ValueError: If the number of nodes differs from that of the anchor graph.

    Example:
        >>> from torch_geometric_gsl import GumbelKNNSampler, LinearSimilarity
        >>> sampler = GumbelKNNSampler(LinearSimilarity(16, 8), train_scale=True)
        >>> contrast = GraphContrast(sampler, 16, hidden_channels=32)
        >>> contrast(torch.randn(100, 16)).backward()
        >>> bool(sampler.log_scale.grad)
        True
    """

    network: Contrast

    def __init__(
        self,
        sampler: GumbelKNNSampler,
        in_channels: int,
        hidden_channels: int = 512,
        *,
        embedding_channels: int = 256,
        projected_channels: int = 256,
        temperature: float = 0.2,
        contrast_batch_size: int | None = 2048,
        mask_rate: float | tuple[float, float] = (0.7, 0.8),
        anchor: Tensor | SampledGraph | tuple[Tensor, Tensor] | None = None,
        tau: float = 0.9999,
        max_anchor_neighbours: int = 64,
        dropout: float = 0.5,
        adjacency_dropout: float = 0.0,
    ) -> None:
        super().__init__(sampler, in_channels, hidden_channels)
        self.network = Contrast(
            in_channels,
            hidden_channels,
            embedding_channels,
            projected_channels,
            Anchor(tau, anchor, max_anchor_neighbours),
            temperature=temperature,
            batch_size=contrast_batch_size,
            mask_rate=mask_rate,
            dropout=dropout,
            adjacency_dropout=adjacency_dropout,
            shuffle=True,
        )
        self.network.reset_parameters()

    def __repr__(self) -> str:
        return self._shown(f'tau={self.network.anchor.tau}')
