"""The transformer that makes a graph of rows."""

import numpy as np
import pytest
import scipy.sparse
from sklearn.neighbors import KNeighborsClassifier, KNeighborsTransformer
from sklearn.preprocessing import StandardScaler

from torch_geometric_gsl.sklearn import GSLNeighborsTransformer, neighbors_transformer


def draw(number=80):
    """Rows whose first two columns tell the class, among four of noise."""
    random = np.random.RandomState(0)
    y = np.arange(number) % 2
    signal = np.stack([y, 1 - y], axis=1) * 3 + random.randn(number, 2)
    return np.concatenate([signal, random.randn(number, 4)], axis=1), y


@pytest.mark.parametrize('mode', ['distance', 'connectivity'])
def test_without_learning_it_is_the_cosine(mode):
    x, _ = draw()
    ours = GSLNeighborsTransformer(7, max_iter=0, mode=mode)
    scaled = StandardScaler().fit_transform(x)
    plain = KNeighborsTransformer(n_neighbors=7, mode=mode, metric='cosine').fit(scaled)
    for own, rows in (
        (ours.fit_transform(x), None),
        (ours.transform(x[:9]), scaled[:9]),
    ):
        expected = plain.transform(scaled if rows is None else rows)
        if mode == 'connectivity' and rows is None:  # A row is none of its own.
            expected = plain.kneighbors_graph(mode=mode)
        assert scipy.sparse.issparse(own)
        np.testing.assert_allclose(own.toarray(), expected.toarray(), atol=1e-7)
        assert own.nnz == expected.nnz


def test_labels_teach_which_columns_count():
    x, y = draw()
    model = GSLNeighborsTransformer(5, random_state=0, max_iter=100).fit(x, y)
    knn = KNeighborsClassifier(5, metric='precomputed')
    assert knn.fit(model.transform(x), y).score(model.transform(x), y) > 0.9
    assert model.get_feature_names_out()[-1] == 'gslneighborstransformer79'
    weight = np.abs(model.feature_weights_)
    assert weight[:2].min() > weight[2:].max()
    some = np.where(np.arange(len(y)) % 3 == 0, y, -1)
    model = GSLNeighborsTransformer(5, random_state=0, max_iter=100).fit(x, some)
    assert np.abs(model.feature_weights_)[:2].min() > 1


@pytest.mark.parametrize('has_labels', [False, True])
def test_many_neighbours_take_no_more_draws_in_training(has_labels):
    x, y = draw()
    some, many = (
        GSLNeighborsTransformer(k, random_state=0, max_iter=2) for k in (15, 40)
    )
    for model in (some, many):
        model.fit(x, y if has_labels else None)
    assert np.array_equal(some.feature_weights_, many.feature_weights_)
    assert many.transform(x).nnz == 80 * 41


@pytest.mark.parametrize(
    ('options', 'text'),
    [
        ({'n_neighbors': 0}, "'n_neighbors' must be at least 1"),
        ({'mode': 'weights'}, "'mode' must be one of"),
        ({'max_iter': -1}, "'max_iter' must be at least 0"),
        ({'similarity': 'cosine'}, r"'similarity' must be one of .*\(got 'cosine'\)"),
    ],
)
def test_bad_input(options, text):
    x, y = draw()
    with pytest.raises(ValueError, match=text):
        GSLNeighborsTransformer(**options).fit(x)
    with pytest.raises(ValueError, match='inconsistent numbers of samples'):
        GSLNeighborsTransformer(3).fit(x, y[:-1])
    with pytest.raises(ValueError, match='Input y contains NaN'):
        GSLNeighborsTransformer(3).fit(x, np.where(y == 0, np.nan, y))


def test_a_row_stands_before_its_duplicates():
    x, _ = draw(20)
    graph = GSLNeighborsTransformer(3, max_iter=0).fit_transform(
        np.repeat(x, 3, axis=0)
    )
    assert np.array_equal(graph.indices[graph.indptr[:-1]], np.arange(60))
    assert np.array_equal(np.diff(graph.indptr), np.full(60, 4))
    assert (np.diff(graph.data.reshape(60, 4), axis=1) >= 0).all()


def test_targets_that_are_no_classes_teach_what_features_teach():
    x, y = draw()
    options = {'n_neighbors': 3, 'max_iter': 3, 'random_state': 0}
    plain = GSLNeighborsTransformer(**options).fit(x).feature_weights_
    random = np.random.RandomState(0)
    for other in (random.randn(len(x)), random.randn(len(x), 2), np.full(len(x), -1)):
        found = GSLNeighborsTransformer(**options).fit(x, other).feature_weights_
        assert np.array_equal(found, plain)
    some = np.where(np.arange(len(x)) < 10, y, -1)  # Fewer rows than neighbours.
    taught = GSLNeighborsTransformer(**options | {'n_neighbors': 15}).fit(x, some)
    assert taught.transform(x[:2]).nnz == 32


@pytest.mark.parametrize('similarity', ['difference', 'gaussian', 'neural_gaussian'])
def test_no_distances_where_equal_rows_are_not_the_nearest(similarity):
    x, _ = draw()
    options = {'similarity': similarity, 'max_iter': 0, 'random_state': 0}
    with pytest.raises(ValueError, match=r"largest for equal rows \(got 'distance'"):
        GSLNeighborsTransformer(3, **options).fit(x)
    graph = GSLNeighborsTransformer(3, mode='connectivity', **options).fit_transform(x)
    assert graph.nnz == 3 * len(x)


@pytest.mark.filterwarnings('ignore:each target has one candidate')
@pytest.mark.parametrize('mode', ['distance', 'connectivity'])
@pytest.mark.parametrize('number', [2, 15, 16])
def test_few_rows_are_all_neighbours(number, mode):
    model = GSLNeighborsTransformer(mode=mode, max_iter=2, random_state=0)
    x = draw(number)[0]
    graph = model.fit_transform(x)
    own = int(mode == 'distance')
    assert graph.nnz == number * (min(15, number - 1) + own)
    assert model.transform(x[:1]).nnz == min(15 + own, number)


@pytest.mark.parametrize(
    ('similarity', 'columns', 'dtype'),
    [('linear', 1, np.float32), ('heat_kernel', 2, np.float64), ('linear', 2, 'f4')],
)
def test_few_columns_have_distances(dtype, columns, similarity):
    random = np.random.RandomState(0)
    x = (random.randn(200, columns) * 1e6).astype(dtype)
    options = {'similarity': similarity, 'max_iter': 0, 'standardize': False}
    found = GSLNeighborsTransformer(5, **options).fit_transform(x)
    expected = KNeighborsTransformer(n_neighbors=5).fit_transform(x.astype(float))
    assert found.dtype == dtype
    np.testing.assert_allclose(found.toarray(), expected.toarray(), rtol=1e-6)


@pytest.mark.parametrize('offset', [0.0, 1e3, 1e5])
def test_rows_far_from_the_origin(offset):
    x = (offset + np.random.RandomState(0).randn(300, 8)).astype(np.float32)
    found = GSLNeighborsTransformer(5, max_iter=0, standardize=False).fit_transform(x)
    unit = x.astype(float) / np.linalg.norm(x.astype(float), axis=1, keepdims=True)
    expected = KNeighborsTransformer(n_neighbors=5).fit_transform(unit)
    assert (found != 0).toarray().tolist() == (expected != 0).toarray().tolist()
    np.testing.assert_allclose(found.data, expected.data**2 / 2, rtol=1e-3, atol=1e-15)


@pytest.mark.parametrize('labels', [False, True])
@pytest.mark.parametrize('standardize', [False, True])
def test_sparse_rows_have_the_neighbours_of_dense_ones(labels, standardize):
    x = scipy.sparse.random(80, 30, 0.3, format='csr', random_state=0)
    y = np.arange(80) % 3 if labels else None
    options = {'max_iter': 4, 'random_state': 0}
    # Rows of unit norm differ from others in no cosine.
    dense = GSLNeighborsTransformer(5, **options, standardize=False)
    unit = x.toarray()
    if standardize:
        unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    expected = dense.fit_transform(unit, y)
    model = GSLNeighborsTransformer(5, **options, standardize=standardize)
    for found in (model.fit_transform(x, y), model.fit(x, y).transform(x)):
        np.testing.assert_allclose(found.toarray(), expected.toarray(), atol=1e-6)
    np.testing.assert_allclose(model.feature_weights_, dense.feature_weights_)
    assert not np.allclose(model.feature_weights_, 1)
    new = model.transform(x[:7].tocoo())
    np.testing.assert_allclose(new.toarray(), model.transform(x).toarray()[:7])


def test_sparse_rows_are_learned_from_in_parts(monkeypatch):
    monkeypatch.setattr(neighbors_transformer, '_DENSE_BYTES', 40 * 30 * 8)
    x = scipy.sparse.random(400, 30, 0.3, format='csr', random_state=0)
    sizes = []
    plain = neighbors_transformer.dense_rows
    monkeypatch.setattr(
        neighbors_transformer,
        'dense_rows',
        lambda rows, index: sizes.append(len(index)) or plain(rows, index),
    )
    model = GSLNeighborsTransformer(5, max_iter=4, random_state=0).fit(x)
    assert sizes == [40] * 4
    assert not np.allclose(model.feature_weights_, 1)
    model.fit(x, np.arange(400) % 3)
    assert sizes == [40] * 8
    weights = model.feature_weights_
    assert np.array_equal(model.fit(x, np.arange(400) % 3).feature_weights_, weights)
    with pytest.raises(ValueError, match=r"'similarity' must be .*\(got 'heat_kernel'"):
        GSLNeighborsTransformer(5, similarity='heat_kernel').fit(x)
    for similarity in ('gaussian', 'neural_gaussian', 'difference'):
        options = {'similarity': similarity, 'mode': 'connectivity', 'max_iter': 1}
        graph = GSLNeighborsTransformer(5, **options, random_state=0).fit_transform(x)
        assert graph.nnz == 2000
