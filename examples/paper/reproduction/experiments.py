"""List the runs that each table and figure of the paper is made of."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from reproduction.config import RunConfig
from reproduction.methods import METHODS
from reproduction.settings import METHOD, PAPER, RESULTS, found_settings, make_config

FULL = ('lin_sim', 'gau_sim', 'neural_gau_sim')
TRANSITION = ('lin_sim_t', 'gau_sim_t', 'neural_gau_sim_t')
#: Without a learned graph: what every learned graph has to beat.
CONTROLS = ('mlp', 'knn_gcn_root')
#: Tables look for the runs of seeds below it.
MAX_SEEDS = 20
#: Seeds of the splits that compare the settings which a search found on others.
COMPARED = range(3, 13)
KS = (5, 10, 15, 20)
TAUS = (0.25, 0.5, 0.75, 1.0)


class Choice(NamedTuple):
    """A selection of runs that a user asks for.

    Args:
        datasets: Names or paths; those of the experiment if empty.
        methods: Methods; those of the experiment if empty.
        seeds: The seeds.
        preset: A preset of :mod:`reproduction.settings`.
        label: The column of the labels, for files.
        results: The folder of what a search found.
    """

    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    seeds: Sequence[int]
    preset: str = 'standard'
    label: str | None = None
    results: Path = RESULTS

    def config(self, dataset: str, method: str, seed: int, **changes: Any) -> RunConfig:
        return make_config(
            dataset,
            method,
            seed,
            self.preset,
            self.label,
            results=self.results,
            **changes,
        )


class Experiment(NamedTuple):
    """A table or figure: default data sets and methods, and what is varied."""

    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    variations: tuple[dict[str, Any], ...] = ({},)

    def configs(self, choice: Choice) -> list[RunConfig]:
        """List all runs; every cell gets its first seed before any gets its second.

        Tuned settings run on splits that did not select them.

        Raises:
            ValueError: If a method lacks what is varied, or has no setting of the
                preset.
        """
        configs = [
            choice.config(dataset, method, seed, **changes)
            for seed in _seeds(choice)
            for dataset in choice.datasets or self._datasets(choice)
            for changes in self.variations
            for method in choice.methods or self._methods(dataset, choice)
        ]
        varied = {name for changes in self.variations for name in changes}
        for method, name in product({c.method for c in configs}, varied):
            if name not in METHOD[method]:
                raise ValueError(
                    f"'methods' must have a setting '{name}' to vary (got '{method}')"
                )
        return configs

    def _datasets(self, choice: Choice) -> tuple[str, ...]:
        """Return all data sets, or those that a method was tuned on."""
        if choice.preset != 'tuned':
            return self.datasets
        methods = {*(choice.methods or self.methods)}
        known = {d: found_settings(choice.results, d) for d in self.datasets}
        tuned = tuple(d for d, found in known.items() if found.keys() & methods)
        if not tuned:
            raise ValueError('no search has tuned such a method yet')
        return tuned

    def _methods(self, dataset: str, choice: Choice) -> tuple[str, ...]:
        """Return all methods, or those that were tuned."""
        if choice.preset != 'tuned':
            return self.methods
        found = found_settings(choice.results, dataset, choice.label)
        if not found.keys() & {*self.methods}:
            raise ValueError(f"no search has tuned a method on '{dataset}' yet")
        return tuple(method for method in self.methods if method in found)


def _seeds(choice: Choice) -> Sequence[int]:
    if choice.preset != 'tuned':
        return choice.seeds
    return [COMPARED.start + seed for seed in choice.seeds]


def varied(name: str, values: Sequence[Any]) -> tuple[dict[str, Any], ...]:
    return tuple({name: value} for value in values)


WIKI = ('CiteSeer', 'Chameleon', 'Squirrel', '20News')
EXPERIMENTS = {
    'table1': Experiment(PAPER, tuple(METHODS)),
    'table2': Experiment(WIKI, FULL, varied('k', KS)),
    'table3': Experiment(PAPER, TRANSITION, varied('k', KS)),
    'temperature': Experiment(WIKI, ('neural_gau_sim',), varied('tau', TAUS)),
    'removal': Experiment(('CiteSeer', 'PubMed'), ('neural_gau_sim_t', 'idgl_anchor')),
    'parameters': Experiment(PAPER, ('neural_gau_sim',)),
    'graphs': Experiment(('CiteSeer',), ('neural_gau_sim',)),
}
