"""Training in blocks of near rows: blocks, steps, rates, cycles, and what counts."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse
import torch
from oracles import seeded
from sklearn.exceptions import ConvergenceWarning

from torch_geometric_gsl import TableNet
from torch_geometric_gsl.sklearn import (
    GSLRegressor,
    _fitting,
    _runtime,
    _splits,
    _training,
)
from torch_geometric_gsl.sklearn._runtime import has_fast_bfloat16, threads_for
from torch_geometric_gsl.sklearn._splits import RowSplit, Table, near_blocks, subsample
from torch_geometric_gsl.sklearn._training import (
    Training,
    losses_of,
    outputs_of,
)

N = 240
OPTIONS = {
    'block_size': 60,
    'step_blocks': 2,
    'max_iter': 6,
    'learning_rate': 0.01,
    'weight_decay': 0.0,
    'verbose': False,
}
#: The first 200 rows are trained, the next 20 are unlabelled, the last held back.
ROWS = RowSplit(torch.arange(200), torch.arange(220), torch.arange(220, N))


@pytest.fixture(autouse=True)
def in_single_precision(monkeypatch):
    monkeypatch.setattr(_runtime, 'has_fast_bfloat16', lambda device: False)


def draw_table(num_rows=N, seed=0, target='numbers', rows=ROWS):
    x = torch.randn(num_rows, 5, generator=seeded(seed))
    y = x[:, :1].sin() + x[:, 1:2]
    y = y if target == 'numbers' else (y[:, 0] > 0).long() + (y[:, 0] > 1)
    known_y = y.clone()
    is_unknown = torch.ones(num_rows, dtype=torch.bool)
    is_unknown[rows.train] = is_unknown[rows.val] = False
    known_y[is_unknown] = torch.nan if target == 'numbers' else -1
    return Table(x, y, known_y, torch.ones(num_rows))


def make(graph='learned', out_channels=1, **options):
    torch.manual_seed(3)
    options = {'num_frequencies': 0, 'dropout': 0.0, **options}
    return TableNet(5, 32, out_channels, graph=graph, **options)


def fit(table=None, graph='learned', rows=ROWS, seed=0, net=None, **options):
    table = draw_table() if table is None else table
    net = make(graph) if net is None else net
    training = Training(net, table, rows, SimpleNamespace(**OPTIONS | options), seed)
    while not training.has_ended:
        training.run_cycle()
    training.finish()
    return training


def numbers_of(trained):
    return torch.nn.utils.parameters_to_vector(trained.model.parameters()).detach()


# Blocks


@pytest.mark.parametrize(('num_rows', 'size'), [(1, 9), (37, 9), (400, 64), (5, 100)])
def test_blocks_are_a_partition_of_even_sizes(num_rows, size):
    z = torch.randn(num_rows, 3, generator=seeded())
    blocks = near_blocks(z, size, seeded(1))
    assert torch.equal(torch.cat(blocks).sort().values, torch.arange(num_rows))
    sizes = [len(block) for block in blocks]
    assert len(blocks) == max(1, round(num_rows / size))
    assert max(sizes) - min(sizes) <= np.log2(len(blocks)) + 1
    again, by_other_seed = (near_blocks(z, size, seeded(seed)) for seed in (1, 2))
    assert all(map(torch.equal, blocks, again))
    assert len(blocks) == 1 or not all(map(torch.equal, blocks, by_other_seed))


def test_near_rows_are_mostly_in_one_block():
    centre = 5 * torch.randn(8, 6, generator=seeded())
    cluster = torch.arange(800) % 8
    z = centre[cluster] + torch.randn(800, 6, generator=seeded(1))
    share = [
        cluster[block].bincount(minlength=8).max() / len(block)
        for block in near_blocks(z, 100, seeded(2))
    ]
    assert sum(share) / len(share) > 0.6  # 1 / 8 at random.
    # Rows without a difference are divided, too.
    assert len(near_blocks(torch.zeros(100, 2), 10, seeded())) == 10


# What a fit is


def test_the_loss_falls():
    for target, out_channels in (('numbers', 1), ('classes', 3)):
        table = draw_table(target=target)
        for graph in ('learned', 'none'):
            net = make(graph, out_channels)
            training = fit(table, net=net, max_iter=40)
            assert len(training.losses) == 40
            assert training.losses[-1] < 0.5 * training.losses[0]
            out, _ = outputs_of(training.model, table, ROWS)
            loss = losses_of(out, table.y[ROWS.val]).mean()
            assert loss.item() == pytest.approx(training.best, rel=1e-5)
            assert not training.model.training


@pytest.mark.parametrize('options', [{}, {'draws': 2}, {'dropout': 0.3}])
def test_one_seed_one_network(options):
    trained, again, by_other_seed = (
        fit(net=make(**options), seed=seed, max_iter=2) for seed in (0, 0, 1)
    )
    assert torch.equal(numbers_of(trained), numbers_of(again))
    assert not torch.equal(numbers_of(trained), numbers_of(by_other_seed))
    # The global generator does not count.
    net, state = make(**options), torch.get_rng_state()
    torch.manual_seed(77)
    assert torch.equal(numbers_of(fit(net=net, max_iter=2)), numbers_of(trained))
    torch.set_rng_state(state)


def test_draws_are_those_of_the_network():
    few, every = (fit(net=make(draws=draws), max_iter=2) for draws in (1, None))
    assert not torch.allclose(numbers_of(few), numbers_of(every))


def test_a_row_of_weight_two_counts_twice():
    """One step of all rows, from a table and from one with copies."""
    rows = RowSplit(torch.arange(100), torch.arange(100), torch.arange(0))
    table = draw_table(100, rows=rows)
    weight = table.weight.clone()
    weight[:30] = 2
    twice = torch.cat([torch.arange(100), torch.arange(30)])
    copied = Table(*(values[twice] for values in table[:4]))
    rows_twice = RowSplit(torch.arange(130), torch.arange(130), torch.arange(0))
    options = {'graph': 'none', 'block_size': 1000, 'max_iter': 1}
    once = fit(table._replace(weight=weight), rows=rows, **options)
    again = fit(copied, rows=rows_twice, **options)
    plain = fit(table, rows=rows, **options)
    # A step of the mean loss, whatever the unit of weights.
    assert once.losses == pytest.approx(again.losses, rel=1e-5)
    apart = (numbers_of(once) - numbers_of(plain)).abs().max()
    in_other_unit = fit(table._replace(weight=1e3 * weight), rows=rows, **options)
    for same in (again, in_other_unit):  # But for the rounding of Muon.
        assert (numbers_of(once) - numbers_of(same)).abs().max() < 0.05 * apart


def test_the_loss_of_an_epoch_is_the_weighted_mean():
    table = draw_table()._replace(weight=torch.rand(N, generator=seeded(5)))
    options = {'learning_rate': 1e-12, 'max_iter': 1, 'block_size': 30}
    net = make('none').eval()
    with torch.no_grad():
        losses = losses_of(net(table.x), table.y)[:200]
    weight = table.weight[:200]
    expected = (losses @ weight / weight.sum()).item()
    training = fit(table, net=net, **options)
    assert training.losses == pytest.approx([expected], rel=1e-5)


def test_unlabelled_rows_are_neighbours_without_a_loss():
    table = draw_table()
    expected = numbers_of(fit(table, max_iter=1))
    y = table.y.clone()
    y[200:220] = 1e3
    parameters = numbers_of(fit(table._replace(y=y), max_iter=1))
    assert torch.equal(parameters, expected)
    x = table.x.clone()
    x[200:220] += 1
    parameters = numbers_of(fit(table._replace(x=x), max_iter=1))
    assert not torch.equal(parameters, expected)
    # Held-back rows are seen by none, and choose the cycle only.
    x = table.x.clone()
    x[220:] += 1
    parameters = numbers_of(fit(table._replace(x=x), max_iter=1))
    assert torch.equal(parameters, expected)


def test_sparse_rows_are_those_of_the_dense_table():
    table = draw_table()
    x = table.x * (table.x > 0)
    sparse = scipy.sparse.csr_matrix(x.numpy())
    for graph in ('learned', 'none'):
        dense = fit(table._replace(x=x), graph, max_iter=3)
        training = fit(table._replace(x=sparse), graph, max_iter=3)
        assert training.losses == pytest.approx(dense.losses, rel=1e-3)
        assert training.best == pytest.approx(dense.best, rel=1e-2)


def test_blocks_see_neither_their_group_nor_later_rows(monkeypatch):
    seen = []

    class Noting(TableNet):
        def forward(self, x, y=None, **options):
            if not self.training:
                return super().forward(x, y, **options)
            out, graph = super().forward(x, y, **options | {'return_graph': True})
            seen.append((x, graph.edge_index))
            return out

    table = draw_table()
    group = torch.randint(9, (N,), generator=seeded(1))
    order = torch.randint(50, (N,), generator=seeded(2))
    for name, values, is_hidden in (
        ('group', group, lambda source, target: source == target),
        ('order', order, lambda source, target: source >= target),
    ):
        # The first column is the number of a row.
        x = torch.cat([torch.arange(N)[:, None] / N, table.x[:, 1:]], dim=1)
        torch.manual_seed(3)
        net = Noting(5, 32, 1, num_frequencies=0, null_score=0.0)
        seen.clear()
        fit(table._replace(x=x, **{name: values}), net=net, max_iter=2)
        num_edges = 0
        for rows, edges in seen:
            row = (N * rows[:, 0]).round().long()
            source, target = values[row][edges]
            assert not is_hidden(source, target).any()
            num_edges += edges.size(1)
        assert num_edges > 1000


def test_the_null_neighbour_starts_beside_a_block():
    """Its weight is about exp(-2) of that of the others, also for cosines."""
    for similarity in ('distance', 'cosine'):
        net = make(null_score=0.0, similarity=similarity, graph_dropout=0.0)
        net.neighbours.sampler.log_scale.data += 1
        rows = ROWS._replace(train=torch.arange(220))
        Training(net, draw_table(), rows, SimpleNamespace(**OPTIONS), 0)
        _, graph = net(draw_table().x[:220], return_graph=True)
        share = torch.zeros(220).index_add(0, graph.edge_index[1], graph.edge_weight)
        assert share.median().item() == pytest.approx(1 / (1 + np.exp(-2)), abs=0.01)


# Steps


@pytest.mark.parametrize(
    ('names', 'expected'),
    [
        ([], False),
        (['avx2', 'avx512_f'], False),
        (['amx_bf16'], True),
        (['avx512_bf16'], True),
        (['arm_bf16'], True),
    ],
)
def test_devices_with_fast_bfloat16(names, expected, monkeypatch):
    able = dict.fromkeys(names, True) | {'amx_fp16': True}
    monkeypatch.setattr(torch.cpu, 'get_capabilities', lambda: able, raising=False)
    assert has_fast_bfloat16(torch.device('cpu')) == expected
    monkeypatch.setattr(torch.cuda, 'is_bf16_supported', lambda: expected)
    assert has_fast_bfloat16(torch.device('cuda')) == expected
    assert not has_fast_bfloat16(torch.device('meta'))
    # PyTorch without a list of capabilities.
    monkeypatch.delattr(torch.cpu, 'get_capabilities')
    assert not has_fast_bfloat16(torch.device('cpu'))


@pytest.mark.parametrize('is_fast', [True, False])
def test_products_in_bfloat16(is_fast, monkeypatch):
    dtypes = set()

    class Noting(torch.nn.Linear):
        def forward(self, x):
            out = super().forward(x)
            if self.training:
                dtypes.add(out.dtype)
            return out

    monkeypatch.setattr(_runtime, 'has_fast_bfloat16', lambda device: is_fast)
    for graph in ('learned', 'none'):
        dtypes.clear()
        net = make(graph)
        net.head.__class__ = Noting
        training = fit(net=net, max_iter=20)
        assert dtypes == {torch.bfloat16 if is_fast else torch.float32}
        assert training.losses[-1] < 0.5 * training.losses[0]
        assert {param.dtype for param in training.model.parameters()} == {torch.float32}


# Cycles


def test_an_event_stops_the_next_step():
    stop = threading.Event()
    options = SimpleNamespace(**OPTIONS)
    training = Training(make(), draw_table(), ROWS, options, 0)
    stop.set()
    with pytest.raises(InterruptedError):
        training.run_cycle(stop)
    assert (training.average.n_averaged, training.losses) == (1, [])


def run_cycles(monkeypatch, values, block_size=1000, train_loss=1e-3, **options):
    """Train with given losses of validation; return the epochs before each."""
    epochs, values = [], iter(values)
    parameters = []
    losses = []

    def steps(training):
        group = training.optimizers[0].param_groups[0]
        # Each cycle begins at a small rate, which is small again at its end.
        is_first = len(losses) in (0, *epochs)
        assert (group['lr'] < 0.1 * group['peak']) >= is_first
        losses.append(1.0)
        with torch.no_grad():
            training.model.head.bias += 1
        yield train_loss

    def val_loss(training):
        epochs.append(len(losses))
        parameters.append(training.average.module.head.bias.item())
        return next(values)

    monkeypatch.setattr(Training, '_steps', steps)
    monkeypatch.setattr(Training, '_val_loss', val_loss)
    options = {'max_iter': 1000, **options}
    training = fit(graph='none', block_size=block_size, step_blocks=1, **options)
    return training, epochs, parameters


def test_cycles_double_until_the_loss_hardly_falls(monkeypatch):
    # Of one step an epoch, the first cycle has thirty. The least gain of a cycle grows
    # to a tenth by six hundred epochs steps; before half of them one cycle may fail.
    monkeypatch.setattr(_training, '_LONG_STEPS', 600)
    training, epochs, _ = run_cycles(monkeypatch, [1.0, 1.0, 1.0])
    assert epochs == [30, 90, 210]
    assert training.has_converged
    assert len(training.losses) == 210
    _, epochs, _ = run_cycles(monkeypatch, [1.0, 1.5, 0.9, 0.89])
    assert epochs == [30, 90, 210, 450]
    # It may later, too, while the loss of the training rows is much larger.
    falling = [1.0, 1.5, 0.9, 0.89, 0.88]
    _, epochs, _ = run_cycles(monkeypatch, falling, train_loss=1.4)
    assert epochs == [30, 90, 210, 450, 1000]
    _, epochs, _ = run_cycles(monkeypatch, falling, train_loss=1.3)
    assert epochs == [30, 90, 210, 450]
    _, epochs, _ = run_cycles(monkeypatch, [1.0, 1.5, 0.9, 0.8, 0.79])
    assert epochs == [30, 90, 210, 450, 1000]
    training, epochs, _ = run_cycles(monkeypatch, [0.5**i for i in range(9)])
    assert epochs == [30, 90, 210, 450, 1000]
    assert not training.has_converged
    # Nothing more is to be gained from a tiny loss.
    assert run_cycles(monkeypatch, [1.0, 0.9e-4])[1] == [30, 90]
    # Of many steps an epoch, the first cycle has one epoch. After many visits of rows
    # the second must gain a tenth.
    monkeypatch.setattr(_training, '_LONG_VISITS', 1)
    _, epochs, _ = run_cycles(monkeypatch, [1.0, 0.95], block_size=1)
    assert epochs == [1, 3]


@pytest.mark.parametrize('max_iter', [1, 7, 30, 31, 89, 90, 100, 211])
def test_the_number_of_epochs_is_limited(max_iter, monkeypatch):
    values = [0.5**i for i in range(9)]
    training, epochs, _ = run_cycles(monkeypatch, values, max_iter=max_iter)
    assert len(training.losses) == epochs[-1] == max_iter
    assert not training.has_converged


def test_the_averaged_parameters_of_the_best_cycle_are_kept(monkeypatch):
    training, epochs, parameters = run_cycles(monkeypatch, [1.0, 0.5, 0.6, 0.7])
    assert epochs == [30, 90, 210, 450]
    assert training.best == 0.5
    assert training.model.head.bias.item() == parameters[1]
    # A mean of the last parameters lags behind them.
    assert parameters[1] < 90 + parameters[0]


def test_without_held_back_rows_there_is_one_cycle(monkeypatch):
    rows = ROWS._replace(val=torch.arange(0))
    training, epochs, _ = run_cycles(monkeypatch, [], rows=rows)
    assert (epochs, len(training.losses), training.has_converged) == ([], 30, True)
    training, *_ = run_cycles(monkeypatch, [], rows=rows, max_iter=4)
    assert (len(training.losses), training.has_converged) == (4, False)


@pytest.mark.parametrize(
    ('width', 'n_members', 'expected'),
    [(511, 2, 1), (512, 2, 3), (511, 1, 4), (512, 1, 6)],
)
def test_threads_of_each_network(width, n_members, expected, monkeypatch):
    limits = []

    def threads_for(num_rows, num_threads=None):
        limits.append((num_threads, threading.current_thread()))
        return nullcontext()

    monkeypatch.setattr(_fitting, 'threads_for', threads_for)
    monkeypatch.setattr(torch, 'get_num_threads', lambda: 6)
    x = np.random.RandomState(0).normal(size=(60, 2))
    options = {'hidden_channels': width, 'n_members': n_members, 'max_iter': 1}
    with pytest.warns(ConvergenceWarning):
        GSLRegressor('none', **options, random_state=0).fit(x, x[:, 0])
    numbers, threads = zip(*limits[:n_members], strict=True)
    assert numbers == (expected,) * n_members
    assert (threading.main_thread() in threads) == (n_members == 1)


def test_a_new_thread_keeps_its_limit():
    def count():
        with threads_for(10_000, 1):
            torch.ones(300, 300).exp()  # Enough entries for several threads.
            return torch.get_num_threads()

    num_threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(count).result() == 1
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(num_threads)


@pytest.mark.parametrize('graph', ['learned', 'none'])
def test_a_loss_that_is_not_finite_is_told(graph):
    text = r"the loss of epoch \d+ is (nan|inf): lower 'learning_rate' \(got 1e\+30\)"
    with pytest.raises(ValueError, match=text):
        fit(graph=graph, learning_rate=1e30, max_iter=30)


def test_validation_looks_at_a_random_sample(monkeypatch):
    every = RowSplit(torch.arange(9), torch.arange(30), torch.arange(100, 200))
    assert all(map(torch.equal, subsample(every, 0), every))
    monkeypatch.setattr(_splits, '_MAX_VAL_ROWS', 20)
    monkeypatch.setattr(_splits, '_MAX_CANDIDATES', 10)
    sample, again, by_other_seed = (subsample(every, seed) for seed in (0, 0, 1))
    assert torch.equal(sample.train, every.train)
    assert (len(sample.val.unique()), len(sample.candidates.unique())) == (20, 10)
    assert sample.val.max() > 150
    assert torch.equal(sample.val, again.val)
    assert not torch.equal(sample.val, by_other_seed.val)


@pytest.mark.parametrize(
    ('num_rows', 'expected'),
    [
        (1, (64, 0.3, 1, 128, 1)),
        (999, (64, 0.3, 1, 128, 1)),
        (1000, (128, 0.2, 2, 128, 2)),
        (4000, (192, 0.1, 2, 128, 2)),
        (10**6, (192, 0.1, 2, 256, 4)),
    ],
)
def test_sizes_by_the_number_of_rows(num_rows, expected):
    names = ('hidden_channels', 'dropout', 'num_blocks', 'block_size', 'step_blocks')
    params = dict.fromkeys(('hidden_channels', 'dropout', 'block_size'), 'auto')
    options = _fitting.with_sizes(SimpleNamespace(**params), num_rows)
    assert tuple(getattr(options, name) for name in names) == expected
    params = {'hidden_channels': 5, 'dropout': 0.0, 'block_size': 9}
    options = _fitting.with_sizes(SimpleNamespace(**params), num_rows)
    assert (options.hidden_channels, options.dropout, options.block_size) == (5, 0.0, 9)


@pytest.mark.parametrize(
    ('cycles', 'num_visits', 'expected'),
    [
        ([3.0, 3.0, 1.31], 240_000, False),
        ([3.0, 3.0, 1.29], 240_000, True),
        ([3.0, 3.0, 1.31], 239_999, True),
        ([3.0, 3.0], 10**6, True),
    ],
)
def test_a_network_far_behind_is_given_up(cycles, num_visits, expected):
    class Trained(SimpleNamespace):
        has_ended = property(lambda self: self.has_converged)

    best, behind = (
        Trained(cycles=losses, num_visits=num_visits, has_converged=False)
        for losses in ([1.0, 1.0, 1.0], cycles)
    )
    # Those of other splits are no rivals.
    assert behind in _fitting._still_active([best, behind], [best, behind], 2)
    left = _fitting._still_active([best, behind], [best, behind], 1)
    assert (behind in left) is expected
    assert best in left


def test_progress_bars_are_closed_when_training_fails(monkeypatch):
    bars = []

    class Bar(_training.tqdm):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            bars.append(self)
            self.num_closed = 0

        def close(self):
            self.num_closed = getattr(self, 'num_closed', 0) + 1
            super().close()

    monkeypatch.setattr(_training, 'tqdm', Bar)
    x = np.random.RandomState(0).normal(size=(60, 3))
    estimator = GSLRegressor('none', learning_rate=1e30, max_iter=30)
    with pytest.raises(ValueError, match='lower'):
        estimator.fit(x, x[:, 0])
    assert len(bars) == 4
    assert all(bar.num_closed > 0 for bar in bars)
