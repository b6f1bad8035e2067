"""Fit other networks for tables, if their library is installed."""

from __future__ import annotations

import importlib.util
import tempfile
from typing import Any

import numpy as np

from reproduction.tables_data import Array, Problem
from reproduction.tables_neighbours import Fitted, Options


def absence(libraries: str) -> str | None:
    """Return the reason why one of some libraries cannot be used, if any."""
    for name in libraries.split():
        if importlib.util.find_spec(name) is None:
            return f'{name} is not installed'
    return None


def fit_pytabkit(
    problem: Problem, method: Any, choice: Any, options: Options
) -> Fitted:
    """Fit a network of pytabkit with its default settings, on one split."""
    import pytabkit

    kind = 'Classifier' if problem.num_classes else 'Regressor'
    (train, val, _), (y, y_val) = problem.x, problem.y
    with tempfile.TemporaryDirectory() as folder:  # For its checkpoints.
        model = getattr(pytabkit, f'{method.options["name"]}_{kind}')(
            device='cpu',
            random_state=options.seed,
            n_threads=options.threads,
            tmp_folder=folder,
        )
        model.fit(train, y, X_val=val, y_val=y_val)
    predict = model.predict_proba if problem.num_classes else model.predict

    def answer(x: Array) -> Array:
        found = np.asarray(predict(x))
        return found if problem.num_classes else found.reshape(-1)

    return Fitted(answer, answer(val))
