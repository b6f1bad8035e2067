"""Classify nodes on graphs that Metattack has changed, with ours and with controls.

    python paper/run.py attacked
    python paper/run.py attacked --datasets CiteSeer --rates 0 20 --seeds 2
    python paper/run.py attacked --splits random --jobs 2

A rate is the percentage of edges that the attacker may change. `attacked` is the split
whose labels the attacker knew, with seeds of the networks; `random` are other splits,
one per seed. All rows see the same graph, features and split, and validation selects
thresholds and epochs. Networks on fixed graphs are mixed with the weights that maximise
the likelihood of the labels of validation nodes; the predictions of the mixture then
teach other networks. Finished runs are stored in `<results>/attacked.json`; a restarted
run continues with the missing ones.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor

from reproduction.attacked_data import (
    DATASETS,
    AttackedGraph,
    Split,
    load,
    split_of,
)
from reproduction.attacked_models import (
    SETTING,
    GraphNet,
    Prediction,
    accuracy,
    fit,
    gcn,
    half_and_half,
    low_rank,
    mean,
    mix,
    no_graph,
    seeded,
    with_labels,
)
from reproduction.attacked_tables import (
    ALL,
    ATTACKED,
    ATTACKED_RESULTS,
    RANDOM,
    RATES,
    VERSIONS,
)
from reproduction.baselines.given_graph import GivenGraphNet, gat
from reproduction.studies import Results, parse_args
from torch_geometric_gsl import GSLNet
from torch_geometric_gsl.transforms.refine_graph import refine
from torch_geometric_gsl.typing import SampledGraph

SEEDS = 10
#: `GSLNet` compares rows in each step, and runs for the first seeds only.
GSLNET_SEEDS = 3
#: Options of `GSLNet` on the refined graph: a scaled cosine of the rows.
NET: dict[str, Any] = {'similarity': 'linear', 'tau': 1.0, 'null_score': 0.0}


class Run(NamedTuple):
    """All rows on a changed graph, with a seed for the networks and the split."""

    dataset: str
    rate: int
    split: str
    seed: int

    def __str__(self) -> str:
        return f'{self.dataset}/{self.rate}/{self.split}/{ALL}/{self.seed}'


class Trained(NamedTuple):
    """Networks by name, and the weights of those that are mixed."""

    predictions: dict[str, Prediction]
    weights: dict[str, float]


class Trainer:
    """Trainer of networks on one graph and split, all from the same random state."""

    def __init__(
        self, graph: AttackedGraph, split: Split, seed: int, setting: dict[str, Any]
    ) -> None:
        self.graph = graph
        self.split = split
        self.seed = seed
        self.setting = setting
        self.num_nodes = len(graph.y)
        self.num_classes = int(graph.y.max()) + 1
        self.sizes = graph.x.size(1), setting['hidden_channels'], self.num_classes

    def net(self, along: Any, has_root: bool, taught: Any = None) -> Prediction:
        """Train two layers that aggregate along a graph."""
        shape = self.sizes, has_root, self.setting['dropout']
        model = seeded(lambda: GraphNet(*shape), self.seed)
        return self.fit(model, (self.graph.x, along), taught)

    def fit(self, model: Any, args: Any, taught: Any = None) -> Prediction:
        return fit(model, args, self.graph.y, self.split, self.setting, taught)

    def edges(self, value: Tensor | None = None, least: float = 0.0) -> SampledGraph:
        """Return the given edges, or those whose value is above `least`."""
        edge_index = self.graph.edge_index
        if value is not None:
            edge_index = edge_index[:, value > least]
        return SampledGraph(edge_index, torch.ones(edge_index.size(1)))

    def nearest(self) -> SampledGraph:
        """Return the nearest rows, weighted by their cosine."""
        edge_index, weight = self.graph.nearest
        return SampledGraph(edge_index, weight.clamp(min=0) + 1e-3)

    def gcn(self, graph: SampledGraph, taught: Any = None) -> Prediction:
        return self.net(gcn(graph, self.num_nodes), False, taught)

    def mean(self, graph: SampledGraph, taught: Any = None) -> Prediction:
        return self.net(mean(graph, self.num_nodes), True, taught)

    def both(self, graph: SampledGraph, taught: Any = None) -> Prediction:
        along = half_and_half(graph, self.nearest(), self.num_nodes)
        return self.net(along, True, taught)


def train_mixed(trainer: Trainer) -> Trained:
    """Train networks on fixed graphs, and mix them."""
    edges = trainer.edges()
    predictions = {
        'mlp': trainer.net(no_graph, False),
        'knn': trainer.mean(trainer.nearest()),
        'gcn': trainer.gcn(edges),
        'mean': trainer.mean(edges),
        'both': trainer.both(edges),
    }
    for least in trainer.setting['mixed_cosines']:
        filtered = trainer.edges(trainer.graph.cosine, least)
        predictions[f'gcn, cosine > {least}'] = trainer.gcn(filtered)
        predictions[f'both, cosine > {least}'] = trainer.both(filtered)
    mixture, weight = mix([*predictions.values()], trainer.graph.y, trainer.split)
    weights = {n: round(float(w), 4) for n, w in zip(predictions, weight, strict=True)}
    return Trained(predictions | {'mixture': mixture}, weights)


def train_controls(trainer: Trainer) -> dict[str, Prediction]:
    """Train further networks on fixed graphs."""
    graph, setting = trainer.graph, trainer.setting
    predictions = {}
    for rank in setting['ranks']:
        along = low_rank(trainer.edges(), trainer.num_nodes, rank)
        predictions[f'gcn, rank {rank}'] = trainer.net(along, False)
    for least in setting['cosines']:
        filtered = trainer.edges(graph.cosine, least)
        if least in setting['mixed_cosines']:
            predictions[f'mean, cosine > {least}'] = trainer.mean(filtered)
        else:
            predictions[f'gcn, cosine > {least}'] = trainer.gcn(filtered)
    for least in setting['jaccards']:
        predictions[f'gcn, Jaccard > {least}'] = trainer.gcn(
            trainer.edges(graph.jaccard, least)
        )
    widths = list(trainer.sizes)
    heads, dropout = setting['heads'], setting['dropout']
    options: dict[str, Any] = {'heads': heads, 'has_root': False, 'dropout': dropout}
    model = seeded(lambda: GivenGraphNet(gat, widths, **options), trainer.seed)
    predictions['gat'] = trainer.fit(model, (graph.x, graph.edge_index))
    return predictions


def taught_by(trainer: Trainer, mixture: Prediction) -> tuple[Tensor, SampledGraph]:
    """Return the probabilities that a mixture teaches, and its refined graph."""
    prob = with_labels(mixture.prob, trainer.graph.y, trainer.split)
    return prob, refine(trainer.edges(), trainer.graph.nearest, prob)


def train_taught(trainer: Trainer, mixture: Prediction) -> dict[str, Prediction]:
    """Train networks that a mixture teaches, on its refined graph and on others."""
    prob, refined = taught_by(trainer, mixture)
    filtered = trainer.edges(trainer.graph.cosine, trainer.setting['mixed_cosines'][0])
    predictions = {
        'refined': trainer.mean(refined, prob),
        'refined, not taught': trainer.mean(refined),
        'refined, gcn': trainer.gcn(refined, prob),
        'refined, none added': trainer.mean(refine(trainer.edges(), None, prob), prob),
        'mlp, taught': trainer.net(no_graph, False, prob),
        'gcn, filtered, taught': trainer.gcn(filtered, prob),
        'both, taught': trainer.both(trainer.edges(), prob),
    }
    if trainer.seed < GSLNET_SEEDS:
        predictions['gslnet'] = train_gslnet(trainer, refined, prob)
    return predictions


def train_gslnet(trainer: Trainer, refined: SampledGraph, prob: Tensor) -> Prediction:
    """Train a net that weights the edges of the refined graph once more."""
    inputs, hidden, classes = trainer.sizes
    sizes = inputs, hidden, 2, classes
    model = seeded(
        lambda: GSLNet(*sizes, dropout=trainer.setting['dropout'], **NET), trainer.seed
    )
    keep = refined.edge_weight > 1e-3  # Other edges have almost no weight.
    edges = refined.edge_index[:, keep], refined.edge_weight[keep]
    return trainer.fit(model, (trainer.graph.x, *edges), prob)


def execute(run: Run, setting: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return validation and test accuracies of all networks of a run."""
    torch.set_num_threads(1)
    warnings.filterwarnings('ignore', 'Sparse CSR')
    graph = load(run.dataset, run.rate, setting['k'])
    split = split_of(run.dataset, run.split, len(graph.y), run.seed)
    trainer = Trainer(graph, split, run.seed, setting)
    mixed, weights = train_mixed(trainer)
    predictions = (
        mixed | train_controls(trainer) | train_taught(trainer, mixed['mixture'])
    )
    rows = {
        name: {
            'val': prediction.val,
            'loss': prediction.loss,
            'test': accuracy(prediction.prob, graph.y, split.test),
        }
        for name, prediction in predictions.items()
    }
    return str(run), {'rows': rows, 'weights': weights}


def main(arguments: list[str] | None = None, setting: dict[str, Any] = SETTING) -> None:
    lists = {
        'datasets': list(DATASETS),
        'rates': RATES,
        'splits': [ATTACKED, RANDOM],
    }
    args = parse_args(arguments, 'attacked', __doc__, lists, SEEDS)
    runs = [
        Run(dataset, rate, split, seed)
        for seed in range(args.seeds)
        for dataset in args.datasets
        for split in args.splits
        for rate in args.rates
    ]
    results = Results(args.results / ATTACKED_RESULTS, setting, VERSIONS)
    results.complete('attacked', runs, execute, args.jobs)
