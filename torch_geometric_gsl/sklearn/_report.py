"""Losses of a constant and of nearest rows, to compare members with."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

from torch_geometric_gsl.sklearn._blend import mean_loss
from torch_geometric_gsl.sklearn._scaling import Scaling
from torch_geometric_gsl.sklearn._splits import RowSplit

# The controls are fitted on at most this number of rows.
_MAX_ROWS = 20_000
# The number of nearest rows.
_NUM_NEAREST = 10


def constant_of(y: Any, weight: Any, num_classes: int) -> Any:
    """Return the weighted mean target, or the shares of the classes."""
    return np.average(np.eye(num_classes)[y] if num_classes else y, 0, weight)


def control_losses(
    x: Any, y: Any, weight: Any, splits: list[RowSplit], num_classes: int
) -> dict[str, float]:
    """Return the losses of a constant, and of nearest rows by standardized columns.

    They predict the held-back rows of all splits. Nearest rows are found among at most
    20,000 rows; sparse ones have unit norm.
    """
    # Our own scaling takes values of any unit.
    scaling = Scaling('unit norm' if scipy.sparse.issparse(x) else 'standard')
    scaled = scaling.fit(x).apply(x, np.float64)
    random = np.random.RandomState(0)
    k = min(_NUM_NEAREST, *(len(rows.train) for rows in splits))
    outputs: dict[str, list[Any]] = {'constant': [], f'{k} nearest rows': []}
    vals = []
    for rows in splits:
        train, val = (
            random.permutation(indices)[:_MAX_ROWS]
            for indices in (rows.train, rows.val)
        )
        vals.append(val)
        constant = constant_of(y[train], weight[train], num_classes)
        outputs['constant'].append(np.tile(constant, (len(val), 1)))
        knn = KNeighborsClassifier(k) if num_classes else KNeighborsRegressor(k)
        knn.fit(scaled[train], y[train])
        if num_classes:
            out = np.zeros((len(val), num_classes))
            out[:, knn.classes_] = knn.predict_proba(scaled[val])
        else:
            out = knn.predict(scaled[val]).reshape(len(val), -1)
        outputs[f'{k} nearest rows'].append(out)
    val = np.concatenate(vals)
    return {
        name: mean_loss(
            np.concatenate(blocks), y[val], weight[val], is_class=num_classes > 0
        )
        for name, blocks in outputs.items()
    }
