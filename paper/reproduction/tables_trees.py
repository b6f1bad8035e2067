"""Fit boosted trees to tables, with default or searched settings.

The spaces of LightGBM, XGBoost and CatBoost are those of the authors of TabR (Gorishniy
et al., 2024), with trees of a depth of at most 10, as in their work of 2021; the space
of scikit-learn's trees is that of auto-sklearn (Feurer et al., 2022).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from reproduction.tables_data import Array, Problem, score
from reproduction.tables_neighbours import COLUMNS, PLACE, Described, Fitted, Options

Choice = dict[str, Any]
Fit = Callable[[Problem, Described, Choice, Options], Callable[[Array], Array]]


class Draws:
    """Sampler of settings, reproducible by seed and trial."""

    def __init__(self, seed: int, trial: int) -> None:
        self.rng = np.random.default_rng([seed, trial])

    def uniform(self, low: float, high: float) -> float:
        return float(self.rng.uniform(low, high))

    def log(self, low: float, high: float) -> float:
        return math.exp(self.rng.uniform(math.log(low), math.log(high)))

    def log_or_zero(self, low: float, high: float) -> float:
        value = self.log(low, high)
        return value if self.rng.random() < 0.5 else 0.0

    def integer(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high, endpoint=True))

    def log_integer(self, low: int, high: int) -> int:
        return min(high, math.floor(self.log(low, high + 1)))

    def one_of(self, values: list[Any]) -> Any:
        return values[int(self.rng.integers(len(values)))]


def _lightgbm_space(draws: Draws) -> Choice:
    return {
        'colsample_bytree': draws.uniform(0.5, 1.0),
        'reg_lambda': draws.log_or_zero(0.1, 10.0),
        'learning_rate': draws.log(0.001, 1.0),
        'num_leaves': draws.integer(4, 768),
        'min_child_weight': draws.log(1e-4, 100.0),
        'subsample': draws.uniform(0.5, 1.0),
        'subsample_freq': 1,
    }


def _xgboost_space(draws: Draws) -> Choice:
    return {
        'colsample_bytree': draws.uniform(0.5, 1.0),
        'gamma': draws.log_or_zero(0.001, 100.0),
        'reg_lambda': draws.log_or_zero(0.1, 10.0),
        'learning_rate': draws.log(0.001, 1.0),
        'max_depth': draws.integer(3, 10),
        'min_child_weight': draws.log(1e-4, 100.0),
        'subsample': draws.uniform(0.5, 1.0),
    }


def _catboost_space(draws: Draws) -> Choice:
    return {
        'bootstrap_type': 'Bayesian',
        'bagging_temperature': draws.uniform(0.0, 1.0),
        'depth': draws.integer(3, 10),
        'l2_leaf_reg': draws.uniform(0.1, 10.0),
        'leaf_estimation_iterations': draws.integer(1, 10),
        'learning_rate': draws.log(0.001, 1.0),
    }


def _hist_boosting_space(draws: Draws) -> Choice:
    return {
        'learning_rate': draws.log(0.01, 1.0),
        'min_samples_leaf': draws.log_integer(1, 200),
        'max_leaf_nodes': draws.log_integer(3, 2047),
        'l2_regularization': draws.log(1e-10, 1.0),
    }


SPACES = {
    'lightgbm': _lightgbm_space,
    'xgboost': _xgboost_space,
    'catboost': _catboost_space,
    'hist_boosting': _hist_boosting_space,
}


def draw_choice(problem: Problem, method: Any, seed: int, trial: int) -> Choice:
    """Sample the settings of a trial; the first one has the defaults of the library."""
    if trial == 0:
        return {}
    draws = Draws(seed, trial)
    choice = SPACES[method.options['library']](draws)
    if method.near and problem.coordinates:
        choice['near'] = draws.one_of([[COLUMNS], [PLACE], [COLUMNS, PLACE]])
    return choice


def fit_trees(
    problem: Problem, method: Any, choice: Choice, options: Options
) -> Fitted:
    """Fit boosted trees with early stopping on the validation rows."""
    parameters = {key: value for key, value in choice.items() if key != 'near'}
    rows = Described(problem, choice.get('near', method.near), options)
    library = method.options['library']
    predict = LIBRARIES[library](problem, rows, parameters, options)
    return Fitted(lambda x: predict(rows.new(x)), predict(rows.val), choice)


def _predictor(model: Any, num_classes: int) -> Callable[[Array], Array]:
    """Return the function of a model that predicts numbers or class probabilities."""
    predict = model.predict_proba if num_classes else model.predict

    def answer(x: Array) -> Array:
        return np.asarray(predict(x))

    return answer


def _lightgbm(
    problem: Problem, rows: Described, choice: Choice, options: Options
) -> Callable[[Array], Array]:
    import lightgbm

    num_classes = problem.num_classes
    y, y_val = problem.y
    kinds = {0: {'objective': 'regression'}, 2: {'objective': 'binary'}}
    several = {'objective': 'multiclass', 'num_class': num_classes}
    about = {'num_threads': options.threads, 'seed': options.seed, 'verbosity': -1}
    train = lightgbm.Dataset(rows.train, y)
    booster = lightgbm.train(
        kinds.get(num_classes, several) | about | choice,
        train,
        options.setting['trees'],
        valid_sets=[train.create_valid(rows.val, y_val)],
        callbacks=[lightgbm.early_stopping(options.setting['patience'], verbose=False)],
    )

    def answer(x: Array) -> Array:
        predictions = np.asarray(booster.predict(x, num_threads=options.threads))
        return (
            np.stack([1 - predictions, predictions], axis=1)
            if num_classes == 2
            else predictions
        )

    return answer


def _xgboost(
    problem: Problem, rows: Described, choice: Choice, options: Options
) -> Callable[[Array], Array]:
    import xgboost

    estimator = xgboost.XGBClassifier if problem.num_classes else xgboost.XGBRegressor
    model = estimator(
        n_estimators=options.setting['trees'],
        early_stopping_rounds=options.setting['patience'],
        n_jobs=options.threads,
        random_state=options.seed,
        **choice,
    )
    seen = [(rows.val, problem.y[1])]
    model.fit(rows.train, problem.y[0], eval_set=seen, verbose=False)
    return _predictor(model, problem.num_classes)


def _catboost(
    problem: Problem, rows: Described, choice: Choice, options: Options
) -> Callable[[Array], Array]:
    import catboost

    is_class = bool(problem.num_classes)
    estimator = catboost.CatBoostClassifier if is_class else catboost.CatBoostRegressor
    model = estimator(
        iterations=options.setting['trees'],
        early_stopping_rounds=options.setting['patience'],
        thread_count=options.threads,
        random_seed=options.seed,
        allow_writing_files=False,
        verbose=False,
        **choice,
    )
    model.fit(rows.train, problem.y[0], eval_set=(rows.val, problem.y[1]))
    return _predictor(model, problem.num_classes)


def _hist_boosting(
    problem: Problem, rows: Described, choice: Choice, options: Options
) -> Callable[[Array], Array]:
    from sklearn import ensemble

    name = 'Classifier' if problem.num_classes else 'Regressor'
    model = getattr(ensemble, f'HistGradientBoosting{name}')(
        max_iter=options.setting['trees'],
        early_stopping=True,
        n_iter_no_change=options.setting['patience'],
        random_state=options.seed,
        **choice,
    )
    model.fit(rows.train, problem.y[0], X_val=rows.val, y_val=problem.y[1])
    staged = model.staged_predict_proba if problem.num_classes else model.staged_predict
    # It keeps the trees after the best one, which other libraries drop.
    losses = [
        [*score(problem.y[1], predictions, problem.num_classes).values()][-1]
        for predictions in staged(rows.val)
    ]
    best = int(np.argmin(losses))
    return lambda x: np.asarray(next(itertools.islice(staged(x), best, None)))


LIBRARIES: dict[str, Fit] = {
    'lightgbm': _lightgbm,
    'xgboost': _xgboost,
    'catboost': _catboost,
    'hist_boosting': _hist_boosting,
}
