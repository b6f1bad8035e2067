"""Learn hidden relations: which similarity finds the edges that a task needs?

    python paper/run.py hidden
    python paper/run.py hidden --seeds 2 --deltas 40 80 --jobs 2

Each node of a circle has a noisy value, and predicts the mean of a function at an angle
of delta to both sides. Every method has four trainings, which differ in the initial
centre or the learning rate; the validation graphs select one of them, and only this one
is tested. Finished runs are stored in `<results>/hidden.json`; a restarted run
continues with the missing ones.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from reproduction.own_runs import Results, parse_args
from reproduction.relation_tables import HIDDEN
from reproduction.relations import (
    METHODS,
    SETTING,
    Graphs,
    LearnedGraph,
    relative_error,
    trainings,
    true_graph,
)

DELTAS = (20, 40, 60, 80, 100, 120, 140, 160)
SEEDS = 10


class Run(NamedTuple):
    """A method at an angle, with a seed of the graphs, the weights and all noise."""

    delta: int
    method: str
    seed: int

    def __str__(self) -> str:
        return f'{self.delta}/{self.method}/{self.seed}'


def execute(run: Run, setting: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Execute a run; return the result of the training that validation selects."""
    torch.set_num_threads(1)
    graphs = Graphs.draw(run.delta, run.seed, setting)
    if run.method == 'true':
        return str(run), true_graph(run.delta, graphs, setting)
    found: dict[str, Any] = {'val': math.inf}
    best = None
    for model, choice in trainings(run.method, run.seed, graphs, setting):
        with torch.no_grad():
            val = relative_error(model(graphs.val), graphs.val.y)
        if val < found['val']:
            found, best = {'val': val, 'choice': choice}, model
    if best is None:  # All of them diverged.
        return str(run), {'val': None, 'test': None}
    with torch.no_grad():
        found['test'] = relative_error(best(graphs.test), graphs.test.y)
    if isinstance(best, LearnedGraph):
        found |= best.recovery(graphs.test)
    return str(run), found


def main(arguments: list[str] | None = None, setting: dict[str, Any] = SETTING) -> None:
    lists = {'deltas': DELTAS, 'methods': list(METHODS)}
    args = parse_args(arguments, 'hidden', __doc__, lists, SEEDS)
    wanted = [
        Run(delta, method, seed)
        for seed in range(args.seeds)
        for delta in args.deltas
        for method in args.methods
    ]
    results = Results(args.results / HIDDEN, setting, METHODS)
    results.complete('hidden', wanted, execute, args.jobs)
