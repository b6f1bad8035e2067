"""The members of a blend: networks on scaled columns, and boosted trees."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.linear_model import LogisticRegression, Ridge
from torch import Tensor

from torch_geometric_gsl.sklearn._runtime import default_modes, threads_for
from torch_geometric_gsl.sklearn._scaling import Scaling, to_tensor
from torch_geometric_gsl.sklearn._splits import RowSplit, Table
from torch_geometric_gsl.typing import SampledGraph

# New rows predicted at once.
_BLOCK = 2048
# Trees of all classes together, at most, and of each, at least.
_MAX_TREES = 2000
_MIN_TREES = 100
#: The name of the linear member.
LINEAR = 'linear model'
#: The settings of boosting, beside the defaults of scikit-learn.
BOOSTINGS: dict[str, dict[str, Any]] = {
    'boosting': {'n_iter_no_change': 20},
    'slow boosting': {
        'learning_rate': 0.05,
        'max_features': 0.5,
        'min_samples_leaf': 10,
        'l2_regularization': 1.0,
        'n_iter_no_change': 50,
    },
}
# Below this number of rows, trees have fewer leaves.
_FEW_ROWS = 4000
_FEW_LEAVES = 8
_LEAVES = 16


class Targets(NamedTuple):
    """Labels of the training rows, and the rows hidden from each of them."""

    known_y: Tensor  # -1 or NaN if unknown.
    group: Tensor | None
    order: Tensor | None
    device: torch.device
    precision: torch.dtype
    num_classes: int


class Nets:
    """Networks of one kind of graph and scaling, trained on different splits."""

    _targets: Targets

    def __init__(
        self, name: str, kind: str, scaling: Scaling, x: Any, models: list[Any]
    ) -> None:
        self.name = name
        self.kind = kind
        self.scaling = scaling
        self.x = x
        self.models = models
        # The distance of held-back rows that only one in a hundred exceeds.
        self.far: float | None = None

    @property
    def serves_far(self) -> bool:
        """Return whether far rows are predicted by these networks."""
        return self.kind == 'none' and self.scaling.scaling == 'robust'

    def prepare(self, targets: Targets) -> None:
        """Index all rows in the networks, in the precision of predictions."""
        self._targets = targets
        rows = to_tensor(self.x, targets.device, targets.precision)
        for model in self.models:
            model.to(targets.precision).eval()
            model.index(rows, targets.known_y)

    def outputs(self, x: Any) -> NDArray[Any]:
        """Compute the mean outputs of new rows, which are not scaled."""
        return self._blockwise(x, lambda model, rows: model(rows))

    @default_modes()
    @torch.no_grad()
    def outputs_and_distances(self, x: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """Compute :meth:`outputs` and :meth:`distances`, by one search."""
        blocks = self._blocks(x)
        pairs = [self.models[0].with_distance(rows) for rows in blocks]
        outputs = [
            torch.cat([out for out, _ in pairs]),
            *(torch.cat([model(b) for b in blocks]) for model in self.models[1:]),
        ]
        distance = torch.cat([distance for _, distance in pairs])
        mean = np.mean([self._finish(out) for out in outputs], axis=0)
        return np.asarray(mean), distance.cpu().double().numpy()

    def without_neighbours(self, x: Any) -> NDArray[Any]:
        """Compute the mean outputs of new rows without their neighbours."""
        return self._blockwise(x, lambda model, rows: model.without_neighbours(rows))

    @default_modes()
    @torch.no_grad()
    def distances(self, x: Any) -> NDArray[Any]:
        """Return the scaled squared distances of new rows to the nearest row."""
        model = self.models[0]
        distances = [model.distance_to_sources(rows) for rows in self._blocks(x)]
        return torch.cat(distances).cpu().double().numpy()

    @default_modes()
    @torch.no_grad()
    def own_outputs(self, x: Any) -> NDArray[Any]:
        """Compute the mean outputs of the training rows from each other."""
        outputs = [
            self._finish(model(*self._own(), **self._seen())) for model in self.models
        ]
        return np.asarray(np.mean(outputs, axis=0))

    @default_modes()
    @torch.no_grad()
    def graphs(self, x: Any = None) -> list[Any]:
        """Return the graph of each network, of new rows or of the training rows."""
        num_rows = self.x.shape[0]
        graphs = []
        for model in self.models:
            calls: list[tuple[Any, dict[str, Any]]]
            if x is None:
                calls = [(self._own(), self._seen())]
            else:
                calls = [((rows,), {}) for rows in self._blocks(x)]
            matrices = []
            for rows, options in calls:
                _, graph = model(*rows, **options, return_graph=True)
                matrices.append(_to_csr(graph, (rows[0].size(0), num_rows)))
            graphs.append(scipy.sparse.vstack(matrices, format='csr'))
        return graphs

    def _own(self) -> tuple[Tensor, Tensor]:
        targets = self._targets
        rows = to_tensor(self.x, targets.device, targets.precision)
        return rows, targets.known_y

    def _seen(self) -> dict[str, Any]:
        targets = self._targets
        return {'group': targets.group, 'order': targets.order}

    def _blocks(self, x: Any) -> list[Tensor]:
        scaled = self.scaling.apply(x)
        targets = self._targets
        return [
            to_tensor(scaled[i : i + _BLOCK], targets.device, targets.precision)
            for i in range(0, x.shape[0], _BLOCK)
        ]

    @default_modes()
    @torch.no_grad()
    def _blockwise(self, x: Any, run: Any) -> NDArray[Any]:
        blocks = self._blocks(x)
        outputs = [
            self._finish(torch.cat([run(model, rows) for rows in blocks]))
            for model in self.models
        ]
        return np.asarray(np.mean(outputs, axis=0))

    def _finish(self, out: Tensor) -> NDArray[Any]:
        out = out.softmax(dim=1) if self._targets.num_classes else out
        return out.double().cpu().numpy()


class SklearnModels:
    """Models of scikit-learn of one kind, fitted on different splits.

    Each fit has one model for all classes, or one for each target.
    """

    def __init__(
        self, name: str, scaling: Scaling, num_classes: int, models: list[list[Any]]
    ) -> None:
        self.name = name
        self.kind = 'linear' if name == LINEAR else 'trees'
        self.scaling = scaling
        self.num_classes = num_classes
        self.models = models
        self.serves_far = True

    def prepare(self, targets: Targets) -> None:
        """Do nothing: these models need no other rows."""

    def outputs(self, x: Any) -> NDArray[Any]:
        """Compute the mean outputs of rows, which are not scaled."""
        x = self.scaling.apply(x, np.float64)
        outputs = [
            sklearn_outputs(models, x, self.num_classes) for models in self.models
        ]
        return np.asarray(np.mean(outputs, axis=0))

    own_outputs = outputs


def sklearn_outputs(models: list[Any], x: Any, num_classes: int) -> NDArray[Any]:
    """Compute the probabilities of all classes, or a column for each target."""
    with threads_for(x.shape[0]):
        if not num_classes:
            return np.stack([model.predict(x) for model in models], axis=1)
        out = np.zeros((x.shape[0], num_classes))
        out[:, models[0].classes_] = models[0].predict_proba(x)
        return out


def fit_linear(x: Any, table: Table, rows: RowSplit, num_classes: int) -> list[Any]:
    """Fit a ridge regression for each target, or a logistic regression."""
    train = rows.train
    y = table.y.cpu().numpy()
    weight = table.weight.cpu().double().numpy()
    make_model: Any = (
        partial(LogisticRegression, max_iter=1000) if num_classes else Ridge
    )
    if num_classes and (y[train] == y[train][0]).all():
        make_model = DummyClassifier
    models = []
    for column in y.reshape(len(y), -1).T:
        model = make_model().fit(x[train], column[train], sample_weight=weight[train])
        models.append(model)
    return models


def fit_trees(
    name: str, x: Any, table: Table, rows: RowSplit, num_classes: int, seed: int
) -> list[Any]:
    """Fit boosted trees, stopped by the held-back rows; one for each target."""
    train = rows.train
    val = rows.val
    options: dict[str, Any] = dict(BOOSTINGS[name], random_state=seed)
    if name == 'slow boosting':
        is_few = len(train) < _FEW_ROWS
        options['max_leaf_nodes'] = _FEW_LEAVES if is_few else _LEAVES
    y = table.y.cpu().numpy()
    weight = table.weight.cpu().double().numpy()
    if num_classes:  # A class that no row trains has no trees to be stopped.
        val = val[np.isin(y[val], y[train])]
    options['early_stopping'] = len(val) > 0
    if len(val) > 0:
        options['max_iter'] = max(_MIN_TREES, _MAX_TREES // max(1, num_classes))
    class_: Any = HistGradientBoostingRegressor
    if num_classes:
        class_ = HistGradientBoostingClassifier
        if (y[train] == y[train][0]).all():
            class_ = DummyClassifier
            options = {}
            val = val[:0]
    models = []
    for column in y.reshape(len(y), -1).T:
        val_data: dict[str, Any] = {}
        if len(val) > 0:
            val_data = {'X_val': x[val], 'y_val': column[val]}
            val_data['sample_weight_val'] = weight[val]
        model = class_(**options)
        model.fit(x[train], column[train], sample_weight=weight[train], **val_data)
        models.append(model)
    return models


def _to_csr(graph: SampledGraph, shape: tuple[int, int]) -> Any:
    """Convert edges to a matrix of targets by sources, with explicit zeros."""
    source, target = graph.edge_index.cpu().numpy()
    weight = graph.edge_weight.detach().cpu().numpy()
    order = np.lexsort((source, target))
    offsets = np.searchsorted(target[order], np.arange(shape[0] + 1))
    data = weight[order]
    return scipy.sparse.csr_matrix((data, source[order], offsets), shape=shape)
