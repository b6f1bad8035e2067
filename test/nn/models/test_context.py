"""New rows: the sources of a pair are all their neighbours."""

import pytest
import torch
from torch.nn import functional as F

from torch_geometric_gsl import (
    KNNGCN,
    GSLNet,
    LatentGraphConv,
    TransitionGraphConv,
    resolve_similarity,
)

N, IN, HIDDEN, OUT = 40, 6, 8, 3
BATCH = torch.arange(N) // 20
EDGES = torch.stack([torch.arange(N).repeat(4), torch.randperm(4 * N) % N])
Z = torch.randn(N, 5, generator=torch.Generator().manual_seed(1))

NETS = {
    'projected': {},
    'cosine': {'similarity': 'cosine', 'scale': 10.0, 'null_score': 0.0},
    'input': {'z_channels': -1, 'similarity': 'linear', 'train_scale': True},
    'z': {'z_channels': 5},
    'relations': {'num_relations': 2, 'shares': 'node'},
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
def test_a_source_gets_what_it_got_there(name):
    net, x = make(**NETS[name]), draw_rows()
    alone, joined = {}, {}
    rows = torch.tensor([3, 3, 17])
    if name == 'z':
        alone['z'] = Z
        joined['z'] = Z, Z[rows]
    if name == 'prior':
        alone['edge_index'] = EDGES
        of_row = [EDGES[0][EDGES[1] == row] for row in rows]
        target = [torch.full_like(s, i) for i, s in enumerate(of_row)]
        joined['edge_index'] = (
            EDGES,
            torch.stack([torch.cat(of_row), torch.cat(target)]),
        )
    out = net((x, x[rows]), **joined)
    torch.testing.assert_close(out, net(x, **alone)[rows])


@pytest.mark.parametrize('name', ['projected', 'cosine', 'input', 'transition'])
def test_the_answer_to_a_row_depends_on_no_other(name):
    net, x = make(**NETS[name]), draw_rows()
    new = torch.randn(9, IN, generator=torch.Generator().manual_seed(3))
    together = net((x, new))
    for row in range(9):
        torch.testing.assert_close(net((x, new[row : row + 1]))[0], together[row])
    # Nor do the sources see the new rows.
    far = torch.cat([new[:1], 100 * new])
    torch.testing.assert_close(net((x, far))[0], together[0])
    assert net((x, new[:0])).shape == (0, OUT)


def test_the_neighbours_are_sources():
    net, x = make(), draw_rows()
    graphs = net.graphs((x, x[:2]))
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
    out = net((x.to_sparse_csr(), x[:3].to_sparse_csr()))
    torch.testing.assert_close(out, net(x)[:3])


def test_batches():
    net, x = make(), draw_rows()
    out = net((x, x[18:22]), batch=(BATCH, BATCH[18:22]))
    torch.testing.assert_close(out, net(x, batch=BATCH)[18:22])


def test_a_readout_is_that_of_the_targets():
    net, x = make(readout='mean'), draw_rows()
    batch = BATCH, BATCH[15:30]
    plain = make()((x, x[15:30]), batch=batch)
    expected = torch.stack([plain[:5].mean(dim=0), plain[5:].mean(dim=0)])
    torch.testing.assert_close(net((x, x[15:30]), batch=batch), expected)


def test_candidates_of_sources_and_of_new_rows():
    net, x = make(), draw_rows()
    every = torch.stack([torch.arange(N), torch.zeros(N, dtype=torch.long)])
    some = every[:, :11]
    out = net((x, x[:1]), (EDGES, every))
    few = net((x, x[:1]), (EDGES, some))
    assert not torch.allclose(out, few)
    # The edges of new rows say nothing to the sources.
    graphs = net.graphs((x, x[:1]), (EDGES, some))
    assert all(graph.edge_index[0].max() < 11 for graph in graphs)


@pytest.mark.parametrize('name', ['projected', 'transition'])
def test_new_rows_train_as_well(name):
    net, x = make(**NETS[name]).train(), draw_rows()
    y = torch.arange(10) % OUT
    net.loss((x, x[:10]), y, torch.arange(10)).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())
    generator = torch.Generator().manual_seed(0)
    net.dropout.p = 0.0
    first = net((x, x[:10]), generator=generator)
    again = net((x, x[:10]), generator=generator.manual_seed(0))
    assert torch.equal(first, again)


@pytest.mark.parametrize('sharp', [1.0, 20.0])
def test_convs(sharp):
    torch.manual_seed(0)
    x, new = draw_rows(), draw_rows(3) + 1
    conv = LatentGraphConv(IN, OUT, scale=sharp).eval()
    h, z = x @ conv.lin.weight.t(), new @ conv.lin.weight.t()
    score = sharp * conv.sampler.similarity((h, z)) / conv.sampler.tau
    expected = score.softmax(dim=1) @ h + new @ conv.lin_root.weight.t() + conv.bias
    torch.testing.assert_close(conv((x, new)), expected)
    conv = TransitionGraphConv(IN, OUT, N, 5).eval()
    both = torch.cat([x[:-3], new])
    torch.testing.assert_close(conv((both, both[-3:])), conv(both)[-3:])
    assert conv.graph((x, new)).edge_index[1].max() == 2


@pytest.mark.parametrize(
    ('options', 'x', 'text'),
    [
        ({}, torch.ones(N, IN + 1), "'x_src' must have 6 channels"),
        ({}, torch.full((N, IN), torch.nan), "'x_src' contains NaN"),
        ({}, torch.ones(N, IN).double(), "'x_src' and 'x_dst' must share one dtype"),
        (NETS['transition'], torch.ones(9, IN), 'num_nodes=40 rows'),
    ],
)
def test_what_are_no_sources(options, x, text):
    net, new = make(**options), draw_rows(3)
    with pytest.raises((TypeError, ValueError), match=text):
        net.loss((x, new), torch.zeros(3, dtype=torch.long), torch.arange(3))
    with pytest.raises(
        ValueError, match=r"'x' must be a tensor or a pair .*got 3 tens"
    ):
        net((x, new, new))


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
    net = make(**(NETS['z'] if name == 'z' else {}))
    text = f"'{name}' must be a pair like 'x' \\(got a Tensor\\)"
    with pytest.raises(TypeError, match=text):
        net((draw_rows(), draw_rows(3)), **{name: value})


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
    out = net((x, new))
    assert torch.equal(net(x), before)
    # The definition: the sources' graph, and four more edges to each new row.
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
    found = net.graphs((x, new))[0]
    assert found.edge_index[1].bincount().tolist() == [4, 4, 4]
    given = {'edge_weight': (graph.edge_weight, weight)}
    again = net((x, new), (graph.edge_index, edges), **given)
    torch.testing.assert_close(again, out)
