"""Networks on given graphs, their training and their mixture."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.sparse.linalg import eigsh
from torch import Tensor
from torch.nn import functional as F
from torch_geometric import seed_everything
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import (
    coalesce,
    cumsum,
    degree,
    scatter,
    to_scipy_sparse_matrix,
)

from reproduction.attacked_data import Split
from torch_geometric_gsl.nn.linear import entries_by_row
from torch_geometric_gsl.ops.neighbours import Neighbours, neighbour_sum
from torch_geometric_gsl.typing import SampledGraph

#: Every number that results depend on.
SETTING: dict[str, Any] = {
    'hidden_channels': 32,
    'dropout': 0.5,
    'lr': 0.01,
    'weight_decay': 5e-4,
    'epochs': 200,
    'patience': 50,
    # Number of nearest rows per node.
    'k': 10,
    # Filters keep only edges with a larger cosine, or Jaccard index.
    'cosines': [0.02, 0.05, 0.1, 0.15],
    'jaccards': [0.0, 0.02, 0.05],
    # The filters of the networks that are mixed.
    'mixed_cosines': [0.05, 0.1],
    # Numbers of eigenvectors of the normalised adjacency in a low-rank GCN.
    'ranks': [10, 50],
    'heads': 4,
    'revision': 2,
}


#: Function that sums rows along a graph.
Graph = Callable[[Tensor], Tensor]


def sums(edge_index: Tensor, weight: Tensor, num_nodes: int) -> Graph:
    """Return the sum along weighted edges; weights of duplicate edges are added."""
    edge_index, weight = coalesce(edge_index, weight, sort_by_row=False)
    offsets = cumsum(degree(edge_index[1], num_nodes, torch.long))
    neighbours = Neighbours(edge_index[0].contiguous(), num_nodes, offsets)
    return lambda h: neighbour_sum(h, weight, neighbours)


def gcn(graph: SampledGraph, num_nodes: int) -> Graph:
    """Return a graph with self-loops, normalised by the degrees of both ends."""
    edge_index, weight = gcn_norm(*graph, num_nodes=num_nodes)
    return sums(edge_index, weight, num_nodes)


def low_rank(graph: SampledGraph, num_nodes: int, rank: int) -> Graph:
    """Return the graph of a GCN with only its eigenvalues of largest magnitude.

    The defence of `Entezari et al. <https://doi.org/10.1145/3336191.3371789>`_
    """
    edge_index, weight = gcn_norm(*graph, num_nodes=num_nodes)
    adjacency = to_scipy_sparse_matrix(edge_index, weight.double(), num_nodes)
    start = np.random.default_rng(0).standard_normal(num_nodes)
    values, vectors = map(torch.from_numpy, eigsh(adjacency, rank, v0=start))
    values, vectors = values.float()[:, None], vectors.float()
    return lambda h: vectors @ (values * (vectors.T @ h))


def mean(graph: SampledGraph, num_nodes: int, least: float = 1e-9) -> Graph:
    """Return a graph whose weights sum to one for each target."""
    weight = shares(graph, num_nodes, least)
    return sums(graph.edge_index, weight, num_nodes)


def half_and_half(
    graph: SampledGraph, other_graph: SampledGraph, num_nodes: int, least: float = 1e-9
) -> Graph:
    """Return the mean of two means."""
    edge_index = torch.cat([graph.edge_index, other_graph.edge_index], dim=1)
    weights = shares(graph, num_nodes, least), shares(other_graph, num_nodes)
    return sums(edge_index, torch.cat(weights) / 2, num_nodes)


def shares(graph: SampledGraph, num_nodes: int, least: float = 1e-9) -> Tensor:
    """Divide weights by their sum per target, but at least by `least`."""
    target, weight = graph.edge_index[1], graph.edge_weight
    total = scatter(weight, target, dim=0, dim_size=num_nodes).clamp(min=least)
    return weight / total[target]


class GraphNet(torch.nn.Module):
    """Two layers on sparse rows: a GCN, or one with a root weight, or an MLP."""

    def __init__(self, sizes: tuple[int, int, int], has_root: bool, dropout: float):
        super().__init__()
        inputs, hidden, classes = sizes
        self.dropout = dropout
        self.has_root = has_root
        num_weights = 2 if has_root else 1
        self.first = torch.nn.Parameter(torch.empty(num_weights, inputs, hidden))
        self.second = torch.nn.Parameter(torch.empty(num_weights, hidden, classes))
        for weight in (*self.first, *self.second):
            torch.nn.init.xavier_uniform_(weight.data)
        self.first_bias = torch.nn.Parameter(torch.zeros(hidden))
        self.second_bias = torch.nn.Parameter(torch.zeros(classes))

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        values = F.dropout(x.values(), self.dropout, self.training)
        h = neighbour_sum(torch.cat([*self.first], 1), values, entries_by_row(x))
        h = self._sum(h, graph, self.first_bias)
        h = F.dropout(h.relu(), self.dropout, self.training)
        return self._sum(h @ torch.cat([*self.second], 1), graph, self.second_bias)

    def _sum(
        self, h: Tensor, graph: Callable[[Tensor], Tensor], bias: Tensor
    ) -> Tensor:
        if not self.has_root:
            return graph(h) + bias
        h, root = h.chunk(2, dim=1)
        return graph(h) + root + bias


def no_graph(h: Tensor) -> Tensor:
    """Return rows unchanged: the graph of an MLP."""
    return h


class Prediction(NamedTuple):
    """Class probabilities of all nodes, at the epoch of least validation loss."""

    prob: Tensor
    val: float
    loss: float
    state: dict[str, Tensor]


def fit(
    model: torch.nn.Module,
    args: Iterable[Any],
    y: Tensor,
    split: Split,
    setting: dict[str, Any],
    taught: Tensor | None = None,
) -> Prediction:
    """Train a network on known labels and on probabilities of all other nodes."""
    options = {'lr': setting['lr'], 'weight_decay': setting['weight_decay']}
    optimizer = torch.optim.Adam(model.parameters(), **options)
    best = None
    improved = 0
    unlabelled = torch.ones_like(y, dtype=torch.bool)
    unlabelled[split.train] = False
    for epoch in range(setting['epochs']):
        model.train()
        optimizer.zero_grad()
        out = model(*args)
        loss = F.cross_entropy(out[split.train], y[split.train])
        if taught is not None:
            loss = loss + F.cross_entropy(out[unlabelled], taught[unlabelled])
        loss.backward()
        optimizer.step()
        prediction = _evaluate(model, args, y, split)
        if best is None or prediction.loss < best.loss:
            best = prediction
            improved = epoch
        elif epoch - improved >= setting['patience']:
            break
    assert best is not None
    return best


@torch.no_grad()
def _evaluate(
    model: torch.nn.Module, args: Iterable[Any], y: Tensor, split: Split
) -> Prediction:
    model.eval()
    out = model(*args)
    logits, labels = out[split.val], y[split.val]
    loss = float(F.cross_entropy(logits, labels))
    state = {name: value.clone() for name, value in model.state_dict().items()}
    return Prediction(out.softmax(1), accuracy(out, y, split.val), loss, state)


def accuracy(out: Tensor, y: Tensor, nodes: Tensor) -> float:
    return float((out.argmax(dim=1) == y)[nodes].double().mean())


def mixture_weights(probabilities: list[Tensor], y: Tensor, nodes: Tensor) -> Tensor:
    """Return the mixture weights that maximise the likelihood of the labels.

    Expectation maximisation converges to the only maximum.
    """
    likely = torch.stack([prob[nodes, y[nodes]] for prob in probabilities], 1).double()
    likely = likely.clamp(min=1e-6)
    weight = torch.full(
        (len(probabilities),), 1 / len(probabilities), dtype=torch.double
    )
    for _ in range(200):
        share = likely * weight
        weight = (share / share.sum(dim=1, keepdim=True)).mean(dim=0)
    return weight.float()


def mix(
    predictions: list[Prediction], y: Tensor, split: Split
) -> tuple[Prediction, Tensor]:
    """Mix networks by weights fitted on validation nodes; return both."""
    probabilities = [prediction.prob for prediction in predictions]
    weight = mixture_weights(probabilities, y, split.val)
    prob = sum(w * p for w, p in zip(weight, probabilities, strict=True))
    assert isinstance(prob, Tensor)
    loss = float(F.nll_loss(prob[split.val].log(), y[split.val]))
    return Prediction(prob, accuracy(prob, y, split.val), loss, {}), weight


def with_labels(prob: Tensor, y: Tensor, split: Split) -> Tensor:
    """Return probabilities, those of training nodes replaced by their labels."""
    prob = prob.clone()
    prob[split.train] = F.one_hot(y[split.train], prob.size(1)).to(prob.dtype)
    return prob


def seeded(make: Callable[[], Any], seed: int) -> Any:
    """Set the random state, and return the result of `make`."""
    seed_everything(seed)
    return make()
