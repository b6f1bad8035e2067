"""Describe runs, and list the runs of each table and figure of the paper."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from filelock import FileLock

from reproduction.datasets import DATASETS
from reproduction.files import digest_of, read_results, write_json
from reproduction.settings import METHODS, PAPER, PRESETS, RESULTS, preset_values

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    'adam': torch.optim.Adam,
    'adamw': torch.optim.AdamW,
}
#: File of the settings that a search found, in the folder of results.
TUNED = 'tuned.json'
FULL = ('lin_sim', 'gau_sim', 'neural_gau_sim')
TRANSITION = ('lin_sim_t', 'gau_sim_t', 'neural_gau_sim_t')
#: Methods without a learned graph, which every learned graph has to beat.
CONTROLS = ('mlp', 'knn_gcn_root')
#: Tables read runs with seeds below this number.
MAX_SEEDS = 20
#: The scales of a run with `scale='auto'`, which validation nodes select.
SCALES = (1.0, 3.0, 10.0, 30.0)
#: Seeds of the splits that compare the settings found on other splits.
COMPARED = range(3, 13)
KS = (5, 10, 15, 20)
TAUS = (0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class RunConfig:
    """One method on one data set with one seed and one setting.

    It holds every choice that the result depends on.

    Args:
        dataset: A name of the registry, or the path of a file.
        method: A name of :obj:`reproduction.settings.METHODS`.
        seed: The seed of the split, the weights and all noise.
        label: The column of the labels, for a file.
        options: Arguments of the model.
        optimizer: One of :obj:`OPTIMIZERS`.
        lr: The learning rate.
        weight_decay: The weight decay.
        epochs: The largest number of epochs.
        eval_every: Epochs between two evaluations on validation nodes.
        patience: Epochs without a better validation accuracy or loss after which
            training ends.
        pretrain_epochs: Epochs of self-supervision only, if the model has it.
        time_limit: Seconds of training after which a run ends.
        digest: Digest of the content of a file: a changed file is other data.
        revision: Number of changes of the method under the same setting.
        denoising_lr: The learning rate of all parts of SLAPS but its classifier;
            `lr` if there is none.
    """

    dataset: str
    method: str
    seed: int
    label: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    optimizer: str = 'adam'
    lr: float = 0.001
    weight_decay: float = 0.0
    epochs: int = 500
    eval_every: int = 1
    patience: int = 100
    pretrain_epochs: int = 0
    time_limit: float = 3600.0
    digest: str | None = None
    revision: int = 0
    denoising_lr: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, 'options', MappingProxyType(dict(self.options)))
        if self.optimizer not in OPTIMIZERS:
            names = tuple(OPTIMIZERS)
            raise ValueError(
                f"'optimizer' must be one of {names} (got {self.optimizer!r})"
            )
        for name in ('epochs', 'eval_every', 'patience'):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"'{name}' must be at least 1 (got {getattr(self, name)})"
                )
        if self.pretrain_epochs >= self.epochs:
            raise ValueError(
                f"'pretrain_epochs' must be less than 'epochs' "
                f'(got {self.pretrain_epochs} and {self.epochs})'
            )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        values = vars(self) | {
            'dataset': self.data_name,
            'options': dict(self.options),
        }
        for name, absent in (('digest', None), ('revision', 0), ('denoising_lr', None)):
            if values[name] == absent:
                del values[name]
        plain: dict[str, Any] = json.loads(json.dumps(values))
        return plain

    def __reduce__(self) -> tuple[Any, ...]:
        # A `MappingProxyType` cannot be pickled.
        values = vars(self) | {'options': dict(self.options)}
        return functools.partial(RunConfig, **values), ()

    @property
    def data_name(self) -> str:
        """Return the name of the data; for a file the name without its folder."""
        return self.dataset if self.digest is None else Path(self.dataset).name

    @property
    def total_epochs(self) -> int:
        """Return the epochs of all trainings, one per scale if there are several."""
        return self.epochs * (len(SCALES) if self.options.get('scale') == 'auto' else 1)

    @property
    def setting(self) -> str:
        """Return a digest of all choices but the seed."""
        values = self.to_dict()
        del values['seed']
        text = json.dumps(values, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:10]

    def __str__(self) -> str:
        return f'{self.data_name}/{self.method}-{self.setting}/seed-{self.seed}'


#: Fields of a run that are not arguments of the model.
TRAINING = {item.name for item in dataclasses.fields(RunConfig)} - {
    *('dataset', 'method', 'seed', 'label', 'options', 'digest', 'revision')
}


def data_key(dataset: str, label: str | None) -> str:
    """Return the name of data, with label column and digest if it is a file."""
    if dataset in DATASETS:
        return dataset
    path = Path(dataset)
    return ':'.join([path.name, label or '', digest_of(path) or ''])


def tuned_settings(
    results: Path, dataset: str, label: str | None = None
) -> dict[str, dict[str, Any]]:
    """Return the setting that a search found for each method, with its preset."""
    content = read_results(results / TUNED) or {}
    settings: dict[str, dict[str, Any]] = content.get(data_key(dataset, label), {})
    return settings


def store_setting(
    results: Path, dataset: str, label: str | None, method: str, setting: dict[str, Any]
) -> None:
    """Store the best setting of a method."""
    with FileLock(results / f'.{TUNED}.lock'):
        content = read_results(results / TUNED) or {}
        content.setdefault(data_key(dataset, label), {})[method] = setting
        write_json(results / TUNED, content)


def make_config(
    dataset: str,
    method: str,
    seed: int,
    preset: str = 'standard',
    label: str | None = None,
    *,
    results: Path = RESULTS,
    **changes: Any,
) -> RunConfig:
    """Return the run of a method on a data set under a preset.

    `label` applies to files only. Changes, such as `k=10`, replace values of the
    preset.
    """
    if preset not in PRESETS:
        raise ValueError(f"'preset' must be one of {PRESETS} (got {preset!r})")
    if method not in METHODS:
        raise ValueError(f"'method' must be one of {list(METHODS)} (got {method!r})")
    if preset == 'tuned':
        tuned = tuned_settings(results, dataset, label).get(method)
        if tuned is None:
            raise ValueError(f"no search has tuned '{method}' on '{dataset}' yet")
        changes = tuned['setting'] | changes
        return make_config(dataset, method, seed, tuned['preset'], label, **changes)
    values = preset_values(dataset, method, preset) | changes
    training = {name: values.pop(name) for name in TRAINING & values.keys()}
    if dataset not in DATASETS:
        training |= {'label': label, 'digest': digest_of(Path(dataset))}
    training |= {'revision': METHODS[method].revision}
    return RunConfig(dataset, method, seed, options=values, **training)


class Choice(NamedTuple):
    """A user's selection of runs.

    Args:
        datasets: Names or paths; those of the experiment if empty.
        methods: Methods; those of the experiment if empty.
        seeds: The seeds.
        preset: A preset of :mod:`reproduction.settings`.
        label: The column of the labels, for files.
        results: The folder with the settings that a search found.
    """

    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    seeds: Sequence[int]
    preset: str = 'standard'
    label: str | None = None
    results: Path = RESULTS

    def config(self, dataset: str, method: str, seed: int, **changes: Any) -> RunConfig:
        changes |= {'results': self.results}
        return make_config(dataset, method, seed, self.preset, self.label, **changes)


class Experiment(NamedTuple):
    """A table or figure: default data sets and methods, and varied settings."""

    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    variations: tuple[dict[str, Any], ...] = ({},)

    def configs(self, choice: Choice) -> list[RunConfig]:
        """List all runs: the first seed of every cell, then the second, and so on.

        Tuned settings run on splits that did not select them.

        Raises:
            ValueError: If a method lacks a varied setting, or has no setting of the
                preset.
        """
        first_seed = COMPARED.start if choice.preset == 'tuned' else 0
        configs = [
            choice.config(dataset, method, first_seed + seed, **changes)
            for seed in choice.seeds
            for dataset, methods in self._cells(choice).items()
            for changes in self.variations
            for method in methods
        ]
        varied = {name for changes in self.variations for name in changes}
        for method, name in product({c.method for c in configs}, varied):
            if name not in METHODS[method].recipe:
                raise ValueError(
                    f"'methods' must have a setting '{name}' to vary (got '{method}')"
                )
        return configs

    def _cells(self, choice: Choice) -> dict[str, tuple[str, ...]]:
        """Return the methods of each data set: all, or those that were tuned on it."""
        datasets = choice.datasets or self.datasets
        methods = choice.methods or self.methods
        if choice.preset != 'tuned':
            return dict.fromkeys(datasets, methods)
        tuned: dict[str, tuple[str, ...]] = {}
        for dataset in datasets:
            settings = tuned_settings(choice.results, dataset, choice.label)
            searched = tuple(method for method in methods if method in settings)
            if choice.datasets and not (searched or choice.methods):
                raise ValueError(f"no search has tuned a method on '{dataset}' yet")
            if choice.datasets or searched:
                tuned[dataset] = choice.methods or searched
        if not tuned:
            raise ValueError('no search has tuned such a method yet')
        return tuned


WIKI = ('CiteSeer', 'Chameleon', 'Squirrel', '20News')
BY_K = tuple({'k': k} for k in KS)
BY_TAU = tuple({'tau': tau} for tau in TAUS)
EXPERIMENTS = {
    'table1': Experiment(PAPER, tuple(METHODS)),
    'table2': Experiment(WIKI, FULL, BY_K),
    'table3': Experiment(PAPER, TRANSITION, BY_K),
    'temperature': Experiment(WIKI, ('neural_gau_sim',), BY_TAU),
    'removal': Experiment(('CiteSeer', 'PubMed'), ('neural_gau_sim_t', 'idgl_anchor')),
    'parameters': Experiment(PAPER, ('neural_gau_sim',)),
    'graphs': Experiment(('CiteSeer',), ('neural_gau_sim',)),
}
