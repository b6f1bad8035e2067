"""Fit the package's estimators to tables, and variants with one part removed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
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
    """Network that compares rows by a fixed random projection of their columns."""

    projection: Tensor

    def __init__(self, in_channels: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(in_channels, *args, **kwargs)
        size = in_channels, self.lin_key.out_features
        self.register_buffer('projection', torch.randn(size) / math.sqrt(size[1]))

    def _key(self, x: Tensor, h: Tensor) -> Any:
        return x @ self.projection


class WithoutPeriodic(TableNet):
    """Network without periodic embeddings of columns."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs | {'num_frequencies': 0})


#: Networks that replace that of the estimators.
NETWORKS: dict[str, type[TableNet]] = {
    'no_labels': WithoutLabels,
    'frozen': Frozen,
    'no_periodic': WithoutPeriodic,
}


def make_estimator(problem: Problem, method: Any, options: Options) -> Any:
    """Build the estimator of a method for a table."""
    given = dict(method.options)
    network = given.pop('network', None)
    kind: Any = GSLClassifier if problem.num_classes else GSLRegressor
    if network is not None:
        changed = {'_network_class': NETWORKS[network]}
        kind = type(f'{kind.__name__}_{network}', (kind,), changed)
    return kind(given.pop('graph'), random_state=options.seed, **given)


def fit_net(problem: Problem, method: Any, choice: Any, options: Options) -> Fitted:
    """Fit an estimator; validation rows are also neighbours in its predictions."""
    torch.set_num_threads(options.threads)
    rows = Described(problem, method.near, options)
    model = make_estimator(problem, method, options)
    x, y = np.concatenate([rows.train, rows.val]), np.concatenate(problem.y[:2])
    is_held = np.arange(len(y)) >= len(rows.train)
    model.fit(x, y, validation_mask=is_held)
    predict = model.predict_proba if problem.num_classes else model.predict
    # The validation loss of each graph, in units of the scaled target.
    losses = getattr(model, 'graph_losses_', {})
    chosen = {'graph': next(iter(losses), None), 'losses': losses}
    return Fitted(lambda x: predict(rows.new(x)), choice=chosen)
