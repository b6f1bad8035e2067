"""Methods for tables, and the search for settings of those that are tuned."""

from __future__ import annotations

import importlib.util
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from reproduction.files import read_json, write_json
from reproduction.tables_data import SOURCES, Array, Problem, better, score
from reproduction.tables_neighbours import COLUMNS, PLACE, Fitted, Options, fit_knn
from reproduction.tables_ours import fit_net
from reproduction.tables_trees import draw_choice, fit_trees


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

    task = 'Classifier' if problem.num_classes else 'Regressor'
    train, val, _ = problem.x
    y, y_val = problem.y
    with tempfile.TemporaryDirectory() as folder:  # For its checkpoints.
        model = getattr(pytabkit, f'{method.options["name"]}_{task}')(
            device='cpu',
            random_state=options.seed,
            n_threads=options.threads,
            tmp_folder=folder,
        )
        model.fit(train, y, X_val=val, y_val=y_val)
    predict = model.predict_proba if problem.num_classes else model.predict

    def answer(x: Array) -> Array:
        predictions = np.asarray(predict(x))
        return predictions if problem.num_classes else predictions.reshape(-1)

    return Fitted(answer, answer(val))


#: Every number that results depend on, except the number of trials.
SETTING: dict[str, Any] = {
    'trees': 2000,
    'patience': 50,
    'near': [5, 10, 20],
    'neighbours': [1, 2, 3, 5, 7, 10, 15, 20, 30, 50],
    'revision': 1,
}
#: Trials of a search, besides the default settings of the library.
TRIALS = 20


class Method(NamedTuple):
    """A row of the tables.

    Args:
        title: Its name in the tables.
        group: `control`, `ours`, `ablation`, `other` for an optional library, or
            `earlier` for results of a version whose code is gone.
        kind: The function that fits it: `knn`, `trees`, `net` or `pytabkit`.
        options: Arguments that define the method.
        near: Ways to compare rows (`NEAR`); targets of near rows become columns.
        is_tuned: If `True`, its settings are searched.
        library: Libraries that only this method needs, separated by spaces.
        revision: Increased when the method changes: earlier runs then do not count.
    """

    title: str
    group: str
    kind: str
    options: dict[str, Any] = {}  # noqa: RUF012
    near: tuple[str, ...] = ()
    is_tuned: bool = False
    library: str = ''
    revision: int = 0


NEAR = (COLUMNS, PLACE)
TITLES = {
    'hist_boosting': 'HistGradientBoosting',
    'lightgbm': 'LightGBM',
    'xgboost': 'XGBoost',
    'catboost': 'CatBoost',
}
IN_LIGHTGBM = {'library': 'lightgbm'}
OTHERS = {'tabr': 'TabR_S_D', 'realmlp': 'RealMLP_TD', 'tabm': 'TabM_D'}


def _trees(name: str, is_tuned: bool) -> Method:
    return Method(
        f'{TITLES[name]}, {"tuned" if is_tuned else "default"}',
        'control',
        'trees',
        {'library': name},
        is_tuned=is_tuned,
        library='' if name == 'hist_boosting' else name,
    )


def _near(title: str, near: tuple[str, ...], is_tuned: bool = False) -> Method:
    return Method(
        f'LightGBM, {title}, {"tuned" if is_tuned else "default"}',
        'control',
        'trees',
        IN_LIGHTGBM,
        near,
        is_tuned,
        'lightgbm',
    )


def _net(title: str, group: str, graph: str = 'learned', **options: Any) -> Method:
    return Method(title, group, 'net', {'graph': graph, 'n_members': 1} | options)


def _variant(title: str, **options: Any) -> Method:
    return _net(title, 'ablation', **options)


def _blend(title: str, group: str, **options: Any) -> Method:
    return Method(title, group, 'net', {'graph': 'auto', **options})


def _earlier(title: str) -> Method:
    return Method(f'{title}, 0.2.0', 'earlier', 'net')


#: Cheap ones first: they run in this order.
METHODS = {
    'knn': Method('nearest rows, tuned', 'control', 'knn'),
    **{name: _trees(name, False) for name in ('lightgbm', 'hist_boosting', 'xgboost')},
    'lightgbm_near': _near('targets of near rows', NEAR),
    'lightgbm_place': _near('targets of near places', (PLACE,)),
    'catboost': _trees('catboost', False),
    'mlp': _net('MLP, the same network', 'control', 'none'),
    'ours': _net('learned graph', 'ours'),
    'blend': _blend('blend', 'ours'),
    'no_labels': _variant('without labels', network='no_labels'),
    'frozen': _variant('keys not learned', network='frozen'),
    'cosine': _variant('cosine', similarity='cosine'),
    'draws': _variant('four relaxed draws', draws=4),
    'no_periodic': _variant('without embeddings', network='no_periodic'),
    'one_block': _variant('one residual block', network='one_block'),
    'relu': _variant('ReLU', network='relu'),
    'quantile': _variant('columns in quantiles', scaling='quantile'),
    'log_target': _blend('blend, logarithm of the target', 'ablation', log_target=True),
    'snapshots': _variant('mean of the last two cycles', snapshots=True),
    # Twice a half of the epochs that training mostly takes on California.
    'two_short': _variant('two members, half as long', n_members=2, max_iter=21),
    'no_boosting': _blend('blend without boosting', 'ablation', without='trees'),
    'no_linear': _blend('blend without linear model', 'ablation', without='linear'),
    'no_graph': _blend('blend without learned graphs', 'ablation', without='learned'),
    'mlp_0_2': _earlier('MLP'),
    'ours_0_2': _earlier('learned graph'),
    'ours_4_0_2': _earlier('learned graph, four members'),
    **{f'{name}_tuned': _trees(name, True) for name in TITLES},
    'lightgbm_near_tuned': _near('targets of near rows', NEAR, True),
    **{
        name: Method(
            title.split('_')[0],
            'other',
            'pytabkit',
            {'name': title},
            library='pytabkit faiss' if name == 'tabr' else 'pytabkit',
        )
        for name, title in OTHERS.items()
    },
}
Fit = Callable[[Problem, Method, dict[str, Any], Options], Fitted]
FITS: dict[str, Fit] = {
    'knn': fit_knn,
    'trees': fit_trees,
    'net': fit_net,
    'pytabkit': fit_pytabkit,
}


def obstacle(table: str, method: str) -> str | None:
    """Return the reason why a method does not run on a table, if any."""
    entry = METHODS[method]
    if entry.group == 'earlier':
        return 'it was measured with an earlier version'
    if entry.near == (PLACE,) and not SOURCES[table].coordinates:
        return 'the table has no places'
    return absence(entry.library)


def fit(
    problem: Problem, method: Method, choice: dict[str, Any], options: Options
) -> Fitted:
    """Fit a method with the settings of a choice."""
    return FITS[method.kind](problem, method, choice, options)


def search(
    problem: Problem, method: Method, options: Options, trials: int, path: Path
) -> dict[str, Any]:
    """Search the settings that predict the validation rows best.

    Finished trials are stored in the file; a restarted search continues after them.
    """
    # Trials of other settings, methods or seeds do not count.
    about = json.loads(json.dumps([options.setting, method._asdict(), options.seed]))
    stored = read_json(path) or {}
    done = stored['trials'] if stored.get('about') == about else []
    best: dict[str, Any] = {}
    for trial in range(trials + 1):
        if trial == len(done):
            choice = draw_choice(problem, method, options.seed, trial)
            val = fit(problem, method, choice, options).val
            assert val is not None  # Their targets were not used.
            scores = score(problem.y[1], val, problem.num_classes)
            done.append({'choice': choice, 'val': scores})
            write_json(path, {'about': about, 'trials': done})
        if not best or better(done[trial]['val'], best['val']):
            best = done[trial]
    return dict(best['choice'])
