"""Models that learn a hidden relation, and their controls."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric import seed_everything
from torch_geometric.data import Batch

from reproduction.baselines import MLPClassifier, NodeFormer
from torch_geometric_gsl import LatentGraphConv
from torch_geometric_gsl.datasets import HiddenRelation

#: Every number that results depend on.
SETTING: dict[str, Any] = {
    'steps': 200,
    'graphs_per_step': 4,
    'num_nodes': 200,
    'held_out_graphs': 50,
    'k': 5,
    'tau': 1.0,
    'initial_scale': 5.0,
    'lr': 0.03,
    'hidden_channels': 32,
    'widths': [2.5, 5.0, 10.0, 15.0],
    'revision': 2,
}
#: Initial centres, in degrees.
NARROW = (25, 45, 60, 75)
WIDE = (30, 65, 105, 140)
#: Learning rates of methods without an initial centre.
RATES = (0.003, 0.01, 0.03, 0.1)


class Method(NamedTuple):
    """A row of the table.

    Args:
        title: Its name in the table.
        similarity: The similarity of a learned graph; :obj:`None` for others.
        options: Arguments of the similarity.
        starts: The initial centres of its trainings, in degrees.
    """

    title: str
    similarity: str | None = None
    options: dict[str, Any] = {}  # noqa: RUF012
    starts: tuple[int, ...] = ()


BIASED: dict[str, Any] = {'bias': True}
# Narrow bells, whose initial centre matters; the default bell with a bias is wide.
WIDTH: dict[str, Any] = {'c_scale': 0.1}
METHODS = {
    'mlp': Method('MLP'),
    'nodeformer': Method('NodeFormer'),
    'uniform': Method('uniform graph', 'uniform'),
    'linear': Method('cosine', 'linear'),
    'difference': Method('difference', 'difference'),
    'bell': Method('bell', 'gaussian'),
    'printed': Method('neural bell, as printed', 'neural_gaussian'),
    'biased': Method('neural bell, bias', 'neural_gaussian', BIASED, NARROW),
    'tanh': Method(
        'neural bell, bias, tanh', 'neural_gaussian', BIASED | {'centre': 'tanh'}, WIDE
    ),
    'true': Method('true graph'),
}


class Graphs(NamedTuple):
    """The graphs of a seed: training graphs, used once, and batches for evaluation."""

    train: HiddenRelation
    val: Any
    test: Any

    @classmethod
    def draw(cls, delta: float, seed: int, setting: dict[str, Any]) -> Graphs:
        num_train = setting['steps'] * setting['graphs_per_step']
        num_held_out = setting['held_out_graphs']
        make = partial(HiddenRelation, num_nodes=setting['num_nodes'], delta=delta)
        train = make(num_graphs=num_train, seed=3 * seed)
        val = make(num_graphs=num_held_out, seed=3 * seed + 1)
        test = make(num_graphs=num_held_out, seed=3 * seed + 2)
        return cls(train, _batch(val, 0, len(val)), _batch(test, 0, len(test)))

    def batch(self, start: int, size: int) -> Any:
        return _batch(self.train, start, size)


def _batch(graphs: HiddenRelation, start: int, size: int) -> Any:
    samples: list[Any] = [graphs[start + index] for index in range(size)]
    return Batch.from_data_list(samples)


def relative_error(out: Tensor, y: Tensor) -> float:
    """Return the mean squared error over the variance of the targets."""
    return float((out - y).square().mean() / y.var(correction=0))


class LearnedGraph(torch.nn.Module):
    """One layer that compares positions, and aggregates the values of nodes."""

    def __init__(self, method: Method, setting: dict[str, Any]) -> None:
        super().__init__()
        self.conv = LatentGraphConv(
            1,
            1,
            similarity=method.similarity or '',
            similarity_kwargs=method.options | (WIDTH if method.options else {}),
            z_channels=2,
            k=setting['k'],
            tau=setting['tau'],
            scale=setting['initial_scale'],
            train_scale=True,
            loop=False,
            root_weight=False,
            method='dense',
        )
        # With a negative weight the bell first moves away from the relation.
        torch.nn.init.ones_(self.conv.lin.weight)

    def start(self, degrees: int) -> None:
        """Initialise all centres at the cosine of an angle."""
        similarity: Any = self.conv.sampler.similarity
        centre = torch.tensor(math.cos(math.radians(degrees)))
        inverse = centre.atanh() if similarity.centre == 'tanh' else centre.logit()
        torch.nn.init.zeros_(similarity.w_b)
        torch.nn.init.constant_(similarity.bias_b, float(inverse))

    def forward(self, data: Any) -> Tensor:
        out: Tensor = self.conv(data.x, batch=data.batch, z=data.pos)
        return out

    @torch.no_grad()
    def recovery(self, data: Any) -> dict[str, float]:
        """Return the fraction of true edges in the noise-free graph.

        It is that of the weight of all pairs, and that of the k nearest of each node.
        """
        hit, share = [], []
        for graph in data.to_data_list():
            weight = self._weights(graph.pos)
            true = torch.zeros_like(weight, dtype=torch.bool)
            true[graph.true_edge_index[1], graph.true_edge_index[0]] = True
            near = weight.topk(self.conv.sampler.k, dim=1).indices
            hit.append(true.gather(1, near).double().mean())
            share.append((weight * true).sum(dim=1).mean())
        return {
            'precision': float(torch.stack(hit).mean()),
            'weight': float(torch.stack(share).mean()),
        }

    def _weights(self, pos: Tensor) -> Tensor:
        sampler = self.conv.sampler
        score: Tensor = sampler.factor * sampler.similarity(pos) / sampler.tau
        return score.fill_diagonal_(-math.inf).softmax(dim=1)


class Network(torch.nn.Module):
    """A network over the positions and values of all nodes of a graph."""

    def __init__(self, name: str, setting: dict[str, Any]) -> None:
        super().__init__()
        size = (3, setting['hidden_channels'], 2, 1)
        draws = {'heads': 1, 'k': setting['k'], 'tau': setting['tau']}
        self.net = (
            MLPClassifier(*size, dropout=0.0)
            if name == 'mlp'
            else NodeFormer(*size, dropout=0.0, **draws)
        )

    def forward(self, data: Any) -> Tensor:
        x = torch.cat([data.x, data.pos], dim=1)
        out: Tensor = self.net(x, batch=data.batch)
        return out


def train(model: Any, lr: float, graphs: Graphs, setting: dict[str, Any]) -> None:
    """Train a model; it sees every graph once."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    size = setting['graphs_per_step']
    model.train()
    for step in range(setting['steps']):
        data = graphs.batch(step * size, size)
        optimizer.zero_grad()
        (model(data) - data.y).square().mean().backward()
        optimizer.step()
    model.eval()


def trainings(
    name: str, seed: int, graphs: Graphs, setting: dict[str, Any]
) -> Iterator[tuple[Any, float]]:
    """Yield the trained models of a method, with initial centre or learning rate."""
    method = METHODS[name]
    for choice in method.starts or RATES:
        seed_everything(seed)
        is_learned = method.similarity is not None
        model: Any = (
            LearnedGraph(method, setting) if is_learned else Network(name, setting)
        )
        if method.starts:
            model.start(choice)
        train(model, setting['lr'] if method.starts else choice, graphs, setting)
        yield model, choice


def mean_of_edges(data: Any, width: float, delta: float) -> Tensor:
    """Return the mean value of the nodes at an angle of delta, within a width."""
    size = (data.num_graphs, -1, 1)
    angle = torch.atan2(data.pos[:, 1], data.pos[:, 0]).rad2deg().view(size)
    gap = (angle - angle.mT).remainder(360)
    gap = torch.minimum(gap, 360 - gap)
    weight = ((gap - delta).abs() <= width).to(data.x.dtype)
    weight.diagonal(dim1=1, dim2=2).zero_()
    total = weight @ data.x.view(size)
    mean: Tensor = total / weight.sum(dim=2, keepdim=True).clamp(min=1)
    return mean.view(-1, 1)


def true_graph(
    delta: float, graphs: Graphs, setting: dict[str, Any]
) -> dict[str, float]:
    """Return errors of the mean over true edges, whose width validation selects.

    A line from the mean to the target is fitted to some of the training graphs.
    """
    sample = graphs.batch(0, min(len(graphs.train), setting['held_out_graphs']))
    result: dict[str, float] = {'val': math.inf}
    for width in setting['widths']:
        mean = partial(mean_of_edges, width=width, delta=delta)
        ones = torch.ones_like(sample.x)
        line = torch.linalg.lstsq(torch.cat([mean(sample), ones], 1), sample.y).solution
        val, test = (
            relative_error(mean(data) * line[0] + line[1], data.y)
            for data in (graphs.val, graphs.test)
        )
        if val < result['val']:
            result = {'val': val, 'test': test, 'choice': width}
    return result
