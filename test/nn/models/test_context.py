"""New rows: the rows of a context are all their neighbours."""

import pytest
import torch
from torch.nn import functional as F

from torch_geometric_gsl import (
    HESGSL,
    IDGL,
    KNNGCN,
    KNNLINKX,
    SLAPS,
    SUBLIME,
    GSLNet,
    IDGLAnchor,
    LatentGraphConv,
    NodeFormer,
    TransitionGraphConv,
    resolve_similarity,
)
from torch_geometric_gsl.baselines.nodeformer.attention import kernel_attention

N, IN, HIDDEN, OUT = 40, 6, 8, 3
BATCH = torch.arange(N) // 20
EDGES = torch.stack([torch.arange(N).repeat(4), torch.randperm(4 * N) % N])
EMBEDDING = torch.randn(N, 5, generator=torch.Generator().manual_seed(1))

NETS = {
    'projected': {},
    'cosine': {'similarity': 'cosine', 'scale': 10.0, 'null_score': 0.0},
    'input': {'compare': 'input', 'similarity': 'linear', 'train_scale': True},
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
        joined['edge_index'] = (
            EDGES,
            torch.stack([torch.cat(of_row), torch.cat(target)]),
        )
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


@pytest.mark.parametrize('similarity', ['linear', 'heat_kernel'])
@pytest.mark.parametrize('is_sparse', [False, True])
@pytest.mark.parametrize('cached', [False, True])
def test_nearest_neighbours(similarity, is_sparse, cached):
    torch.manual_seed(0)
    x, new = draw_rows().relu(), draw_rows(9)[6:].relu() + 0.1
    options = {'similarity': similarity, 'root_weight': True, 'cached': cached}
    net = KNNGCN(IN, HIDDEN, 2, OUT, k=4, **options).eval()
    if is_sparse:
        x, new = x.to_sparse_csr(), new.to_sparse_csr()
    before = net(x)
    out = net(new, context=x)
    assert torch.equal(net(x), before)
    # The definition: the context's graph, and four more edges to each new row.
    rows, joined = x.to_dense(), torch.cat([x.to_dense(), new.to_dense()])
    weigh = resolve_similarity(similarity, IN)
    cosine = F.normalize(new.to_dense()) @ F.normalize(rows).t()
    source = cosine.topk(4).indices
    edges = torch.stack([source.flatten(), torch.arange(3).repeat_interleave(4)])
    weight = weigh((rows, new.to_dense()), edges)
    graph = net.graphs(x)[0]
    edge_index = torch.cat([graph.edge_index, edges + torch.tensor([[0], [N]])], dim=1)
    expected = KNNGCN(IN, HIDDEN, 2, OUT, k=4, root_weight=True).eval()
    expected.load_state_dict(net.state_dict())
    given = {'edge_weight': torch.cat([graph.edge_weight, weight])}
    torch.testing.assert_close(out, expected(joined, edge_index, **given)[N:])
    found = net.graphs(new, context=x)[0]
    assert found.edge_index[1].bincount().tolist() == [4, 4, 4]
    given = {'edge_weight': (graph.edge_weight, weight)}
    again = net(new, (graph.edge_index, edges), context=x, **given)
    torch.testing.assert_close(again, out)


@pytest.mark.parametrize('kind', [SLAPS, SUBLIME, HESGSL, IDGL, IDGLAnchor, KNNLINKX])
def test_models_of_one_set_of_nodes_take_no_context(kind):
    options = {'num_nodes': 5} if kind is KNNLINKX else {}
    net = kind(IN, HIDDEN, 2, OUT, k=3, **options)
    x, y = draw_rows(5), torch.arange(5) % OUT
    for call in (net, net.graphs, net.predict, lambda x, **kw: net.loss(x, y, **kw)):
        with pytest.raises(TypeError, match="unexpected keyword argument 'context'"):
            call(x, context=draw_rows())


@torch.no_grad()
@pytest.mark.parametrize('is_sparse', [False, True])
@pytest.mark.parametrize('is_batch', [False, True])
def test_attention_to_a_context(is_sparse, is_batch):
    torch.manual_seed(0)
    net = NodeFormer(IN, HIDDEN, 3, OUT).double().eval()
    x, new = draw_rows().relu().double(), draw_rows(9).double().relu() + 0.1

    def call(rows, **given):
        sparse = {'context': given['context'].to_sparse_csr()} if is_sparse else {}
        return net(rows.to_sparse_csr() if is_sparse else rows, **{**given, **sparse})

    ids = torch.arange(9) // 4 % 2
    ids = ids.sort().values
    pair = {'batch': (BATCH, ids)} if is_batch else {}
    own = {'batch': BATCH} if is_batch else {}
    # A row of the context gets what it got there.
    rows = torch.tensor([3, 3, 17])
    joined = {'batch': (BATCH, BATCH[rows])} if is_batch else {}
    torch.testing.assert_close(call(x[rows], context=x, **joined), net(x, **own)[rows])
    # What a row gets depends on no other row.
    together = call(new, context=x, **pair)
    for row in range(9):
        alone = {'batch': (BATCH, ids[row : row + 1])} if is_batch else {}
        found = call(new[row : row + 1], context=x, **alone)
        torch.testing.assert_close(found[0], together[row])
    assert call(new[:0], context=x).shape == (0, OUT)
    # The definition: keys and values are those of the context's own call.
    layer, hidden = net.layers[0], torch.nn.functional.elu
    h, source = (hidden(net.norms[0](net.lin_in(rows))) for rows in (new, x))
    if not is_batch:
        query, key, value = (
            lin(rows).view(len(rows), layer.heads, HIDDEN)
            for lin, rows in (
                (layer.query, h),
                (layer.key, source),
                (layer.value, source),
            )
        )
        root = (HIDDEN**0.5 * layer.tau) ** 0.5
        out = kernel_attention(query / root, key / root, value, layer.directions)
        expected = layer.out(out.flatten(1))
        found = layer(h, source, [(len(new), len(x))])
        torch.testing.assert_close(found, expected)


def test_attention_needs_rows():
    net, x = NodeFormer(IN, HIDDEN, 2, OUT), draw_rows(3)
    with pytest.raises(ValueError, match="'context' must have at least one row "):
        net(x, context=x[:0])
    ids = torch.tensor([0, 0, 1])
    match = "'context' must have at least one row in each graph of its rows"
    with pytest.raises(ValueError, match=match):
        net(x, context=x, batch=(ids, ids + 1))
    # Graphs of the context may have no new rows.
    out = net.eval()(x[:2], context=x, batch=(ids, ids[:2]))
    torch.testing.assert_close(out, net(x[:2], context=x[:2]))
    with pytest.raises(TypeError, match="'batch' must be a pair with a 'context'"):
        net(x, context=x, batch=ids)
    with pytest.raises(ValueError, match="'batch' must be sorted"):
        net(x, context=x, batch=(ids, ids.flip(0)))
    net.train().loss(x, ids, context=draw_rows()).backward()
    assert all(p.grad.isfinite().all() for p in net.parameters())
