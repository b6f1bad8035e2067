"""Labels as messages: what neighbours tell, and what no row hears."""

import pytest
import torch
from oracles import seeded

import torch_geometric_gsl as gsl

N, IN, OUT = 40, 5, 6
METHODS = ('dense', 'stream', 'race', 'pool')


def make(similarity='gaussian', **options):
    torch.manual_seed(1)
    options = {'loop': False, 'label_channels': 3, **options}
    return gsl.LatentGraphConv(IN, OUT, similarity, **options).double()


def draw_rows(n=N, seed=0):
    x = torch.randn(n, IN, generator=seeded(seed)).double()
    return x, torch.randint(3, (n,), generator=seeded(seed + 1))


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('form', ['all', 'edges', 'batch', 'pair'])
def test_labels_are_added_to_messages(training, form):
    conv, (x, y) = make().train(training), draw_rows()
    kwargs = {}
    if form == 'edges':
        kwargs['edge_index'] = torch.randint(N, (2, 300), generator=seeded(3))
    if form == 'batch':
        kwargs['batch'] = torch.arange(N) // 20
    rows, count = x, N
    if form == 'pair':
        rows, count = (x, draw_rows(7, seed=5)[0]), 7
    out = conv(rows, y=y, **kwargs, generator=seeded(9))
    unknown = conv(rows, y=torch.full_like(y, -1), **kwargs, generator=seeded(9))
    if training:
        graph = conv.graph(rows, y=y, **kwargs, generator=seeded(9))
        source, target = graph.edge_index
        expected = torch.zeros(count, OUT).double()
        told = conv.label(y)[source] * graph.edge_weight.unsqueeze(1)
        expected.index_add_(0, target, told)
        torch.testing.assert_close(out - unknown, expected)
    else:
        # Weights of a row sum to 1, so that labels of one kind tell one message.
        same = conv(rows, y=torch.ones_like(y), **kwargs)
        expected = conv.label(torch.ones_like(y))[:1].expand(count, OUT)
        torch.testing.assert_close(same - unknown, expected)
    plain = make(label_channels=None).train(training)
    plain.load_state_dict(conv.state_dict(), strict=False)
    torch.testing.assert_close(unknown, plain(rows, **kwargs, generator=seeded(9)))


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('method', METHODS)
@pytest.mark.parametrize('similarity', ['gaussian', 'distance'])
@pytest.mark.parametrize('form', ['all', 'edges', 'batch'])
def test_no_row_hears_its_own_label(training, method, similarity, form):
    if form == 'edges' and method in ('stream', 'pool'):
        method = 'auto'  # They do not serve listed candidates.
    conv = make(similarity, method=method).train(training)
    x, y = draw_rows()
    kwargs = {}
    if form == 'edges':  # Loops are among them.
        edges = torch.randint(N, (2, 300), generator=seeded(3))
        kwargs['edge_index'] = torch.cat([edges, torch.arange(N).expand(2, N)], dim=1)
    if form == 'batch':
        kwargs['batch'] = torch.arange(N) // 20
    out = conv(x, y=y, **kwargs, generator=seeded(9))
    others_hear = []
    for i in range(0, N, 3):
        changed = y.clone()
        changed[i] = (y[i] + 1) % 3
        moved = conv(x, y=changed, **kwargs, generator=seeded(9)) != out
        assert not bool(moved[i].any())
        others_hear.append(bool(moved.any()))
    assert sum(others_hear) > 7  # Some rows are far from all others.


def test_where_labels_cannot_be_told():
    x, y = draw_rows()
    with pytest.raises(ValueError, match=r"'y' needs loop=False, .*\(got loop=True\)"):
        make(loop=True)(x, y=y)
    make(loop=True)((x, x[:3]), y=y)
    with pytest.raises(ValueError, match=r'row must not see its own .* of the same'):
        make()((x, x), y=y)
    with pytest.raises(ValueError, match="needs a layer with 'label_channels'"):
        make(label_channels=None)(x, y=y)
    with pytest.raises(ValueError, match=r"'y' must be given with 'label_channels'"):
        make()(x)
    with pytest.raises(ValueError, match='one label for each of the 40 sources'):
        make()(x, y=y[:3])
