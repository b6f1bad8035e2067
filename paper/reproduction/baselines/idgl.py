from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from reproduction.baselines._learned_graph import (
    LearnedGraph,
    normalized_prior,
    source_features,
)
from reproduction.baselines.knn_gcn import NeighbourModel
from torch_geometric_gsl._checks import (
    at_least,
    check_batch,
    check_count,
    check_probability,
)
from torch_geometric_gsl.nn.linear import apply_linear, plain_linear
from torch_geometric_gsl.nn.similarity.linear_similarity import CosineSimilarity
from torch_geometric_gsl.ops.generators import dropout
from torch_geometric_gsl.typing import SampledGraph

#: Messages of nodes along the first learned graph, and along the initial graph.
Fixed = tuple[Tensor, Tensor | None]


class IDGL(NeighbourModel):
    r"""The network of the `"Iterative Deep Graph Learning for Graph Neural Networks:
    Better and Robust Node Embeddings" <https://arxiv.org/abs/2006.13009>`_ paper,
    which alternately learns a graph from embeddings and embeddings from the graph.

    .. math::
        a_{ij}^{(t)} &= \begin{cases} s_{ij} & \textrm{if } s_{ij} > \epsilon \\ 0 &
        \textrm{else} \end{cases}, \qquad s_{ij} = \frac{1}{P} \sum_{p=1}^{P}
        \cos(\mathbf{w}_p \odot \mathbf{v}_i, \mathbf{w}_p \odot \mathbf{v}_j)

        \mathbf{\tilde{A}}^{(t)} &= \lambda \mathbf{L}^{(0)} + (1 - \lambda) \left(
        \eta f(\mathbf{A}^{(t)}) + (1 - \eta) f(\mathbf{A}^{(1)}) \right)

        \mathbf{Z}^{(t)} &= \mathrm{ReLU}( \mathbf{\tilde{A}}^{(t)} \mathbf{X}
        \mathbf{W}_1 ), \qquad \mathbf{\hat{Y}}^{(t)} = \mathbf{\tilde{A}}^{(t)}
        \mathbf{Z}^{(t)} \mathbf{W}_2

    where :math:`\mathbf{v}_i` is :math:`\mathbf{x}_i` for :math:`t = 1` and
    :math:`\mathbf{z}_i^{(t - 1)}`, with other weights :math:`\mathbf{w}_p`, later,
    :math:`f` divides rows by their sums, and :math:`\mathbf{L}^{(0)}` is the graph of
    the :obj:`k` nearest neighbours by the cosine of the features, normalized as in
    :class:`~torch_geometric.nn.conv.GCNConv`. The iteration ends with
    :math:`\lVert \mathbf{A}^{(t)} - \mathbf{A}^{(t - 1)} \rVert_F^2 \leq \delta \lVert
    \mathbf{A}^{(1)} \rVert_F^2`, or after :obj:`max_iterations`. The loss of an
    iteration is

    .. math::
        \mathcal{L}^{(t)} = \mathrm{CE}(\mathbf{\hat{Y}}^{(t)}) + \frac{\alpha}{n^2}
        \mathrm{tr}( \mathbf{X}^{\top} \mathbf{L}^{(t)} \mathbf{X}) - \frac{\beta}{n}
        \mathbf{1}^{\top} \log( \mathbf{A}^{(t)} \mathbf{1}) + \frac{\gamma}{n^2}
        \lVert \mathbf{A}^{(t)} \rVert_F^2

    with the Laplacian :math:`\mathbf{L}^{(t)}` of :math:`\mathbf{A}^{(t)}`;
    :meth:`loss` adds the first one and the mean of the others. A graph takes time
    and memory :math:`n^2`; with :math:`\epsilon = 0` and without :obj:`batch` only the
    first graph takes them, and all others are products of thin matrices.

    Args:
        in_channels (int): Size of each input sample.
        hidden_channels (int): Size of each hidden sample.
        num_layers (int): Number of layers, at least 2; input of the last is compared.
        out_channels (int): Size of each output sample.
        k (int, optional): The number of nearest neighbours. (default: :obj:`20`)
        num_heads (int, optional): The number of heads :math:`P`. (default: :obj:`1`)
        skip_weight (float, optional): The weight :math:`\lambda` of the graph of
            nearest neighbours, not needed for :obj:`0`. (default: :obj:`0.6`)
        update_weight (float, optional): The weight :math:`\eta` of the current graph
            among the learned ones. (default: :obj:`0.5`)
        epsilon (float, optional): The threshold :math:`\epsilon`, in :math:`[0, 1)`.
            (default: :obj:`0.0`)
        smoothness (float, optional): The factor :math:`\alpha`. (default: :obj:`0.4`)
        degree (float, optional): The factor :math:`\beta`. (default: :obj:`0.0`)
        sparsity (float, optional): The factor :math:`\gamma`. (default: :obj:`0.2`)
        delta (float, optional): The relative change :math:`\delta` that ends the
            iteration. (default: :obj:`0.001`)
        max_iterations (int, optional): Largest number of graphs. (default: :obj:`10`)
        dropout (float, optional): Dropout probability of the first iteration; later
            ones have none. (default: :obj:`0.5`)
        cached (bool, optional): If :obj:`True`, the nearest neighbours of the first
            input are used for all later ones. (default: :obj:`False`)
        task (str, optional): As in GSLNet. (default: :obj:`"classification"`)

    Shapes:
        - **input and output:** as in :class:`~reproduction.baselines.KNNGCN`

    Raises:
        ValueError: If an argument is out of range.

    Example:
        >>> model = IDGL(16, 32, num_layers=2, out_channels=7)
        >>> model(torch.randn(100, 16)).shape
        torch.Size([100, 7])
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        *,
        k: int = 20,
        num_heads: int = 1,
        skip_weight: float = 0.6,
        update_weight: float = 0.5,
        epsilon: float = 0.0,
        smoothness: float = 0.4,
        degree: float = 0.0,
        sparsity: float = 0.2,
        delta: float = 1e-3,
        max_iterations: int = 10,
        dropout: float = 0.5,
        cached: bool = False,
        task: str = 'classification',
    ) -> None:
        check_count(in_channels, 'in_channels')
        check_count(num_layers, 'num_layers', minimum=2)
        sizes = in_channels, hidden_channels, num_layers, out_channels
        super().__init__(*sizes, k=k, cached=cached, task=task)
        check_count(num_heads, 'num_heads')
        check_count(max_iterations, 'max_iterations')
        self.num_heads = num_heads
        self.epsilon = epsilon
        self.skip_weight = skip_weight
        self.update_weight = update_weight
        self.smoothness = smoothness
        self.degree = degree
        self.sparsity = sparsity
        self.delta = delta
        self.max_iterations = max_iterations
        self.dropout = dropout
        for name in ('skip_weight', 'epsilon', 'dropout'):
            check_probability(getattr(self, name), name)
        for name in ('update_weight', 'smoothness', 'degree', 'sparsity', 'delta'):
            at_least(0, getattr(self, name), name)
        if update_weight > 1:
            raise ValueError(
                f"'update_weight' must lie in [0, 1] (got {update_weight})"
            )
        self.lins = torch.nn.ModuleList(plain_linear(*size) for size in self.sizes)
        self.metrics = torch.nn.ModuleList(
            CosineSimilarity(width, heads=num_heads)
            for width in (in_channels, hidden_channels)
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        for module in (*self.lins, *self.metrics):
            module.reset_parameters()

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | None = None,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        *,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        r"""Run the forward pass, and return the logits of the last iteration; the
        arguments are those of
        :meth:`~reproduction.baselines.KNNGCN.forward`.

        A given graph replaces the nearest neighbours and does not limit the learned
        graphs; the iteration ends for all graphs of a :obj:`batch` together.
        """
        *_, (out, _) = self._iterate(
            x, edge_index, edge_weight, batch, generator=generator
        )
        return out

    def loss(
        self, x: Tensor, y: Tensor, mask: Tensor | None = None, **kwargs: Any
    ) -> Tensor:
        r"""Compute the loss of the first iteration plus the mean of later ones; the
        arguments are those of :meth:`~torch_geometric_gsl.nn.NodeClassifier.loss`.
        """
        losses = []
        features = None
        factors = self.smoothness, self.degree, self.sparsity
        for out, graph in self._iterate(x, **kwargs):
            value = self._label_loss(out, y, mask)
            if self.smoothness > 0 and features is None:
                features = source_features(x, graph.anchors)
            if any(factors):
                value = value + graph.penalty(features, factors)
            losses.append(value)
        initial_loss, *later = losses
        return initial_loss + torch.stack(later).mean() if later else initial_loss

    def graphs(self, x: Tensor, *args: Any, **kwargs: Any) -> list[SampledGraph]:
        r"""Return the learned graph :math:`f(\mathbf{A}^{(t)})` of each iteration,
        sorted by target; the arguments are those of :meth:`forward`.
        """
        steps = self._iterate(x, *args, **kwargs)
        return [graph.edges(x.dtype) for _, graph in steps]

    def _iterate(
        self,
        x: Tensor,
        edge_index: Tensor | None = None,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        *,
        generator: torch.Generator | None = None,
    ) -> Iterator[tuple[Tensor, LearnedGraph]]:
        """Yield logits and graph of each iteration until the graph has converged."""
        lins: Any = self.lins
        self._check_input(x, lins[0], generator)
        if batch is not None:
            check_batch(batch, x)
        anchors = self._anchors(x, generator)
        prior = None
        if self.skip_weight > 0 or edge_index is not None or edge_weight is not None:
            edges = self._graph(x, edge_index, edge_weight, batch)
            prior = normalized_prior(edges, x.size(0))
        initial = self._learn(x, 0, anchors, batch)

        def fixed(h: Tensor) -> Fixed:
            return initial.propagate(h), None if prior is None else prior.sum(h)

        start = apply_linear(lins[0], x)
        of_start = fixed(start)
        limit = self.delta * initial.size
        graph = initial
        probability = self.dropout
        h = x
        for step in range(self.max_iterations):
            if step > 0:
                last = graph
                probability = 0.0
                graph = self._learn(h, 1, anchors, batch)
            out = self._mix(of_start, start, initial, graph)
            for lin in lins[1:]:
                h = dropout(out.relu(), probability, self.training, generator)
                out = lin(h)
                out = self._mix(fixed(out), out, initial, graph)
            yield out, graph
            if step > 0 and bool(graph.change(last) <= limit):
                return

    def _learn(
        self, h: Tensor, metric_index: int, anchors: Tensor | None, batch: Tensor | None
    ) -> LearnedGraph:
        """Learn the graph from similarities of features, or of hidden samples."""
        metric: Any = self.metrics[metric_index]
        # Hidden samples are not negative, and neither are their similarities.
        is_exact = metric_index == 1 and self.epsilon == 0 and batch is None
        epsilon = None if is_exact else self.epsilon
        return LearnedGraph(metric, h, anchors, batch, epsilon)

    def _mix(
        self, fixed: Fixed, h: Tensor, initial: LearnedGraph, graph: LearnedGraph
    ) -> Tensor:
        """Mix the messages of a layer along all graphs."""
        learned, before = fixed
        if graph is not initial:
            learned = torch.lerp(learned, graph.propagate(h), self.update_weight)
        if before is None:
            return learned
        return torch.lerp(learned, before, self.skip_weight)

    def _anchors(self, x: Tensor, generator: torch.Generator | None) -> Tensor | None:
        """Return the nodes that are sources of the learned graphs; all if None."""
        return None


class IDGLAnchor(IDGL):
    r"""The network of the `"Iterative Deep Graph Learning for Graph Neural Networks:
    Better and Robust Node Embeddings" <https://arxiv.org/abs/2006.13009>`_ paper with
    anchors: all messages pass through a subset of the nodes.

    .. math::
        f(\mathbf{A}^{(t)}) \, \mathbf{H} \; \to \; \mathbf{D}_r^{-1} \mathbf{R}^{(t)}
        \left( \mathbf{D}_c^{-1} {\mathbf{R}^{(t)}}^{\top} \mathbf{H} \right)

    where :math:`\mathbf{R}^{(t)}` holds the similarities of :math:`n` nodes and
    :math:`s` anchors, and :math:`\mathbf{D}_r` and :math:`\mathbf{D}_c` are the sums of
    its rows and columns. The rest is as in :class:`IDGL`, with :math:`\mathbf{R}^{(t)}`
    in the rule that ends the iteration, and the graph of the anchors
    :math:`{\mathbf{R}^{(t)}}^{\top} \mathbf{D}_r^{-1} \mathbf{R}^{(t)}` and their
    features in the loss. Time and memory are linear in :math:`n`, apart from the
    search for the nearest neighbours.

    In training mode, each forward pass samples new anchors. In evaluation mode, anchors
    are fixed for each number of nodes, by a seed that :meth:`reset_parameters` draws
    and the :obj:`state_dict` holds. In a batch, nodes of a graph without anchors
    receive messages along the graph of neighbours only.

    .. note::
        The weights of the graph of the anchors grow like :math:`n / s`, so that the
        factors of its smoothness and sparsity are zero by default. To give them the
        weight that they have in :class:`IDGL`, multiply :math:`\alpha` by :math:`s / n`
        and :math:`\gamma` by :math:`(s / n)^2`.

    Args:
        in_channels (int): Size of each input sample.
        hidden_channels (int): Size of each hidden sample.
        num_layers (int): The number of layers, at least 2.
        out_channels (int): Size of each output sample.
        num_anchors (int, optional): The number of anchors :math:`s`; all nodes, if
            there are fewer. (default: :obj:`500`)
        smoothness (float, optional): The factor :math:`\alpha`. (default: :obj:`0.0`)
        sparsity (float, optional): The factor :math:`\gamma`. (default: :obj:`0.0`)
        **kwargs (optional): Additional arguments of :class:`IDGL`.

    Shapes:
        - **input and output:** as in :class:`IDGL`

    Raises:
        ValueError: If an argument is out of range.

    Example:
        >>> model = IDGLAnchor(16, 32, num_layers=2, out_channels=7, num_anchors=10)
        >>> model(torch.randn(100, 16)).shape
        torch.Size([100, 7])
    """

    anchor_seed: Tensor

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        *,
        num_anchors: int = 500,
        smoothness: float = 0.0,
        sparsity: float = 0.0,
        **kwargs: Any,
    ) -> None:
        check_count(num_anchors, 'num_anchors')
        sizes = in_channels, hidden_channels, num_layers, out_channels
        super().__init__(*sizes, smoothness=smoothness, sparsity=sparsity, **kwargs)
        self.num_anchors = num_anchors
        self.num_kept = num_anchors
        self.kept_seed: int | None = None
        self.register_buffer('anchor_seed', torch.zeros((), dtype=torch.long))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if hasattr(self, 'anchor_seed'):
            self.anchor_seed.random_(2**31)

    def keep_anchors(self, num_kept: int, seed: int | None = None) -> None:
        r"""Keep only some of the anchors in evaluation mode.

        Args:
            num_kept (int): The number of anchors that are kept, at most
                :obj:`num_anchors`.
            seed (int, optional): If given, the kept anchors are sampled with this
                seed, fewer ones as a subset of more; if :obj:`None`, they are the first
                ones. (default: :obj:`None`)
        """
        check_count(num_kept, 'num_kept')
        if num_kept > self.num_anchors:
            raise ValueError(
                f"'num_kept' must be at most {self.num_anchors} (got {num_kept})"
            )
        if seed is not None:
            check_count(seed, 'seed', minimum=0)
        self.num_kept = num_kept
        self.kept_seed = seed

    def _anchors(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        if self.training:
            order = torch.randperm(x.size(0), generator=generator, device=x.device)
            return order[: self.num_anchors].sort().values
        anchors = _order(x.size(0), int(self.anchor_seed))[: self.num_anchors]
        if self.kept_seed is not None:
            anchors = anchors[_order(anchors.numel(), self.kept_seed)]
        return anchors[: self.num_kept].sort().values.to(x.device)


def _order(size: int, seed: int) -> Tensor:
    """Return the random order of a size and a seed."""
    return torch.randperm(size, generator=torch.Generator().manual_seed(seed))
