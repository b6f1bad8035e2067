"""The members of a blend, fitted on splits of a table, and models to compare with."""

from __future__ import annotations

from functools import partial
from typing import Any

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
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from torch import Tensor

from torch_geometric_gsl.sklearn._runtime import default_modes, threads_for
from torch_geometric_gsl.sklearn._scaling import Scaling, to_tensor
from torch_geometric_gsl.sklearn._splits import RowSplit, Table

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
# The number of nearest rows to compare with, and of rows among which they are found.
_NUM_NEAREST = 10
_MAX_ROWS = 20_000


class Nets:
    """Networks of one graph and one scaling, trained on different splits."""

    # Of the training rows: labels, and which rows each of them sees.
    known_y: Tensor
    row_mask: dict[str, Tensor | None]

    def __init__(
        self, name: str, family: str, scaling: Scaling, num_classes: int, x: Any
    ) -> None:
        self.name = name
        self.family = family  # 'learned' or 'none', the graph of the networks.
        self.scaling = scaling
        self.num_classes = num_classes
        self.x = x
        self.models: list[Any] = []
        # The distance of held-back rows that only one in a hundred exceeds.
        self.far: float | None = None

    @property
    def serves_far(self) -> bool:
        """Return whether far rows are predicted by these networks."""
        return self.family == 'none' and self.scaling.scaling == 'robust'

    def prepare(
        self,
        known_y: Tensor,
        row_mask: dict[str, Tensor | None],
        precision: torch.dtype,
    ) -> None:
        """Index all rows in the networks, in the precision of predictions."""
        self.known_y = known_y
        self.row_mask = row_mask
        for model in self.models:
            model.to(precision).eval()
            model.index(self._to_tensor(self.x), known_y)

    def outputs(self, x: Any) -> NDArray[Any]:
        """Compute the mean outputs of new rows, which are not scaled."""
        return self._mean_of_blocks(x, lambda model, rows: model(rows))

    def without_neighbours(self, x: Any) -> NDArray[Any]:
        """Compute the mean outputs of new rows without their neighbours."""
        return self._mean_of_blocks(
            x, lambda model, rows: model.without_neighbours(rows)
        )

    @default_modes()
    @torch.no_grad()
    def _mean_of_blocks(self, x: Any, run: Any) -> NDArray[Any]:
        blocks = self._blocks(x)
        return self._mean(
            [torch.cat([run(model, rows) for rows in blocks]) for model in self.models]
        )

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
        return self._mean(outputs), distance.cpu().double().numpy()

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
        args = self._to_tensor(self.x), self.known_y
        return self._mean([model(*args, **self.row_mask) for model in self.models])

    @default_modes()
    @torch.no_grad()
    def graphs(self, x: Any = None) -> list[Any]:
        """Return the graph of each network, of new rows or of the training rows."""
        calls: list[Any] = [((self._to_tensor(self.x), self.known_y), self.row_mask)]
        if x is not None:
            calls = [((rows,), {}) for rows in self._blocks(x)]
        graphs = []
        for model in self.models:
            matrices = []
            for args, row_mask in calls:
                _, graph = model(*args, **row_mask, return_graph=True)
                source, target = graph.edge_index.cpu().numpy()
                weight = graph.edge_weight.cpu().numpy()
                shape = args[0].size(0), self.x.shape[0]
                matrices.append(
                    scipy.sparse.csr_matrix((weight, (target, source)), shape)
                )
            graphs.append(scipy.sparse.vstack(matrices, format='csr'))
        return graphs

    def _to_tensor(self, rows: Any) -> Tensor:
        """Convert scaled rows to the device and the precision of the networks."""
        weight = self.models[0].head.weight
        return to_tensor(rows, weight.device, weight.dtype)

    def _blocks(self, x: Any) -> list[Tensor]:
        rows = self.scaling.apply(x)
        return [
            self._to_tensor(rows[i : i + _BLOCK]) for i in range(0, x.shape[0], _BLOCK)
        ]

    def _mean(self, outputs: list[Tensor]) -> NDArray[Any]:
        """Return the mean over networks, of probabilities if there are classes."""
        if self.num_classes:
            outputs = [out.softmax(dim=1) for out in outputs]
        mean = np.mean([out.double().cpu().numpy() for out in outputs], axis=0)
        return np.asarray(mean)


class SklearnModels:
    """Models of scikit-learn of one setting, fitted on different splits.

    Each fit has one model for all classes, or one for each target.
    """

    serves_far = True

    def __init__(
        self, name: str, scaling: Scaling, num_classes: int, models: list[list[Any]]
    ) -> None:
        self.name = name
        self.family = 'linear' if name == LINEAR else 'trees'
        self.scaling = scaling
        self.num_classes = num_classes
        self.models = models

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


def fit_sklearn(
    name: str,
    x: Any,
    table: Table,
    split: RowSplit,
    num_classes: int,
    seed: int | None = None,
) -> list[Any]:
    """Fit one model for all classes, or one for each target.

    The model is linear, or of boosted trees, which the held-back rows stop.
    """
    train = split.train
    y = table.y.cpu().numpy()
    weight = table.weight.cpu().double().numpy()
    val = split.val[:0] if name == LINEAR else split.val
    if num_classes:  # A class that no row trains has no trees to be stopped.
        val = val[np.isin(y[val], y[train])]
    is_one_class = num_classes > 0 and (y[train] == y[train][0]).all()
    if is_one_class:
        make_model: Any = DummyClassifier
        val = val[:0]
    elif name == LINEAR:
        logistic = partial(LogisticRegression, max_iter=1000)
        make_model = logistic if num_classes else Ridge
    else:
        options: dict[str, Any] = dict(BOOSTINGS[name], random_state=seed)
        if name == 'slow boosting':
            is_few = len(train) < _FEW_ROWS
            options['max_leaf_nodes'] = _FEW_LEAVES if is_few else _LEAVES
        options['early_stopping'] = len(val) > 0
        if len(val) > 0:
            options['max_iter'] = max(_MIN_TREES, _MAX_TREES // max(1, num_classes))
        boosting: Any = (
            HistGradientBoostingClassifier
            if num_classes
            else HistGradientBoostingRegressor
        )
        make_model = partial(boosting, **options)
    models = []
    for column in y.reshape(len(y), -1).T:
        val_data: dict[str, Any] = {}
        if len(val) > 0:
            val_data = {'X_val': x[val], 'y_val': column[val]}
            val_data['sample_weight_val'] = weight[val]
        model = make_model()
        model.fit(x[train], column[train], sample_weight=weight[train], **val_data)
        models.append(model)
    return models


def constant_of(y: Any, weight: Any, num_outputs: int) -> Any:
    """Return the weighted mean of targets, or the shares of classes, which are 1-D."""
    return np.average(np.eye(num_outputs)[y] if y.ndim == 1 else y, 0, weight)


def control_outputs(
    x: Any, y: Any, weight: Any, splits: list[RowSplit], num_outputs: int
) -> tuple[dict[str, Any], NDArray[Any]]:
    """Compute outputs of a constant, and of nearest rows by standardized columns.

    Returns those of held-back rows of all splits, and the indices of these rows.
    Nearest rows are found among at most 20,000 rows; sparse ones have unit norm.
    """
    # Our own scaling takes values of any unit.
    scaling = Scaling('unit norm' if scipy.sparse.issparse(x) else 'standard')
    scaled = scaling.fit(x).apply(x, np.float64)
    is_class = y.ndim == 1
    random = np.random.RandomState(0)
    k = min(_NUM_NEAREST, *(len(split.train) for split in splits))
    constants = []
    nearest = []
    rows = []
    for split in splits:
        train = random.permutation(split.train)[:_MAX_ROWS]
        val = random.permutation(split.val)[:_MAX_ROWS]
        rows.append(val)
        constant = constant_of(y[train], weight[train], num_outputs)
        constants.append(np.tile(constant, (len(val), 1)))
        knn = KNeighborsClassifier(k) if is_class else KNeighborsRegressor(k)
        knn.fit(scaled[train], y[train])
        out = np.zeros((len(val), num_outputs))
        if is_class:
            out[:, knn.classes_] = knn.predict_proba(scaled[val])
        else:
            out = knn.predict(scaled[val]).reshape(out.shape)
        nearest.append(out)
    outputs = {'constant': constants, f'{k} nearest rows': nearest}
    concatenated = {name: np.concatenate(blocks) for name, blocks in outputs.items()}
    return concatenated, np.concatenate(rows)
