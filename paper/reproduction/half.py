"""Classify nodes without a graph, half of them labelled, with scaled cosines.

    python paper/run.py half
    python paper/run.py half --datasets CS --methods mlp ours --seeds 3

The nearest-neighbour graph replaces the given graph of `noise`; the methods and the
rules are the same. The four trainings of each method, ours included, differ in dropout
and in weight decay, which is zero in half of them. The splits are those of the paper:
half of the nodes for training, a fourth each for validation and test. Finished runs are
stored in `<results>/half.json`; a restarted run continues with the missing ones.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data

from reproduction.datasets import load_dataset, paper_split
from reproduction.half_tables import DATASETS, HALF, HALF_METHODS
from reproduction.noisy import FIRST_SEED, SEEDS, chosen
from reproduction.noisy_models import SETTING
from reproduction.own_runs import Results, parse_args
from torch_geometric_gsl.transforms.feature_graphs import nearest_neighbours

#: Every number that results depend on.
HALF_SETTING: dict[str, Any] = SETTING | {
    'num_nearest': 20,
    'weight_decays': [0.0, 5e-4],
    'revision': 2,
}


class Run(NamedTuple):
    """A method on a data set, with a seed of the split and the network."""

    dataset: str
    method: str
    seed: int

    def __str__(self) -> str:
        return f'{self.dataset}/{self.method}/{self.seed}'


@functools.lru_cache(maxsize=1)
def load(dataset: str, num_nearest: int) -> tuple[Data, Tensor]:
    """Return a data set, and the edges from the nearest nodes to each node."""
    data = load_dataset(dataset)
    return data, nearest_neighbours(data['x'], num_nearest).edge_index


def execute(run: Run, setting: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Execute a run; return the result of the training that validation selects."""
    torch.set_num_threads(1)
    warnings.filterwarnings('ignore', 'Sparse CSR')
    whole, edge_index = load(run.dataset, setting['num_nearest'])
    data = paper_split(whole, seed=run.seed)
    method = HALF_METHODS[run.method]
    return str(run), chosen(method, data, edge_index, run.seed, setting)


def main(
    arguments: list[str] | None = None, setting: dict[str, Any] = HALF_SETTING
) -> None:
    lists = {'datasets': DATASETS, 'methods': list(HALF_METHODS)}
    args = parse_args(arguments, 'half', __doc__, lists, SEEDS)
    wanted = [
        Run(dataset, method, seed)
        for dataset in args.datasets
        for seed in range(FIRST_SEED, FIRST_SEED + args.seeds)
        for method in args.methods
    ]
    results = Results(args.results / HALF, setting, HALF_METHODS)
    results.complete('half', wanted, execute, args.jobs)
