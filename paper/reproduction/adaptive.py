"""Attack networks through their own gradients, and measure the accuracy that remains.

    python paper/run.py adaptive
    python paper/run.py adaptive --datasets CiteSeer --rates 10 --seeds 1

PyG's `PRBCDAttack` flips edges of the clean graph, at most a rate in %, so that trained
networks misclassify the test nodes of Pro-GNN's split. The refined network is attacked
as a whole: gradients flow through all mixed networks, the agreement of their
probabilities and the refined graph. Each trained network is tested under the attacks on
all networks, of which the worst counts (evasion), and is trained again on the graph of
the attack on itself (poisoning). Finished runs are stored in
`<results>/adaptive.json`; a restarted run continues with the missing ones.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric import seed_everything

from reproduction.attacked import Trainer, taught_by, train_mixed
from reproduction.attacked_data import load, split_of
from reproduction.attacked_models import (
    SETTING,
    Graph,
    GraphNet,
    Prediction,
    accuracy,
    gcn,
    half_and_half,
    mean,
    no_graph,
    with_labels,
)
from reproduction.attacked_tables import (
    ALL,
    ATTACKED,
    ATTACKED_DATASETS,
    ROWS,
    VERSIONS,
)
from reproduction.studies import Results, parse_args, read_runs
from reproduction.summary import Cell
from reproduction.tables import Entry, Grid
from torch_geometric_gsl.nn.similarity import LinearSimilarity
from torch_geometric_gsl.transforms.refine_graph import refine
from torch_geometric_gsl.typing import SampledGraph

#: The file of the results.
ADAPTIVE_RESULTS = 'adaptive.json'
DATASETS = ('CiteSeer', 'Cora-ML')
#: The networks that are attacked through their own gradients.
ATTACKS = ('gcn', 'gcn, cosine > 0.1', 'both', 'mixture', 'refined')
ADAPTIVE_ROWS = (*ATTACKS, 'mlp, taught')
ADAPTIVE_RATES = (5, 10, 25)
SEEDS = 3
ADAPTIVE_SETTING: dict[str, Any] = SETTING | {
    'block_size': 50_000,
    'attack_epochs': 100,
    'resampling': 75,
    'attack': 1,
}


class Run(NamedTuple):
    """Attacks on all networks, with a seed for the networks and the attacks."""

    dataset: str
    rate: int
    seed: int

    def __str__(self) -> str:
        return f'{self.dataset}/{self.rate}/{ALL}/{self.seed}'


class Nets:
    """The networks that are attacked, trained on the edges of a graph."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.predictions, self.weights = train_mixed(trainer)
        prob, refined = taught_by(trainer, self.predictions['mixture'])
        self.predictions['refined'] = trainer.mean(refined, prob)
        self.predictions['mlp, taught'] = trainer.net(no_graph, False, prob)
        self.nets = {
            name: self._load(prediction)
            for name, prediction in self.predictions.items()
            if prediction.state
        }

    def _load(self, prediction: Prediction) -> GraphNet:
        has_root = prediction.state['first'].size(0) == 2
        net = GraphNet(self.trainer.sizes, has_root, 0.0).eval()
        net.load_state_dict(prediction.state)
        return net.requires_grad_(False)

    def run(
        self, name: str, x: Tensor, graph: SampledGraph, is_smooth: bool = False
    ) -> Tensor:
        """Return logits, or logarithms of probabilities, on weighted edges.

        If `is_smooth`, means over edges of little weight are small; else the gradient
        of an edge to a node without edges is almost infinite, and misleads attacks.
        """
        if name == 'mixture':
            return self._mixture(x, graph, is_smooth).clamp(min=1e-9).log()
        net = self.nets[name]
        if name != 'refined':
            return net.forward(x, self._along(name, graph, is_smooth))
        trainer = self.trainer
        mixed = self._mixture(x, graph, is_smooth)
        prob = with_labels(mixed, trainer.graph.y, trainer.split)
        refined = refine(graph, trainer.graph.nearest, prob)
        least = 0.1 if is_smooth else 1e-9
        return net.forward(x, mean(refined, trainer.num_nodes, least))

    def _mixture(self, x: Tensor, graph: SampledGraph, is_smooth: bool) -> Tensor:
        mixed = [
            weight * self.run(name, x, graph, is_smooth).softmax(dim=1)
            for name, weight in self.weights.items()
            if weight > 0
        ]
        return torch.stack(mixed).sum(dim=0)

    def _along(self, name: str, graph: SampledGraph, is_smooth: bool) -> Graph:
        """Return the graph of a network, given the edges before its filter."""
        network, _, least = name.partition(', cosine > ')
        n = self.trainer.num_nodes
        if network.startswith('mlp'):
            return no_graph
        if network == 'knn':
            return mean(self.trainer.nearest(), n)
        if least:
            rows = self.trainer.graph.compared
            cosine = LinearSimilarity(rows.size(1))(rows, graph.edge_index)
            keep = cosine > float(least)
            graph = SampledGraph(graph.edge_index[:, keep], graph.edge_weight[keep])
        # Weights of 1 sum to 0 or at least 1: both values then give the same mean.
        mass = 1.0 if is_smooth else 1e-9
        if network == 'mean':
            return mean(graph, n, mass)
        if network == 'both':
            return half_and_half(graph, self.trainer.nearest(), n, mass)
        return gcn(graph, n)


class Victim(torch.nn.Module):
    """A trained network as a function of weighted edges."""

    def __init__(self, nets: Nets, name: str) -> None:
        super().__init__()
        self.nets = nets
        self.name = name

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        graph = SampledGraph(edge_index, edge_weight)
        return self.nets.run(self.name, x, graph, is_smooth=True)


def attack(victim: Victim, budget: int, setting: dict[str, Any]) -> Tensor:
    """Attack the test nodes, and return the changed edges."""
    with warnings.catch_warnings():  # PyG warns that its code may change.
        warnings.simplefilter('ignore')
        from torch_geometric.contrib.nn.models import PRBCDAttack
    trainer = victim.nets.trainer
    seed_everything(trainer.seed)
    attacker = PRBCDAttack(
        victim,
        block_size=setting['block_size'],
        epochs=setting['attack_epochs'],
        epochs_resampling=setting['resampling'],
        loss='tanh_margin',
        log=False,
    )
    graph = trainer.graph
    inputs = graph.x, graph.edge_index, graph.y, budget
    edges: Tensor = attacker.attack(*inputs, idx_attack=trainer.split.test)[0]
    return edges


def execute(run: Run, setting: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return accuracies before and after the attacks on all networks."""
    torch.set_num_threads(1)
    warnings.filterwarnings('ignore', 'Sparse')
    graph = load(run.dataset, 0, setting['k'])
    split = split_of(run.dataset, ATTACKED, len(graph.y), run.seed)
    nets = Nets(Trainer(graph, split, run.seed, setting))
    budget = graph.edge_index.size(1) // 2 * run.rate // 100
    changed = {name: attack(Victim(nets, name), budget, setting) for name in ATTACKS}
    rows = {}
    for name in ADAPTIVE_ROWS:
        accuracies = [tested(nets, name, edges) for edges in changed.values()]
        # An MLP has no edges: its teacher gets the attack on the refined network.
        changed_graph = graph._replace(edge_index=changed.get(name, changed['refined']))
        again = Nets(Trainer(changed_graph, split, run.seed, setting))
        rows[name] = {
            'clean': tested(nets, name, graph.edge_index),
            'own': dict(zip(changed, accuracies, strict=True)).get(name, accuracies[0]),
            'test': min(accuracies),
            'retrained': accuracy(again.predictions[name].prob, graph.y, split.test),
        }
    return str(run), {'rows': rows}


@torch.no_grad()
def tested(nets: Nets, name: str, edge_index: Tensor) -> float:
    """Return the test accuracy of a trained network on other edges."""
    trainer = nets.trainer
    graph = SampledGraph(edge_index, torch.ones(edge_index.size(1)))
    return accuracy(
        nets.run(name, trainer.graph.x, graph), trainer.graph.y, trainer.split.test
    )


def adaptive_grid(root: Path) -> Grid:
    """Show accuracies after attacks through the gradients of each network."""
    tests: dict[Any, dict[int, float]] = defaultdict(dict)
    runs = read_runs(root / ADAPTIVE_RESULTS, VERSIONS)
    for name, result in runs.items():
        dataset, percent, _, seed = name.split('/')
        for row, accuracies in result['rows'].items():
            for measure in ('clean', 'test', 'retrained'):
                tests[dataset, int(percent), row, measure][int(seed)] = (
                    100 * accuracies[measure]
                )
    cells = {key: Cell(test) for key, test in tests.items()}
    datasets = [d for d in ATTACKED_DATASETS if any(key[0] == d for key in cells)]
    titles = {network: title for title, network in ROWS.values()}
    titles['gcn, cosine > 0.1'] = 'GCN, cosine above 0.1'
    rows: list[tuple[str, list[Entry]]] = []
    for row in ADAPTIVE_ROWS:
        entries = []
        for dataset in datasets:
            clean = cells.get((dataset, ADAPTIVE_RATES[0], row, 'clean'))
            entries.append(Entry('' if clean is None else f'{clean.mean:.1f}'))
            for rate in ADAPTIVE_RATES:
                of = dataset, rate, row
                after = [cells.get((*of, measure)) for measure in ('test', 'retrained')]
                texts = ['' if c is None else f'{c.mean:.1f}' for c in after]
                entries.append(Entry(' / '.join(texts)))
        rows.append((titles[row], entries))
    head = ['']
    for dataset in datasets:
        head += [f'{dataset}, clean', *(f'{rate} %' for rate in ADAPTIVE_RATES)]
    counts = sorted({len(cell.test) for cell in cells.values()} or {0})
    seeds = ' to '.join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
    note = (
        'Test accuracy in %: of the trained network under the worst of all attacks / '
        f'trained again on the graph of the attack on itself. Seeds: {seeds}. The MLP '
        'trains again on the graph of the attack on the refined network.'
    )
    return Grid(head, rows, [note], 'no finished runs yet')


def main(
    arguments: list[str] | None = None, setting: dict[str, Any] = ADAPTIVE_SETTING
) -> None:
    lists = {'datasets': list(DATASETS), 'rates': ADAPTIVE_RATES}
    args = parse_args(arguments, 'adaptive', __doc__, lists, SEEDS)
    runs = [
        Run(dataset, rate, seed)
        for seed in range(args.seeds)
        for dataset in args.datasets
        for rate in args.rates
    ]
    results = Results(args.results / ADAPTIVE_RESULTS, setting, VERSIONS)
    results.complete('adaptive', runs, execute, args.jobs)
