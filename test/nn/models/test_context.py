"""New rows: the rows of a context are all their neighbours."""

import pytest
import torch

from torch_geometric_gsl import GSLNet, LatentGraphConv, TransitionGraphConv

N, IN, HIDDEN, OUT = 40, 6, 8, 3
BATCH = torch.arange(N) // 20
EDGES = torch.stack([torch.arange(N).repeat(4), torch.randperm(4 * N) % N])
EMBEDDING = torch.randn(N, 5, generator=torch.Generator().manual_seed(1))

NETS = {
    'projected': {},
    'cosine': {'similarity': 'cosine', 'scale': 10.0, 'null': True},
    'input': {'compare': 'input', 'similarity': 'linear', 'scale': 'learned'},
    'embedding': {'compare': 'embedding', 'embedding_channels': 5},
    'prior': {'observed': 'prior'},
    'self loops': {'add_self_loops': True, 'root_weight': False},
    'transition': {'num_transition_nodes': 7, 'num_nodes': N},
}


def make(**options):
    torch.manual_seed(0)
    return GSLNet(IN, HIDDEN, 2, OUT, **options).eval()


def draw_rows(number=N):
    return torch.randn(number, IN, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize('name', NETS)
def test_a_row_of_the_context_gets_what_it_got_there(name):
    net, x = make(**NETS[name]), draw_rows()
    alone, joined = {}, {}
    rows = torch.tensor([3, 3, 17])
    if name == 'embedding':
        alone['embedding'] = EMBEDDING
        joined['embedding'] = EMBEDDING, EMBEDDING[rows]
    if name == 'prior':
        alone['edge_index'] = EDGES
        of_row = [EDGES[0][EDGES[1] == row] for row in rows]
        target = [torch.full_like(s, i) for i, s in enumerate(of_row)]
        joined['edge_index'] = EDGES, torch.stack([torch.cat(of_row), torch.cat(target)])
    out = net(x[rows], context=x, **joined)
    torch.testing.assert_close(out, net(x, **alone)[rows])


@pytest.mark.parametrize('name', ['projected', 'cosine', 'input', 'transition'])
def test_the_answer_to_a_row_depends_on_no_other(name):
    net, x = make(**NETS[name]), draw_rows()
    new = torch.randn(9, IN, generator=torch.Generator().manual_seed(3))
    together = net(new, context=x)
    for row in range(9):
        torch.testing.assert_close(net(new[row : row + 1], context=x)[0], together[row])
    # Nor does the context see the new rows.
    far = torch.cat([new[:1], 100 * new])
    torch.testing.assert_close(net(far, context=x)[0], together[0])
    assert net(new[:0], context=x).shape == (0, OUT)


def test_the_neighbours_are_rows_of_the_context():
    net, x = make(), draw_rows()
    graphs = net.graphs(x[:2], context=x)
    for graph in graphs:
        assert graph.edge_index[0].max() < N
        assert graph.edge_index[1].unique().tolist() == [0, 1]
    expected = net.graphs(x)
    for graph, other in zip(graphs, expected, strict=True):
        chosen = other.edge_index[1] < 2
        assert torch.equal(graph.edge_index, other.edge_index[:, chosen])
        torch.testing.assert_close(graph.edge_weight, other.edge_weight[chosen])


def test_sparse_rows():
    net, x = make(**NETS['input']), draw_rows().relu()
    out = net(x[:3].to_sparse_csr(), context=x.to_sparse_csr())
    torch.testing.assert_close(out, net(x)[:3])


def test_batches():
    net, x = make(), draw_rows()
    out = net(x[18:22], batch=(BATCH, BATCH[18:22]), context=x)
    torch.testing.assert_close(out, net(x, batch=BATCH)[18:22])


def test_candidates_of_the_context_and_of_new_rows():
    net, x = make(), draw_rows()
    every = torch.stack([torch.arange(N), torch.zeros(N, dtype=torch.long)])
    some = every[:, :11]
    out = net(x[:1], (EDGES, every), context=x)
    few = net(x[:1], (EDGES, some), context=x)
    assert not torch.allclose(out, few)
    # The edges of new rows say nothing to the context.
    graphs = net.graphs(x[:1], (EDGES, some), context=x)
    assert all(graph.edge_index[0].max() < 11 for graph in graphs)


@pytest.mark.parametrize('name', ['projected', 'transition'])
def test_new_rows_train_as_well(name):
    net, x = make(**NETS[name]).train(), draw_rows()
    y = torch.arange(10) % OUT
    net.loss(x[:10], y, torch.arange(10), context=x).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())
    generator = torch.Generator().manual_seed(0)
    net.dropout = 0.0
    first = net(x[:10], context=x, generator=generator)
    again = net(x[:10], context=x, generator=generator.manual_seed(0))
    assert torch.equal(first, again)


@pytest.mark.parametrize('sharp', [1.0, 20.0])
def test_convs(sharp):
    torch.manual_seed(0)
    x, new = draw_rows(), draw_rows(3) + 1
    conv = LatentGraphConv(IN, OUT, scale=sharp).eval()
    h, z = x @ conv.lin.weight.t(), new @ conv.lin.weight.t()
    score = sharp * conv.sampler.similarity((h, z)) / conv.sampler.tau
    expected = score.softmax(dim=1) @ h + new @ conv.lin_root.weight.t() + conv.bias
    torch.testing.assert_close(conv(new, context=x), expected)
    conv = TransitionGraphConv(IN, OUT, N, 5).eval()
    both = torch.cat([x[:-3], new])
    torch.testing.assert_close(conv(both[-3:], context=both), conv(both)[-3:])
    assert conv.graph(new, context=x).edge_index[1].max() == 2
    plan = LatentGraphConv(IN, OUT).plan(new, context=x)
    assert plan.method in ('dense', 'race', 'stream')


@pytest.mark.parametrize(
    ('options', 'given', 'text'),
    [
        ({}, {'context': torch.ones(N, IN + 1)}, "'context' must have 6 channels"),
        ({}, {'context': torch.full((N, IN), torch.nan)}, "'context'"),
        ({}, {'context': torch.ones(N, IN).double()}, "'context' must have the dtype"),
        (NETS['transition'], {'context': torch.ones(9, IN)}, 'num_nodes=40 rows'),
        (
            {'regularizers': {'entropy': 0.1}},
            {'context': torch.ones(N, IN)},
            "'context' has no meaning with 'regularizers'",
        ),
    ],
)
def test_what_is_no_context(options, given, text):
    net, x = make(**options), draw_rows(3)
    with pytest.raises((TypeError, ValueError), match=text):
        net.loss(x, torch.zeros(3, dtype=torch.long), torch.arange(3), **given)


@pytest.mark.parametrize(
    ('name', 'value'),
    [('edge_index', EDGES), ('batch', BATCH), ('embedding', EMBEDDING)],
)
def test_what_comes_by_row_is_a_pair(name, value):
    net = make(**(NETS['embedding'] if name == 'embedding' else {}))
    given = {'embedding': (EMBEDDING, EMBEDDING[:3])} if name != 'embedding' else {}
    given = given if net.compare == 'embedding' else {}
    text = f"'{name}' must be a pair with a 'context', .* \\(got Tensor\\)"
    with pytest.raises(TypeError, match=text):
        net(draw_rows(3), context=draw_rows(), **given, **{name: value})
