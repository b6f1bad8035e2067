"""Fit the package's estimators to tables, and variants with one part removed."""

from __future__ import annotations

from copy import deepcopy
from itertools import chain
from typing import Any

import numpy as np
import torch
from sklearn.compose import TransformedTargetRegressor
from torch import Tensor

from reproduction.tables_data import Problem
from reproduction.tables_neighbours import Described, Fitted, Options
from torch_geometric_gsl.nn.models.table_net import TableNet
from torch_geometric_gsl.sklearn import GSLClassifier, GSLRegressor


class WithoutLabels(TableNet):
    """Network whose neighbours send their columns, but not their labels."""

    def _message(self, h: Tensor, y: Tensor | None) -> Tensor:
        return super()._message(h, None)


class Frozen(TableNet):
    """Network that compares rows by keys which the loss of the graph does not train."""

    def _key(self, h: Tensor) -> Tensor:
        return super()._key(h).detach()


def _changed(**changes: Any) -> type[TableNet]:
    """Return a network whose options are not those of the estimators."""

    class Changed(TableNet):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs | changes)

    return Changed


#: Networks that replace that of the estimators.
NETWORKS: dict[str, type[TableNet]] = {
    'no_labels': WithoutLabels,
    'frozen': Frozen,
    'no_periodic': _changed(num_frequencies=0),
    'one_block': _changed(num_blocks=1),
    'relu': _changed(act='relu'),
}


def without_members(estimator: Any, removed: str) -> Any:
    """Return an estimator that blends all members but those of a kind."""

    class Without(estimator):  # type: ignore[misc]
        def _fit_members(self, *args: Any) -> Any:
            fitted = super()._fit_members(*args)
            pairs = zip(fitted.members, fitted.val_outputs, strict=True)
            remaining = [(m, out) for m, out in pairs if m.family != removed]
            members, val_outputs = zip(*remaining, strict=True)
            return fitted._replace(members=members, val_outputs=val_outputs)

    return Without


def with_snapshots(estimator: Any) -> Any:
    """Return an estimator whose members average the last two cycles of a network."""

    class SnapshotTraining(estimator._training_class):  # type: ignore[misc]
        def run_cycle(self, *args: Any) -> None:
            super().run_cycle(*args)
            snapshots = self.__dict__.setdefault('snapshots', [])
            self.snapshots = [*snapshots, deepcopy(self.average.module)][-2:]

        def finish(self) -> Any:
            model = super().finish()
            model.__dict__['snapshots'] = self.snapshots  # These are no parts of it.
            return model

    class WithSnapshots(estimator):  # type: ignore[misc]
        _training_class = SnapshotTraining

        def _fit_members(self, *args: Any) -> Any:
            fitted = super()._fit_members(*args)
            for member in fitted.members:
                if member.family in ('learned', 'none'):
                    snapshots = [net.__dict__.pop('snapshots') for net in member.models]
                    member.models = list(chain.from_iterable(snapshots))
            return fitted

    return WithSnapshots


def make_estimator(problem: Problem, method: Any, options: Options) -> Any:
    """Build the estimator of a method for a table."""
    arguments = dict(method.options)
    network = arguments.pop('network', None)
    removed = arguments.pop('without', None)
    estimator: Any = GSLClassifier if problem.num_classes else GSLRegressor
    if network is not None:
        changed = {'_network_class': NETWORKS[network]}
        estimator = type(f'{estimator.__name__}_{network}', (estimator,), changed)
    if arguments.pop('snapshots', False):
        estimator = with_snapshots(estimator)
    if removed is not None:
        estimator = without_members(estimator, removed)
    if arguments.pop('log_target', False):
        model = estimator(random_state=options.seed, **arguments)
        return TransformedTargetRegressor(model, func=np.log1p, inverse_func=np.expm1)
    return estimator(random_state=options.seed, **arguments)


def fit_net(problem: Problem, method: Any, choice: Any, options: Options) -> Fitted:
    """Fit an estimator; validation rows are also neighbours in its predictions."""
    torch.set_num_threads(options.threads)
    rows = Described(problem, method.near, options)
    model = make_estimator(problem, method, options)
    x, y = np.concatenate([rows.train, rows.val]), np.concatenate(problem.y[:2])
    is_held = np.arange(len(y)) >= len(rows.train)
    model.fit(x, y, validation_mask=is_held)
    predict = model.predict_proba if problem.num_classes else model.predict
    # Losses of validation rows are in units of the scaled target.
    report = getattr(model, 'regressor_', model).report_
    validation = {
        'losses': report.loss.dropna().to_dict(),
        'weights': report.weight.dropna().to_dict(),
    }
    return Fitted(lambda x: predict(rows.new(x)), choice=validation)
