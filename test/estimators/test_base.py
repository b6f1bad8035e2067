"""A fit is all or nothing, and every other method leaves an estimator as it was."""

import copy
import inspect
import pickle
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas
import pytest
import scipy.sparse
import sklearn
import torch
from digest import digest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import torch_geometric_gsl
from torch_geometric_gsl.sklearn import (
    GSLClassifier,
    GSLRegressor,
    _blend,
    make_table_transformer,
)
from torch_geometric_gsl.sklearn._training import Training

pytestmark = [
    pytest.mark.filterwarnings('ignore::sklearn.exceptions.ConvergenceWarning'),
    pytest.mark.filterwarnings('ignore:no signal was found'),
    pytest.mark.filterwarnings('ignore:X (has|does not have valid) feature names'),
    # Training rows are explained.
    pytest.mark.filterwarnings('ignore:.row. equals the training rows'),
    pytest.mark.usefixtures('few_trees'),
]

PACKAGE = str(Path(torch_geometric_gsl.__file__).parent)
BRIEF = {'max_iter': 2, 'random_state': 0}
SMALL = BRIEF | {'n_members': 2, 'hidden_channels': 8}
X = np.random.default_rng(0).normal(size=(80, 3))
FRAME = pandas.DataFrame(X, columns=['a', 'b', 'c']).assign(
    d=['u', 'v', None, 'w'] * 20
)
CLASSES = np.array(['no', 'yes'])[(X[:, 0] > 0).astype(int)]
MAKERS = {
    'learned': lambda: GSLRegressor('learned', **SMALL),
    'blend': lambda: GSLRegressor(**SMALL | {'n_members': 1}),
    'classes': lambda: GSLClassifier('learned', **SMALL),
    'columns': make_table_transformer,
}
TABLES = {'array': X, 'sparse': scipy.sparse.csr_matrix(X), 'frame': FRAME}
#: The tables of each estimator.
CASES = [
    (name, table)
    for name in MAKERS
    for table in TABLES
    if (name, table) != ('columns', 'sparse')
]


@pytest.fixture(autouse=True)
def _even_weights(monkeypatch):
    """Blend all members alike, whatever their losses."""

    def even(outputs, *_, **__):
        return np.full(len(outputs), 1 / len(outputs))

    monkeypatch.setattr(_blend, 'weights_above_constant', even)


def targets(name):
    return CLASSES if name == 'classes' else X @ [1.0, 2.0, 0.0]


@lru_cache
def fitted(name, table):
    """Returns a fitted estimator; a test must leave it as it is."""
    return MAKERS[name]().fit(TABLES[table], targets(name))


def out_of(model, rows):
    return getattr(model, 'predict', getattr(model, 'transform', None))(rows)


# A fit


@contextmanager
def interrupt_of_call(index):
    """Raise at a call into the package, as Ctrl-C does; count the calls."""
    calls = [0]

    def profile(frame, event, _):
        code = frame.f_code
        # Python ignores what is raised while it closes a generator.
        is_generator = code.co_flags & inspect.CO_GENERATOR
        if (
            event == 'call'
            and code.co_filename.startswith(PACKAGE)
            and not is_generator
        ):
            calls[0] += 1
            if calls[0] == index:
                raise KeyboardInterrupt

    sys.setprofile(profile)
    try:
        yield calls
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize(
    ('name', 'table'),
    [
        ('learned', 'frame'),
        ('blend', 'array'),
        ('classes', 'sparse'),
        ('columns', 'frame'),
    ],
)
def test_a_fit_that_is_killed_changes_nothing(name, table):
    rows = TABLES[table]
    y = targets(name)[::-1]
    model = copy.deepcopy(fitted(name, table))
    with interrupt_of_call(0) as calls:  # Of a second fit: the first one fills caches.
        MAKERS[name]().fit(rows[::-1], y)
    before, out = digest(model), out_of(model, rows)
    new = MAKERS[name]()
    unfitted = digest(new)
    for index in np.linspace(2, 0.98 * calls[0], 10).astype(int):
        for estimator, expected in ((model, before), (new, unfitted)):
            with pytest.raises(KeyboardInterrupt), interrupt_of_call(index):
                estimator.fit(rows[::-1], y)
            assert digest(estimator) == expected
        with pytest.raises(NotFittedError):
            out_of(new, rows)
    np.testing.assert_array_equal(out_of(model, rows), out)
    # The same fit, without an interrupt, changes the model.
    assert name == 'columns' or digest(model.fit(rows[::-1], y)) != before


def test_a_signal_changes_nothing(monkeypatch):
    model = copy.deepcopy(fitted('learned', 'array'))
    before = digest(model)

    class Interrupted(Training):
        def __init__(self, *args):
            signal.raise_signal(signal.SIGINT)
            super().__init__(*args)

    monkeypatch.setattr(GSLRegressor, '_training_class', Interrupted)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            model.fit(100 * X + 3, 1000 * targets('learned') + 5e5)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert digest(model) == before


def nan_at(position):
    return np.where(np.arange(80) == position, np.nan, targets('learned'))


#: Fits that raise, at their begin, amid or at their end.
BAD = {
    'a mask': (
        'learned',
        X,
        targets('learned'),
        {'validation_mask': np.zeros(80, bool)},
    ),
    'a target': ('learned', X, nan_at(7), {}),
    'a length': ('learned', X, targets('learned')[:50], {}),
    'a weight': ('learned', X, targets('learned'), {'sample_weight': -np.ones(80)}),
    'large rows': ('learned', 1e60 * X, targets('learned'), {'scaling': 'none'}),
    'a loss': ('learned', X, targets('learned'), {'learning_rate': 1e30}),
    'a parameter': ('learned', X, targets('learned'), {'eval_k': 0}),
    'a device': ('learned', X, targets('learned'), {'device': 'no'}),
    'one class': ('classes', X, np.full(80, 'yes'), {}),
    'two kinds': ('classes', X, ['yes', 1] * 40, {}),
    'a column': ('classes', FRAME.assign(a=[[1]] * 80), CLASSES, {}),
    'a number': ('columns', FRAME.assign(a=np.inf), None, {}),
}


@pytest.mark.filterwarnings('ignore')
@pytest.mark.parametrize('case', BAD)
@pytest.mark.parametrize('table', ['array', 'frame'])
def test_a_fit_that_raises_changes_nothing(case, table):
    name, rows, y, options = BAD[case]
    names = {'validation_mask', 'sample_weight'} & options.keys()
    fit_params = {key: options[key] for key in names}
    params = {key: value for key, value in options.items() if key not in names}
    model = copy.deepcopy(fitted(name, table)).set_params(**params)
    new = clone(model)
    for estimator in (model, new):
        before = digest(estimator)
        with pytest.raises((TypeError, ValueError)):
            estimator.fit(rows, y, **fit_params)
        assert digest(estimator) == before
    with pytest.raises(NotFittedError):
        out_of(new, TABLES[table])


def test_a_refit_keeps_nothing_of_the_first():
    model = copy.deepcopy(fitted('classes', 'frame'))
    model.fit(X, CLASSES)
    new = MAKERS['classes']().fit(X, CLASSES)
    assert vars(model).keys() == vars(new).keys()
    np.testing.assert_array_equal(model.predict_proba(X), new.predict_proba(X))


def test_a_similarity_of_the_caller_is_not_trained():
    similarity = torch_geometric_gsl.nn.GaussianSimilarity(4)
    before = digest(similarity)
    GSLRegressor('learned', similarity=similarity, **SMALL).fit(X, targets('learned'))
    assert digest(similarity) == before


# Other methods

CALLS = {
    'predict': lambda model, x, path: model.predict(x),
    'predict_proba': lambda model, x, path: model.predict_proba(x),
    'is_far': lambda model, x, path: model.is_far(x),
    'contributions': lambda model, x, path: model.contributions(x),
    'report_': lambda model, x, path: model.report_,
    'score': lambda model, x, path: model.score(x, model._rows.targets),
    'transduction_': lambda model, x, path: model.transduction_,
    'graph_': lambda model, x, path: model.graph_,
    'kneighbors': lambda model, x, path: model.kneighbors(x),
    'explain': lambda model, x, path: model.explain(x[:1]),
    'explore': lambda model, x, path: model.explore(path / 'graph.html', x),
    'save': lambda model, x, path: model.save(path / 'model.pt'),
    'transform': lambda model, x, path: model.transform(x),
    'names': lambda model, x, path: model.get_feature_names_out(),
    'repr': lambda model, x, path: (repr(model), str(model), model._repr_html_()),
    'clone': lambda model, x, path: clone(model),
    'params': lambda model, x, path: model.get_params(),
    'pickle': lambda model, x, path: pickle.loads(pickle.dumps(model)),
    'deepcopy': lambda model, x, path: copy.deepcopy(model),
}


@pytest.mark.parametrize('call', CALLS)
@pytest.mark.parametrize(('name', 'table'), CASES)
def test_methods_change_nothing(name, table, call, tmp_path):
    model = fitted(name, table)
    has_call = hasattr(model, call) or call in ('repr', 'clone', 'pickle', 'deepcopy')
    if not has_call and (call, hasattr(model, 'get_feature_names_out')) != ('names', 1):
        pytest.skip(f'{type(model).__name__} has no {call}')
    before = digest(model)
    CALLS[call](model, TABLES[table], tmp_path)
    assert digest(model) == before
    # The same if a call raises: a table of another width, a folder that is absent.
    for rows in (X[:, :2], FRAME[['a']], np.full((80, 4), np.inf), 'x', None):
        with suppress(TypeError, ValueError, OSError, AttributeError):
            CALLS[call](model, rows, tmp_path / 'absent')
        assert digest(model) == before


@pytest.mark.parametrize('table', TABLES)
def test_a_save_that_fails_changes_nothing(table, tmp_path, monkeypatch):
    model, path = fitted('learned', table), tmp_path / 'model.pt'
    model.save(path)
    content, before = path.read_bytes(), digest(model)

    def fail(*_):
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr(torch, 'save', fail)
    with pytest.raises(OSError, match='No space'):
        model.save(path)
    assert (digest(model), path.read_bytes()) == (before, content)
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize('graph', ['learned', 'blend'])
def test_threads_predict_while_one_saves(graph, tmp_path):
    model = fitted(graph, 'array')
    expected = model.predict(X)

    def predict(_):
        return all(np.array_equal(model.predict(X), expected) for _ in range(5))

    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(predict, each) for each in range(7)]
        saved = pool.submit(
            lambda: [model.save(tmp_path / 'model.pt') for _ in range(5)]
        )
        assert all(answer.result() for answer in answers)
    assert len(saved.result()) == 5


# What was fitted


@pytest.mark.parametrize(('name', 'table'), CASES)
def test_parameters_that_are_set_later_change_nothing(name, table, tmp_path):
    rows = TABLES[table]
    model = copy.deepcopy(fitted(name, table))
    changes = {
        **{'graph': 'none', 'eval_k': 2, 'draws': 3, 'similarity': 'linear'},
        **{'hidden_channels': 3, 'dropout': 0.9, 'scaling': 'none', 'n_members': 7},
        **{'block_size': 5, 'learning_rate': 9.0, 'weight_decay': 3.0},
        **{'max_iter': 99, 'validation_fraction': 0.7},
        **{'random_state': 8, 'device': 'meta', 'verbose': True},
    }
    params = model.get_params()
    assert params.keys() <= changes.keys()
    expected = out_of(model, rows)
    model.set_params(**{key: changes[key] for key in params})
    twins = [model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    if hasattr(model, 'save'):
        model.save(tmp_path / 'model.pt')
        twins.append(type(model).load(tmp_path / 'model.pt'))
        assert twins[-1].get_params() == model.get_params()
    for twin in twins:
        np.testing.assert_array_equal(out_of(twin, rows), expected)
        if hasattr(twin, 'save') and twin.graph_.nnz > 0:
            assert twin.kneighbors(rows, 4)[0].shape == (80, 4)


@pytest.mark.parametrize(('name', 'table'), CASES)
def test_later_changes_of_the_rows_change_nothing(name, table):
    rows, y = copy.deepcopy(TABLES[table]), targets(name).copy()
    options = {'scaling': 'none'} if hasattr(MAKERS[name](), 'scaling') else {}
    model = MAKERS[name]().set_params(**options).fit(rows, y)
    before = digest(model)
    if table == 'frame':
        rows[['a', 'b', 'c']] = 9.0
    else:
        (rows.data if table == 'sparse' else rows)[:] = 9.0
    y[:] = y[0]
    assert digest(model) == before


# The state of the process


@contextmanager
def with_default(get, put, value):
    before = get()
    put(value)
    try:
        yield
    finally:
        put(before)


STATES = {
    'float64': lambda: with_default(
        torch.get_default_dtype, torch.set_default_dtype, torch.float64
    ),
    'bfloat16': lambda: with_default(
        torch.get_default_dtype, torch.set_default_dtype, torch.bfloat16
    ),
    'no_grad': torch.no_grad,
    'inference': torch.inference_mode,
    'autocast': lambda: torch.autocast('cpu', torch.bfloat16),
    'device': lambda: torch.device('meta'),
    'deterministic': lambda: with_default(
        torch.are_deterministic_algorithms_enabled,
        torch.use_deterministic_algorithms,
        True,
    ),
    'anomaly': torch.autograd.detect_anomaly,
    'numpy': lambda: np.errstate(all='raise'),
    'frames': lambda: sklearn.config_context(transform_output='pandas'),
    'finite': lambda: sklearn.config_context(assume_finite=True),
}


@pytest.mark.filterwarnings('ignore:Anomaly Detection')
@pytest.mark.parametrize(
    ('name', 'table'),
    [
        ('learned', 'array'),
        ('blend', 'frame'),
        ('classes', 'sparse'),
    ],
)
@pytest.mark.parametrize('state', STATES)
def test_the_state_of_the_process_does_not_count(state, name, table, tmp_path):
    rows = TABLES[table]
    expected = fitted(name, table)
    settings = [
        torch.get_default_dtype,
        torch.is_grad_enabled,
        torch.get_num_threads,
        lambda: torch.get_default_device().type,
    ]
    with STATES[state]():
        before = [setting() for setting in settings]
        model = MAKERS[name]().fit(rows, targets(name))
        out = out_of(model, rows)
        if hasattr(model, 'save'):
            model.save(tmp_path / 'model.pt')
            model = type(model).load(tmp_path / 'model.pt')
            np.testing.assert_array_equal(out_of(model, rows), out)
            model.explore(tmp_path / 'graph.html')
            model.explain(rows[:1])
        assert [setting() for setting in settings] == before
    if name == 'classes':
        np.testing.assert_array_equal(out, expected.predict(rows))
    else:
        np.testing.assert_allclose(out, out_of(expected, rows), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(out_of(model, rows), out)


@pytest.mark.parametrize('dtype', ['>f4', '>f8', np.longdouble, '>i4'])
@pytest.mark.parametrize('as_frame', [True, False])
@pytest.mark.parametrize('name', ['learned', 'classes'])
def test_byte_orders_and_long_doubles(name, as_frame, dtype, tmp_path):
    rows, y = (100 * X).round(), targets(name)
    y = np.unique(y, return_inverse=True)[1] if name == 'classes' else y.round()
    swapped = np.dtype(dtype)
    plain = np.float64 if swapped == np.longdouble else swapped.newbyteorder('=')
    tables = [rows.astype(swapped), rows.astype(plain)]
    if as_frame:
        tables = [pandas.DataFrame(each, columns=['a', 'b', 'c']) for each in tables]
    model, expected = (
        MAKERS[name]().fit(table, y.astype(each))
        for table, each in zip(tables, (swapped, plain), strict=True)
    )
    out = out_of(expected, tables[1])
    np.testing.assert_array_equal(out_of(model, tables[0]), out)
    if hasattr(model, 'save'):
        model.save(tmp_path / 'model.pt')
        loaded = type(model).load(tmp_path / 'model.pt')
        np.testing.assert_array_equal(out_of(loaded, tables[0]), out)
        model.explore(tmp_path / 'graph.html')


def test_masked_values_are_named():
    rows, y = np.ma.array(X, mask=X > 1), targets('learned')
    text = r"'X' must have no masked values \(got \d+\): fill them, or drop their rows"
    for name in ('learned', 'classes'):
        with pytest.raises(ValueError, match=text):
            MAKERS[name]().fit(rows, targets(name))
        with pytest.raises(ValueError, match=text):
            out_of(fitted(name, 'array'), rows)
        MAKERS[name]().fit(np.ma.array(X), targets(name))
    masked = np.ma.array(y, mask=y > 1)
    for arguments in ({'y': masked}, {'y': y, 'sample_weight': masked**2}):
        with pytest.raises(ValueError, match='must have no masked values'):
            MAKERS['learned']().fit(X, **arguments)
    # Columns of a table may have gaps.
    out = make_table_transformer().fit_transform(rows)
    expected = make_table_transformer().fit_transform(np.where(X > 1, np.nan, X))
    np.testing.assert_array_equal(out, expected)


def test_long_doubles_out_of_range_are_told():
    y = targets('learned').astype(np.longdouble)
    if np.finfo(np.longdouble).max <= np.finfo(np.float64).max:
        pytest.skip('long doubles are doubles here')
    with pytest.raises(ValueError, match=r"'y' must hold finite numbers .*inf"):
        MAKERS['learned']().fit(X, y * np.longdouble('1e1000'))


def test_a_subclass_that_fails_early_is_not_fitted():
    class Early(GSLRegressor):
        def fit(self, rows, y):
            self.first_ = 1
            return super().fit(rows, y)

    model = Early('none', **SMALL)
    with pytest.raises(ValueError, match='finite'):
        model.fit(X, nan_at(3))
    with pytest.raises(NotFittedError):
        model.predict(X)


@pytest.mark.parametrize(
    'method', ['predict', 'score', 'is_far', 'contributions', 'kneighbors', 'explain']
)
@pytest.mark.parametrize('estimator', [GSLClassifier(), GSLRegressor()])
def test_methods_of_an_estimator_that_is_not_fitted(estimator, method):
    args = (X, nan_at(0)) if method == 'score' else (X,)
    with pytest.raises(NotFittedError):
        getattr(estimator, method)(*args)
