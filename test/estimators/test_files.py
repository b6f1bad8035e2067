"""The graph of an estimator, what predictions lean on, and estimators in files."""

import json
import pickle
import re
import warnings

import numpy as np
import pandas
import pytest
import scipy.sparse
import skops.io
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.neighbors import NearestNeighbors

from torch_geometric_gsl import GSLNet, TableNet
from torch_geometric_gsl.sklearn import GSLClassifier, GSLRegressor

pytestmark = [
    pytest.mark.filterwarnings('ignore::sklearn.exceptions.ConvergenceWarning'),
    pytest.mark.filterwarnings('ignore:no signal was found'),
]


def test_neighbours_of_new_rows(regressor, places, classifier, wine):
    x, _ = places()
    weights, rows = regressor.kneighbors(x[200:], 7)
    assert weights.shape == rows.shape == (40, 7)
    assert (np.diff(weights, axis=1) <= 0).all()
    new = torch.from_numpy(regressor._new_rows(x[200:]))
    expected = np.zeros((40, 200))
    (nets,) = regressor._blend.members
    new = torch.from_numpy(nets.scaling.apply(new.numpy(), np.float64))
    for net in nets.models:
        (source, target), weight = net(new, return_graph=True)[1]
        np.add.at(expected, (target.numpy(), source.numpy()), weight.detach() / 2)
    np.testing.assert_allclose(expected.sum(axis=1), 1)
    best = np.sort(expected, axis=1)[:, ::-1][:, :7]
    np.testing.assert_allclose(weights, best)
    np.testing.assert_allclose(np.take_along_axis(expected, rows, axis=1), weights)
    with pytest.raises(ValueError, match="'n_neighbors' must be at least 1"):
        regressor.kneighbors(x, 0)
    with pytest.raises(ValueError, match="'kneighbors' needs a graph"):
        classifier('none').kneighbors(wine[0])


def test_neighbours_as_a_matrix_of_distances(classifier, wine):
    x, y = wine[0][::2], wine[1][::2]
    model = classifier('learned')
    weights, rows = model.kneighbors(x, 8)
    distances = np.log(weights[:, :1]) - np.log(weights)
    offsets = np.arange(0, rows.size + 1, 8)
    graph = scipy.sparse.csr_matrix(
        (distances.ravel(), rows.ravel(), offsets), shape=(89, 89)
    )
    # A row is its own first neighbour, and scikit-learn warns of unsorted rows.
    assert np.array_equal(rows[:, 0], np.arange(89))
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        search = NearestNeighbors(n_neighbors=8, metric='precomputed').fit(graph)
        neighbours = search.kneighbors(graph)
    assert np.array_equal(neighbours[1], rows)
    np.testing.assert_array_equal(neighbours[0], distances)
    assert (y[rows[:, 1]] == y).mean() > 0.9


@pytest.mark.parametrize('graph', ['learned', 'none'])
def test_rows_of_training_are_answered_among_each_other(wine, graph, few):
    x, y = wine
    some = np.where(np.arange(len(y)) % 3 == 0, y, -1)
    model = GSLClassifier(graph, **few).fit(x, some)
    transduction, edges = model.transduction_, model.graph_
    num_neighbours = {'none': 0, 'learned': 96}[graph]
    assert set(np.diff(edges.indptr)) == {num_neighbours}
    np.testing.assert_allclose(edges.sum(axis=1), float(num_neighbours > 0))
    assert not edges.diagonal().any()
    # A row's own label makes no difference to what the others tell it.
    (nets,) = model._blend.members
    known_y = nets.known_y
    for row in (0, 3):
        known_y[row] = (known_y[row] + 1) % 3
        moved = nets.own_outputs(model._rows.x)
        known_y[row] = int(some[row])
        assert np.array_equal(moved[row], nets.own_outputs(model._rows.x)[row])
        assert np.array_equal(moved, nets.own_outputs(model._rows.x)) == (
            graph == 'none'
        )
    if graph == 'none':
        assert np.array_equal(model.predict(x), transduction)


def test_explain(regressor, few, places):
    x, y = places()
    table = regressor.explain(x[200], 3)
    assert table.columns[1] == 'spread'  # There are two networks.
    del table['spread']
    weights, rows = regressor.kneighbors(x[200:201], 3)
    assert table.index.tolist() == ['prediction', *rows[0]]
    assert table.columns.tolist() == ['weight', 'target', 'x0', 'x1', 'x2']
    np.testing.assert_allclose(table['weight'][1:], weights[0])
    np.testing.assert_allclose(table['target'][1:], y[rows[0]])
    np.testing.assert_allclose(table.iloc[1:, 2:], x[rows[0]])
    cells = [*regressor.predict(x[200:201]), *x[200]]
    np.testing.assert_allclose(table.iloc[0, 1:], cells)
    sparse = scipy.sparse.csr_matrix(x[:60])
    model = GSLRegressor('learned', **few).fit(sparse, np.stack([y, -y], axis=1)[:60])
    with pytest.warns(UserWarning, match=r"'row' equals the training rows \[0\], "):
        of_targets = model.explain(sparse[:1])
    assert [*of_targets][:3] == ['weight', 'target 0', 'target 1']
    np.testing.assert_allclose(of_targets.iloc[0, 3:].astype(float), x[0])


@pytest.mark.parametrize('form', ['array', 'sparse', 'frame'])
def test_explain_names_the_row_itself(few, places, form):
    x, y = places(80)
    x[7] = x[3]
    rows = {
        'array': x,
        'sparse': scipy.sparse.csr_matrix(x),
        'frame': pandas.DataFrame(x, columns=['a', 'b', 'c']).assign(k=['u'] * 80),
    }[form]
    model = GSLRegressor('learned', **few).fit(rows, y)
    text = r"'row' equals the training rows \[(3, 7|7, 3)\], which are among"
    with pytest.warns(UserWarning, match=text):
        table = model.explain(rows[3:4])
    assert {3, 7} <= {*table.index[1:]}
    with pytest.warns(UserWarning, match=r'\.\.\.\], which') as warned:
        model.explain(rows[:20])
    assert sum('equals the training' in str(w.message) for w in warned) == 1
    moved = rows[3:4] + 0.01 if form == 'array' else rows[3:4].copy()
    if form == 'sparse':
        moved.data += 0.01
    elif form == 'frame':
        moved['a'] += 0.01
    assert [*model.explain(moved)] == [*table]  # No warning of a new row.
    assert not model.graph_.diagonal().any()


@pytest.mark.filterwarnings('ignore:.* equals the training rows')
@pytest.mark.parametrize('form', ['array', 'sparse', 'frame'])
def test_explains_several_rows(regressor, few, places, form):
    x, y = places()
    model, rows = regressor, x[198:202]
    if form == 'sparse':
        rows = scipy.sparse.csr_matrix(rows)
    elif form == 'frame':
        frame = pandas.DataFrame(x, columns=['a', 'b', 'explained'])
        frame.index = pandas.Index(
            [('row', i) for i in range(240)], tupleize_cols=False
        )
        model = GSLRegressor('learned', **few).fit(frame[:60], y[:60])
        rows = frame[58:62]
    labels = [*rows.index] if form == 'frame' else [0, 1, 2, 3]
    table = model.explain(rows, 3)
    assert table['explained'].tolist() == [label for label in labels for _ in range(4)]
    names = [*'ab', 'explained_'] if form == 'frame' else ['x0', 'x1', 'x2']
    assert [*table][-4:] == ['target', *names]
    table.columns = [str(name).replace('explained_', 'explained') for name in table]
    for i in range(4):
        single = model.explain(rows[i : i + 1], 3)
        rows_of_one = table.iloc[4 * i : 4 * i + 4]
        assert single.index.equals(rows_of_one.index)
        pandas.testing.assert_frame_equal(single, rows_of_one.iloc[:, 1:][[*single]])


def test_rows_of_no_weight_explain_nothing(few):
    # Six rows stand at one place, and all others so far that their weights round to 0.
    x = np.r_[np.zeros(6), 1e4 + 1e3 * np.arange(24)][:, None]
    options = few | {'scaling': 'none', 'max_iter': 1, 'learning_rate': 1e-9}
    model = GSLRegressor('learned', **options)
    model.fit(x, np.arange(30.0) % 2, validation_mask=np.arange(30) % 3 == 0)
    (net,) = model._blend.members[0].models
    with torch.no_grad():
        net.neighbours.sampler.log_scale.fill_(30)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', UserWarning)  # Of no signal.
        weights, _ = model.kneighbors(x[:1], 12)
        assert (weights > 0).sum() == 6
        assert sorted(model.explain(x[:1], 12).index[1:]) == list(range(6))


@pytest.mark.filterwarnings('ignore:.* equals the training rows')
@pytest.mark.filterwarnings('ignore:X (has|does not have valid) feature names')
def test_explains_rows_of_any_kind(few, places):
    x, y = places(60)
    frame = pandas.DataFrame(x, columns=['a', 'b', 'weight'])
    frame = frame.assign(k=['u', 'v'] * 30)
    model = GSLRegressor('learned', **few).fit(frame, y)
    expected = model.explain(frame[:1])
    # Each column has one name.
    names = ['weight', 'target', 'a', 'b', 'weight_', 'k']
    assert [*expected.columns] == names
    assert expected.notna().to_numpy()[1:].all()
    row = frame.iloc[0]
    for example in (row, row.tolist(), frame[['k', 'weight', 'a', 'b']][:1]):
        explained = model.explain(example).astype(expected.dtypes)
        pandas.testing.assert_frame_equal(explained, expected)
    plain = GSLRegressor('learned', **few).fit(x, y).explain(frame.iloc[:1, :3])
    assert [*plain.columns] == ['weight', 'target', 'x0', 'x1', 'x2']


def test_explore(tmp_path, few, places):
    x, y = places(60)
    houses = [f'house {i}' for i in range(60)]
    frame = pandas.DataFrame(x, columns=['aaa', 'bbb', 'ccc'], index=houses)
    model = GSLRegressor('learned', **few).fit(frame, y)
    page = model.explore(tmp_path / 'graph.html')
    text = page.read_text(encoding='utf-8')
    assert page == tmp_path / 'graph.html'
    # Rows have the labels of the frame.
    assert all(name in text for name in [*frame, 'house 59'])
    # Columns have the values of the table, not those of the network.
    frame = (1000 * frame).round().assign(kind=['flat', None] * 30)
    frame['day'] = pandas.date_range('1970-01-02', periods=60, tz='Europe/Berlin')
    model = GSLRegressor('learned', **few).fit(frame, y)
    for twin in (model, pickle.loads(pickle.dumps(model))):
        match = re.search(r'id="data">(.*?)</script>', twin.explore(page).read_text())
        colours = json.loads(match[1])['colours']
        values = {each['name']: each['values'] for each in colours}
        assert values['bbb'] == frame['bbb'].tolist()
        assert values['kind'] == [0, None] * 30
        assert values['day'][:2] == [82800.0, 169200.0]
    model = GSLClassifier('learned', **few).fit(scipy.sparse.csr_matrix(x), y > 0)
    text = model.explore(page, names=[f'place {i}' for i in range(60)]).read_text()
    assert 'place 59' in text
    assert '<title>Learned graph' in text


@pytest.fixture
def path(tmp_path):
    return tmp_path / 'model.pt'


@pytest.fixture
def through(path):
    """Saves and loads an estimator, which must answer as before."""

    def save_and_load(model, x):
        model.save(path)
        assert [p.name for p in path.parent.iterdir()] == ['model.pt']
        twin = type(model).load(path)
        assert twin.get_params() == model.get_params()
        for name in ('n_iter_', 'loss_curve_', 'n_features_in_'):
            assert getattr(twin, name) == getattr(model, name)
        assert twin.report_.equals(model.report_)
        assert np.array_equal(twin.is_far(x), model.is_far(x))
        assert twin.contributions(x).equals(model.contributions(x))
        for copy in (twin, pickle.loads(pickle.dumps(model))):
            assert np.array_equal(copy.predict(x), model.predict(x))
        assert np.array_equal(twin.transduction_, model.transduction_)
        assert (twin.graph_ != model.graph_).nnz == 0
        return twin

    return save_and_load


@pytest.mark.parametrize(
    ('make', 'graph', 'form'),
    [
        (GSLClassifier, 'learned', 'dense'),
        (GSLClassifier, 'auto', 'sparse'),
        (GSLClassifier, 'none', 'texts'),
        (GSLRegressor, 'none', 'single'),
        (GSLRegressor, 'auto', 'dense'),
        (GSLClassifier, 'auto', 'texts'),
        (GSLRegressor, 'learned', 'sparse'),
    ],
)
def test_files(wine, make, graph, form, through, few, few_trees):
    x, y = wine[0][::2], wine[1][::2]
    x = {'sparse': scipy.sparse.csr_matrix, 'single': np.float32}.get(form, np.array)(x)
    y = y.astype(str) if form == 'texts' else y
    options = few | {'max_iter': 3, 'n_members': 2}
    model = make(graph, **options, eval_k=np.int64(9), dropout=np.float64(0.5))
    twin = through(model.fit(x, y), x)
    assert (twin.eval_k, twin.dropout) == (9, 0.5)


def test_units_are_kept(through, few):
    random = np.random.default_rng(0)
    x = random.normal(size=(40, 2)) * np.array([1e25, 1e-25])
    y = np.where(np.arange(40) % 2, 0.1, np.nextafter(0.1, 1)) * 1e-20
    model = GSLRegressor('none', **few).fit(x, y)
    np.testing.assert_allclose(model.predict(x), y, rtol=1e-12)
    through(model, x)
    # Quantiles of columns.
    x, y = random.normal(size=(1200, 2)), random.normal(size=1200)
    through(GSLRegressor('none', **few | {'max_iter': 1}).fit(x, y), x)


@pytest.mark.filterwarnings('ignore:.* equals the training rows')
@pytest.mark.parametrize('unit', ['ns', 'us'])
def test_frames(through, few, places, unit):
    x, y = places(60)
    frame = pandas.DataFrame(x, columns=['east', 'north', 'size'])
    frame['kind'] = np.where(x[:, 0] > 0.5, 'flat', 'house')
    frame.loc[3, 'size'] = frame.loc[4, 'kind'] = None
    frame['day'] = np.arange(60).astype('M8[D]').astype(f'M8[{unit}]')
    model = GSLRegressor('learned', **few).fit(frame, y)
    explained = model.explain(frame[5:6])
    assert explained.columns.tolist() == ['weight', 'target', *frame.columns]
    assert explained['kind'].iloc[0] == frame['kind'][5]
    rows = explained.index[1:]
    assert explained['kind'][1:].tolist() == frame['kind'][rows].tolist()
    # Texts, numbers and times are what they were.
    twin = through(model, frame)
    again = twin.explain(frame[5:6])
    assert again.equals(explained)
    assert twin.feature_names_in_.tolist() == [*frame]
    # Whole numbers that name columns remain numbers.
    frame = pandas.DataFrame(x)
    model = GSLRegressor('learned', **few).fit(frame, y)
    twin = through(model, frame)
    names = ['weight', 'target', 0, 1, 2]
    assert [*twin.explain(frame[:1]).columns] == names
    assert np.array_equal(twin.predict(frame[[2, 0, 1]]), model.predict(frame))


def test_a_file_of_another_device_is_loaded_on_this_one(path, classifier, wine):
    model = classifier('none')
    model.save(path)
    content = torch.load(path, weights_only=True)
    content['options']['device'] = content['state']['device'] = 'cuda:77'
    torch.save(content, path)
    with pytest.raises(ValueError, match="'device' must be a PyTorch device"):
        GSLClassifier.load(path)
    state = torch.get_rng_state()
    loaded = GSLClassifier.load(path, device='cpu')
    assert torch.equal(torch.get_rng_state(), state)
    assert loaded.device == 'cpu'
    np.testing.assert_array_equal(loaded.predict(wine[0]), model.predict(wine[0]))


@pytest.mark.parametrize('name', ['kneighbors', 'explain', 'explore'])
def test_without_a_graph_the_call_is_named(name, classifier, wine, tmp_path):
    model, page = classifier('none'), tmp_path / 'graph.html'
    argument = page if name == 'explore' else wine[0][:1]
    text = (
        f"'{name}' needs a graph, and no member with neighbours has a weight "
        r"\(got {'no graph, robust': 1.0}\): fit with graph='learned'"
    )
    with pytest.raises(ValueError, match=text):
        getattr(model, name)(argument)
    assert not page.exists()


def test_estimators_that_no_file_can_hold(path, classifier, wine):
    with pytest.raises(NotFittedError):
        GSLClassifier().save(path)
    model = clone(classifier('none')).fit(*wine)
    model.random_state = np.random.RandomState(0)
    with pytest.raises(TypeError, match="'random_state' must be a plain value"):
        model.save(path)
    with pytest.raises(OSError, match="'path' must be a file in a folder that exists"):
        classifier('none').save(path / 'none.pt')


@pytest.mark.parametrize('cls', [GSLNet, TableNet, GSLRegressor])
def test_a_file_is_loaded_by_its_class(path, classifier, cls):
    classifier('none').save(path)
    text = rf"model.pt' must hold a {cls.__name__}.* use .GSLClassifier.load.$"
    with pytest.raises(ValueError, match=text):
        cls.load(path)
    GSLNet(4, 8, 2, 3).save(path)
    text = 'must hold a GSLClassifier .got a GSLNet.: use .GSLNet.load.$'
    with pytest.raises(ValueError, match=text):
        GSLClassifier.load(path)


def test_changed_contents_are_refused(path, classifier):
    classifier('none').save(path)
    content = torch.load(path, weights_only=True)
    state = content['state']
    changes = [
        {'fit': state['fit'] | {'_net_options': {'eval_k': -1}}},
        {'members': [state['members'][0] | {'networks': [[8, 0.0, {}]]}]},
        {'members': [state['members'][0] | {'networks': []}]},
        {'members': []},
        {'rows': 'x'},
        {'targets': {'classes_': [[1], 'zz'], '_targets': [[1], 'zz']}},
        {'labels': [[['Bomb', 1]], 'object']},
    ]
    damaged = [content | {'state': state | change} for change in changes]
    damaged += [
        content | {'state': {k: v for k, v in state.items() if k != name}}
        for name in state
    ]
    damaged.append(content | {'options': content['options'] | {'other': 1}})
    for changed in damaged:
        torch.save(changed, path)
        with pytest.raises(
            ValueError, match=r'GSLClassifier of version .* cannot be r'
        ):
            GSLClassifier.load(path)
    for name in content:
        torch.save({k: v for k, v in content.items() if k != name}, path)
        with pytest.raises(OSError, match='is not a valid saved model'):
            GSLClassifier.load(path)


def test_every_kind_of_member_goes_through_a_file(through, wine, few, few_trees):
    # Of equal weights, as some would have none.
    model = GSLClassifier(**few | {'n_members': 2, 'max_iter': 2})
    x = wine[0][:11]
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', UserWarning)
        model.fit(x, np.arange(11) % 3)
    assert {type(member).__name__ for member in model._blend.members} == {
        'Nets',
        'SklearnModels',
    }
    assert {member.family for member in model._blend.members} == {
        *('learned', 'none', 'linear', 'trees')
    }
    twin = through(model, x)
    assert str(twin) == str(model)
    for member, copy in zip(model._blend.members, twin._blend.members, strict=True):
        assert np.array_equal(member.outputs(x), copy.outputs(x))
        assert np.array_equal(member.own_outputs(x), copy.own_outputs(x))


class Untrusted:
    """Runs when an unsafe reader restores it."""

    ran = False

    def __init__(self):
        self.value = 1

    def __setstate__(self, state):
        type(self).ran = True

    def __reduce__(self):
        return run_untrusted, ()


def run_untrusted():
    Untrusted.ran = True


def test_untrusted_models_are_refused(path, wine, few, few_trees):
    GSLClassifier(**few).fit(*(part[::2] for part in wine)).save(path)
    file = torch.load(path, weights_only=True)
    member = next(m for m in file['state']['members'] if 'models' in m)
    for data in (
        skops.io.dumps([[Untrusted()]]),
        skops.io.dumps([[run_untrusted]]),
        pickle.dumps(Untrusted()),
        b'models',
    ):
        member['models'] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        torch.save(file, path)
        Untrusted.ran = False
        text = r'GSLClassifier of version .* cannot be r'
        with pytest.raises(ValueError, match=text):
            GSLClassifier.load(path)
        assert not Untrusted.ran


def test_a_pickle_of_an_earlier_version_is_not_fitted(classifier, wine):
    model = pickle.loads(pickle.dumps(classifier('none')))
    model._rows = wine[0]  # As estimators up to 0.3.0 have.
    with pytest.raises(NotFittedError):
        model.predict(wine[0])
