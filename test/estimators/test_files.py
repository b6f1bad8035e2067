"""Estimators in files, which are read without executing anything."""

import pickle

import numpy as np
import pandas
import pytest
import scipy.sparse
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from torch_geometric_gsl.sklearn import GSLClassifier, GSLRegressor

pytestmark = pytest.mark.filterwarnings('ignore::sklearn.exceptions.ConvergenceWarning')


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
        for name in ('n_iter_', 'graph_choice_', 'graph_losses_', 'n_features_in_'):
            assert getattr(twin, name) == getattr(model, name)
        for one in (twin, pickle.loads(pickle.dumps(model))):
            assert np.array_equal(one.predict(x), model.predict(x))
        assert np.array_equal(twin.transduction_, model.transduction_)
        assert (twin.graph_ != model.graph_).nnz == 0
        return twin

    return save_and_load


@pytest.mark.parametrize(
    ('make', 'graph', 'kind'),
    [
        (GSLClassifier, 'learned', 'dense'),
        (GSLClassifier, 'nearest', 'sparse'),
        (GSLClassifier, 'none', 'texts'),
        (GSLRegressor, 'none', 'single'),
        (GSLRegressor, 'nearest', 'dense'),
        (GSLRegressor, 'learned', 'sparse'),
    ],
)
def test_files(wine, make, graph, kind, through, few):
    x, y = wine[0][::2], wine[1][::2]
    x = {'sparse': scipy.sparse.csr_matrix, 'single': np.float32}.get(kind, np.array)(x)
    y = y.astype(str) if kind == 'texts' else y
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


@pytest.mark.parametrize('unit', ['ns', 'us'])
def test_frames(through, few, places, unit):
    x, y = places(60)
    frame = pandas.DataFrame(x, columns=['east', 'north', 'size'])
    frame['kind'] = np.where(x[:, 0] > 0.5, 'flat', 'house')
    frame.loc[3, 'size'] = frame.loc[4, 'kind'] = None
    frame['day'] = np.arange(60).astype('M8[D]').astype(f'M8[{unit}]')
    model = GSLRegressor('learned', **few).fit(frame, y)
    found = model.explain(frame[5:6])
    assert found.columns.tolist() == ['weight', 'target', *frame.columns]
    assert found['kind'].iloc[0] == frame['kind'][5]
    rows = found.index[1:]
    assert found['kind'][1:].tolist() == frame['kind'][rows].tolist()
    # Texts, numbers and times are what they were.
    twin = through(model, frame)
    again = twin.explain(frame[5:6])
    assert again.equals(found)
    assert twin.feature_names_in_.tolist() == [*frame]
    # Whole numbers that name columns remain numbers.
    frame = pandas.DataFrame(x)
    model = GSLRegressor('learned', **few).fit(frame, y)
    twin = through(model, frame)
    assert [*twin.explain(frame[:1]).columns] == ['weight', 'target', 0, 1, 2]
    assert np.array_equal(twin.predict(frame[[2, 0, 1]]), model.predict(frame))


def test_a_file_of_another_device_is_loaded_on_this_one(path, classifier, wine):
    model = classifier('none')
    model.save(path)
    content = torch.load(path, weights_only=True)
    content['params']['device'] = 'cuda:77'
    torch.save(content, path)
    with pytest.raises(OSError, match="'device' must be one that PyTorch has"):
        GSLClassifier.load(path)
    state = torch.get_rng_state()
    found = GSLClassifier.load(path, device='cpu')
    assert torch.equal(torch.get_rng_state(), state)
    assert found.device == 'cpu'
    np.testing.assert_array_equal(found.predict(wine[0]), model.predict(wine[0]))


class Bomb:
    def __reduce__(self):
        return exec, ('raise RuntimeError("executed")',)


def test_files_that_hold_no_estimator(path, classifier, wine):
    with pytest.raises(NotFittedError):
        GSLClassifier().save(path)
    model = clone(classifier('none')).fit(*wine)
    model.random_state = np.random.RandomState(0)
    with pytest.raises(TypeError, match="'random_state' must be a plain value"):
        model.save(path)
    with pytest.raises(FileNotFoundError):
        GSLClassifier.load(path)
    classifier('none').save(path)
    with pytest.raises(ValueError, match='holds a GSLClassifier, not a GSLRegressor'):
        GSLRegressor.load(path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(OSError, match='holds no saved estimator'):
        GSLClassifier.load(path)
    for other in ({'estimator': Bomb()}, [1], {'a': 1}):
        torch.save(other, path)
        with pytest.raises(OSError, match='holds no saved estimator'):
            GSLClassifier.load(path)
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(OSError, match='no file of plain values and tensors'):
        GSLClassifier.load(path)


def test_damaged_files(path, classifier):
    classifier('none').save(path)
    content = torch.load(path, weights_only=True)
    changes = [
        {'params': content['params'] | {'eval_k': -1}},
        {'params': content['params'] | {'other': 1}},
        {'states': [{}]},
        {'states': [], 'sizes': []},
        {'x': 'x'},
        {'targets': {'classes_': [[1], 'zz'], '_targets': [[1], 'zz']}},
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
