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


def control_losses(
    x: Any, y: Any, weight: Any, rows: Rows, num_classes: int, constant: Any
) -> dict[str, float]:
    """Return the losses of a constant, and of nearest rows by standardized columns.

    Nearest rows are found among at most 20,000 rows; sparse ones have unit norm.
    """
    random = np.random.RandomState(0)
    train, val = (
        random.permutation(part)[:_MOST_ROWS] for part in (rows.train, rows.val)
    )
    y_val, weight_val = y[val], weight[val]
    options: Any = {'is_class': num_classes > 0}
    even = np.broadcast_to(constant, (len(val), len(constant)))
    losses = {'constant': mean_loss(even, y_val, weight_val, **options)}
    k = min(_NEAREST, len(train))
    # Our own scaling takes values of any unit.
    scaling = Scaling('unit norm' if scipy.sparse.issparse(x) else 'standard')
    both = x[np.concatenate([train, val])]
    scaled = scaling.fit(both).apply(both, np.float64)
    near = KNeighborsClassifier(k) if num_classes else KNeighborsRegressor(k)
    near.fit(scaled[: len(train)], y[train])
    held = scaled[len(train) :]
    if num_classes:
        out = np.zeros((len(val), num_classes))
        out[:, near.classes_] = near.predict_proba(held)
    else:
        out = near.predict(held).reshape(len(val), -1)
    losses[f'{k} nearest rows'] = mean_loss(out, y_val, weight_val, **options)
    return losses
