"""New rows: sources of a pair, or indexed rows, are all their neighbours."""

import pytest
import torch
from oracles import seeded

from torch_geometric_gsl import GSLNet
from torch_geometric_gsl.nn.models.row_index import NewRowsWarning

N, IN, HIDDEN, OUT = 40, 6, 8, 3
BATCH = torch.arange(N) // 20
EDGES = torch.randint(N, (2, 4 * N), generator=seeded(4))
NEW_EDGES = torch.stack([torch.arange(N), torch.arange(N) % 8])
WEIGHT = torch.rand(4 * N, generator=seeded(5))
Z = torch.randn(N + 8, 5, generator=seeded(6))

NETS = {
    'GSLNet': {},
    'sparse': {},
    'one layer': {'num_layers': 1},
    'transition': {'num_transition_nodes': 7, 'num_nodes': N},
    'input': {'z_channels': -1, 'similarity': 'linear', 'train_scale': True},
    'sparse input': {'z_channels': -1},
    'z': {'z_channels': 5},
    'edges': {},
    'readout': {'readout': 'mean'},
}


def make(name='GSLNet', **options):
    torch.manual_seed(0)
    sizes = {'num_layers': 2, 'out_channels': OUT, 'z_channels': None}
    options = {**sizes, **NETS[name], **options}
    return GSLNet(IN, HIDDEN, **options).eval()


def draw_rows(count=N, seed=2):
    return torch.randn(count, IN, generator=seeded(seed))


def problem(name):
    """Return rows, new ones, and what is given of both."""
    x, new, args, new_args = draw_rows().relu(), draw_rows(8) + 1, {}, {}
    if 'sparse' in name:
        x, new = x.to_sparse_csr(), new.to_sparse_csr()
    if name == 'z':
        args, new_args = {'z': Z[:N]}, {'z': Z[N:]}
    if name == 'edges':
        args = {'edge_index': EDGES, 'edge_weight': WEIGHT}
        new_args = {'edge_index': NEW_EDGES, 'edge_weight': WEIGHT[:N]}
    return x, new, args, new_args


@pytest.mark.parametrize('name', NETS)
def test_an_index_answers_as_a_pair_does(name, tmp_path):
    x, new, args, new_args = problem(name)
    net, twin = make(name), make(name)
    for parameter in twin.parameters():
        torch.nn.init.normal_(parameter)
    both = {key: (args[key], new_args[key]) for key in args}
    expected = net((x, new), **both)
    assert net.index(x, **args) is net
    for _ in range(2):
        torch.testing.assert_close(net(new, **new_args), expected)
        net.index(x, **args)  # Again, beside what is indexed.
    answers = expected.argmax(dim=1)
    assert torch.equal(net.predict(new, **new_args), answers)
    pairs = zip(net.graphs(new, **new_args), net.graphs((x, new), **both), strict=True)
    for graph, of_pair in pairs:
        assert torch.equal(graph.edge_index, of_pair.edge_index)
        torch.testing.assert_close(graph.edge_weight, of_pair.edge_weight)
    # Part of the state, in files and in a model that kept other rows.
    net.save(tmp_path / 'net.pt')
    again = type(net).load(tmp_path / 'net.pt')
    torch.testing.assert_close(again(new, **new_args), expected)
    twin.index(x.neg(), **args)(new, **new_args)
    twin.load_state_dict(net.state_dict())
    torch.testing.assert_close(twin(new, **new_args), expected)
    # A state without rows is that of a model that has none.
    assert net.clear_index() is net
    twin.load_state_dict(net.state_dict())
    assert twin.index_x is None
    if not new_args and name != 'transition':
        assert not torch.allclose(net(new), expected)
        assert torch.equal(twin(new), net(new))


@pytest.fixture
def counted():
    """A net, rows to index, new rows, and whether its first layer got sources only."""
    net, calls = make(num_layers=3), []
    net.convs[0].register_forward_pre_hook(
        lambda _, args: calls.append(not isinstance(args[0], tuple))
    )
    return net, draw_rows(), draw_rows(8, seed=3), calls


def change_parameter(net):
    with torch.no_grad():
        net.convs[1].lin.weight.mul_(1.1)


def step(net):
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1, fused=True)
    net(draw_rows(), batch=BATCH).sum().backward()  # In evaluation mode.
    optimizer.step()


def set_eval_k(net):
    net.convs[0].sampler.eval_k = 2


@pytest.mark.parametrize('change', [change_parameter, step, set_eval_k])
def test_hidden_rows_are_computed_once(change, counted):
    net, x, new, calls = counted
    net.index(x)
    assert calls == [True]
    hidden = net.index_hidden.clone()
    expected = net((x, new))
    torch.testing.assert_close(net(new), expected)
    change(net)
    calls.clear()
    for rows in (new, new[:3], new[:0]):
        net.predict(rows)
        net.graphs(rows)
    assert calls == [False] * 6
    assert torch.equal(net.index_hidden, hidden)
    # Again with the changes.
    torch.testing.assert_close(net.index(x)(new), net((x, new)))
    assert not torch.allclose(net(new), expected)


def test_gradients_reach_new_rows_and_the_layers_that_see_them(counted):
    net, x, new, _ = counted
    net.index(x)
    net(new.requires_grad_()).sum().backward()
    assert all(p.grad is not None for p in [new, *net.convs[2].parameters()])


def test_indexed_sparse_rows_are_a_copy():
    x, new = (rows.relu().to_sparse_csr() for rows in (draw_rows(), draw_rows(5)))
    net = make(num_layers=1).index(x)
    expected = net(new)
    x.values().mul_(2)
    assert torch.equal(net(new), expected)


def test_what_is_random_is_drawn_in_each_call(counted):
    net, x, new, calls = counted
    net.dropout.train()
    net.index(x)
    hidden = net.index_hidden.clone()
    calls.clear()
    assert not torch.equal(net(new), net(new))
    assert calls.count(True) == 2
    assert torch.equal(net.eval().index_hidden, hidden)
    torch.testing.assert_close(net(new), net((x, new)))


def test_a_pair_names_its_own_edges_with_indexed_rows(counted):
    net, x, new, _ = counted
    net.index(x)
    kwargs = {'edge_index': (EDGES, NEW_EDGES)}
    assert torch.equal(net((net.index_x, new), **kwargs), net((x, new), **kwargs))


def test_an_index_of_a_model_of_unknown_width():
    net, x, new = make(), draw_rows(), draw_rows(8, seed=3)
    torch.manual_seed(0)
    lazy = GSLNet(-1, HIDDEN, 2, OUT, z_channels=None).index(x)
    lazy.load_state_dict(net.index(x).state_dict())
    assert torch.equal(lazy.eval()(new), net(new))


def test_rows_that_are_loaded_alone_are_run_through_the_layers(counted):
    net, x, new, calls = counted
    net.index(x).load_state_dict({'index_x': -x}, strict=False)
    calls.clear()
    torch.testing.assert_close(net(new), net((-x, new)))
    assert calls.count(True) == 2


def test_training_and_graph_ids_take_no_indexed_rows():
    net, x = make(dropout=0.0), draw_rows()
    plain = net(x, batch=BATCH)
    net.index(-x)
    assert torch.equal(net(x, batch=BATCH), plain)
    trained = net.train()(x, generator=seeded(0))
    again = net.clear_index()(x, generator=seeded(0))
    assert torch.equal(trained, again)


@pytest.mark.parametrize(
    ('name', 'x', 'kwargs', 'text'),
    [
        ('GSLNet', torch.ones(3, 2), {}, "'x' must have 6 channels"),
        ('transition', draw_rows()[1:], {}, f"'x' must have num_nodes={N} rows"),
        ('GSLNet', draw_rows(), {'z': Z[:N]}, "'z' needs a model with 'z_channels'"),
        ('z', draw_rows(), {'z': Z}, "'z' must have one row per node"),
        ('input', draw_rows(), {'z': Z[:N]}, "'z' must have 6 channels"),
        ('z', draw_rows(), {}, "'z' is required unless 'x' has z_channels=5 chan"),
        ('GSLNet', draw_rows(), {'edge_index': EDGES + N}, "'edge_index' has sources"),
        ('GSLNet', draw_rows(), {'edge_weight': WEIGHT}, "_weight' needs 'edge_index'"),
        ('GSLNet', draw_rows().double(), {}, r"'x' has torch\.float64"),
    ],
)
def test_rows_that_cannot_be_indexed(name, x, kwargs, text):
    with pytest.raises((TypeError, ValueError), match=text):
        make(name).index(x, **kwargs)


@pytest.mark.parametrize('name', ['GSLNet', 'input'])
def test_new_rows_alone_are_warned_of(name):
    x, model = draw_rows(), make(name)
    model.train()(x)
    model.eval()(x)  # Those of training are no new ones, nor are others beside them.
    model(torch.cat([x, x]))
    model((x, x[:3]))
    model(x[:3], batch=torch.zeros(3, dtype=torch.long))
    model.index(x[:5]).clear_index()
    text = rf'has 3 rows after training on {N}, .*a pair \(x_train, x\), or call .mo'
    for _ in range(2):
        with pytest.warns(NewRowsWarning, match=text):
            model(x[:3])
    model.train()(x)
    model.eval().index(x)(x[:3])


def test_only_numbers_of_rows_are_compared(tmp_path):
    x, model = draw_rows(), make()
    model.train()(x)
    model.eval()(x + 1)  # As many new rows may be those of training.
    model.save(tmp_path / 'net.pt')
    GSLNet.load(tmp_path / 'net.pt').eval()(x[:3])


def test_an_index_is_not_used_in_training_mode():
    x, model = draw_rows(), make().train()
    model.index(x)(x)
    text = (
        rf"'x' has 3 rows, and the {N} indexed .* mode: for new rows call .model.eval"
    )
    model(x[:3])  # A mini-batch of training.
    with torch.no_grad(), pytest.warns(NewRowsWarning, match=text):
        model(x[:3])


def test_a_warning_about_rows_with_edges():
    x, model, edges = draw_rows(), make(), torch.tensor([[0, 1], [1, 2]])
    model.train()(x, EDGES)
    text = r'searched among these 3 rows .*\(x_train\). once, with the edges of both'
    with pytest.warns(NewRowsWarning, match=text):
        model.eval()(x[:3], edges)


@pytest.mark.parametrize('options', [{'transition': 'free'}, {'readout': 'mean'}])
def test_models_that_need_no_others_do_not_warn(options):
    if 'transition' in options:
        options = {'num_transition_nodes': 4, **options}
    model, x = make(**options), draw_rows()
    model.train()(x)
    model.eval()(x[:3])


def test_rows_that_are_loaded_take_the_dtype_of_the_model():
    x, new = draw_rows(), draw_rows(5)
    net, wide = make('edges').index(x, EDGES, WEIGHT), make('edges').double()
    wide.load_state_dict(net.state_dict())
    assert wide.index_x.dtype == wide.index_edge_weight.dtype == torch.float64
    assert wide.index_edge_index.dtype == torch.long
    torch.testing.assert_close(wide(new.double()).float(), net(new))
    wide.load_state_dict(net.state_dict(), assign=True)
    assert wide.index_x.dtype == torch.float32
    assert torch.equal(wide(new), net(new))


@pytest.mark.parametrize('is_indexed', [True, False])
def test_rows_are_compared_with_their_like(is_indexed):
    x, new = draw_rows(), draw_rows(5)
    net = GSLNet(IN, HIDDEN, 2, OUT, z_channels=IN).eval()
    net.index(x, z=x if is_indexed else None)
    with pytest.raises(ValueError, match="'z' must be given both to 'index' and with"):
        net(new, z=None if is_indexed else new)


# Pairs


def test_a_source_gets_what_it_got_there():
    """Edges to it are given once more; the table of all nets has the other cases."""
    net, x, rows = make(loop=True), draw_rows(), torch.tensor([3, 3, 17])
    of_row = [EDGES[0][EDGES[1] == row] for row in rows]
    target = [torch.full_like(s, i) for i, s in enumerate(of_row)]
    new = torch.stack([torch.cat(of_row), torch.cat(target)])
    out = net((x, x[rows]), edge_index=(EDGES, new))
    torch.testing.assert_close(out, net(x, EDGES)[rows])


def test_a_readout_is_that_of_the_targets():
    net, x = make(readout='mean', loop=True), draw_rows()
    batch = BATCH, BATCH[15:30]
    plain = make(loop=True)((x, x[15:30]), batch=batch)
    expected = torch.stack([plain[:5].mean(dim=0), plain[5:].mean(dim=0)])
    torch.testing.assert_close(net((x, x[15:30]), batch=batch), expected)


def test_candidates_of_sources_and_of_new_rows():
    net, x = make(loop=True), draw_rows()
    every = torch.stack([torch.arange(N), torch.zeros(N, dtype=torch.long)])
    fewer = every[:, :11]
    out = net((x, x[:1]), (EDGES, every))
    few = net((x, x[:1]), (EDGES, fewer))
    assert not torch.allclose(out, few)
    # The edges of new rows say nothing to the sources.
    graphs = net.graphs((x, x[:1]), (EDGES, fewer))
    assert all(graph.edge_index[0].max() < 11 for graph in graphs)


@pytest.mark.parametrize(
    ('name', 'value'),
    [
        ('edge_index', EDGES),
        ('edge_weight', torch.ones(4 * N)),
        ('batch', BATCH),
        ('z', Z),
    ],
)
def test_what_comes_by_row_is_a_pair(name, value):
    net = make('z' if name == 'z' else 'GSLNet')
    text = f"'{name}' must be a pair like 'x' \\(got a Tensor\\)"
    with pytest.raises(TypeError, match=text):
        net((draw_rows(), draw_rows(3)), **{name: value})


def test_a_call_that_fails_does_not_count_as_training():
    net = make().train()
    x = draw_rows()
    net(x)
    with pytest.raises(ValueError, match="'x' must have"):
        net(torch.randn(3 * len(x), x.size(1) + 1))
    net.eval()(x)  # Without a warning of fewer rows than in training.
