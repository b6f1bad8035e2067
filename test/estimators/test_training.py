"""How estimators draw, scale columns, and tell that there is no signal."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.utils import check_random_state

from torch_geometric_gsl.sklearn import GSLClassifier, GSLRegressor
from torch_geometric_gsl.sklearn._scaling import Scaling

pytestmark = [
    pytest.mark.filterwarnings('ignore::sklearn.exceptions.ConvergenceWarning'),
    pytest.mark.filterwarnings('ignore:no signal was found'),
]


@pytest.mark.parametrize('scaling', ['quantile', 'standard', 'none'])
def test_scaling(scaling):
    random = np.random.default_rng(0)
    x = np.stack([np.exp(random.normal(size=1200)), random.integers(0, 2, 1200)], 1)
    made = Scaling(scaling).fit(x)
    scaled = made.apply(x)
    assert made.varied.tolist() == [0]
    if scaling == 'none':
        assert np.array_equal(scaled, x)
        return
    np.testing.assert_allclose(scaled[:, 1].std(), 1)
    if scaling == 'quantile':
        inner = abs(np.log(x[:, 0])) < 2
        np.testing.assert_allclose(scaled[inner, 0], np.log(x[inner, 0]), atol=0.2)


def test_robust_scaling_bends_what_is_far():
    random = np.random.default_rng(0)
    x = random.normal(size=(1200, 4))
    x[:, 1] = x[:, 0] * 1e20 + 7
    x[:, 2] = np.where(np.arange(1200) % 10 == 0, 5.0, 3.0)  # Of equal quartiles.
    x[:, 3] = 4.0
    scaling = Scaling('robust').fit(x)
    assert scaling.varied.tolist() == [0, 1]
    low, middle, high = np.percentile(x, (25, 50, 75), axis=0)
    z = (x[:, 0] - middle[0]) / (high[0] - low[0])
    expected = z / np.sqrt(1 + (z / 3) ** 2)
    scaled = scaling.apply(x, np.float64)
    np.testing.assert_allclose(scaled[:, 0], expected)
    np.testing.assert_allclose(scaled[:, 1], expected, atol=1e-9)
    z = 2 * (x[:, 2] - 3) / 2
    np.testing.assert_allclose(scaled[:, 2], z / np.sqrt(1 + (z / 3) ** 2))
    assert not scaled[:, 3].any()
    # Far rows differ from each other, and never exceed three.
    far = np.full((3, 4), 4.0)
    far[:, 0] = 5, 10, 1e300
    bent = scaling.apply(far, np.float64)[:, 0]
    assert 0 < bent[0] < bent[1] < bent[2] <= 3


TINY = {'n_members': 1, 'hidden_channels': 8, 'max_iter': 4, 'random_state': 0}
RANDOM = {
    'classifier': GSLClassifier('learned', dropout=0.3, **TINY),
    'regressor': GSLRegressor('learned', draws=2, **TINY),
}


def answers(model, x, y):
    """What a fit on a part of the rows says of all rows."""
    model = clone(model)
    model.fit(x[::3], y[::3])
    return model.predict_proba(x) if hasattr(model, 'classes_') else model.predict(x)


@pytest.mark.parametrize('name', RANDOM)
def test_a_fit_neither_reads_nor_changes_global_generators(wine, name):
    predictions = []
    for seed in range(2):
        torch.manual_seed(seed)
        of_numpy = check_random_state(None)
        of_numpy.seed(seed)
        state, words = torch.get_rng_state(), of_numpy.get_state()[1].copy()
        predictions.append(answers(RANDOM[name], *wine))
        assert torch.equal(torch.get_rng_state(), state)
        assert np.array_equal(of_numpy.get_state()[1], words)
    assert np.array_equal(*predictions)
    with_other_seed = clone(RANDOM[name]).set_params(random_state=1)
    assert not np.array_equal(answers(with_other_seed, *wine), predictions[0])


def test_without_a_state_the_seed_is_that_of_numpy(wine):
    model = clone(RANDOM['regressor']).set_params(random_state=None)
    predictions = []
    for seed in (0, 0, 1):
        check_random_state(None).seed(seed)
        state = torch.get_rng_state()
        predictions.append(answers(model, *wine))
        assert torch.equal(torch.get_rng_state(), state)
    assert np.array_equal(predictions[0], predictions[1])
    assert not np.array_equal(predictions[0], predictions[2])


@pytest.mark.parametrize('graph', ['learned', 'none', 'auto'])
def test_without_a_signal_the_constant_is_predicted(graph, few, recwarn):
    random = np.random.RandomState(0)
    x, y = random.randn(200, 3), random.randn(200)  # No relation.
    options = few | {'max_iter': 1, 'learning_rate': 1e-9}
    weight = random.rand(200)
    is_val = np.arange(200) < 100
    model = GSLRegressor(graph, **options).fit(x, y, weight, is_val)
    texts = [str(warning.message) for warning in recwarn]
    assert any(text.startswith('no signal was found: on held-back') for text in texts)
    expected = np.average(y, weights=weight)
    np.testing.assert_allclose(model.predict(x), expected, rtol=1e-6)
    np.testing.assert_allclose(model.transduction_, expected, rtol=1e-6)
    # On held-back rows, the constant of the others is looked at.
    constant = np.average(y[~is_val], weights=weight[~is_val])
    loss = np.average((y - constant)[is_val] ** 2, weights=weight[is_val])
    scale = np.average((y - y.mean()) ** 2)
    losses = model.report_['loss']
    np.testing.assert_allclose(losses['constant'], loss / scale, rtol=1e-5)
    assert losses['blend'] >= losses['constant']
    assert model.report_['weight'].dropna().to_dict() == {'constant': 1.0}
    shown = [line.split() for line in str(model).splitlines()]
    assert [words[0] for words in shown if words[-1] == '1.00'] == ['constant']
    table = model.contributions(x)
    assert (table[['trees', 'own columns', 'neighbours']] == 0).all(axis=None)
    np.testing.assert_allclose(table['constant'], expected, rtol=1e-6)
    classes = np.where(random.rand(200) < 0.3, 'a', 'b')
    model = GSLClassifier(graph, **options).fit(x, classes, validation_mask=is_val)
    share = (classes == 'a').mean()
    np.testing.assert_allclose(model.predict_proba(x)[:, 0], share, rtol=1e-5)


def test_little_signal_is_told(few, recwarn):
    random = np.random.RandomState(0)
    x, y = random.randn(300, 3), random.randn(300)
    y += 0.15 * x[:, 0]
    options = few | {'max_iter': 10, 'learning_rate': 1e-3}
    GSLRegressor('none', **options, validation_fraction=0.5).fit(x, y)
    texts = [str(warning.message) for warning in recwarn]
    assert any('is hardly better than a constant' in text for text in texts), texts


def test_few_rows_do_not_tell_that_there_is_no_signal(few, places):
    x, y = places(80)
    is_val = np.zeros(80, dtype=bool)
    is_val[np.argsort(np.abs(y - y.mean()))[:4]] = True
    model = GSLRegressor('none', **few | {'max_iter': 60})
    model.fit(x, y, validation_mask=is_val)
    assert len(set(model.predict(x))) > 40


@pytest.mark.parametrize('name', ['kneighbors', 'explain', 'explore'])
def test_neighbours_of_a_constant_are_told(name, few, tmp_path):
    random = np.random.RandomState(0)
    options = few | {'max_iter': 1, 'learning_rate': 1e-9}
    x, y = random.randn(200, 3), random.randn(200)
    model = GSLRegressor('learned', **options).fit(x, y)
    assert len(set(model.predict(x))) == 1
    argument = tmp_path / 'graph.html' if name == 'explore' else 0.9 * x[:1]
    with pytest.warns(UserWarning, match='no signal was found in training'):
        getattr(model, name)(argument)
    model.save(tmp_path / 'model.pt')
    again = GSLRegressor.load(tmp_path / 'model.pt')
    np.testing.assert_array_equal(again.predict(x), model.predict(x))
