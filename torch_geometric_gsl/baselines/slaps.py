from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torch_geometric_gsl._checks import at_least, check_count, check_flag
from torch_geometric_gsl.baselines._generated_graph import GeneratedGraphModel
from torch_geometric_gsl.nn.self_supervision.layers import Denoiser
from torch_geometric_gsl.ops.edges import Edges, drop_edges
from torch_geometric_gsl.ops.masking import (
    MaskedFeatures,
    check_words,
    mask_features,
    restoration_loss,
)


class SLAPS(GeneratedGraphModel):
    r"""The model of the `"SLAPS: Self-Supervision Improves Structure Learning for
    Graph Neural Networks" <https://arxiv.org/abs/2102.05034>`_ paper: the graph of the
    nearest neighbours of learned embeddings, which a classifier and a denoising
    autoencoder share.

    .. math::
        \mathbf{Z} &= \sigma (\mathbf{X} \mathbf{W}_1) \mathbf{W}_2, \qquad
        S_{ij} = \max \left( 0, \frac{\mathbf{z}_i \cdot \mathbf{z}_j}
        {\| \mathbf{z}_i \| \| \mathbf{z}_j \|} \right)

        \mathbf{A} &= \mathbf{D}^{-1/2} \, \frac{\mathbf{S} + \mathbf{S}^{\top}}{2} \,
        \mathbf{D}^{-1/2}

        \mathcal{L} &= \mathcal{L}_{\mathrm{class}} \left(
        \mathrm{GCN}_{\mathrm{C}} (\mathbf{X}, \mathbf{A}), \mathbf{y} \right) +
        \lambda \, \mathcal{L}_{\mathrm{DAE}} \left(
        \mathrm{GCN}_{\mathrm{DAE}} (\tilde{\mathbf{X}}, \mathbf{A})_I, \mathbf{X}_I
        \right)

    where :math:`\mathbf{S}` keeps the :math:`k + 1` largest entries of each row, the
    node itself among them, :math:`\mathbf{W}_1` and :math:`\mathbf{W}_2` begin as the
    identity, and :math:`\tilde{\mathbf{X}}` are the features without those of the
    hidden set :math:`I`, which is drawn anew at each step. Both networks have two (the
    classifier :obj:`num_layers`) layers :math:`\mathbf{A} \mathbf{H} \mathbf{W} +
    \mathbf{b}`, on a list of edges.

    The paper trains 2,000 epochs, the first 400 with the autoencoder alone, and only
    the classifier with weight decay:

    .. code-block:: python

        optimizer = torch.optim.Adam([
            {'params': model.classifier.parameters(), 'lr': 1e-2, 'weight_decay': 5e-4},
            {'params': model.denoiser.parameters(), 'lr': 1e-3},
            {'params': model.graph_generator.parameters(), 'lr': 1e-3},
        ])
        for epoch in range(2000):
            model.train()
            optimizer.zero_grad()
            if epoch < 400:
                loss = model.denoising_weight * model.denoising_loss(x)
            else:
                loss = model.loss(x, y, train_mask)
            loss.backward()
            optimizer.step()

    Args:
        in_channels (int): Size of each input sample.
        hidden_channels (int): Size of each hidden sample of the classifier.
        num_layers (int): The number of layers of the classifier.
        out_channels (int): Size of each output sample.
        k (int, optional): The number of neighbours beside the node itself.
            (default: :obj:`30`)
        graph_generator (str, optional): The embedding: :obj:`"mlp"`, with square
            weights and a bias, or :obj:`"mlp_d"`, with one weight for each feature,
            which leaves sparse features sparse. (default: :obj:`"mlp"`)
        graph_act (str, optional): Its activation :math:`\sigma`, :obj:`"tanh"` or
            :obj:`"relu"`. (default: :obj:`"tanh"`)
        binary (bool, optional): If :obj:`True`, features are words that occur
            (:math:`x > 0`) or do not, and the loss is the binary cross-entropy of
            hidden ones and of :obj:`negative_ratio` times as many zeros; else it is
            the mean squared error of hidden values. (default: :obj:`True`)
        denoising_weight (float, optional): The weight :math:`\lambda`.
            (default: :obj:`10.0`)
        mask_ratio (float, optional): The ratio :math:`r`: a feature (a word that
            occurs) is hidden with probability :math:`1/r`. (default: :obj:`10.0`)
        negative_ratio (float, optional): The ratio :math:`\eta` of hidden zeros to
            hidden ones. (default: :obj:`5.0`)
        denoising_channels (int, optional): Size of each hidden sample of the
            autoencoder. (default: :obj:`1024`)
        dropout (float or tuple, optional): Dropout probability of hidden samples, or
            one for the autoencoder and one for the classifier. (default: :obj:`0.5`)
        adjacency_dropout (float or tuple, optional): Dropout probability of edges,
            likewise. (default: :obj:`(0.25, 0.5)`)
        task (str, optional): The task, as in :class:`~torch_geometric_gsl.nn.GSLNet`.
            (default: :obj:`"classification"`)

    Shapes:
        - **input:** node features :math:`(|\mathcal{V}|, F_{in})`, dense or sparse
          CSR, batch vector :math:`(|\mathcal{V}|)` *(optional)*
        - **output:** node features :math:`(|\mathcal{V}|, F_{out})`

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range, or features that are
            :obj:`binary` are negative.

    Example:
        >>> model = SLAPS(16, 32, num_layers=2, out_channels=7, k=5, binary=False)
        >>> x, y, mask = torch.randn(100, 16), torch.arange(100) % 7, torch.arange(50)
        >>> model(x).shape, model.loss(x, y, mask).shape
        (torch.Size([100, 7]), torch.Size([]))
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        *,
        k: int = 30,
        graph_generator: str = 'mlp',
        graph_act: str = 'tanh',
        binary: bool = True,
        denoising_weight: float = 10.0,
        mask_ratio: float = 10.0,
        negative_ratio: float = 5.0,
        denoising_channels: int = 1024,
        dropout: float | tuple[float, float] = 0.5,
        adjacency_dropout: float | tuple[float, float] = (0.25, 0.5),
        task: str = 'classification',
    ) -> None:
        super().__init__(
            *(in_channels, hidden_channels, num_layers, out_channels),
            k=k,
            graph_generator=graph_generator,
            graph_act=graph_act,
            dropout=dropout,
            adjacency_dropout=adjacency_dropout,
            task=task,
        )
        check_count(denoising_channels, 'denoising_channels')
        check_flag(binary, 'binary')
        self.binary = binary
        self.denoising_weight = at_least(0, denoising_weight, 'denoising_weight')
        self.mask_ratio = at_least(1, mask_ratio, 'mask_ratio')
        self.negative_ratio = at_least(0, negative_ratio, 'negative_ratio')
        self.denoiser = Denoiser(in_channels, denoising_channels, self.dropout[0])
        self.reset_parameters()

    def reset_parameters(self) -> None:
        r"""Reset all learnable parameters of the module."""
        super().reset_parameters()
        self.denoiser.reset_parameters()

    def denoising_loss(self, x: Tensor, **kwargs: Any) -> Tensor:
        r"""Return the loss :math:`\mathcal{L}_{\mathrm{DAE}}` of the autoencoder alone,
        not weighted; the arguments are those of :meth:`forward`. Features are hidden in
        evaluation mode, too.
        """
        return self._denoise(x, self._edges(x, **kwargs), kwargs.get('generator'))

    def _graph_loss(
        self, x: Tensor, edges: Edges, generator: torch.Generator | None, *labels: Any
    ) -> Tensor:
        return self.denoising_weight * self._denoise(x, edges, generator)

    def _denoise(
        self, x: Tensor, edges: Edges, generator: torch.Generator | None
    ) -> Tensor:
        if self.binary:
            check_words(x)
        masked = self._hide(x, generator)
        if self.training:
            edges = drop_edges(edges, self.adjacency_dropout[0], generator)
        out: Tensor = self.denoiser(masked, edges, generator)
        return restoration_loss(out, masked.target, binary=self.binary)

    def _hide(self, x: Tensor, generator: torch.Generator | None) -> MaskedFeatures:
        negative_ratio = self.negative_ratio if self.binary else None
        return mask_features(x, self.mask_ratio, negative_ratio, generator=generator)
