from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from reproduction.baselines._generated_graph import (
    GeneratedGraphModel,
    Probabilities,
)
from reproduction.self_supervision.networks import Denoiser
from torch_geometric_gsl._checks import at_least, check_count
from torch_geometric_gsl.nn.models.tasks import masked_labels, node_mask
from torch_geometric_gsl.ops.edges import Edges
from torch_geometric_gsl.ops.runtime import full_precision


class SLAPS(GeneratedGraphModel):
    r"""The model of the `"SLAPS: Self-Supervision Improves Structure Learning for
    Graph Neural Networks" <https://arxiv.org/abs/2102.05034>`_ paper: a generator whose
    graph feeds a classifier and a denoising autoencoder.

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
    node itself among them, :math:`\mathbf{W}_1` and :math:`\mathbf{W}_2` start as the
    identity, and :math:`\mathcal{L}_{\mathrm{DAE}}` is the mean loss of the masked
    features :math:`I`: the cross-entropy of :obj:`binary` ones, else the squared error.

    The paper trains 2,000 epochs with Adam, at :obj:`1e-2` with weight decay of
    :obj:`5e-4` for the :obj:`classifier`, and at :obj:`1e-3` for :obj:`denoiser` and
    :obj:`graph_generator`. The first 400 epochs minimise only the weighted
    :meth:`denoising_loss`, the others :meth:`loss`.

    Args:
        in_channels (int): Size of each input sample.
        hidden_channels (int): Size of each hidden sample of the classifier.
        num_layers (int): The number of layers of the classifier.
        out_channels (int): Size of each output sample.
        k (int, optional): The number of neighbours besides the node itself.
            (default: :obj:`30`)
        graph_generator (str, optional): The embedding: :obj:`"mlp"`, with square
            weights and a bias, or :obj:`"mlp_d"`, with one weight for each feature,
            which leaves sparse features sparse. (default: :obj:`"mlp"`)
        graph_act (str, optional): Its activation :math:`\sigma`, :obj:`"tanh"` or
            :obj:`"relu"`. (default: :obj:`"tanh"`)
        binary (bool, optional): If :obj:`True`, features are words that occur
            (:math:`x > 0`) or not. (default: :obj:`True`)
        denoising_weight (float, optional): The weight :math:`\lambda`.
            (default: :obj:`10.0`)
        mask_ratio (float, optional): The ratio :math:`r`: a feature (a word that
            occurs) is masked with probability :math:`1/r`. (default: :obj:`10.0`)
        negative_ratio (float, optional): The ratio :math:`\eta` of masked zeros to
            masked ones. (default: :obj:`5.0`)
        denoising_channels (int, optional): Hidden size of the autoencoder.
            (default: :obj:`1024`)
        dropout (float or tuple, optional): Dropout probability of hidden samples, or
            one for the autoencoder and one for the classifier. (default: :obj:`0.5`)
        adjacency_dropout (float or tuple, optional): Dropout probability of edges,
            likewise. (default: :obj:`(0.25, 0.5)`)
        task (str, optional): As in GSLNet. (default: :obj:`"classification"`)

    Shapes:
        - **input and output:** as in
          :class:`~reproduction.baselines.KNNGCN`, without edges

    Raises:
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
        r"""Compute only the unweighted loss :math:`\mathcal{L}_{\mathrm{DAE}}` of the
        autoencoder; the arguments are those of :meth:`forward`. Features are
        masked in evaluation mode, too.
        """
        edges = self._edges(x, **kwargs)
        generator = kwargs.get('generator')
        loss: Tensor = self.denoiser(x, edges, generator)
        return loss

    def _graph_loss(
        self, x: Tensor, edges: Edges, generator: torch.Generator | None, *labels: Any
    ) -> Tensor:
        loss: Tensor = self.denoising_weight * self.denoiser(x, edges, generator)
        return loss


class HESGSL(SLAPS):
    r"""The model of the `"Homophily-Enhanced Self-supervision for Graph Structure
    Learning: Insights and Directions" <https://doi.org/10.1109/TNNLS.2023.3257325>`_
    paper: :class:`SLAPS` with a homophily loss of the graph. Labels and predictions
    should not change when they are propagated along the graph.

    .. math::
        \hat{y}_i &= \begin{cases} y_i & \text{where } i \text{ is labelled} \\
        \arg\max_c \mathrm{GCN}_{\mathrm{C}} (\mathbf{X}, \mathbf{A})_{ic} &
        \text{elsewhere} \end{cases}

        \mathcal{L}_{\mathrm{HES}} &= - \frac{1}{n C} \sum_{i=1}^{n} \left( \log \,
        \mathrm{softmax} \left( \mathbf{A}^h \hat{\mathbf{Y}} \right)
        \right)_{i \hat{y}_i}

        \mathcal{L} &= \mathcal{L}_{\mathrm{class}} + \alpha \,
        \mathcal{L}_{\mathrm{DAE}} + \beta \, \mathcal{L}_{\mathrm{HES}}

    where :math:`C` is the number of classes, and :math:`\hat{\mathbf{Y}}` has a one in
    each row, in the column :math:`\hat{y}_i`. Pseudo-labels are constants, predicted
    and propagated without dropout, so that
    :math:`\mathcal{L}_{\mathrm{HES}}` trains only the graph generator.

    The authors train like those of SLAPS, with :obj:`model.homophily_weight = 0` in the
    first 500 epochs, and stop after 200 epochs without a better validation accuracy.
    The defaults are their settings for CiteSeer, with 32 hidden channels. For Cora they
    set :obj:`negative_ratio=15`, :obj:`num_hops=10`, :obj:`dropout=0.6` and
    :obj:`adjacency_dropout=0.25`; for PubMed 64 hidden and 512 denoising channels,
    :math:`k = 20`, :obj:`mask_ratio=5`, :obj:`negative_ratio=5`, :obj:`num_hops=10`,
    :obj:`denoising_weight=5`, :obj:`dropout=0.4`, :obj:`adjacency_dropout=0.3`, and
    :obj:`1e-2` as every learning rate.

    .. note::
        As in the released code, words that are :obj:`binary` are not masked in the
        autoencoder, which only predicts the entries that SLAPS would mask; other
        features are masked.

    Args:
        in_channels (int): Size of each input sample.
        hidden_channels (int): Size of each hidden sample of the classifier.
        num_layers (int): The number of layers of the classifier.
        out_channels (int): Size of each output sample.
        graph_act (str, optional): As in :class:`SLAPS`. (default: :obj:`"relu"`)
        denoising_weight (float, optional): Weight :math:`\alpha`. (default: :obj:`8.0`)
        negative_ratio (float, optional): As in :class:`SLAPS`. (default: :obj:`10.0`)
        homophily_weight (float, optional): Weight :math:`\beta`. (default: :obj:`1.0`)
        num_hops (int, optional): The number :math:`h` of hops. (default: :obj:`1`)
        adjacency_dropout (float or tuple, optional): As in :class:`SLAPS`.
            (default: :obj:`0.2`)
        **kwargs (optional): Additional arguments of :class:`SLAPS`.

    Shapes:
        - **input and output:** as in :class:`SLAPS`

    Raises:
        ValueError: If an argument is out of range, or features that are
            :obj:`binary` are negative.

    Example:
        >>> model = HESGSL(16, 32, num_layers=2, out_channels=7, k=5, binary=False)
        >>> x, y, mask = torch.randn(100, 16), torch.arange(100) % 7, torch.arange(50)
        >>> model.loss(x, y, mask).shape, model.homophily_loss(x, y, mask).shape
        (torch.Size([]), torch.Size([]))
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        *,
        graph_act: str = 'relu',
        denoising_weight: float = 8.0,
        negative_ratio: float = 10.0,
        homophily_weight: float = 1.0,
        num_hops: int = 1,
        adjacency_dropout: Probabilities = 0.2,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            *(in_channels, hidden_channels, num_layers, out_channels),
            graph_act=graph_act,
            denoising_weight=denoising_weight,
            negative_ratio=negative_ratio,
            adjacency_dropout=adjacency_dropout,
            **kwargs,
        )
        self.denoiser.sees_hidden = self.denoiser.binary
        check_count(num_hops, 'num_hops')
        self.num_hops = num_hops
        self.homophily_weight = at_least(0, homophily_weight, 'homophily_weight')
        if self.task != 'classification' and self.homophily_weight > 0:
            raise ValueError(
                f"'homophily_weight' must be 0 with task={self.task!r}, which has no "
                f'classes (got {homophily_weight})'
            )

    def homophily_loss(
        self, x: Tensor, y: Tensor, mask: Tensor | None = None, **kwargs: Any
    ) -> Tensor:
        r"""Compute only the unweighted loss :math:`\mathcal{L}_{\mathrm{HES}}` of the
        graph, which is deterministic; the arguments are those of :meth:`loss`.
        """
        return self._propagate(x, self._edges(x, **kwargs), y, mask)

    def _graph_loss(
        self, x: Tensor, edges: Edges, generator: torch.Generator | None, *labels: Any
    ) -> Tensor:
        loss = super()._graph_loss(x, edges, generator)
        if self.homophily_weight == 0:
            return loss
        return loss + self.homophily_weight * self._propagate(x, edges, *labels)

    def _propagate(
        self, x: Tensor, edges: Edges, y: Tensor, mask: Tensor | None
    ) -> Tensor:
        """Compare pseudo-labels with their sums along the graph after some hops."""
        with torch.no_grad():
            out = self._classify(x, edges, None, drop=False)
            label = out.argmax(dim=1)
            mask = node_mask(mask, out)
            label[mask] = masked_labels(out, y, mask)
            arrived = full_precision(F.one_hot(label, self.out_channels).to(x.dtype))
        for _ in range(self.num_hops):
            arrived = edges.sum(arrived)
        loss = F.cross_entropy(arrived, label) / self.out_channels
        return loss.to(x.dtype)
