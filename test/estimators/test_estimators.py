"""The estimators for scikit-learn."""

import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread

import numpy as np
import pytest
import scipy.sparse
import torch
from joblib import parallel_config
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_wine, make_classification
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils import check_random_state
from sklearn.utils.estimator_checks import parametrize_with_checks

from torch_geometric_gsl.sklearn import (
    GSLClassifier,
    GSLNeighborsTransformer,
    GSLRegressor,
)

#: Fits end before they have converged.
pytestmark = pytest.mark.filterwarnings('ignore::sklearn.exceptions.ConvergenceWarning')

QUICK = {'n_members': 1, 'max_iter': 20, 'learning_rate': 0.01}
#: Enough for the accuracy that scikit-learn asks of classifiers, not of regressors.
BRIEF = {'n_members': 1, 'max_iter': 8, 'learning_rate': 0.02}
FEW = {'hidden_channels': 16, 'random_state': 0} | QUICK
GRAPHS = ('learned', 'nearest', 'none')
#: A row of weight 0 remains a node, and one of weight 2 is no second node.
WEIGHTS_OF_NODES = {
    f'check_sample_weight_equivalence_on_{kind}_data': 'rows are nodes of a graph'
    for kind in ('dense', 'sparse')
}


def expected_failures(estimator):
    is_transformer = isinstance(estimator, GSLNeighborsTransformer)
    return {} if is_transformer else WEIGHTS_OF_NODES


@parametrize_with_checks(
    [
        GSLClassifier('learned', **BRIEF),
        GSLRegressor(**QUICK),  # It fits each kind of graph.
        GSLNeighborsTransformer(),
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        check(estimator)


@pytest.fixture(scope='module')
def wine():
    return load_wine(return_X_y=True)


@pytest.mark.parametrize('graph', [*GRAPHS, 'auto'])
def test_wine(wine, graph):
    x, y = wine
    model = GSLClassifier(graph, random_state=0, max_iter=60).fit(x[::2], y[::2])
    assert model.score(x[1::2], y[1::2]) > 0.9
    share = model.predict_proba(x[1::2])
    np.testing.assert_allclose(share.sum(axis=1), 1)
    assert share.dtype == x.dtype
    assert model.graph_.shape == (89, 89)
    if graph != 'auto':
        assert model.graph_choice_ == graph
    if model.graph_choice_ == 'learned':
        np.testing.assert_allclose(model.graph_.sum(axis=1), 1)
        assert model.graph_.diagonal().max() == 0
    assert (model.graph_.nnz == 0) == (model.graph_choice_ == 'none')


def test_auto_is_what_validation_prefers(wine):
    each = {graph: GSLClassifier(graph, **FEW).fit(*wine) for graph in GRAPHS}
    auto = GSLClassifier(**FEW).fit(*wine)
    losses = {graph: model.validation_loss_ for graph, model in each.items()}
    assert auto.graph_losses_ == losses
    assert auto.graph_choice_ == min(losses, key=losses.get)
    chosen = each[auto.graph_choice_]
    assert np.array_equal(auto.predict_proba(wine[0]), chosen.predict_proba(wine[0]))


@pytest.mark.parametrize('graph', GRAPHS)
def test_the_answer_to_a_row_depends_on_no_other(wine, graph):
    x, y = wine
    model = GSLClassifier(graph, **FEW).fit(x[::2], y[::2])
    together = model.predict_proba(x[1::2])
    for row in range(5):
        alone = model.predict_proba(x[1::2][row : row + 1])
        np.testing.assert_allclose(alone[0], together[row], rtol=1e-6)


@pytest.mark.parametrize('graph', GRAPHS)
def test_rows_of_training_get_classes_among_each_other(wine, graph, tmp_path):
    x, y = wine
    some = np.where(np.arange(len(y)) % 3 == 0, y, -1)
    model = GSLClassifier(graph, **FEW).fit(x, some)
    found = model.transduction_
    # A row's own label makes no difference to what the others tell it.
    for row in (0, 3):
        model._told[row] = (model._told[row] + 1) % 3
        moved = model._own()[0, row]
        model._told[row] = int(some[row])
        assert torch.equal(moved, model._own()[0, row])
    model.save(tmp_path / 'model.pt')
    assert np.array_equal(
        GSLClassifier.load(tmp_path / 'model.pt').transduction_, found
    )
    if graph == 'none':
        assert np.array_equal(model.predict(x), found)


@pytest.mark.parametrize('none', [-1, None])
def test_texts_beside_no_class_are_told(wine, none):
    x, y = wine
    names = np.array(['a', 'b', none], dtype=object)[y]
    kind = type(none).__name__
    with pytest.raises(ValueError, match=rf"'y' must .* \(got {kind} and str\).*-1"):
        GSLClassifier(**FEW).fit(x, names)


def test_rows_without_a_label(wine):
    x, y = wine
    some = np.where(np.arange(len(y)) % 6 == 0, y, -1)
    model = GSLClassifier('learned', **FEW).fit(x, some)
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.graph_.shape == (178, 178)
    assert (model.predict(x) == y).mean() > 0.85
    # Nothing is learned from what stands for no label, and -1 may be a class.
    binary = GSLClassifier(**FEW).fit(x[y > 0], np.where(y[y > 0] == 1, 1, -1))
    assert binary.classes_.tolist() == [-1, 1]
    texts = GSLClassifier('none', **FEW).fit(x, np.array(['a', 'b', 'c'])[y])
    assert set(texts.predict(x)) <= {'a', 'b', 'c'}


def test_weights_of_rows(wine):
    x, y = wine
    wrong = np.arange(len(y)) % 4 == 0
    noisy = np.where(wrong, (y + 1) % 3, y)
    weight = np.where(wrong, 0.0, 1.0)
    model = GSLClassifier('none', **FEW).fit(x, noisy, sample_weight=weight)
    assert (model.predict(x) == y)[wrong].mean() > 0.9
    with pytest.raises(ValueError, match="'sample_weight' must be positive for a row"):
        model.fit(x, np.where(wrong, y, -1), sample_weight=weight)


@pytest.mark.parametrize('dtype', [np.float32, np.float64])
def test_sparse_rows(dtype):
    x, y = make_classification(120, 30, n_informative=8, random_state=0)
    x = scipy.sparse.csr_matrix(np.maximum(x, 0).astype(dtype))
    model = GSLClassifier(**FEW).fit(x[:80], y[:80])
    assert model.predict_proba(x[80:]).dtype == dtype
    assert model.score(x[80:], y[80:]) > 0.6
    again = model.predict_proba(scipy.sparse.coo_matrix(x[80:]))
    np.testing.assert_allclose(again, model.predict_proba(x[80:]))


def test_diabetes():
    x, y = load_diabetes(return_X_y=True)
    model = GSLRegressor(random_state=0, max_iter=100).fit(x[::2], y[::2])
    assert model.score(x[1::2], y[1::2]) > 0.35
    both = np.stack([y, -y], axis=1)
    model = GSLRegressor('nearest', random_state=0, max_iter=100).fit(x, both)
    out = model.predict(x)
    assert out.shape == both.shape
    assert np.corrcoef(out[:, 0], -out[:, 1])[0, 1] > 0.9


def test_randomness(wine):
    state = torch.random.get_rng_state()
    first = GSLClassifier('learned', **FEW).fit(*wine).predict_proba(wine[0])
    assert torch.equal(torch.random.get_rng_state(), state)
    again = GSLClassifier('learned', **FEW).fit(*wine).predict_proba(wine[0])
    assert np.array_equal(first, again)
    other = GSLClassifier('learned', **FEW | {'random_state': 1}).fit(*wine)
    assert not np.array_equal(first, other.predict_proba(wine[0]))


def test_early_stopping(wine):
    model = GSLClassifier('none', random_state=0, max_iter=2000, n_iter_no_change=10)
    assert model.fit(*wine).n_iter_ < 2000
    few = [0, 60, 140]  # Too few to hold some back: the last epoch counts.
    x, y = wine
    model = GSLClassifier(**FEW).fit(x[few], y[few])
    assert model.graph_choice_ == 'learned'
    assert model.graph_losses_.keys() == {'learned'}


@pytest.mark.parametrize('graph', GRAPHS)
@pytest.mark.parametrize('kind', ['classifier', 'regressor', 'sparse'])
def test_files(tmp_path, wine, graph, kind):
    x, y = wine
    if kind == 'sparse':
        x = scipy.sparse.csr_matrix(x)
    make = GSLRegressor if kind == 'regressor' else GSLClassifier
    model = make(graph, **FEW).fit(x, y)
    path = tmp_path / 'model.pt'
    model.save(path)
    assert [p.name for p in tmp_path.iterdir()] == ['model.pt']
    twin = make.load(path)
    assert np.array_equal(twin.predict(x), model.predict(x))
    assert twin.get_params() == model.get_params()
    assert (twin.n_iter_, twin.graph_choice_) == (model.n_iter_, graph)
    assert (twin.graph_ != model.graph_).nnz == 0
    pickled = pickle.loads(pickle.dumps(model))
    assert np.array_equal(pickled.predict(x), model.predict(x))


class Bomb:
    def __reduce__(self):
        return exec, ('raise RuntimeError("executed")',)


def test_files_that_hold_no_estimator(tmp_path, wine):
    path = tmp_path / 'model.pt'
    model = GSLClassifier('none', **FEW)
    with pytest.raises(NotFittedError):
        model.save(path)
    model.fit(*wine).save(path)
    content = path.read_bytes()
    with pytest.raises(ValueError, match='holds a GSLClassifier, not a GSLRegressor'):
        GSLRegressor.load(path)
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(OSError, match='holds no saved estimator'):
        GSLClassifier.load(path)
    torch.save({'estimator': Bomb()}, path)
    with pytest.raises(OSError, match='holds no saved estimator'):
        GSLClassifier.load(path)
    torch.save([1], path)
    with pytest.raises(OSError, match='holds no saved estimator'):
        GSLClassifier.load(path)
    with pytest.raises(FileNotFoundError):
        GSLClassifier.load(tmp_path / 'none.pt')
    model.random_state = np.random.RandomState(0)
    with pytest.raises(TypeError, match="'random_state' must be a plain value"):
        model.save(path)


@pytest.mark.parametrize(
    ('options', 'text'),
    [
        ({'graph': 'best'}, r"'graph' must be one of .*\(got 'best'\)"),
        ({'eval_k': 0}, r"'eval_k' must be at least 1 \(got 0\)"),
        ({'n_members': 0}, "'n_members' must be at least 1"),
        ({'draws': 0}, "'draws' must be at least 1"),
        ({'scaling': 'x'}, "'scaling' must be one of"),
        ({'learning_rate': -1.0}, "'learning_rate' must be positive"),
        ({'dropout': 1.5}, "'dropout'"),
        ({'max_iter': 2.5}, "'max_iter' must be an integer"),
        ({'similarity': 'x', 'graph': 'none'}, r"'similarity' must be one of .*'x'"),
        ({'weight_decay': -1.0}, r"'weight_decay' must be at least 0 \(got -1.0\)"),
        ({'device': 'none'}, r"'device' must be one that PyTorch has \(got 'none'\)"),
    ],
)
def test_bad_parameters(wine, options, text):
    with pytest.raises((TypeError, ValueError), match=text):
        GSLClassifier(**options).fit(*wine)


@pytest.mark.parametrize('dtype', ['datetime64[s]', 'timedelta64[s]'])
def test_times_are_no_targets(wine, dtype):
    y = np.arange(len(wine[0])).astype(dtype)
    with pytest.raises(ValueError, match=rf"'y' must hold numbers \(got {dtype[:8]}"):
        GSLRegressor('none').fit(wine[0], y)


def test_a_bar_shows_the_epochs(wine, capsys):
    GSLClassifier('none', **FEW, verbose=True).fit(*wine)
    assert 'none' in capsys.readouterr().err


def test_cross_validation(wine):
    scores = cross_val_score(GSLClassifier(**FEW), *wine, cv=3)
    assert scores.min() > 0.8
    assert clone(GSLClassifier(eval_k=7)).eval_k == 7


def test_a_rare_class_takes_no_validation_from_the_others(wine):
    x, y = wine
    model = GSLClassifier(**FEW).fit(np.r_[x, x[:2]], np.r_[y, 3, 3])
    expected = [
        GSLClassifier(graph, **FEW).fit(np.r_[x, x[:2]], np.r_[y, 3, 3])
        for graph in GRAPHS
    ]
    least = min(expected, key=lambda other: other.validation_loss_)
    assert model.graph_choice_ == least.graph
    known, random = np.arange(len(y) + 2), np.random.RandomState()
    _, held = model._split(np.r_[y, 3, 3], known, None, random)
    assert len(held) > 20
    assert not set(held) & {len(y), len(y) + 1}


def test_weights_are_not_negative(wine):
    weight = np.where(np.arange(len(wine[1])) == 0, -1.0, 1.0)
    with pytest.raises(ValueError, match='Negative values'):
        GSLClassifier('none', **FEW).fit(*wine, sample_weight=weight)


def test_damaged_files(tmp_path, wine):
    path = tmp_path / 'model.pt'
    GSLClassifier('none', **FEW).fit(*wine).save(path)
    content = torch.load(path, weights_only=True)
    changes = [
        {'params': content['params'] | {'eval_k': -1}},
        {'params': content['params'] | {'other': 1}},
        {'states': [{}]},
        {'states': [], 'sizes': []},
        {'x': 'x'},
        {'targets': {'classes': [1], 'dtype': 'zz'}},
    ]
    damaged = [content | change for change in changes]
    damaged += [
        {k: v for k, v in content.items() if k != name}
        for name in content
        if name != 'estimator'
    ]
    for one in damaged:
        torch.save(one, path)
        with pytest.raises(OSError, match='GSLClassifier that cannot be restored'):
            GSLClassifier.load(path)
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(OSError, match='no file of plain values and tensors'):
        GSLClassifier.load(path)


def test_parameters_from_a_grid_of_numpy(tmp_path, wine):
    path = tmp_path / 'model.pt'
    options = FEW | {'eval_k': np.int64(4), 'dropout': np.float64(0.5)}
    model = GSLClassifier('nearest', **options).fit(*wine)
    model.save(path)
    again = GSLClassifier.load(path)
    assert again.eval_k == 4
    assert again.dropout == 0.5
    assert np.array_equal(again.predict(wine[0]), model.predict(wine[0]))


UNITS = [(1.0, 1e9), (1.0, 1.7e9), (1e-24, 0.0), (1e25, 0.0), (1e200, 0.0)]


@pytest.mark.parametrize(('unit', 'offset'), UNITS)
def test_targets_are_centred_before_they_are_cast(unit, offset):
    x = np.random.default_rng(0).normal(size=(120, 4))
    y = offset + unit * 3 * x[:, 0]
    options = {'max_iter': 100, 'random_state': 0}
    for dtype in (np.float64, np.float32):
        model = GSLRegressor('none', **options).fit(x.astype(dtype), y)
        found = model.predict(x.astype(dtype))
        assert found.dtype == np.float64
        error = (found / unit - y / unit) / np.std(y / unit)
        assert np.mean(error**2) < 0.1


def test_targets_that_are_constant_but_for_rounding(tmp_path):
    x = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
    y = np.where(np.arange(40) % 2, 0.1, np.nextafter(0.1, 1)) * 1e-20
    model = GSLRegressor('none', **FEW).fit(x, y)
    np.testing.assert_allclose(model.predict(x), y, rtol=1e-12)
    model.save(tmp_path / 'model.pt')
    again = GSLRegressor.load(tmp_path / 'model.pt').predict(x)
    assert np.array_equal(again, model.predict(x))


@pytest.mark.parametrize('dtype', [np.float32, np.float64])
@pytest.mark.parametrize('unit', [1e25, 1e-25])
def test_columns_of_any_unit_count(tmp_path, wine, dtype, unit):
    x, y = wine
    factor = np.where(np.arange(13) % 2, unit, 1.0)
    plain = GSLClassifier('nearest', **FEW).fit(x.astype(dtype), y)
    model = GSLClassifier('nearest', **FEW).fit((x * factor).astype(dtype), y)
    expected = plain.predict_proba(x)
    # Training makes more of the rounding of the columns.
    np.testing.assert_allclose(model.predict_proba(x * factor), expected, atol=1e-2)
    model.save(tmp_path / 'model.pt')
    again = GSLClassifier.load(tmp_path / 'model.pt').predict_proba(x * factor)
    assert np.array_equal(again, model.predict_proba(x * factor))


def test_columns_beyond_single_precision(wine):
    x, y = wine
    model = GSLClassifier('none', **FEW).fit(x.astype(np.float32), y)
    wild = x[:3].copy()
    wild[1, 2] = 1e60
    with pytest.raises(ValueError, match=r"'X' must fit into float32.* column 2"):
        model.predict(wild)
    model = GSLClassifier('none', **FEW, scaling='none').fit(x.astype('f4'), y)
    with pytest.raises(ValueError, match=r"'X' must fit into float32.* column 2"):
        model.predict(wild)


@pytest.mark.parametrize('dtype', [np.float32, np.float64])
def test_a_column_that_was_constant_but_for_rounding_tells_nothing(wine, dtype):
    x, y = wine
    value = dtype(101325.3)
    column = np.full((len(x), 1), value)
    column[::2] = np.nextafter(value, dtype(np.inf))
    rows = np.hstack([x.astype(dtype), column])
    model = GSLClassifier('nearest', **FEW).fit(rows, y)
    changed = rows * np.where(np.arange(14) == 13, 1.01, 1).astype(dtype)
    assert np.array_equal(model.predict_proba(changed), model.predict_proba(rows))


@pytest.mark.parametrize('unit', [1e25, 1e-25])
def test_sparse_rows_of_any_unit(unit):
    x = scipy.sparse.random(60, 20, 0.3, format='csr', random_state=0, dtype='f4')
    y = np.asarray(x.sum(axis=1)).ravel() > x.sum() / 60
    plain = GSLClassifier('none', **FEW).fit(x, y).predict_proba(x)
    scaled = (x * unit).astype(np.float32)
    found = GSLClassifier('none', **FEW).fit(scaled, y).predict_proba(scaled)
    np.testing.assert_allclose(found, plain, atol=1e-4)


@pytest.mark.parametrize('unit', [1e-60, 1e60])
def test_weights_of_any_unit(wine, unit):
    x, y = wine
    weight = 1.0 + np.arange(len(y)) % 3
    fit = [
        GSLClassifier('none', **FEW).fit(x.astype('f4'), y, sample_weight=w)
        for w in (weight, unit * weight)
    ]
    np.testing.assert_allclose(*(m.predict_proba(x) for m in fit), atol=1e-4)


def test_classes_of_minus_one_are_told(wine):
    x, y = wine
    text = "'y' has the label -1 in 59 of 178 rows, which count as unlabelled"
    with pytest.warns(UserWarning, match=text) as caught:
        model = GSLClassifier('none', **FEW).fit(x, y - 1)
    assert caught[0].filename == __file__
    assert model.classes_.tolist() == [0, 1]
    assert GSLClassifier('none', **FEW).fit(x, y - 2).classes_.tolist() == [-2, -1, 0]
    named = GSLClassifier('none', **FEW).fit(x, (y - 1).astype(str))
    assert named.classes_.tolist() == ['-1', '0', '1']
    with pytest.warns(UserWarning, match=text):
        GSLNeighborsTransformer(3, max_iter=1).fit(x, y - 1)


@pytest.mark.parametrize('missing', [None, np.nan])
@pytest.mark.parametrize('kind', ['array', 'list'])
def test_texts_some_of_which_are_missing(missing, kind):
    x = np.random.default_rng(0).normal(size=(60, 3))
    y = ['a', 'b', missing] * 20
    y = np.array(y, dtype=object) if kind == 'array' else y
    for model in (GSLClassifier('none', **FEW), GSLNeighborsTransformer(5, max_iter=1)):
        with pytest.raises(ValueError, match="'y' must hold classes of one kind"):
            model.fit(x, y)
    with pytest.raises(ValueError, match=r"'y' must hold numbers|contains NaN"):
        GSLRegressor('none', **FEW).fit(x, y)


def test_rows_that_may_not_be_written(wine):
    x, y = (part.copy() for part in wine)
    x.setflags(write=False)
    y.setflags(write=False)
    model = GSLClassifier('none', **FEW, scaling='none').fit(x, y)
    assert model.predict(x).shape == y.shape


@pytest.fixture
def restless():
    """Another thread draws from the global generator, and sets its seed."""
    stop = Event()

    def disturb():
        number = 0
        while not stop.is_set():
            torch.manual_seed(number)
            torch.rand(3)
            number += 1

    with torch.random.fork_rng([]):
        thread = Thread(target=disturb)
        thread.start()
        yield
        stop.set()
        thread.join()


IN_THREADS = {
    **{graph: GSLClassifier(graph, dropout=0.3, **FEW) for graph in (*GRAPHS, 'auto')},
    'regressor': GSLRegressor('learned', draws=2, **FEW),
    'labels': GSLNeighborsTransformer(5, max_iter=5, random_state=0),
    'no labels': GSLNeighborsTransformer(
        5, similarity='neural_gaussian', mode='connectivity', max_iter=5, random_state=0
    ),
}


def fitted(model, x, y):
    """What a fit on a part of the rows says of all rows."""
    model = clone(model)
    if isinstance(model, GSLNeighborsTransformer):
        out = model.fit(x[::3], y if model.mode == 'connectivity' else y[::3])
        return out.transform(x).toarray()
    model.fit(x[::3], y[::3])
    return model.predict_proba(x) if hasattr(model, 'classes_') else model.predict(x)


@pytest.mark.parametrize('name', IN_THREADS)
def test_threads_do_not_change_a_fit(wine, restless, name):
    model, (x, y) = IN_THREADS[name], wine
    y = None if name == 'no labels' else y
    alone = fitted(model, x, y)
    with ThreadPoolExecutor(4) as pool:
        for out in pool.map(lambda _: fitted(model, x, y), range(4)):
            assert np.array_equal(out, alone)


@pytest.mark.parametrize('name', IN_THREADS)
def test_a_fit_neither_reads_nor_changes_global_generators(wine, name):
    model, (x, y) = IN_THREADS[name], wine
    y = None if name == 'no labels' else y
    found = []
    for seed in range(2):
        torch.manual_seed(seed)
        of_numpy = check_random_state(None)
        of_numpy.seed(seed)
        state, words = torch.get_rng_state(), of_numpy.get_state()[1].copy()
        found.append(fitted(model, x, y))
        assert torch.equal(torch.get_rng_state(), state)
        assert np.array_equal(of_numpy.get_state()[1], words)
    assert np.array_equal(*found)


def test_without_a_state_the_seed_is_that_of_numpy(wine):
    model = GSLClassifier('learned', **FEW | {'random_state': None})
    found = []
    for seed in (0, 0, 1):
        check_random_state(None).seed(seed)
        state = torch.get_rng_state()
        found.append(fitted(model, *wine))
        assert torch.equal(torch.get_rng_state(), state)
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])


def test_a_search_in_threads_finds_what_one_alone_finds(wine, restless):
    model = GSLClassifier('learned', **FEW | {'max_iter': 5})
    grid = {'dropout': [0.2, 0.5]}
    scores = []
    for n_jobs in (1, 3):
        search = GridSearchCV(model, grid, cv=2, n_jobs=n_jobs)
        with parallel_config(backend='threading'):
            search.fit(*wine)
        scores.append(search.cv_results_['mean_test_score'])
    assert np.array_equal(*scores)


def test_loading_leaves_the_global_generator(wine, tmp_path):
    GSLClassifier('learned', **FEW).fit(*wine).save(tmp_path / 'model.pt')
    state = torch.get_rng_state()
    GSLClassifier.load(tmp_path / 'model.pt')
    assert torch.equal(torch.get_rng_state(), state)
