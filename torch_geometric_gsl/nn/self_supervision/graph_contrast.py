from __future__ import annotations

import torch
from torch import Tensor

from torch_geometric_gsl._checks import check_count, check_probability
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.self_supervision.anchor import Anchor
from torch_geometric_gsl.nn.self_supervision.base import SampledGraphLoss
from torch_geometric_gsl.nn.self_supervision.layers import ContrastEncoder
from torch_geometric_gsl.ops.edges import Edges
from torch_geometric_gsl.typing import SampledGraph


class GraphContrast(SampledGraphLoss):
    r"""The contrast of the graph that a sampler draws with an anchor graph, as in the
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

    where :math:`\mathbf{E}` is an embedding of the nodes, by default
    :math:`\mathbf{X}` itself, :math:`\mathbf{M}` and :math:`\mathbf{M}'` hide features,
    drawn anew at each call and the same ones for all nodes, and :math:`f` has two
    layers :math:`\mathbf{A} \mathbf{H} \mathbf{W} + \mathbf{b}` and two that project.
    The neighbours of a node have to tell it from other nodes: gradient reaches the
    parameters of the similarity, its scale, and the embedding. The graph is drawn once
    for both layers.

    The anchor graph begins as the identity, or as edges that are given, and moves
    towards each :obj:`anchor_interval`-th drawn graph in training mode; with
    :obj:`tau=1` it remains what it is. It is part of the state, as running statistics
    are, and belongs to one set of nodes; the identity that remains serves any.

    .. code-block:: python

        sampler = GumbelKNNSampler(LinearSimilarity(32), train_scale=True, loop=False)
        contrast = GraphContrast(sampler, x.size(1), anchor=data.edge_index)
        optimizer = torch.optim.Adam([*encoder.parameters(), *contrast.parameters()])
        for epoch in range(200):
            optimizer.zero_grad()
            contrast(x, z=encoder(x)).backward()
            optimizer.step()

    .. note::
        Features are hidden in evaluation mode, too; the graph is noise-free then,
        nothing is dropped, and the anchor stays. The sampler is not reset at
        construction, but :meth:`reset_parameters` resets it.

    Args:
        sampler (GumbelKNNSampler): The sampler of the graph.
        in_channels (int): Size of each input sample.
        hidden_channels (int, optional): Size of each hidden sample of the encoder.
            (default: :obj:`512`)
        embedding_channels (int, optional): Size of its output.
            (default: :obj:`256`)
        projected_channels (int, optional): Size of what is contrasted.
            (default: :obj:`256`)
        temperature (float, optional): The temperature :math:`t`.
            (default: :obj:`0.2`)
        contrast_batch_size (int or None, optional): The number of nodes of a group that
            are contrasted with each other, at random in training mode; all nodes if
            :obj:`None`, in quadratic time. (default: :obj:`2048`)
        mask_rate (float or tuple, optional): The share of the features that a view
            hides, or those of the anchor and of the drawn view.
            (default: :obj:`(0.7, 0.8)`)
        anchor (torch.Tensor or tuple, optional): The edges as which the anchor graph
            begins, or a pair :obj:`(edge_index, edge_weight)`. Weights are scaled to a
            sum of 1 for each target, and a node without edges has itself; the identity
            if :obj:`None`. (default: :obj:`None`)
        tau (float, optional): The share :math:`\tau` of the anchor graph that an update
            keeps. (default: :obj:`0.9999`)
        anchor_interval (int, optional): After how many calls the anchor graph moves.
            (default: :obj:`1`)
        max_anchor_neighbours (int, optional): The number of heaviest edges of each
            target that the anchor graph keeps when it moves. (default: :obj:`64`)
        dropout (float, optional): Dropout probability of the hidden samples.
            (default: :obj:`0.5`)
        adjacency_dropout (float, optional): Dropout probability of the edges of both
            views. (default: :obj:`0.0`)

    Shapes:
        - **input:** node features :math:`(|\mathcal{V}|, F_{in})`, dense or sparse
          CSR, candidate edges :math:`(2, |\mathcal{E}_c|)` *(optional)*, batch vector
          :math:`(|\mathcal{V}|)` *(optional)*, compared rows
          :math:`(|\mathcal{V}|, F_{z})` *(optional)*
        - **output:** the loss, a scalar

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range, or a call sees another number of
            nodes than the anchor graph has.

    Example:
        >>> from torch_geometric_gsl import GumbelKNNSampler, LinearSimilarity
        >>> sampler = GumbelKNNSampler(LinearSimilarity(16, 8), train_scale=True)
        >>> contrast = GraphContrast(sampler, 16, hidden_channels=32)
        >>> loss = contrast(torch.randn(100, 16))
        >>> loss.backward()
        >>> loss.shape, bool(sampler.log_scale.grad)
        (torch.Size([]), True)
    """

    network: ContrastEncoder

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
        anchor_interval: int = 1,
        max_anchor_neighbours: int = 64,
        dropout: float = 0.5,
        adjacency_dropout: float = 0.0,
    ) -> None:
        super().__init__(sampler, in_channels, hidden_channels)
        check_probability(dropout, 'dropout')
        check_probability(adjacency_dropout, 'adjacency_dropout')
        check_count(max_anchor_neighbours, 'max_anchor_neighbours')
        self.network = ContrastEncoder(
            in_channels,
            hidden_channels,
            embedding_channels,
            projected_channels,
            temperature=temperature,
            batch_size=contrast_batch_size,
            mask_rate=mask_rate,
            dropout=dropout,
            adjacency_dropout=adjacency_dropout,
            shuffle=True,
        )
        self.anchor = Anchor(tau, anchor_interval, anchor, max_anchor_neighbours)
        self.anchor.reset_parameters()
        self.network.reset_parameters()

    def reset_parameters(self) -> None:
        r"""Reset all learnable parameters of the module, those of the sampler too, and
        the anchor graph.
        """
        super().reset_parameters()
        self.anchor.reset_parameters()

    def _loss(
        self, x: Tensor, edges: Edges, generator: torch.Generator | None
    ) -> Tensor:
        anchor = self.anchor.edges(x.size(0), x)
        loss = self.network.contrast(x, anchor, edges, generator)
        if self.training:
            self.anchor.update(edges, x.size(0))
        return loss

    def _sizes(self) -> str:
        return f'{super()._sizes()}, tau={self.anchor.tau}'
