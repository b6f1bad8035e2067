"""Losses of simple models beside the members of a blend."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

from torch_geometric_gsl.sklearn._blend import mean_loss
from torch_geometric_gsl.sklearn._rows import Scaling
from torch_geometric_gsl.sklearn._splits import Rows

# The controls are fitted on at most this number of rows.
_MOST_ROWS = 20_000
# The number of nearest rows.
_NEAREST = 10


def constant_of(y: Any, weight: Any, num_classes: int) -> Any:
    """Return the weighted mean target, or the shares of the classes."""
    return np.average(np.eye(num_classes)[y] if num_classes else y, 0, weight)


def control_losses(
    x: Any, y: Any, weight: Any, splits: list[Rows], num_classes: int
) -> dict[str, float]:
    """Return the losses of a constant, and of nearest rows by standardized columns.

    They predict the held-back rows of all splits. Nearest rows are found among at most
    20,000 rows; sparse ones have unit norm.
    """
    # Our own scaling takes values of any unit.
    scaling = Scaling('unit norm' if scipy.sparse.issparse(x) else 'standard')
    scaled = scaling.fit(x).apply(x, np.float64)
    random = np.random.RandomState(0)
    k = min(_NEAREST, *(len(rows.train) for rows in splits))
    outputs: dict[str, list[Any]] = {'constant': [], f'{k} nearest rows': []}
    held = []
    for rows in splits:
        train, val = (
            random.permutation(part)[:_MOST_ROWS] for part in (rows.train, rows.val)
        )
        held.append(val)
        constant = constant_of(y[train], weight[train], num_classes)
        outputs['constant'].append(np.tile(constant, (len(val), 1)))
        near = KNeighborsClassifier(k) if num_classes else KNeighborsRegressor(k)
        near.fit(scaled[train], y[train])
        if num_classes:
            out = np.zeros((len(val), num_classes))
            out[:, near.classes_] = near.predict_proba(scaled[val])
        else:
            out = near.predict(scaled[val]).reshape(len(val), -1)
        outputs[f'{k} nearest rows'].append(out)
    val = np.concatenate(held)
    return {
        name: mean_loss(
            np.concatenate(parts), y[val], weight[val], is_class=num_classes > 0
        )
        for name, parts in outputs.items()
    }
