from __future__ import annotations

import torch
from torch import Tensor

from torch_geometric_gsl._checks import check_probability
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.self_supervision.base import SampledGraphLoss
from torch_geometric_gsl.nn.self_supervision.layers import Denoiser
from torch_geometric_gsl.ops.edges import Edges


class GraphDenoising(SampledGraphLoss):
    r"""The loss of a denoising autoencoder on the graph that a sampler draws, as in the
    `"SLAPS: Self-Supervision Improves Structure Learning for Graph Neural Networks"
    <https://arxiv.org/abs/2102.05034>`_ paper.

    .. math::
        \mathbf{A} \sim \mathrm{Sampler} (\mathbf{Z}), \qquad
        \hat{\mathbf{X}} = \mathbf{A} \, \mathrm{ReLU} \left( \mathbf{A}
        \tilde{\mathbf{X}} \mathbf{W}_1 + \mathbf{b}_1 \right) \mathbf{W}_2 +
        \mathbf{b}_2, \qquad
        \mathcal{L} = \frac{1}{|I|} \sum_{(i, f) \in I} \left( \hat{x}_{if} - x_{if}
        \right)^2

    where :math:`\tilde{\mathbf{X}}` are the features without those of the hidden set
    :math:`I`, which is drawn anew at each call, and :math:`\mathbf{Z}` is an embedding
    of the nodes, by default :math:`\mathbf{X}` itself. Neighbours restore the hidden
    features, so that the graph learns to join similar nodes: gradient reaches the
    parameters of the similarity, its scale, and the embedding. The graph is drawn once
    for both layers, and :math:`\hat x` is computed where features are hidden only.

    The sampler is a submodule. Train it through this loss, beside an encoder if there
    is one, and use it in a layer or a network afterwards:

    .. code-block:: python

        sampler = GumbelKNNSampler(LinearSimilarity(32), train_scale=True, loop=False)
        denoising = GraphDenoising(sampler, x.size(1))
        optimizer = torch.optim.Adam([*encoder.parameters(), *denoising.parameters()])
        for epoch in range(200):
            optimizer.zero_grad()
            denoising(x, z=encoder(x)).backward()
            optimizer.step()

    .. note::
        Features are hidden in evaluation mode, too; the graph is noise-free then, and
        nothing is dropped. The sampler is not reset at construction, but
        :meth:`reset_parameters` resets it. A sampler with :obj:`loop=False` keeps a
        node from restoring itself.

    Args:
        sampler (GumbelKNNSampler): The sampler of the graph.
        in_channels (int): Size of each input sample.
        hidden_channels (int, optional): Size of each hidden sample.
            (default: :obj:`512`)
        binary (bool, optional): Whether features are words that occur (:math:`x > 0`)
            or do not. The loss is then the binary cross-entropy of hidden words and of
            :obj:`negative_ratio` times as many zeros, else the mean squared error of
            hidden values. (default: :obj:`False`)
        mask_ratio (float, optional): The ratio :math:`r`: a feature (a word that
            occurs) is hidden with probability :math:`1/r`. (default: :obj:`10.0`)
        negative_ratio (float, optional): The ratio of hidden zeros to hidden ones.
            (default: :obj:`5.0`)
        dropout (float, optional): Dropout probability of the hidden samples.
            (default: :obj:`0.5`)
        adjacency_dropout (float, optional): Dropout probability of the drawn edges.
            (default: :obj:`0.0`)

    Shapes:
        - **input:** node features :math:`(|\mathcal{V}|, F_{in})`, dense or sparse
          CSR, candidate edges :math:`(2, |\mathcal{E}_c|)` *(optional)*, batch vector
          :math:`(|\mathcal{V}|)` *(optional)*, compared rows
          :math:`(|\mathcal{V}|, F_{z})` *(optional)*
        - **output:** the loss, a scalar

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range, or features that are
            :obj:`binary` are negative.

    Example:
        >>> from torch_geometric_gsl import GumbelKNNSampler, LinearSimilarity
        >>> sampler = GumbelKNNSampler(LinearSimilarity(16, 8), train_scale=True)
        >>> denoising = GraphDenoising(sampler, 16, hidden_channels=32)
        >>> loss = denoising(torch.randn(100, 16))
        >>> loss.backward()
        >>> loss.shape, bool(sampler.log_scale.grad)
        (torch.Size([]), True)
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
        check_probability(dropout, 'dropout')
        check_probability(adjacency_dropout, 'adjacency_dropout')
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

    def _loss(
        self, x: Tensor, edges: Edges, generator: torch.Generator | None
    ) -> Tensor:
        loss: Tensor = self.network(x, edges, generator)
        return loss

    def _sizes(self) -> str:
        return f'{super()._sizes()}, binary={self.network.binary}'
