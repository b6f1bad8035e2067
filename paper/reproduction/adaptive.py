"""Attack networks through their own gradients, and see what is left.

    python paper/run.py adaptive
    python paper/run.py adaptive --datasets CiteSeer --rates 10 --seeds 1

PyG's `PRBCDAttack` flips edges of the clean graph, at most a share of them in %, so
that trained networks classify the test nodes of Pro-GNN's split wrongly. The refined
network is attacked as a whole: the gradient runs through all networks that are mixed,
the agreement of their probabilities and the refined graph. Each trained network meets
the attacks on all of them, of which the worst counts (evasion), and each is trained
again on the graph of the attack on itself (poisoning). Finished runs stand in
`<results>/adaptive.json`: killed and started again, it goes on with what is missing.
"""

from __future__ import annotations

import warnings
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
    ADAPTIVE_RATES,
    ADAPTIVE_RESULTS,
    ADAPTIVE_ROWS,
    ATTACKED,
    ATTACKS,
    KIND,
    KINDS,
)
from reproduction.own_runs import Results, parse_args
from torch_geometric_gsl.nn.similarity import LinearSimilarity
from torch_geometric_gsl.transforms.refine_graph import refine
from torch_geometric_gsl.typing import SampledGraph

DATASETS = ('CiteSeer', 'Cora-ML')
SEEDS = 3
ADAPTIVE_SETTING: dict[str, Any] = SETTING | {
    'block_size': 50_000,
    'attack_epochs': 100,
    'resampling': 75,
    'attack': 1,
}


class Run(NamedTuple):
    """An attack of each network, with a seed of the networks and of the attack."""

    dataset: str
    rate: int
    seed: int

    def __str__(self) -> str:
        return f'{self.dataset}/{self.rate}/{KIND}/{self.seed}'


class Nets:
    """The networks that are attacked, trained on the edges of a graph."""

    def __init__(self, on: Trainer) -> None:
        self.on = on
        self.found, self.weights = train_mixed(on)
        prob, refined = taught_by(on, self.found['mixture'])
        self.found['refined'] = on.mean(refined, prob)
        self.found['mlp, taught'] = on.net(no_graph, False, prob)
        self.nets = {n: self._load(f) for n, f in self.found.items() if f.state}

    def _load(self, found: Prediction) -> GraphNet:
        has_root = found.state['first'].size(0) == 2
        net = GraphNet(self.on.sizes, has_root, 0.0).eval()
        net.load_state_dict(found.state)
        return net.requires_grad_(False)

    def run(
        self, name: str, x: Tensor, graph: SampledGraph, is_smooth: bool = False
    ) -> Tensor:
        """Return logits, or logarithms of probabilities, on weighed edges.

        Smooth, a mean over edges of little weight stays small, else the gradient of an
        edge to a node that has none is as good as infinite, and misleads the attack.
        """
        if name == 'mixture':
            return self._mixture(x, graph, is_smooth).clamp(min=1e-9).log()
        net = self.nets[name]
        if name != 'refined':
            return net.forward(x, self._along(name, graph, is_smooth))
        on = self.on
        mixed = self._mixture(x, graph, is_smooth)
        prob = with_labels(mixed, on.graph.y, on.split)
        refined = refine(graph, on.graph.nearest, prob)
        least = 0.1 if is_smooth else 1e-9
        return net.forward(x, mean(refined, on.num_nodes, least))

    def _mixture(self, x: Tensor, graph: SampledGraph, is_smooth: bool) -> Tensor:
        parts = [
            weight * self.run(name, x, graph, is_smooth).softmax(dim=1)
            for name, weight in self.weights.items()
            if weight > 0
        ]
        return torch.stack(parts).sum(dim=0)

    def _along(self, name: str, graph: SampledGraph, is_smooth: bool) -> Graph:
        """Return what a network sums along, given the edges that its filter sees."""
        kind, _, least = name.partition(', cosine > ')
        n = self.on.num_nodes
        if kind.startswith('mlp'):
            return no_graph
        if kind == 'knn':
            return mean(self.on.nearest(), n)
        if least:
            rows = self.on.graph.compared
            cosine = LinearSimilarity(rows.size(1))(rows, graph.edge_index)
            keep = cosine > float(least)
            graph = SampledGraph(graph.edge_index[:, keep], graph.edge_weight[keep])
        # Of whole edges there is none or at least one: the same without weights.
        mass = 1.0 if is_smooth else 1e-9
        if kind == 'mean':
            return mean(graph, n, mass)
        if kind == 'both':
            return half_and_half(graph, self.on.nearest(), n, mass)
        return gcn(graph, n)


class Victim(torch.nn.Module):
    """A trained network as a function of weighed edges."""

    def __init__(self, nets: Nets, name: str) -> None:
        super().__init__()
        self.nets, self.name = nets, name

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        graph = SampledGraph(edge_index, edge_weight)
        return self.nets.run(self.name, x, graph, is_smooth=True)


def attack(victim: Victim, budget: int, setting: dict[str, Any]) -> Tensor:
    """Return the edges after an attack on the test nodes."""
    with warnings.catch_warnings():  # That the code is subject to change.
        warnings.simplefilter('ignore')
        from torch_geometric.contrib.nn.models import PRBCDAttack
    on = victim.nets.on
    seed_everything(on.seed)
    attacker = PRBCDAttack(
        victim,
        block_size=setting['block_size'],
        epochs=setting['attack_epochs'],
        epochs_resampling=setting['resampling'],
        loss='tanh_margin',
        log=False,
    )
    graph = on.graph
    given = graph.x, graph.edge_index, graph.y, budget
    edges: Tensor = attacker.attack(*given, idx_attack=on.split.test)[0]
    return edges


def execute(run: Run, setting: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return accuracies before and after the attacks of all networks."""
    torch.set_num_threads(1)
    warnings.filterwarnings('ignore', 'Sparse')
    graph = load(run.dataset, 0, setting['k'])
    split = split_of(run.dataset, ATTACKED, len(graph.y), run.seed)
    nets = Nets(Trainer(graph, split, run.seed, setting))
    budget = graph.edge_index.size(1) // 2 * run.rate // 100
    changed = {name: attack(Victim(nets, name), budget, setting) for name in ATTACKS}
    rows = {}
    for name in ADAPTIVE_ROWS:
        found = [tested(nets, name, edges) for edges in changed.values()]
        # No edge reaches an MLP: its teacher meets the attack on the refined network.
        own = graph._replace(edge_index=changed.get(name, changed['refined']))
        again = Nets(Trainer(own, split, run.seed, setting))
        rows[name] = {
            'clean': tested(nets, name, graph.edge_index),
            'own': dict(zip(changed, found, strict=True)).get(name, found[0]),
            'test': min(found),
            'retrained': accuracy(again.found[name].prob, graph.y, split.test),
        }
    return str(run), {'rows': rows}


@torch.no_grad()
def tested(nets: Nets, name: str, edge_index: Tensor) -> float:
    """Return the test accuracy of a trained network on other edges."""
    on = nets.on
    graph = SampledGraph(edge_index, torch.ones(edge_index.size(1)))
    return accuracy(nets.run(name, on.graph.x, graph), on.graph.y, on.split.test)


def main(
    arguments: list[str] | None = None, setting: dict[str, Any] = ADAPTIVE_SETTING
) -> None:
    lists = {'datasets': list(DATASETS), 'rates': ADAPTIVE_RATES}
    args = parse_args(arguments, 'adaptive', __doc__, lists, SEEDS)
    wanted = [
        Run(dataset, rate, seed)
        for seed in range(args.seeds)
        for dataset in args.datasets
        for rate in args.rates
    ]
    results = Results(args.results / ADAPTIVE_RESULTS, setting, KINDS)
    results.complete('adaptive', wanted, execute, args.jobs)
