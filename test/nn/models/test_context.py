"""New rows: the sources of a pair are all their neighbours."""

import pytest
import torch

from torch_geometric_gsl import GSLNet

N, IN, HIDDEN, OUT = 40, 6, 8, 3
BATCH = torch.arange(N) // 20
EDGES = torch.stack([torch.arange(N).repeat(4), torch.randperm(4 * N) % N])
Z = torch.randn(N, 5, generator=torch.Generator().manual_seed(1))


def make(**options):
    torch.manual_seed(0)
    return GSLNet(IN, HIDDEN, 2, OUT, **{'loop': True, **options}).eval()


def draw_rows(number=N):
    return torch.randn(number, IN, generator=torch.Generator().manual_seed(2))


def test_a_source_gets_what_it_got_there():
    """Edges to it are given once more; the table of all nets has the other cases."""
    net, x, rows = make(), draw_rows(), torch.tensor([3, 3, 17])
    of_row = [EDGES[0][EDGES[1] == row] for row in rows]
    target = [torch.full_like(s, i) for i, s in enumerate(of_row)]
    new = torch.stack([torch.cat(of_row), torch.cat(target)])
    out = net((x, x[rows]), edge_index=(EDGES, new))
    torch.testing.assert_close(out, net(x, EDGES)[rows])


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
    net = make(**({'z_channels': 5} if name == 'z' else {}))
    text = f"'{name}' must be a pair like 'x' \\(got a Tensor\\)"
    with pytest.raises(TypeError, match=text):
        net((draw_rows(), draw_rows(3)), **{name: value})
