"""A NodeFormer on new rows, whose sources are others."""

import pytest
import torch
from oracles import seeded

from reproduction.baselines.nodeformer import NodeFormer, kernel_attention

N, IN, HIDDEN, OUT = 40, 6, 8, 3
BATCH = torch.arange(N) // 20


def draw_rows(number=N):
    return torch.randn(number, IN, generator=seeded(2))


@torch.no_grad()
@pytest.mark.parametrize('is_sparse', [False, True])
@pytest.mark.parametrize('is_batch', [False, True])
def test_attention_to_sources(is_sparse, is_batch):
    torch.manual_seed(0)
    net = NodeFormer(IN, HIDDEN, 3, OUT).double().eval()
    x, new = draw_rows().relu().double(), draw_rows(9).double().relu() + 0.1

    def call(pair, **given):
        pair = tuple(rows.to_sparse_csr() for rows in pair) if is_sparse else pair
        return net(pair, **given)

    ids = torch.arange(9) // 4 % 2
    ids = ids.sort().values
    pair = {'batch': (BATCH, ids)} if is_batch else {}
    own = {'batch': BATCH} if is_batch else {}
    # A source gets what it got there.
    rows = torch.tensor([3, 3, 17])
    joined = {'batch': (BATCH, BATCH[rows])} if is_batch else {}
    torch.testing.assert_close(call((x, x[rows]), **joined), net(x, **own)[rows])
    # What a row gets depends on no other row.
    together = call((x, new), **pair)
    for row in range(9):
        alone = {'batch': (BATCH, ids[row : row + 1])} if is_batch else {}
        found = call((x, new[row : row + 1]), **alone)
        torch.testing.assert_close(found[0], together[row])
    assert call((x, new[:0])).shape == (0, OUT)
    # The definition: keys and values are those of the sources' own call.
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
    with pytest.raises(ValueError, match="'x_src' must have at least one row "):
        net((x[:0], x))
    ids = torch.tensor([0, 0, 1])
    match = "'x_src' must have at least one row in each graph of its targets"
    with pytest.raises(ValueError, match=match):
        net((x, x), batch=(ids, ids + 1))
    # Graphs of the sources may have no new rows.
    out = net.eval()((x, x[:2]), batch=(ids, ids[:2]))
    torch.testing.assert_close(out, net((x[:2], x[:2])))
    with pytest.raises(TypeError, match="'batch' must be a pair like 'x'"):
        net((x, x), batch=ids)
    with pytest.raises(ValueError, match="'batch' must be sorted"):
        net((x, x), batch=(ids, ids.flip(0)))
    net.train().loss((draw_rows(), x), ids).backward()
    assert all(p.grad.isfinite().all() for p in net.parameters())
