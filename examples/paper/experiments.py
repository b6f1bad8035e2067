"""Which runs each table and figure of the paper is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from config import RunConfig
from methods import METHODS
from settings import PAPER, make_config

FULL = ('lin_sim', 'gau_sim', 'neural_gau_sim')
TRANSITION = ('lin_sim_t', 'gau_sim_t', 'neural_gau_sim_t')
#: Tables look for the runs of seeds below it.
MAX_SEEDS = 20
#: Seeds of the splits that compare the settings which a search found on others.
COMPARED = range(3, 13)
KS = (5, 10, 15, 20)
TAUS = (0.25, 0.5, 0.75, 1.0)


class Choice(NamedTuple):
    """What a user asks for.

    Args:
        datasets: Names or paths; those of the experiment if empty.
        methods: Methods; those of the experiment if empty.
        seeds: The seeds.
        preset: A preset of :mod:`settings`.
        label: The column of the labels, for files.
    """

    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    seeds: Sequence[int]
    preset: str = 'standard'
    label: str | None = None


class Experiment(NamedTuple):
    """A table or figure: default data sets and methods, and what is varied."""

    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    variations: tuple[dict[str, Any], ...] = ({},)

    def configs(self, choice: Choice) -> list[RunConfig]:
        """All runs; every cell gets its first seed before any gets its second."""
        return [
            make_config(dataset, method, seed, choice.preset, choice.label, **changes)
            for seed in choice.seeds
            for dataset in choice.datasets or self.datasets
            for changes in self.variations
            for method in choice.methods or self.methods
        ]


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
