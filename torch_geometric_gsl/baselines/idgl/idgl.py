from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from torch_geometric_gsl._checks import (
    check_absent,
    check_batch,
    check_count,
    check_generator,
    check_number,
    check_probability,
)
from torch_geometric_gsl.baselines._base import plain_linear
from torch_geometric_gsl.baselines._neighbour_model import NeighbourModel
from torch_geometric_gsl.baselines.idgl.graph import Graph, Mixture, normalized_prior
from torch_geometric_gsl.baselines.idgl.nodes import Nodes
from torch_geometric_gsl.nn.linear import apply_linear
from torch_geometric_gsl.nn.models.layers import check_input
from torch_geometric_gsl.nn.similarity.cosine_similarity import CosineSimilarity
from torch_geometric_gsl.ops.local_random import dropout
from torch_geometric_gsl.typing import SampledGraph

#: Why the model takes no context.
WHOLE = (
    'whose graph is refined as a whole: a new row would change what the others get, so '
    'give old and new rows in one call'
)


class IDGL(NeighbourModel):
    r"""The network of the `"Iterative Deep Graph Learning for Graph Neural Networks:
    Better and Robust Node Embeddings" <https://arxiv.org/abs/2006.13009>`_ paper,
    which learns a graph from embeddings and embeddings from the graph in turn.

    .. math::
        a_{ij}^{(t)} &= \begin{cases} s_{ij} & \textrm{if } s_{ij} > \epsilon \\ 0 &
        \textrm{else} \end{cases}, \qquad s_{ij} = \frac{1}{P} \sum_{p=1}^{P}
        \cos(\mathbf{w}_p \odot \mathbf{v}_i, \mathbf{w}_p \odot \mathbf{v}_j)

        \mathbf{\tilde{A}}^{(t)} &= \lambda \mathbf{L}^{(0)} + (1 - \lambda) \left(
        \eta f(\mathbf{A}^{(t)}) + (1 - \eta) f(\mathbf{A}^{(1)}) \right)

        \mathbf{Z}^{(t)} &= \mathrm{ReLU}( \mathbf{\tilde{A}}^{(t)} \mathbf{X}
        \mathbf{W}_1 ), \qquad \mathbf{\hat{Y}}^{(t)} = \mathbf{\tilde{A}}^{(t)}
        \mathbf{Z}^{(t)} \mathbf{W}_2

    where :math:`\mathbf{v}_i` is the row :math:`\mathbf{x}_i` for :math:`t = 1` and
    the row of :math:`\mathbf{Z}^{(t - 1)}` later, with weights of its own,
    :math:`f` divides rows by their sums, and :math:`\mathbf{L}^{(0)}` is the graph of
    the :obj:`k` nearest neighbours by the cosine of the features, with self-loops and
    weights of 1, normalized as in :class:`~torch_geometric.nn.conv.GCNConv`. The
    iteration ends with :math:`\lVert \mathbf{A}^{(t)} - \mathbf{A}^{(t - 1)}
    \rVert_F^2 \leq \delta \lVert \mathbf{A}^{(1)} \rVert_F^2`, and at the latest with
    :math:`t` equal to :obj:`max_iterations`. The loss of an iteration is

    .. math::
        \mathcal{L}^{(t)} = \mathrm{CE}(\mathbf{\hat{Y}}^{(t)}) + \frac{\alpha}{n^2}
        \mathrm{tr}( \mathbf{X}^{\top} \mathbf{L}^{(t)} \mathbf{X}) - \frac{\beta}{n}
        \mathbf{1}^{\top} \log( \mathbf{A}^{(t)} \mathbf{1}) + \frac{\gamma}{n^2}
        \lVert \mathbf{A}^{(t)} \rVert_F^2

    with the Laplacian :math:`\mathbf{L}^{(t)}` of :math:`\mathbf{A}^{(t)}`;
    :meth:`loss` adds the first one and the mean of the others.

    .. note::
        Hidden samples are not negative, and neither are their cosines. With
        :math:`\epsilon = 0` and without :obj:`batch`, all graphs but the first, and the
        first one of dense features that are not negative either, are therefore products
        of thin matrices: time and memory are linear in the number of nodes, apart from
        the search for the nearest neighbours. Any other graph takes time :math:`n^2`,
        and its weights are computed anew wherever they are needed. Only those that are
        long to compute are stored, such as those of sparse features, and the products
        of such features: :math:`n^2 / 2` of each.

    Args:
        in_channels (int): Size of each input sample.
        hidden_channels (int): Size of each hidden sample.
        num_layers (int): The number of layers, at least 2; graphs are learned from
            the input of the last one.
        out_channels (int): Size of each output sample.
        k (int, optional): The number of neighbours of the graph to start from.
            (default: :obj:`20`)
        num_heads (int, optional): The number of heads :math:`P` of the similarity.
            (default: :obj:`1`)
        skip_weight (float, optional): The share :math:`\lambda` of the graph to start
            from, which is not needed for :obj:`0`. (default: :obj:`0.6`)
        update_weight (float, optional): The share :math:`\eta` of the present graph
            among the learned ones. (default: :obj:`0.5`)
        epsilon (float, optional): Similarities up to this one are no edges, in
            :math:`[0, 1)`. (default: :obj:`0.0`)
        smoothness (float, optional): The factor :math:`\alpha`.
            (default: :obj:`0.4`)
        degree (float, optional): The factor :math:`\beta`. (default: :obj:`0.0`)
        sparsity (float, optional): The factor :math:`\gamma`. (default: :obj:`0.2`)
        delta (float, optional): The relative change :math:`\delta` that ends the
            iteration. (default: :obj:`0.001`)
        max_iterations (int, optional): The largest number of learned graphs.
            (default: :obj:`10`)
        dropout (float, optional): Dropout probability of the hidden samples of the
            first iteration. (default: :obj:`0.5`)
        iteration_dropout (float, optional): That of later iterations. Graphs that are
            learned from hidden samples with dropout keep changing.
            (default: :obj:`0.0`)
        cached (bool, optional): If :obj:`True`, the nearest neighbours of the first
            input serve all later ones, until :meth:`reset_parameters`: for one set of
            nodes whose features and :obj:`batch` stay as they are. Products of features
            that the loss needs are then stored for as long as these exist.
            (default: :obj:`False`)
        task (str, optional): What the model tells of a node, as in
            :class:`~torch_geometric_gsl.nn.GSLNet`.
            (default: :obj:`"classification"`)

    Shapes:
        - **input:** node features :math:`(|\mathcal{V}|, F_{in})`, dense or sparse
          CSR, edges :math:`(2, |\mathcal{E}|)` *(optional)*, batch vector
          :math:`(|\mathcal{V}|)` *(optional)*, edge weights
          :math:`(|\mathcal{E}|)` *(optional)*
        - **output:** node features :math:`(|\mathcal{V}|, F_{out})`

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.

    Example:
        >>> model = IDGL(16, 32, num_layers=2, out_channels=7)
        >>> model(torch.randn(100, 16)).shape
        torch.Size([100, 7])
    """

    shown: tuple[str, ...] = ('k',)

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
        iteration_dropout: float = 0.0,
        cached: bool = False,
        task: str = 'classification',
    ) -> None:
        check_count(in_channels, 'in_channels')
        check_count(num_layers, 'num_layers', minimum=2)
        sizes = in_channels, hidden_channels, num_layers, out_channels
        super().__init__(*sizes, k=k, cached=cached, task=task)
        self.num_heads, self.epsilon = num_heads, epsilon
        self.skip_weight, self.update_weight = skip_weight, update_weight
        self.smoothness, self.degree, self.sparsity = smoothness, degree, sparsity
        self.delta, self.max_iterations = delta, max_iterations
        self.dropout, self.iteration_dropout = dropout, iteration_dropout
        _check_options(self)
        self.lins = torch.nn.ModuleList(map(plain_linear, self.sizes))
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
        context: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        r"""Run the forward pass, and return the logits of the last iteration.

        Args:
            x (torch.Tensor): The node features, dense or sparse CSR.
            edge_index (torch.Tensor, optional): If given, this graph is the one to
                start from, in place of that of the nearest neighbours: it does not
                limit the graphs that are learned. (default: :obj:`None`)
            edge_weight (torch.Tensor, optional): The weights of :obj:`edge_index`,
                not negative; ones if :obj:`None`. (default: :obj:`None`)
            batch (torch.Tensor, optional): Sorted graph ids of the nodes: no learned
                edge joins two graphs, and all graphs end the iteration together.
                (default: :obj:`None`)
            context (None, optional): Not supported: a new row would change what the
                others get. (default: :obj:`None`)
            generator (torch.Generator, optional): Source of randomness of dropout, and
                of the anchors in training mode, if there are any; the global one if
                :obj:`None`. (default: :obj:`None`)
        """
        args = edge_index, edge_weight, batch, generator
        for out, _, _ in self._iterate(x, *args, context=context):
            last = out
        return last

    def loss(
        self, x: Tensor, y: Tensor, mask: Tensor | None = None, **kwargs: Any
    ) -> Tensor:
        r"""Return the loss of the first iteration plus the mean of the later ones.

        Args:
            x (torch.Tensor): The node features, dense or sparse CSR.
            y (torch.Tensor): The labels :math:`[|\mathcal{V}|]`.
            mask (torch.Tensor, optional): The labelled nodes, as a boolean mask or as
                indices; all nodes if :obj:`None`. (default: :obj:`None`)
            **kwargs (optional): Additional arguments of :meth:`forward`.

        Returns:
            torch.Tensor: The loss, a scalar.
        """
        losses = []
        factors = self.smoothness, self.degree, self.sparsity
        steps = self._iterate(x, **kwargs, is_smooth=self.smoothness > 0)
        for out, graph, nodes in steps:
            value = self._label_loss(out, y, mask)
            if any(factors):
                with torch.autocast(x.device.type, enabled=False):
                    value = value + graph.penalty(nodes.square, factors)
            losses.append(value)
        first, *later = losses
        return first + torch.stack(later).mean() if later else first

    def graphs(
        self,
        x: Tensor,
        edge_index: Tensor | None = None,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        *,
        context: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> list[SampledGraph]:
        r"""Return the graphs that are learned, without the one to start from.

        Args:
            x (torch.Tensor): The node features, dense or sparse CSR.
            edge_index (torch.Tensor, optional): The graph to start from.
                (default: :obj:`None`)
            edge_weight (torch.Tensor, optional): The weights of :obj:`edge_index`.
                (default: :obj:`None`)
            batch (torch.Tensor, optional): Sorted graph ids of the nodes.
                (default: :obj:`None`)
            context (None, optional): Not supported: a new row would change what the
                others get. (default: :obj:`None`)
            generator (torch.Generator, optional): Source of randomness of the anchors.
                (default: :obj:`None`)

        Returns:
            list: The graph :math:`f(\mathbf{A}^{(t)})` of each iteration, sorted by
            target, as a :class:`~torch_geometric_gsl.typing.SampledGraph`.
        """
        args = edge_index, edge_weight, batch, generator
        steps = self._iterate(x, *args, context=context)
        return [graph.edges(nodes.anchors, x.dtype) for _, graph, nodes in steps]

    def _iterate(
        self,
        x: Tensor,
        edge_index: Tensor | None = None,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        generator: torch.Generator | None = None,
        *,
        context: Tensor | None = None,
        is_smooth: bool = False,
    ) -> Iterator[tuple[Tensor, Graph, Nodes]]:
        """Yield the logits, the graph and the nodes until the graph stays as it is."""
        lins: Any = self.lins
        metrics: Any = self.metrics
        check_input(x, lins[0])
        check_absent(context, 'context', f'for {type(self).__name__}, {WHOLE}')
        check_generator(generator, x.device)
        if batch is not None:
            check_batch(batch, x)
        anchors = self._anchors(x, generator)
        nodes = Nodes(
            x, batch, anchors, self.epsilon, is_smooth=is_smooth, cached=self.cached
        )
        prior = None
        if self.skip_weight > 0 or edge_index is not None or edge_weight is not None:
            graph = self._graph(x, edge_index, batch, edge_weight, None)
            prior = normalized_prior(graph, x.size(0))
        # Along the first graph later layers send messages in all iterations.
        widths = [lin.out_channels for lin in lins]
        every = widths + (self.max_iterations - 1) * widths[1:]
        first = last = nodes.learn(metrics[0], x, every)
        start = apply_linear(lins[0], x)
        mixture = Mixture(prior, first, start, self.skip_weight, self.update_weight)
        h, out = self._embed(mixture, first, self.dropout, generator)
        yield out, first, nodes
        for _ in range(1, self.max_iterations):
            learned = nodes.learn(metrics[1], h, widths)
            h, out = self._embed(mixture, learned, self.iteration_dropout, generator)
            yield out, learned, nodes
            with torch.autocast(x.device.type, enabled=False):
                change = learned.change(last)
            if bool(change <= self.delta * first.size):
                return
            last = learned

    def _embed(
        self,
        mixture: Mixture,
        graph: Graph,
        probability: float,
        generator: torch.Generator | None,
    ) -> tuple[Tensor, Tensor]:
        """Return the input and the output of the last layer."""
        out = mixture.propagate(mixture.start, graph)
        for lin in self.lins[1:]:
            h = dropout(out.relu(), probability, self.training, generator)
            out = mixture.propagate(lin(h), graph)
        return h, out

    def _anchors(self, x: Tensor, generator: torch.Generator | None) -> Tensor | None:
        """Return the nodes that are sources of the learned graphs; all if None."""
        return None


def _check_options(model: IDGL) -> None:
    """Raise unless all numbers that are neither sizes nor neighbours are in range."""
    check_count(model.num_heads, 'num_heads')
    check_count(model.max_iterations, 'max_iterations')
    for name in ('skip_weight', 'epsilon', 'dropout', 'iteration_dropout'):
        check_probability(getattr(model, name), name)
    check_number(model.update_weight, 'update_weight')
    if not 0 <= model.update_weight <= 1:
        raise ValueError(
            f"'update_weight' must lie in [0, 1] (got {model.update_weight})"
        )
    for name in ('smoothness', 'degree', 'sparsity', 'delta'):
        value = getattr(model, name)
        # An infinite change ends the iteration at once.
        if name != 'delta' or not isinstance(value, float):
            check_number(value, name)
        if not value >= 0:
            raise ValueError(f"'{name}' must not be negative (got {value})")
