"""Rows that are remembered are the context of later calls."""

import copy
import tempfile

import pytest
import torch

from torch_geometric_gsl import (
    KNNGCN,
    GSLNet,
    HeteroGSLNet,
    NodeFormer,
)
from torch_geometric_gsl.nn.models.reference import NewRowsWarning

N, IN, HIDDEN, OUT = 40, 6, 8, 3
BATCH = torch.arange(N) // 20
EDGES = torch.stack([torch.arange(N).repeat(4), torch.randperm(4 * N) % N])

NETS = {
    'embedding': {'compare': 'embedding', 'embedding_channels': 5},
    'transition': {'num_transition_nodes': 7, 'num_nodes': N},
}


def make(**options):
    torch.manual_seed(0)
    return GSLNet(IN, HIDDEN, 2, OUT, **options).eval()


def draw_rows(number=N):
    return torch.randn(number, IN, generator=torch.Generator().manual_seed(2))


OTHERS = {'KNNGCN': KNNGCN, 'NodeFormer': NodeFormer}


@pytest.mark.parametrize('kind', ['GSLNet', 'transition', 'sparse', *OTHERS])
def test_rows_are_remembered(kind):
    x, new = draw_rows().relu(), draw_rows(8) + 1
    net = make(**NETS.get(kind, {}))
    if kind in OTHERS:
        net = OTHERS[kind](IN, HIDDEN, 2, OUT).eval()
    if kind == 'sparse':
        x, new = x.to_sparse_csr(), new.to_sparse_csr()
    expected = net(new, context=x)
    assert net.remember(x) is net
    assert torch.equal(net(new), expected)
    assert torch.equal(net.predict(new), expected.argmax(dim=1))
    graphs = getattr(net, 'graphs', lambda *_, **__: [])
    for graph, other in zip(graphs(new), graphs(new, context=x), strict=True):
        assert torch.equal(graph.edge_index, other.edge_index)
    # Part of the state, and back with it in a model that kept none.
    state = net.state_dict()
    assert torch.equal(copy.deepcopy(net)(new), expected)
    with tempfile.TemporaryDirectory() as folder:
        net.save_pretrained(folder)
        assert torch.equal(type(net).from_pretrained(folder)(new), expected)
    twin = make(**NETS.get(kind, {}))
    if kind in OTHERS:
        twin = OTHERS[kind](IN, HIDDEN, 2, OUT)
    twin.load_state_dict(state)
    assert torch.equal(twin.eval()(new), expected)
    # A state without rows is that of a model that remembers none.
    twin.load_state_dict(net.forget().state_dict())
    assert twin.reference is None
    other = net(new) if kind != 'transition' else None
    assert other is None or not torch.allclose(other, expected)


def test_training_and_own_edges_take_no_remembered_rows():
    net, x = make(dropout=0.0), draw_rows()
    plain = net(x, edge_index=EDGES), net(x, batch=BATCH)
    net.remember(-x)
    assert torch.equal(net(x, edge_index=EDGES), plain[0])
    assert torch.equal(net(x, batch=BATCH), plain[1])
    generator = torch.Generator().manual_seed(0)
    trained = net.train()(x, generator=generator)
    again = net.forget()(x, generator=generator.manual_seed(0))
    assert torch.equal(trained, again)


def test_rows_that_cannot_be_remembered():
    with pytest.raises(ValueError, match="'x' must have 6 channels"):
        make().remember(torch.ones(3, 2))
    with pytest.raises(ValueError, match="with compare='embedding'"):
        make(**NETS['embedding']).remember(draw_rows())


def test_only_rows_that_calls_can_take_are_remembered():
    with pytest.raises(ValueError, match='cannot be remembered with a readout'):
        make(readout='mean').remember(draw_rows())
    net = make(num_transition_nodes=4, num_nodes=N)
    with pytest.raises(ValueError, match=f"'x' must have num_nodes={N} rows"):
        net.remember(draw_rows()[1:])


@pytest.mark.parametrize('is_sparse', [False, True])
def test_what_is_remembered_is_a_copy(is_sparse):
    x, new = draw_rows().relu(), draw_rows(5).relu()
    if is_sparse:
        x, new = x.to_sparse_csr(), new.to_sparse_csr()
    net = make().eval().remember(x)
    expected = net(new)
    (x.values() if is_sparse else x).mul_(2)
    assert torch.equal(net(new), expected)


@pytest.mark.parametrize('kind', ['GSLNet', *OTHERS])
def test_new_rows_alone_are_warned_of_once(kind):
    x = draw_rows()
    model = make() if kind == 'GSLNet' else OTHERS[kind](IN, HIDDEN, 2, OUT)
    model.train()(x)
    model.eval()(x)  # Those of training are no new ones, nor are others beside them.
    model(torch.cat([x, x]))
    model(x[:3], context=x)
    model(x[:3], batch=torch.zeros(3, dtype=torch.long))
    with pytest.warns(
        NewRowsWarning, match=rf"has 3 rows after training on {N}, .*'mo"
    ):
        model(x[:3])
    model(x[:3])
    model.train()(x)
    model.eval().remember(x)(x[:3])


@pytest.mark.parametrize('options', [{'transition': 'free'}, {'readout': 'mean'}])
def test_models_that_need_no_others_do_not_warn(options):
    if 'transition' in options:
        options = {'num_transition_nodes': 4, **options}
    model, x = make(**options), draw_rows()
    model.train()(x)
    model.eval()(x[:3])


@pytest.mark.parametrize('is_sparse', [False, True])
def test_rows_that_training_remembers_are_those_of_the_chosen_scale(is_sparse):
    rows = draw_rows().relu(), draw_rows(8).relu()
    x, new = (part.to_sparse_csr() for part in rows) if is_sparse else rows
    net, outputs = make(scale='auto'), {}

    def train(net):
        scale = float(net.chosen_scale)
        net.eval().remember(x if scale == 3 else new)
        outputs[scale] = net(new)
        return -abs(scale - 3)

    net.choose_scale(train, (1, 3, 10))
    assert torch.equal(net(new), outputs[3])


def test_a_loaded_state_brings_no_graph_of_other_rows():
    x = draw_rows()
    net, other = (KNNGCN(IN, HIDDEN, 2, OUT, cached=True).eval() for _ in range(2))
    expected = net(x)
    other(x.flip(0))  # A negative would have the cosines of x.
    other.load_state_dict(net.state_dict())
    assert torch.equal(other(x), expected)


def test_rows_that_are_loaded_take_the_dtype_of_the_model():
    x, new = draw_rows(), draw_rows(5)
    net, wide = make().eval().remember(x), make().double().eval()
    wide.load_state_dict(net.state_dict())
    assert wide.reference.dtype == torch.float64
    assert torch.allclose(wide(new.double()).float(), net(new), atol=1e-5)
    wide.load_state_dict(net.state_dict(), assign=True)
    assert wide.reference.dtype == torch.float32
    assert torch.equal(wide(new), net(new))


def test_new_rows_of_a_type_are_warned_of_once():
    relations = [('b', 'to', 'a'), ('a', 'to', 'b')]
    net = HeteroGSLNet(IN, HIDDEN, 2, OUT, relations, 'a')
    x = {'a': draw_rows(), 'b': draw_rows(9)}
    new = {'a': x['a'][:3], 'b': x['b']}
    net.train()(x)
    net.eval()(x)
    net({'a': x['a'][:3]}, context_dict=x)
    with pytest.warns(NewRowsWarning, match=r'has 3 rows after .* \'context_dict\''):
        net(new)
    net(new)
