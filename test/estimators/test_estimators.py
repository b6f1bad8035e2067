"""The estimators for scikit-learn: what they fit, refuse, and leave alone."""

import inspect
import re
import warnings
from functools import partial

import numpy as np
import pandas
import pytest
import scipy.sparse
import torch
from sklearn.base import clone
from sklearn.datasets import load_diabetes, make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from torch_geometric_gsl.nn.models.table_net import TableNet
from torch_geometric_gsl.sklearn import (
    GSLClassifier,
    GSLRegressor,
    make_table_transformer,
)
from torch_geometric_gsl.sklearn._column_warnings import find_far
from torch_geometric_gsl.sklearn._scaling import Scaling
from torch_geometric_gsl.sklearn._training import Training

#: Fits end before they have converged.
pytestmark = [
    pytest.mark.filterwarnings('ignore::sklearn.exceptions.ConvergenceWarning'),
    pytest.mark.filterwarnings('ignore:no signal was found'),
]

#: Enough for the accuracy that scikit-learn asks.
BRIEF = {'n_members': 1, 'hidden_channels': 32, 'max_iter': 8, 'learning_rate': 0.03}
GRAPHS = ('learned', 'none')
#: A row of weight 0 remains a node, and one of weight 2 is no second node.
WEIGHTS_OF_NODES = {
    f'check_sample_weight_equivalence_on_{storage}_data': 'rows are nodes of a graph'
    for storage in ('dense', 'sparse')
}


@pytest.mark.usefixtures('few_trees')
@parametrize_with_checks(
    [
        GSLClassifier('learned', **BRIEF),
        GSLRegressor(**BRIEF),  # A blend.
        make_table_transformer(),
    ],
    expected_failed_checks=lambda estimator: (
        WEIGHTS_OF_NODES if hasattr(estimator, 'graph') else {}
    ),
)
def test_scikit_learn(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        check(estimator)


@pytest.mark.parametrize('cls', [GSLClassifier, GSLRegressor])
def test_docstrings_show_every_parameter(cls):
    text = inspect.getdoc(cls)
    assert all(f'\n    {name} (' in text for name in cls().get_params())
    assert text.index('\nArgs:\n') < text.index('\nAttributes:\n')
    assert '\nExample:\n' in text
    assert '{' not in text


@pytest.mark.parametrize('has_frame', [True, False])
def test_one_row_without_a_second_dimension(places, few, has_frame):
    x, y = places(60)
    rows = pandas.DataFrame(x, columns=['a', 'b', 'c'])
    model = GSLRegressor('none', **few).fit(rows if has_frame else x, y)
    text = r"'X' must be a table \(got a {} of 3 values\). Reshape your data: '{}'"
    row = rows.iloc[0]
    with pytest.raises(ValueError, match=text.format('Series', r'X.to_frame\(\).T')):
        model.predict(row)
    with pytest.raises(ValueError, match=text.format('ndarray', r'X.reshape\(1, -1\)')):
        model.predict(x[0])
    for row_of_x, way in ((row.to_dict(), '[X]'), (rows.to_dict('list'), 'X')):
        with pytest.raises(TypeError, match=re.escape(f'pandas.DataFrame({way})')):
            model.predict(row_of_x)
    with pytest.raises(ValueError, match=r'a Series of 60 values'):
        GSLRegressor('none', **few).fit(rows['a'], y)
    expected = model.predict(rows[:1] if has_frame else x[:1])
    row_of_x = row.to_frame().T if has_frame else x[0].reshape(1, -1)
    np.testing.assert_array_equal(model.predict(row_of_x), expected)


# Fits


@pytest.mark.parametrize('graph', GRAPHS)
def test_wine(wine, graph, classifier):
    x, y = wine
    model = classifier(graph)
    assert model.score(x[1::2], y[1::2]) > 0.9
    share = model.predict_proba(x[1::2])
    np.testing.assert_allclose(share.sum(axis=1), 1)
    assert share.dtype == x.dtype
    assert model.graph_.shape == (89, 89)
    assert (model.graph_.nnz > 0) == (graph == 'learned')
    # The answer to a row depends on no other.
    for row in range(3):
        alone = model.predict_proba(x[1::2][row : row + 1])
        np.testing.assert_allclose(alone[0], share[row], rtol=1e-6)


def test_diabetes(few):
    x, y = load_diabetes(return_X_y=True)
    model = GSLRegressor('learned', **few | {'max_iter': 30}).fit(x[::2], y[::2])
    assert model.score(x[1::2], y[1::2]) > 0.35
    both = np.stack([y, -y], axis=1)
    model = GSLRegressor('none', **few | {'max_iter': 30}).fit(x[::3], both[::3])
    out = model.predict(x)
    assert out.shape == both.shape
    assert np.corrcoef(out[:, 0], -out[:, 1])[0, 1] > 0.9
    assert model.transduction_.shape == (148, 2)


def test_rows_without_a_label(wine, few):
    x, y = wine
    some = np.where(np.arange(len(y)) % 6 == 0, y, -1)
    model = GSLClassifier('learned', **few).fit(x, some)
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.graph_.shape == (178, 178)
    assert (model.predict(x) == y).mean() > 0.85
    none = GSLClassifier('none', **few)
    assert set(clone(none).fit(x, np.array(['a', 'b', 'c'])[y]).predict(x)) <= {*'abc'}
    text = "'y' has the label -1 in 59 of 178 rows, which count as unlabelled"
    with pytest.warns(UserWarning, match=text) as caught:
        none.fit(x, y - 1)
    assert caught[0].filename == __file__
    assert none.classes_.tolist() == [0, 1]
    with pytest.raises(ValueError, match=r'needs two classes; .* one class \(\[1\]\)'):
        none.fit(x, np.ones_like(y))


@pytest.mark.parametrize('make', [list, partial(np.array, dtype=object)])
def test_targets_are_of_one_kind(make, few):
    x, mixed = np.eye(60)[:, :3], make(['a', 'b', -1] * 20)
    text = r"'y' must hold classes of .* \(got int and str\).*-1"
    with pytest.raises(ValueError, match=text):
        GSLClassifier('none', **few).fit(x, mixed)
    for y, text in (
        (mixed, r"'y' must hold (finite )?numbers"),
        (np.arange(60).astype('M8[s]'), r"'y' must hold numbers \(got datetime"),
        (np.arange(60).astype('m8[s]'), r"'y' must hold numbers \(got timedelta"),
    ):
        with pytest.raises(ValueError, match=text):
            GSLRegressor('none', **few).fit(x, y)


@pytest.mark.parametrize('dtype', [np.float32, np.float64])
def test_sparse_rows(dtype, few):
    x, y = make_classification(120, 30, n_informative=8, random_state=0)
    x = scipy.sparse.csr_matrix(np.maximum(x, 0).astype(dtype))
    model = GSLClassifier('learned', **few).fit(x[:80], y[:80])
    expected = model.predict_proba(x[80:])
    assert expected.dtype == dtype
    assert model.score(x[80:], y[80:]) > 0.6
    for rows in (scipy.sparse.coo_matrix(x[80:]), x[80:].toarray()):
        np.testing.assert_allclose(model.predict_proba(rows), expected, rtol=1e-6)
    # Sparse rows are those of the dense table that was fitted, too.
    dense = GSLClassifier('learned', **few).fit(x[:80].toarray(), y[:80])
    proba = dense.predict_proba(x[80:])
    np.testing.assert_array_equal(proba, dense.predict_proba(x[80:].toarray()))


@pytest.mark.filterwarnings("ignore:graph='auto' weighs its")
@pytest.mark.parametrize('graph', ['auto', 'learned'])
def test_a_row_without_others_has_no_graph(graph, few, few_trees):
    x = np.arange(24.0)[:, None]
    text = f"graph='{graph}' has no edges: of {{}} rows, only 1 is"
    with pytest.warns(UserWarning, match=text.format(1)) as caught:
        model = GSLRegressor(graph, **few).fit(x[:1], [1.0])
    assert caught[0].filename == __file__
    assert model.graph_.nnz == 0
    assert 'no graph, robust' in model.report_.index
    assert 'learned graph, robust' not in model.report_.index
    with pytest.warns(UserWarning, match=text.format(24)):
        GSLRegressor(graph, **few).fit(x, x[:, 0], validation_mask=x[:, 0] > 0)


def test_few_rows(few, few_trees, recwarn):
    x = np.arange(12.0)[:, None]
    model = GSLRegressor('learned', **few).fit(x, x[:, 0] ** 2)
    assert model.predict(x).shape == (12,)
    assert GSLRegressor('learned', **few).fit(x[:2], [1.0, 2.0]).graph_.shape == (2, 2)
    GSLRegressor('none', **few).fit(x[:1], [1.0])
    assert [str(w.message) for w in recwarn if w.category is UserWarning] == []
    # Too few to hold some back: there is nothing to weigh by.
    text = r"graph='auto' weighs its 5 members alike: too few of 3 rows"
    with pytest.warns(UserWarning, match=text):
        model = GSLClassifier(**few).fit(x[:3], [0, 1, 2])
    assert (model.report_['weight'] == 0.2).all()
    assert model.report_['loss'].isna().all()


@pytest.mark.filterwarnings('ignore::sklearn.exceptions.ConvergenceWarning')
def test_unlabelled_rows_do_not_count_in_the_score(few, wine):
    x, y = wine
    model = GSLClassifier('none', **few).fit(x, y)
    y = np.where(np.arange(len(y)) % 7 == 0, 0, y)
    some = np.where(np.arange(len(y)) % 4 == 0, -1, y)
    is_known = some != -1
    expected = model.score(x[is_known], y[is_known])
    assert model.score(x, some) == pytest.approx(expected)
    weight = np.arange(len(y)) + 1.0
    expected = model.score(x[is_known], y[is_known], weight[is_known])
    assert model.score(x, some, weight) == pytest.approx(expected)
    assert model.score(x, y) != pytest.approx(expected)


@pytest.mark.filterwarnings('ignore::sklearn.exceptions.ConvergenceWarning')
def test_a_sparse_column_that_hides_the_others_is_told(few):
    x = scipy.sparse.random(80, 9, 0.5, random_state=0, format='lil')
    y = np.arange(80) % 2
    with warnings.catch_warnings():
        warnings.filterwarnings('error', 'column')
        GSLClassifier('none', **few).fit(x.tocsr(), y)
    x[:, 4] = 1.6e9
    with pytest.warns(UserWarning, match=r'column 4 has values up to 1.6e\+09, and'):
        GSLClassifier('none', **few).fit(x.tocsr(), y)


@pytest.mark.parametrize(
    ('num_rows', 'expected', 'max_iter'), [(150, 4, 40), (1300, 1, 1)]
)
def test_small_tables_have_more_members(num_rows, expected, max_iter, few, places):
    options = few | {'n_members': 'auto', 'max_iter': max_iter}
    model = GSLRegressor('none', **options).fit(*places(num_rows))
    x = places(2)[0]
    (nets,) = model._blend.members
    assert len(nets.models) == expected
    rows = torch.from_numpy(nets.scaling.apply(x, np.float64))
    out = torch.stack([net(rows) for net in nets.models]).detach().numpy()
    assert len(np.unique(out[:, 0])) == expected
    mean = out.mean(axis=0)[:, 0] * model._width + model._center
    prediction = nets.outputs(x)[:, 0] * model._width + model._center
    np.testing.assert_allclose(prediction, mean)


@pytest.mark.filterwarnings('default::sklearn.exceptions.ConvergenceWarning')
def test_convergence(few, places):
    x, y = places(80)
    with pytest.warns(ConvergenceWarning, match="'max_iter' = 2 epochs"):
        GSLRegressor('none', **few | {'max_iter': 2}).fit(x, y)
    with warnings.catch_warnings():
        warnings.filterwarnings('error', 'networks still improved')
        model = GSLRegressor('none', **few | {'max_iter': 2000}).fit(x, y)
        assert len(model.loss_curve_) == model.n_iter_ < 2000
        # With too few rows to hold some back it ends after a number of epochs.
        model = GSLRegressor('none', n_members=1, random_state=0).fit(*places(30))
    assert model.report_['loss'].isna().all()
    assert model.n_iter_ == 30


# Rows that are held back, and weights


@pytest.mark.filterwarnings("ignore:'y' has the label -1")
def test_which_rows_serve_for_what(monkeypatch, wine, few):
    seen, sizes = [], []

    class NotingRows(Training):
        def __init__(self, model, table, rows, *args):
            seen.append(rows)
            super().__init__(model, table, rows, *args)

    class Noting(TableNet):
        def index(self, x, y=None):
            sizes.append(len(x))
            return super().index(x, y)

    monkeypatch.setattr(GSLClassifier, '_training_class', NotingRows)
    monkeypatch.setattr(GSLClassifier, '_network_class', Noting)
    x, y = wine
    mask, some = np.arange(len(y)) % 4 == 0, np.where(np.arange(len(y)) % 3, y, -1)
    model = GSLClassifier('learned', **few | {'max_iter': 2})
    model.fit(x, some, validation_mask=mask)
    assert seen[0].candidates.tolist() == np.flatnonzero(~mask).tolist()
    assert seen[0].val.tolist() == np.flatnonzero(mask & (some >= 0)).tolist()
    assert seen[0].train.tolist() == np.flatnonzero(~mask & (some >= 0)).tolist()
    # Validation looks among the candidates, after a cycle and for the weights of
    # members, and predictions among all.
    assert sizes == [(~mask).sum()] * 2 + [len(y)]
    # A rare class takes no validation from the others.
    model.fit(np.r_[x, x[:2]], np.r_[y, 3, 3])
    assert len(seen[1].val) > 20
    assert not {*seen[1].val.tolist()} & {len(y), len(y) + 1}


HELD, NONE = np.arange(240) >= 190, np.zeros(240, dtype=bool)


@pytest.mark.parametrize(
    ('mask', 'weight', 'text'),
    [
        (HELD[:5], None, "'validation_mask' must have one bool for each of the 240"),
        (HELD.astype(int), None, "'validation_mask' must have one bool"),
        (~NONE, None, "'validation_mask' must hold back and"),
        (NONE, None, "'validation_mask' must hold back and"),
        (HELD, 1.0 - HELD, "'validation_mask' must hold back and"),
        (HELD, 1.0 * HELD, "'validation_mask' must hold back and"),
        (None, -1.0 * HELD, 'Negative values'),
    ],
)
def test_bad_masks_and_weights(places, mask, weight, text):
    with pytest.raises(ValueError, match=text):
        GSLRegressor().fit(*places(), sample_weight=weight, validation_mask=mask)


def test_weights_of_rows(wine, few, places):
    x, y = wine
    wrong = np.arange(len(y)) % 4 == 0
    noisy = np.where(wrong, (y + 1) % 3, y)
    weight = np.where(wrong, 0.0, 1.0)
    model = GSLClassifier('none', **few).fit(x, noisy, sample_weight=weight)
    assert (model.predict(x) == y)[wrong].mean() > 0.9
    with pytest.raises(ValueError, match="'sample_weight' must be positive for a row"):
        model.fit(x, np.where(wrong, y, -1), sample_weight=weight)
    # A target without weight sets no scale.
    x, y = places()
    weight, far = np.ones(len(y)), y.copy()
    weight[0], far[0] = 0, 1e9
    model = GSLRegressor('none', **few).fit(x, far, sample_weight=weight)
    assert abs(model.predict(x)).max() < 10


@pytest.mark.parametrize('unit', [1e-60, 1e60])
def test_weights_of_any_unit(wine, unit, few):
    x, y = wine
    weight = 1.0 + np.arange(len(y)) % 3
    fit = [
        GSLClassifier('none', **few).fit(x.astype('f4'), y, sample_weight=w)
        for w in (weight, unit * weight)
    ]
    np.testing.assert_allclose(*(m.predict_proba(x) for m in fit), atol=1e-4)


@pytest.mark.parametrize('block_size', [20, 160])
def test_weights_count_the_same_in_all_blocks(block_size, few):
    x, y, weight = np.zeros((320, 1)), np.zeros(320), np.ones(320)
    y[:10], weight[:10] = 1, 31  # The weighted mean is one half.
    options = few | {'max_iter': 300, 'validation_fraction': 0.0}
    model = GSLRegressor('none', **options, block_size=block_size)
    prediction = model.fit(x, y, sample_weight=weight).predict(x[:1])
    # Steps of the optimizer leave some noise; each block by itself gave 0.33.
    np.testing.assert_allclose(prediction, 0.5, atol=0.1)


# Units and rounding


@pytest.mark.parametrize(('unit', 'offset'), [(1.0, 1.7e9), (1e-24, 0), (1e200, 0)])
def test_targets_are_centred_before_they_are_cast(unit, offset, few):
    x = np.random.default_rng(0).normal(size=(120, 4)).astype(np.float32)
    y = offset + unit * 3 * x[:, 0].astype(float)
    prediction = GSLRegressor('none', **few | {'max_iter': 60}).fit(x, y).predict(x)
    assert prediction.dtype == np.float64
    error = (prediction / unit - y / unit) / np.std(y / unit)
    assert np.mean(error**2) < 0.1


@pytest.mark.parametrize('unit', [1e25, 1e-25])
def test_columns_of_any_unit_count(wine, unit, few):
    x, y = wine
    factor = np.where(np.arange(13) % 2, unit, 1.0)
    plain = GSLClassifier('learned', **few).fit(x.astype('f4'), y)
    model = GSLClassifier('learned', **few).fit((x * factor).astype('f4'), y)
    expected = plain.predict_proba(x)
    # Training makes more of the rounding of the columns.
    np.testing.assert_allclose(model.predict_proba(x * factor), expected, atol=1e-2)
    # Of sparse rows, each has one unit.
    tables = [scipy.sparse.csr_matrix((u * x).astype('f4')) for u in (1, unit)]
    model = GSLClassifier('none', **few)
    probabilities = [
        clone(model).fit(table, y).predict_proba(table) for table in tables
    ]
    np.testing.assert_allclose(*probabilities, atol=3e-2)


@pytest.mark.parametrize('scaling', ['standard', 'none'])
def test_columns_beyond_single_precision(wine, few, scaling):
    x, y = wine
    model = GSLClassifier('none', **few, scaling=scaling).fit(x.astype(np.float32), y)
    wild = x[:3].copy()
    wild[1, 2] = 1e60
    with pytest.raises(ValueError, match=r"'X' must fit into float32.* column 2"):
        model.predict(wild)


@pytest.mark.parametrize('dtype', [np.float32, np.float64])
def test_a_column_that_was_constant_but_for_rounding_tells_nothing(wine, dtype, few):
    x, y = wine
    value = dtype(101325.3)
    column = np.full((len(x), 1), value)
    column[::2] = np.nextafter(value, dtype(np.inf))
    rows = np.hstack([x.astype(dtype), column])
    model = GSLClassifier('learned', **few).fit(rows, y)
    changed = rows * np.where(np.arange(14) == 13, 1.01, 1).astype(dtype)
    assert np.array_equal(model.predict_proba(changed), model.predict_proba(rows))


# Parameters


@pytest.mark.parametrize(
    ('options', 'text'),
    [
        ({'graph': 'best'}, r"'graph' must be one of .*\(got 'best'\)"),
        ({'eval_k': 0}, r"'eval_k' must be at least 1 \(got 0\)"),
        ({'n_members': 0}, "'n_members' must be at least 1"),
        ({'block_size': 'four'}, "'block_size' must be 'auto' or a number .*four"),
        ({'draws': 0}, "'draws' must be at least 1"),
        ({'scaling': 'x'}, "'scaling' must be one of"),
        ({'learning_rate': -1.0}, "'learning_rate' must be positive"),
        ({'learning_rate': 1e30}, r"loss of epoch \d+ is .*'learning_rate'"),
        ({'dropout': 1.5}, "'dropout'"),
        ({'max_iter': 2.5}, "'max_iter' must be an integer"),
        ({'similarity': 'x'}, r"'similarity' must be one of .*'x'"),
        ({'weight_decay': -1.0}, r"'weight_decay' must be at least 0 \(got -1.0\)"),
        ({'device': 'none'}, r"'device' must be a PyTorch device \(got 'none'\)"),
    ],
)
def test_bad_parameters(places, options, text):
    with pytest.raises((TypeError, ValueError), match=text):
        GSLRegressor(**{'graph': 'none', **options}).fit(*places(60))


@pytest.mark.parametrize(
    ('rows', 'y', 'text'),
    [
        ({'a': [1, 2]}, [1, 2], r"use 'pandas.DataFrame\(X\)'"),
        ([{'a': 1}, {'a': 2}], [1, 2], r"use 'pandas.DataFrame\(X\)'"),
        ('a.csv', [1, 2], r"\(got 'a.csv'\): use 'pandas.read_csv'"),
        (np.eye(2), 'price', r"\(got 'price'\): pass the column, X\['price"),
    ],
)
def test_what_is_no_table_or_no_target(rows, y, text, few):
    with pytest.raises(TypeError, match=text):
        GSLRegressor(**few).fit(rows, y)


def test_missing_names_are_told_once(places, few, recwarn):
    x, y = places(60)
    model = GSLRegressor('none', **few).fit(pandas.DataFrame(x, columns=[*'abc']), y)
    recwarn.clear()
    model.predict(x)
    assert len(recwarn) == 1


def test_the_number_of_neighbours_is_that_of_the_fit(few, places):
    x, y = places()
    model = GSLRegressor('learned', eval_k=6, device=torch.device('cpu'), **few)
    model.fit(x[:200], y[:200]).set_params(eval_k=30)
    assert model.kneighbors(x[200:])[0].shape == (40, 5)
    assert model.kneighbors(x[200:], 6)[0].shape == (40, 6)
    with pytest.raises(ValueError, match=r"'n_neighbors' must be at most 6.*got 30"):
        model.kneighbors(x[200:], 30)
    with pytest.raises(TypeError, match=r"'row' must be .* \(got 3\): pass X.loc\[3\]"):
        model.explain(3)


# Values far outside of all others


def test_a_value_that_flattens_a_column_is_told(few):
    random = np.random.default_rng(0)
    frame = pandas.DataFrame(
        {'kind': ['u', 'v'] * 100, 'area': random.normal(size=200)}
    )
    y = frame['area'].to_numpy(copy=True)
    frame.loc[10, 'area'] = 1e16
    text = (
        'column {} has the value 1e+16 in row 10, far outside of all others: it may '
        "flatten them; check it, or scaling='quantile'"
    )
    make = partial(GSLRegressor, 'none', **few | {'max_iter': 1})
    for rows, name in ((frame, "'area'"), (frame[['area']].to_numpy(), '0')):
        with pytest.warns(UserWarning, match=re.escape(text.format(name))):
            make(scaling='standard').fit(rows, y)
        for scaling in ('robust', 'quantile'):
            with warnings.catch_warnings():
                warnings.simplefilter('error', UserWarning)
                warnings.simplefilter('ignore', ConvergenceWarning)
                make(scaling=scaling).fit(rows, y)


@pytest.mark.parametrize('seed', range(20))
def test_heavy_tails_are_not_far(seed):
    random = np.random.default_rng(seed)
    normal = random.normal(size=20_000)
    rare = np.where(np.arange(20_000) % 1000 == 0, 1e16, 1.0)
    tails = np.exp(3 * normal), np.exp(5 * normal), random.standard_cauchy(20_000)
    assert all(find_far(column) is None for column in (*tails, rare))
    assert find_far(np.r_[normal, 1e8, -1e9]) == 20_001


@pytest.mark.parametrize('far', [1e6, 1e12, 1e16, -1e300])
def test_quantiles_survive_a_far_value(far):
    x = np.random.default_rng(0).normal(size=(500, 1))
    plain = Scaling('quantile').fit(x).apply(x)
    moved = np.r_[x, [[far]]]
    scaled = Scaling('quantile').fit(moved).apply(moved)
    assert np.isfinite(scaled).all()
    assert np.abs(scaled[:-1] - plain)[np.abs(plain) < 2].max() < 0.05
    assert scaled[-1, 0] == (scaled.max() if far > 0 else scaled.min())


@pytest.mark.parametrize('form', ['float', 'list', 'frame'])
@pytest.mark.parametrize('gap', [np.nan, -np.inf])
def test_targets_with_gaps_are_told(form, gap):
    x, y = np.eye(200)[:, :3], np.arange(200.0)
    y[3] = gap
    y = {'list': [*y], 'frame': pandas.DataFrame({'a': y, 'b': 1.0})}.get(form, y)
    text = (
        "'y' must hold finite numbers (got NaN or inf in 1 of 200 rows, first in row 3)"
    )
    with pytest.raises(ValueError, match=re.escape(f'{text}: drop these rows')):
        GSLRegressor().fit(x, y)


@pytest.mark.parametrize('gap', [None, np.nan, pandas.NA])
@pytest.mark.parametrize('classes', [['u', 'v'], [0, 1], [0.5, 1.5]])
@pytest.mark.parametrize('make', [list, pandas.Series, partial(np.array, dtype=object)])
def test_classes_with_gaps_are_told(gap, classes, make):
    y = make([*classes * 99, classes[0], gap])
    text = (
        "'y' has no class, such as NaN, in 1 of 200 rows: drop them, or encode the "
        'classes as integers with -1 for these'
    )
    with pytest.raises(ValueError, match=text):
        GSLClassifier().fit(np.eye(200)[:, :3], y)
