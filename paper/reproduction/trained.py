"""Load the trained models that figures show, and list those that are missing."""

from __future__ import annotations

import dataclasses
import shlex
import warnings
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from tqdm import tqdm

from reproduction.baselines import IDGLAnchor
from reproduction.experiments import CONTROLS, EXPERIMENTS, Choice, RunConfig
from reproduction.files import (
    read_tensors,
    remove_checkpoints,
    remove_drafts,
    write_tensors,
)
from reproduction.scales import ScaleRun, make_run
from reproduction.settings import PRESETS, RESULTS
from reproduction.store import Store
from reproduction.summary import Cell
from reproduction.training import Run, build
from torch_geometric_gsl import NodeClassifier

#: The parameters of a transition graph: one row per transition node.
THETAS = ('theta_t', 'theta_e')
REMOVED = (0, 100, 200, 300, 400)
#: Random choices of the removed nodes, for each number of them.
REMOVALS = 5
#: Figures that show the controls, too.
WITH_CONTROLS = ('temperature', 'removal')
#: The seed of the runs whose trained models are shown.
FIRST_SEED = (0,)


def has_model(store: Store, config: RunConfig) -> bool:
    """Return whether the run is finished, and has selected an epoch."""
    record = store.record(config)
    return record is not None and record['outcome'].get('test') is not None


def load_trained(store: Store, config: RunConfig, data: Data) -> NodeClassifier:
    """Load the model of the epoch that validation selected.

    Archives hold no models: a run without its model is trained again.
    """
    state = read_tensors(store.folder(config) / 'model.pt')
    state = state or train_again(store, config, data)
    model = build(config, data)
    model.load_state_dict(state)
    return model


def train_again(store: Store, config: RunConfig, data: Data) -> dict[str, Tensor]:
    """Train the model of a finished run again; its result does not change."""
    folder = store.folder(config)
    with store.claim(config) as is_ours:
        if not is_ours:
            raise SystemExit(f'{config}: another process trains it, try again later')
        remove_drafts(folder)
        run = make_run(config, data, folder)
        run.resume()
        title = f'{config}, trained again for its model'
        with tqdm(
            None, title, config.total_epochs, initial=run.epoch, unit='epoch'
        ) as bar:
            run.train(lambda metrics: bar.update())
        if not run.best_state:
            raise SystemExit(
                f'{config}: trained again, it ended ({run.status}) without a model'
            )
        _check_score(store, run, data)
        write_tensors(folder / 'model.pt', run.best_state)
        remove_checkpoints(folder)
    return run.best_state


def _check_score(store: Store, run: Run | ScaleRun, data: Data) -> None:
    """Warn if the accuracy differs: another machine may round differently."""
    record = store.record(run.config)
    stored = None if record is None else record['outcome'].get('test')
    accuracy = run.score(data)['test']
    if stored is not None and accuracy != stored:
        warnings.warn(
            f'{run.config}: trained again, the model has a test accuracy of '
            f'{100 * accuracy:.2f} %, its result says {100 * stored:.2f} %',
            stacklevel=2,
        )


def count_removable(model: Any, data: Data) -> int:
    """Count the transition nodes or anchors."""
    if isinstance(model, IDGLAnchor):
        return min(model.num_anchors, int(data['x'].size(0)))
    return int(model.num_transition_nodes)


def without_nodes(
    model: NodeClassifier, config: RunConfig, data: Data, count: int, seed: int
) -> NodeClassifier:
    """Remove some random transition nodes or anchors of a model."""
    total = count_removable(model, data)
    if isinstance(model, IDGLAnchor):
        model.keep_anchors(total - count, seed)
        return model
    generator = torch.Generator().manual_seed(seed)
    remaining = (
        torch.randperm(total, generator=generator)[: total - count].sort().values
    )
    state: dict[str, Tensor] = {
        name: value[remaining] if name.endswith(THETAS) else value
        for name, value in model.state_dict().items()
    }
    options = dict(config.options) | {'num_transition_nodes': len(remaining)}
    smaller = dataclasses.replace(config, options=options)
    model = build(smaller, data)
    model.load_state_dict(state)
    return model


def after_removal(store: Store, config: RunConfig, data: Data) -> dict[int, Cell]:
    """Score a model after removing random nodes, over several choices of them."""
    # One model, which searches its nearest neighbours once.
    trained = load_trained(store, config, data)
    total = count_removable(trained, data)
    cells = {}
    for count in [count for count in REMOVED if count < total]:
        test = {}
        for choice in range(REMOVALS if count else 1):
            model = without_nodes(trained, config, data, count, choice)
            with torch.no_grad():
                hit = model.eval()(data.x).argmax(dim=-1) == data.y
            test[choice] = 100 * float(hit[data.test_mask].double().mean())
        cells[count] = Cell(test)
    return cells


def absent_runs(name: str, store: Store, choice: Choice) -> list[str]:
    """List commands for missing runs of a figure, and runs without a model."""
    if name not in EXPERIMENTS:
        return []
    experiment = EXPERIMENTS[name]
    first_seed = choice._replace(
        datasets=choice.datasets or experiment.datasets, seeds=FIRST_SEED
    )
    configs_of = {name: experiment.configs(first_seed)}
    if name in WITH_CONTROLS:
        first_seed = first_seed._replace(methods=CONTROLS)
        configs_of['table1'] = EXPERIMENTS['table1'].configs(first_seed)
    lines = [
        _command(each, missing, choice, one_seed=name != 'temperature')
        for each, configs in configs_of.items()
        if (missing := store.missing(configs))
    ]
    for config in configs_of[name]:
        record = store.record(config)
        if record is not None and not has_model(store, config):
            outcome = record['outcome']
            lines.append(f'{config}: {outcome.get("detail") or outcome["status"]}')
    return lines


def _command(
    experiment: str, configs: list[RunConfig], choice: Choice, *, one_seed: bool
) -> str:
    """Return the command for missing runs; those of Table 1 are the controls."""
    words = ['python', 'paper/run.py', experiment, '--datasets']
    words += dict.fromkeys(config.dataset for config in configs)
    words += ['--methods', *CONTROLS] if experiment == 'table1' else []
    words += ['--seeds', '1'] if one_seed else []
    # Only files have a label.
    labels = dict.fromkeys(config.label for config in configs if config.label)
    words += ['--label', *labels] if labels else []
    words += ['--preset', choice.preset] if choice.preset != PRESETS[0] else []
    words += ['--results', str(choice.results)] if choice.results != RESULTS else []
    return shlex.join(words)
