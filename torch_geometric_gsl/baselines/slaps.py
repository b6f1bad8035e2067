from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torch_geometric_gsl._checks import at_least, check_count
from torch_geometric_gsl.baselines._generated_graph import (
    GeneratedGraphModel,
    Probabilities,
)
from torch_geometric_gsl.nn.self_supervision.layers import Denoiser
from torch_geometric_gsl.ops.edges import Edges


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

    The paper trains 2,000 epochs with Adam, at :obj:`1e-2` with weight decay of
    :obj:`5e-4` for the :obj:`classifier`, and at :obj:`1e-3` for :obj:`denoiser` and
    :obj:`graph_generator`. The first 400 epochs minimise the weighted
    :meth:`denoising_loss` alone, the others :meth:`loss`.

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
        binary (bool, optional): Whether features are words that occur (:math:`x > 0`)
            or do not, as in
            :class:`~torch_geometric_gsl.nn.self_supervision.GraphDenoising`.
            (default: :obj:`True`)
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
        dropout: Probabilities = 0.5,
        adjacency_dropout: Probabilities = (0.25, 0.5),
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
        self.denoising_weight = at_least(0, denoising_weight, 'denoising_weight')
        self.denoiser = Denoiser(
            in_channels,
            denoising_channels,
            binary=binary,
            mask_ratio=mask_ratio,
            negative_ratio=negative_ratio,
            dropout=self.dropout[0],
            adjacency_dropout=self.adjacency_dropout[0],
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        r"""Reset all learnable parameters of the module."""
        super().reset_parameters()
        self.denoiser.reset_parameters()

    def denoising_loss(self, x: Tensor, **kwargs: Any) -> Tensor:
        r"""Return the unweighted loss :math:`\mathcal{L}_{\mathrm{DAE}}` of the
        autoencoder alone; the arguments are those of :meth:`forward`. Features are
        hidden in evaluation mode, too.
        """
        loss: Tensor = self.denoiser(
            x, self._edges(x, **kwargs), kwargs.get('generator')
        )
        return loss

    def _graph_loss(
        self, x: Tensor, edges: Edges, generator: torch.Generator | None, *labels: Any
    ) -> Tensor:
        loss: Tensor = self.denoising_weight * self.denoiser(x, edges, generator)
        return loss
