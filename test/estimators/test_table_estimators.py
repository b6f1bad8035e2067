"""Neighbours that tell their labels, in the estimators."""

import warnings
from types import SimpleNamespace

import numpy as np
import pandas
import pytest
import torch
from sklearn.datasets import load_wine
from sklearn.exceptions import ConvergenceWarning

from torch_geometric_gsl.nn.models.table_net import TableNet
from torch_geometric_gsl.sklearn import GSLClassifier, GSLRegressor
from torch_geometric_gsl.sklearn._rows import ColumnScaling, Nearest
from torch_geometric_gsl.sklearn._training import Parts, _batches, _sampled, train

FEW = {
    'n_members': 1,
    'hidden_channels': 16,
    'max_iter': 15,
    'learning_rate': 0.01,
    'random_state': 0,
}
pytestmark = pytest.mark.filterwarnings('ignore::sklearn.exceptions.ConvergenceWarning')


def places(n=240, seed=0):
    """Prices that depend on the place, by no simple law."""
    random = np.random.default_rng(seed)
    x = random.uniform(size=(n, 3))
    return x, np.sin(12 * x[:, 0]) * np.cos(9 * x[:, 1]) + 0.3 * x[:, 2]


@pytest.fixture(scope='module')
def fitted():
    x, y = places()
    return GSLRegressor('learned', **FEW | {'n_members': 2}).fit(x[:200], y[:200])


def test_members_are_averaged(fitted):
    x, _ = places()
    out = fitted._outputs(x[200:])
    assert out.shape == (2, 40, 1)
    mean = out.mean(dim=0)[:, 0].numpy() * fitted._width + fitted._center
    np.testing.assert_allclose(fitted.predict(x[200:]), mean)
    first, second = (member.encoder.lin.weight for member in fitted._members)
    assert not torch.equal(first, second)


@pytest.mark.parametrize(('num_rows', 'expected'), [(150, 4), (1300, 1)])
def test_small_tables_have_more_members(num_rows, expected):
    x, y = places(num_rows)
    options = FEW | {'n_members': 'auto', 'max_iter': 1}
    assert len(GSLRegressor('none', **options).fit(x, y)._members) == expected


def test_neighbours_of_new_rows(fitted):
    x, _ = places()
    weights, rows = fitted.kneighbors(x[200:], 7)
    assert weights.shape == rows.shape == (40, 7)
    assert (np.diff(weights, axis=1) <= 0).all()
    new = torch.from_numpy(fitted._new_rows(x[200:]))
    expected = np.zeros((40, 200))
    for member in fitted._members:
        source, target = member(new, return_graph=True)[1].edge_index.numpy()
        weight = member(new, return_graph=True)[1].edge_weight.detach().numpy()
        np.add.at(expected, (target, source), weight / 2)
    np.testing.assert_allclose(expected.sum(axis=1), 1)
    best = np.sort(expected, axis=1)[:, ::-1][:, :7]
    np.testing.assert_allclose(weights, best)
    np.testing.assert_allclose(np.take_along_axis(expected, rows, axis=1), weights)
    with pytest.raises(ValueError, match="'n_neighbors' must be at least 1"):
        fitted.kneighbors(x, 0)


def test_a_prediction_is_what_its_neighbours_tell():
    x, y = places()
    model = GSLRegressor('learned', **FEW).fit(x[:200], y[:200])
    before = model.predict(x[200:201])
    _, rows = model.kneighbors(x[200:201], 200)
    far = np.setdiff1d(np.arange(200), rows)
    assert len(far) == 200 - 96
    for changed, moves in ((far, False), (rows[0], True)):
        told = model._told.clone()
        model._told[changed] += 1
        model._prepare()
        assert (model.predict(x[200:201]) != before).any() == moves
        model._told = told
    model._prepare()


def test_explain(fitted):
    x, y = places()
    table = fitted.explain(x[200], 3)
    weights, rows = fitted.kneighbors(x[200:201], 3)
    assert table.index.tolist() == ['prediction', *rows[0]]
    assert table.columns.tolist() == ['weight', 'target', 'x0', 'x1', 'x2']
    np.testing.assert_allclose(table['weight'][1:], weights[0])
    np.testing.assert_allclose(table['target'][1:], y[rows[0]])
    np.testing.assert_allclose(table.iloc[1:, 2:], x[rows[0]])
    np.testing.assert_allclose(
        table.iloc[0, 1:], [*fitted.predict(x[200:201]), *x[200]]
    )
    with pytest.raises(ValueError, match=r"'row' must be one row \(got 2\)"):
        fitted.explain(x[:2])


def frame(n=80):
    x, y = places(n)
    table = pandas.DataFrame(x, columns=['east', 'north', 'size'])
    table['kind'] = np.where(x[:, 0] > 0.5, 'flat', 'house')
    table['day'] = pandas.to_datetime('2024-01-01') + pandas.to_timedelta(x[:, 1], 'D')
    table.loc[3, 'size'] = None
    table.loc[4, 'kind'] = None
    return table, y


def test_explain_rows_of_a_frame(tmp_path):
    table, y = frame()
    model = GSLRegressor('learned', **FEW).fit(table, y)
    found = model.explain(table[5:6])
    assert found.columns.tolist() == ['weight', 'target', *table.columns]
    assert found['kind'].iloc[0] == table['kind'][5]
    rows = found.index[1:]
    assert found['kind'][1:].tolist() == table['kind'][rows].tolist()
    model.save(tmp_path / 'model.pt')
    again = GSLRegressor.load(tmp_path / 'model.pt')
    assert np.array_equal(again.predict(table), model.predict(table))
    # Texts and numbers are what they were, times are texts.
    twin = again.explain(table[5:6])
    assert twin.drop(columns='day').equals(found.drop(columns='day'))


def test_several_targets_are_explained():
    x, y = places(60)
    model = GSLRegressor('learned', **FEW).fit(x, np.stack([y, -y], axis=1))
    found = model.explain(x[:1])
    assert found.columns.tolist()[:3] == ['weight', 'target 0', 'target 1']
    assert model.transduction_.shape == (60, 2)


def test_without_a_graph_there_are_no_neighbours():
    x, y = places(60)
    model = GSLRegressor('none', **FEW).fit(x, y)
    assert model.graph_.shape == (60, 60)
    assert model.graph_.nnz == 0
    with pytest.raises(ValueError, match="'kneighbors' needs a graph"):
        model.kneighbors(x)


@pytest.mark.parametrize('graph', ['learned', 'nearest'])
def test_the_graph_of_training_rows(graph):
    x, y = places(150)
    model = GSLRegressor(graph, **FEW).fit(x, y)
    found = model.graph_
    np.testing.assert_allclose(found.sum(axis=1), 1)
    assert not found.diagonal().any()
    assert set(np.diff(found.indptr)) == {12 if graph == 'nearest' else 96}


def test_explore(fitted, tmp_path):
    page = fitted.explore(tmp_path / 'graph.html')
    assert page.name == 'graph.html'
    assert page.stat().st_size > 10_000


def test_rows_that_are_held_back(monkeypatch):
    x, y = places()
    seen = []

    class Noting(TableNet):
        def index(self, x, y=None):
            seen.append(len(x))
            return super().index(x, y)

    monkeypatch.setattr(GSLRegressor, '_network_class', Noting)
    mask = np.arange(len(y)) >= 190
    model = GSLRegressor('learned', **FEW | {'max_iter': 2})
    model.fit(x, y, validation_mask=mask)
    assert seen == [190, 190, 240]  # Each epoch, and after the last one.
    for wrong in (mask[:5], mask.astype(int)):
        with pytest.raises(ValueError, match="'validation_mask' must hold one bool"):
            model.fit(x, y, validation_mask=wrong)
    for wrong in (~mask | mask, mask & ~mask):
        with pytest.raises(ValueError, match="'validation_mask' must hold back some"):
            model.fit(x, y, validation_mask=wrong)


@pytest.mark.filterwarnings('default::sklearn.exceptions.ConvergenceWarning')
def test_convergence():
    x, y = places(80)
    with pytest.warns(ConvergenceWarning, match="'max_iter' = 2 epochs"):
        GSLRegressor('none', **FEW | {'max_iter': 2}).fit(x, y)
    model = GSLRegressor('none', **FEW | {'max_iter': 2000}).fit(x, y)
    assert len(model.loss_curve_) == len(model.validation_scores_) == model.n_iter_
    # The network of the best epoch is kept.
    best = int(np.argmax(model.validation_scores_))
    for epochs, is_best in ((best + 1, True), (best, False)):
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            again = GSLRegressor('none', **FEW | {'max_iter': epochs}).fit(x, y)
        assert (again.validation_loss_ == model.validation_loss_) == is_best


def test_validation_scores():
    x, y = load_wine(return_X_y=True)
    mask = np.arange(len(y)) % 4 == 0
    for model in (GSLClassifier('none', **FEW), GSLRegressor('none', **FEW)):
        model.set_params(max_iter=1).fit(x, y, validation_mask=mask)
        # What was kept is the network of the only epoch, in single precision.
        expected = model.score(x[mask], y[mask])
        np.testing.assert_allclose(model.validation_scores_, [expected], atol=1e-4)


def test_the_margin_of_the_choice(capsys):
    x, y = load_wine(return_X_y=True)
    model = GSLClassifier(**FEW, verbose=True).fit(x, y)
    first, second, _ = model.graph_losses_.values()
    assert model.graph_margin_ == 1 - first / second > 0
    assert f'{model.graph_choice_} is chosen' in capsys.readouterr().out
    assert GSLClassifier('none', **FEW).fit(x, y).graph_margin_ is None


@pytest.mark.parametrize('pool_size', [5, 30, 1000])
def test_batches_and_pools(pool_size):
    train, candidates = torch.arange(0, 40, 2), torch.arange(40)
    options = SimpleNamespace(batch_size=7, pool_size=pool_size)
    generator = torch.Generator().manual_seed(0)
    parts = Parts(train, candidates, train[:0])
    found = list(_batches(parts, options, generator))
    assert torch.equal(torch.cat([b for b, _ in found]).sort().values, train)
    for batch, pool in found:
        assert not set(batch.tolist()) & set(pool.tolist())
        assert len(set(pool.tolist())) == len(pool)
        assert pool_size - len(batch) <= len(pool) <= pool_size or pool_size == 1000
        assert pool_size < 1000 or len(pool) == 40 - len(batch)


def test_nearest_rows_are_the_nearest():
    random = np.random.default_rng(0)
    x = random.integers(0, 3, size=(50, 2)).astype(float)  # With twins.
    candidates = torch.arange(10, 50)
    nearest = Nearest(x, candidates, 6)
    distance = ((x[:, None] - x[None]) ** 2).sum(axis=2)
    for rows in (torch.arange(10, 50), torch.arange(50)):
        source, found = nearest.of_rows(rows)
        for row, sources, squares in zip(rows, source, found, strict=True):
            assert not (row == sources).any()
            assert sources.min() >= 10
            others = [j for j in range(10, 50) if j != row]
            expected = np.sort(distance[row][others])[:6]
            np.testing.assert_allclose(squares * nearest.unit, expected, atol=1e-6)
    source, found = nearest.of_new(x[:4])
    assert source.shape == (4, 6)


@pytest.mark.parametrize('scaling', ['auto', 'quantile', 'standard', 'none'])
def test_scaling(scaling):
    random = np.random.default_rng(0)
    x = np.stack([np.exp(random.normal(size=1200)), random.integers(0, 2, 1200)], 1)
    made = ColumnScaling(scaling).fit(x)
    found = made.apply(x)
    assert made.varied.tolist() == [0]
    if scaling == 'none':
        assert np.array_equal(found, x)
        return
    np.testing.assert_allclose(found[:, 1].std(), 1)
    if scaling != 'standard':
        inner = abs(np.log(x[:, 0])) < 2
        np.testing.assert_allclose(found[inner, 0], np.log(x[inner, 0]), atol=0.2)
    again = ColumnScaling.restored(made.state())
    assert np.array_equal(again.apply(x), found)


def test_one_column_and_few_rows():
    x = np.arange(12.0)[:, None]
    model = GSLRegressor('learned', **FEW).fit(x, x[:, 0] ** 2)
    assert model.predict(x).shape == (12,)
    assert GSLRegressor('learned', **FEW).fit(x[:2], [1.0, 2.0]).graph_.shape == (2, 2)
    assert GSLRegressor('learned', **FEW).fit(x[:1], [1.0]).graph_choice_ == 'none'


@pytest.mark.parametrize('batch_size', ['auto', 1000])
@pytest.mark.parametrize('num_rows', [15, 60])
def test_each_step_has_candidates(monkeypatch, batch_size, num_rows):
    sizes = []

    def noting(*args):
        for batch, pool in _batches(*args):
            sizes.append((len(batch), len(pool)))
            yield batch, pool

    monkeypatch.setattr('torch_geometric_gsl.sklearn._training._batches', noting)
    options = FEW | {'max_iter': 1, 'batch_size': batch_size}
    GSLRegressor('learned', **options).fit(*places(num_rows))
    assert all(0 < batch <= pool + 1 for batch, pool in sizes)


def test_validation_looks_at_a_random_sample(monkeypatch):
    every = Parts(torch.arange(9), torch.arange(30), torch.arange(100, 200))
    assert all(map(torch.equal, _sampled(every, 0), every))
    module = 'torch_geometric_gsl.sklearn._training'
    monkeypatch.setattr(f'{module}._MOST_VALIDATED', 20)
    monkeypatch.setattr(f'{module}._MOST_CANDIDATES', 10)
    found, again, other = (_sampled(every, seed) for seed in (0, 0, 1))
    assert torch.equal(found.train, every.train)
    assert (len(found.val.unique()), len(found.candidates.unique())) == (20, 10)
    assert found.val.max() > 150
    assert torch.equal(found.val, again.val)
    assert not torch.equal(found.val, other.val)


def test_a_target_without_weight_sets_no_scale():
    x, y = places()
    weight, far = np.ones(len(y)), y.copy()
    weight[0], far[0] = 0, 1e9
    model = GSLRegressor('none', **FEW).fit(x, far, sample_weight=weight)
    assert abs(model._width - y[1:].std()) < 1e-6


@pytest.mark.parametrize('batch_size', [20, 160])
def test_weights_count_the_same_in_all_batches(batch_size):
    x, y, weight = np.zeros((320, 1)), np.zeros(320), np.ones(320)
    y[:10], weight[:10] = 1, 31  # The weighted mean is one half.
    options = {'max_iter': 300, 'validation_fraction': 0.0, 'learning_rate': 0.01}
    model = GSLRegressor('none', **FEW | options, batch_size=batch_size)
    found = model.fit(x, y, sample_weight=weight).predict(x[:1])
    # Steps of the optimizer leave some noise; each batch by itself gave 0.33.
    np.testing.assert_allclose(found, 0.5, atol=0.1)


def test_masks_and_weights_together():
    x, y = places()
    mask, weight = np.arange(240) >= 200, np.ones(240)
    for gone in (mask, ~mask):
        weight[:] = ~gone
        with pytest.raises(ValueError, match="'validation_mask' must hold back some"):
            GSLRegressor(**FEW).fit(x, y, sample_weight=weight, validation_mask=mask)


@pytest.mark.filterwarnings("ignore:'y' has the label -1")
def test_rows_of_a_mask_are_no_candidates(monkeypatch):
    seen = []

    def noting(model, graph, table, parts, *args):
        seen.append(parts)
        return train(model, graph, table, parts, *args)

    monkeypatch.setattr('torch_geometric_gsl.sklearn._base.train', noting)
    x, y = load_wine(return_X_y=True)
    mask, some = np.arange(len(y)) % 4 == 0, np.where(np.arange(len(y)) % 3, y, -1)
    GSLClassifier('learned', **FEW).fit(x, some, validation_mask=mask)
    assert seen[0].candidates.tolist() == np.flatnonzero(~mask).tolist()
    assert seen[0].val.tolist() == np.flatnonzero(mask & (some >= 0)).tolist()


@pytest.mark.parametrize('scaling', ['none', 'auto'])
@pytest.mark.parametrize('as_frame', [False, True])
def test_later_changes_of_the_table_change_nothing(tmp_path, scaling, as_frame):
    x, y = places()
    new, kept = x[:3].copy(), y.copy()
    table = x
    if as_frame:
        table = pandas.DataFrame(x, columns=['a', 'b', 'c'], copy=False)
        new = pandas.DataFrame(new, columns=['a', 'b', 'c'])
    model = GSLRegressor('learned', **FEW, scaling=scaling).fit(table, y)
    first, told = model.predict(new), model.explain(new[:1])
    x[:], y[:] = 0, 0
    if as_frame:
        table['d'] = 0
    model.save(tmp_path / 'model.pt')
    np.testing.assert_allclose(model.predict(new), first, rtol=1e-5)
    pandas.testing.assert_frame_equal(model.explain(new[:1]), told, rtol=1e-4)
    assert set(told['target'][1:]) <= set(kept)


@pytest.mark.filterwarnings('ignore:X (has|does not have valid) feature names')
def test_explains_rows_of_any_kind(tmp_path):
    x, y = places()
    frame = pandas.DataFrame(x, columns=['a', 'b', 'c']).assign(k=['u', 'v'] * 120)
    model = GSLRegressor('learned', **FEW).fit(frame, y)
    expected = model.explain(frame[:1])
    assert [*expected.columns] == ['weight', 'target', 'a', 'b', 'c', 'k']
    assert expected.notna().to_numpy()[1:].all()
    row = frame.iloc[0]
    for one in (row, row.tolist()):
        found = model.explain(one).astype(expected.dtypes)
        pandas.testing.assert_frame_equal(found, expected)
    numbers = pandas.DataFrame(x)
    model = GSLRegressor('learned', **FEW).fit(numbers, y)
    model.save(tmp_path / 'model.pt')
    again = GSLRegressor.load(tmp_path / 'model.pt').explain(numbers[:1])
    assert [*again.columns] == ['weight', 'target', '0', '1', '2']
    plain = GSLRegressor('learned', **FEW).fit(x, y).explain(frame[['a', 'b', 'c']][:1])
    assert [*plain.columns] == ['weight', 'target', 'x0', 'x1', 'x2']


@pytest.mark.parametrize('graph', ['nearest', 'learned'])
def test_neighbours_of_a_row_depend_on_no_other(graph):
    x, y = places()
    model = GSLRegressor(graph, **FEW).fit(x[:50], y[:50])
    far = np.full((1, 3), 1e3)
    weights, rows = model.kneighbors(np.concatenate([x[200:203], far]), 12)
    assert rows.shape == (4, 12)
    for number, row in enumerate((x[200:201], x[201:202], x[202:203], far)):
        alone, found = model.kneighbors(row, 12)
        np.testing.assert_allclose(alone[0], weights[number], rtol=1e-5, atol=1e-12)
        assert len(set(found[0])) == 12
        counts = alone[0] > 1e-9
        assert np.array_equal(found[0][counts], rows[number][counts])


def test_dates_are_saved_as_texts(tmp_path):
    x, y = places(60)
    for unit in ('ns', 'us'):
        days = np.arange(60).astype('datetime64[D]').astype(f'datetime64[{unit}]')
        frame = pandas.DataFrame(x).add_prefix('x').assign(day=days)
        model = GSLRegressor('learned', **FEW).fit(frame, y)
        model.save(tmp_path / 'model.pt')
        again = GSLRegressor.load(tmp_path / 'model.pt').explain(frame[:1])
        assert all(str(day).startswith('1970-') for day in again['day'])


def test_the_page_names_columns(tmp_path):
    x, y = places(60)
    frame = pandas.DataFrame(x, columns=['aaa', 'bbb', 'ccc'])
    model = GSLRegressor('learned', **FEW).fit(frame, y)
    text = model.explore(tmp_path / 'page.html').read_text(encoding='utf-8')
    assert all(name in text for name in frame)


def test_a_column_that_names_the_rows_is_told():
    x, y = places()
    frame = pandas.DataFrame(x).add_prefix('x').assign(id=[f'r{i}' for i in range(240)])
    with pytest.warns(UserWarning, match="column 'id' has 240 different texts"):
        GSLRegressor('none', **FEW).fit(frame, y)


def test_errors_name_what_is_allowed():
    x, y = places()
    for name in ('n_members', 'batch_size', 'hidden_channels'):
        with pytest.raises(ValueError, match=f"'{name}' must be .*auto.*four"):
            GSLRegressor(**FEW | {name: 'four'}).fit(x, y)
    with pytest.raises(ValueError, match=r"loss of epoch \d+ is .*'learning_rate'"):
        GSLRegressor('none', **FEW | {'learning_rate': 1e30}).fit(x, y)


def test_devices_are_named_in_both_ways():
    x, y = places(40)
    for device in ('cpu', torch.device('cpu')):
        model = GSLRegressor('none', **FEW, device=device).fit(x, y)
        assert model._precision == torch.float64


def test_parameters_that_are_set_later_change_no_fitted_network(tmp_path):
    x, y = places()
    model = GSLRegressor('learned', eval_k=6, **FEW).fit(x[:200], y[:200])
    expected = model.predict(x[200:])
    model.set_params(eval_k=30, similarity='cosine')
    np.testing.assert_array_equal(model.predict(x[200:]), expected)
    assert model.kneighbors(x[200:], 30)[0].shape == (40, 6)
    path = tmp_path / 'model.pt'
    model.save(path)
    np.testing.assert_allclose(GSLRegressor.load(path).predict(x[200:]), expected)


def test_a_file_of_another_device_is_loaded_on_this_one(tmp_path):
    x, y = places()
    model = GSLRegressor('none', **FEW).fit(x, y)
    model.save(path := tmp_path / 'model.pt')
    content = torch.load(path, weights_only=True)
    content['params']['device'] = 'cuda:77'
    torch.save(content, path)
    with pytest.raises(OSError, match="'device' must be one that PyTorch has"):
        GSLRegressor.load(path)
    found = GSLRegressor.load(path, device='cpu')
    assert found.device == 'cpu'
    np.testing.assert_array_equal(found.predict(x), model.predict(x))


def test_an_explanation_names_each_of_its_columns_once():
    x, y = places()
    table = pandas.DataFrame(x, columns=['weight', 'target', 'width'])
    model = GSLRegressor('learned', **FEW).fit(table[:200], y[:200])
    found = model.explain(table[200:201])
    assert [*found] == ['weight', 'target', 'weight_', 'target_', 'width']


@pytest.mark.filterwarnings('error::sklearn.exceptions.ConvergenceWarning')
def test_few_rows_end_after_a_number_of_steps():
    x, y = places(30)  # Too few to hold some back: two batches.
    model = GSLRegressor('none', n_members=1, random_state=0).fit(x, y)
    assert model.validation_scores_ == []
    assert model.n_iter_ == 150


def test_a_net_without_a_graph_returns_an_empty_one():
    net = TableNet(3, 8, 1, graph='none', num_frequencies=0)
    out, graph = net(torch.randn(2, 3), return_graph=True)
    assert out.shape == (2, 1)
    assert graph.edge_index.shape == (2, 0)
