"""Fit other networks for tables, where their library is installed."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np

from reproduction.tables_data import Array, Problem
from reproduction.tables_neighbours import Fitted, Options


def absence(library: str) -> str | None:
    """Say why a library cannot be used, if it cannot."""
    if not library or importlib.util.find_spec(library) is not None:
        return None
    return f'{library} is not installed'


def fit_pytabkit(
    problem: Problem, method: Any, choice: Any, options: Options
) -> Fitted:
    """Fit a network of pytabkit with its default settings, on one split."""
    import pytabkit

    kind = 'Classifier' if problem.num_classes else 'Regressor'
    model = getattr(pytabkit, f'{method.options["name"]}_{kind}')(
        device='cpu',
        random_state=options.seed,
        n_threads=options.threads,
        verbosity=0,
    )
    train, val, _ = problem.x
    # It takes rows of validation as the numbers of some of all rows.
    x, y = np.concatenate([train, val]), np.concatenate(problem.y)
    model.fit(x, y, val_idxs=np.arange(len(train), len(x)))
    predict = model.predict_proba if problem.num_classes else model.predict

    def answer(x: Array) -> Array:
        return np.asarray(predict(x)).reshape(len(x), *([-1] * bool(kind[0] == 'C')))

    return Fitted(answer, answer(val))
