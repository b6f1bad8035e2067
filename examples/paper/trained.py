"""Trained models that a run kept, whole or with some of their nodes removed."""

from __future__ import annotations

import dataclasses
import warnings

import torch
from config import RunConfig
from files import read_tensors, remove_drafts, write_tensors
from methods import build
from store import Store
from torch import Tensor
from torch_geometric.data import Data
from tqdm import tqdm
from training import Run

from torch_geometric_gsl.nn import IDGLAnchor, NodeClassifier

# The parameters of a transition graph: one row per transition node.
THETAS = ('theta_t', 'theta_e')


def has_model(store: Store, config: RunConfig) -> bool:
    """Whether the run is finished, and has selected an epoch."""
    record = store.record(config)
    return record is not None and record['outcome'].get('test') is not None


def load_trained(store: Store, config: RunConfig, data: Data) -> NodeClassifier:
    """The model of the epoch that validation selected.

    Archives hold no models: a run whose model is not there is trained again.
    """
    state = read_tensors(store.folder(config) / 'model.pt')
    if state is None:
        state = train_again(store, config, data)
    model = build(config, data, int(data.y.max()) + 1)
    model.load_state_dict(state)
    return model


def train_again(store: Store, config: RunConfig, data: Data) -> dict[str, Tensor]:
    """Makes the model of a finished run, whose result stays what it is."""
    folder = store.folder(config)
    with store.claim(config) as is_ours:
        if not is_ours:
            raise SystemExit(f'{config}: another process trains it, try again later')
        remove_drafts(folder)
        run = Run(config, data, folder)
        run.resume()
        with tqdm(
            total=config.epochs,
            initial=run.epoch,
            desc=f'{config}, trained again for its model',
            unit='epoch',
        ) as bar:
            run.train(lambda metrics: bar.update())
        if not run.best_state:
            raise SystemExit(
                f'{config}: trained again, it ended ({run.status}) before its first '
                'evaluation'
            )
        _check_score(store, run, data)
        write_tensors(folder / 'model.pt', run.best_state)
        (folder / 'checkpoint.pt').unlink(missing_ok=True)
    return run.best_state


def _check_score(store: Store, run: Run, data: Data) -> None:
    """Another machine or version may round differently, and so train another model."""
    record = store.record(run.config)
    known = None if record is None else record['outcome'].get('test')
    found = run.score(data)['test']
    if known is not None and found != known:
        warnings.warn(
            f'{run.config}: trained again, the model has a test accuracy of '
            f'{100 * found:.2f} %, its result says {100 * known:.2f} %',
            stacklevel=2,
        )


def count_removable(model: NodeClassifier, data: Data) -> int:
    """The number of its transition nodes or anchors."""
    if isinstance(model, IDGLAnchor):
        return min(model.num_anchors, data.num_nodes)
    return int(model.num_transition_nodes)


def without_nodes(
    model: NodeClassifier, config: RunConfig, data: Data, count: int, seed: int
) -> NodeClassifier:
    """The model without some random ones of its transition nodes or anchors."""
    total = count_removable(model, data)
    if isinstance(model, IDGLAnchor):
        model.keep_anchors(total - count, seed)
        return model
    generator = torch.Generator().manual_seed(seed)
    kept = torch.randperm(total, generator=generator)[: total - count].sort().values
    state: dict[str, Tensor] = {
        name: value[kept] if name.endswith(THETAS) else value
        for name, value in model.state_dict().items()
    }
    options = dict(config.options) | {'num_transition_nodes': len(kept)}
    smaller = dataclasses.replace(config, options=options)
    model = build(smaller, data, int(data.y.max()) + 1)
    model.load_state_dict(state)
    return model
