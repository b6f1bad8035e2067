import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import matrix_pairs, seeded, to_matrix

from torch_geometric_gsl.ops import aggregate, runtime
from torch_geometric_gsl.ops import tail as tail_module
from torch_geometric_gsl.ops.aggregate import drawn_graph, drawn_sum, weighted_sum
from torch_geometric_gsl.ops.edges import Candidates
from torch_geometric_gsl.ops.relax import Arrivals, DrawOptions, relax
from torch_geometric_gsl.ops.scan import stream_arrivals
from torch_geometric_gsl.ops.tail import draw_tail

INF = float('inf')
DOUBLE = {'dtype': torch.float64}
ZEROS = torch.zeros(8, dtype=torch.long)
OPTIONS = [
    DrawOptions(3, 0.5, 3),
    DrawOptions(3, 1.0, 3, num_tail=4),
    DrawOptions(3, 1.0, 3, num_tail=8),
    DrawOptions(3, 1.0, 3, num_tail=4, hard=True),
    DrawOptions(3, 1.0, 3, replace=False),
]


@pytest.fixture(autouse=True)
def group(request, monkeypatch):
    """The targets that share a tail: of eight, two groups of three and one of two."""
    size = getattr(request, 'param', 3)
    monkeypatch.setattr(tail_module, 'group_size', lambda options: size)
    return size


def drawn(pairs, options):
    """Draw arrivals, of which one race misses its last, and a tail."""
    count = min(options.num_arrivals, pairs.available)
    arrivals = stream_arrivals(pairs, options.num_races, count, generator=seeded())
    arrivals.noise[1, 0, -1] = -INF
    return arrivals, draw_tail(pairs, options, generator=seeded(6))


@pytest.mark.parametrize(
    ('group', 'sets'),
    [(1, None), (3, None), (16, None), (1, Candidates(ZEROS, ZEROS + 8))],
    indirect=['group'],
    ids=['single', 'groups', 'one group', 'own candidates'],
)
@pytest.mark.parametrize('loop', [False, True])
@pytest.mark.parametrize('options', OPTIONS, ids=str)
def test_drawn_graph_against_loops(options, loop, sets, group):
    score, races = torch.randn(8, 8, **DOUBLE, requires_grad=True), options.num_races
    pairs = matrix_pairs(score, loop=loop)._replace(candidates=sets)
    arrivals, tail = drawn(pairs, options)
    expected = {}
    for i in range(8):
        row = Arrivals(*(tensor[i : i + 1] for tensor in arrivals[:3]))
        late, args = torch.empty(races, 0).long(), []
        present = row.noise[0] > -INF
        if tail is not None:
            assert tail.group == group
            late = tail.source[i // group].view(races, -1)
            value = score[i][late]
            for k in range(races):  # Neither what has arrived nor the target itself.
                gone = row.source[0, k, present[k]].tolist() + ([] if loop else [i])
                value[k, [j in gone for j in late[k].tolist()]] = -INF
            share = tail.log_share.expand(8, races, 1)[i : i + 1]
            args = [value.unsqueeze(0), share]
            present = torch.cat([present, value > -INF], dim=1)
        weight = torch.cat(relax(score[i][row.source], row, options, *args), dim=2)[0]
        source = torch.cat([row.source[0], late], dim=1)
        listed = zip(source[present].tolist(), weight[present].tolist(), strict=True)
        for j, w in listed:
            expected[i, j] = expected.get((i, j), 0.0) + w
    graph = drawn_graph(pairs, arrivals, tail, options)
    edges = [(i, j) for j, i in graph.edge_index.t().tolist()]
    assert edges == sorted(expected)
    weight = torch.tensor([expected[edge] for edge in edges], **DOUBLE)
    torch.testing.assert_close(graph.edge_weight, weight)
    h = torch.randn(8, 2, **DOUBLE, requires_grad=True)
    sums = [to_matrix(*graph, 8, 8) @ h]
    if sets is None:  # All sources are candidates.
        for memory in (1, 5000, 2**25):
            small = pairs._replace(memory=memory)
            sums.append(drawn_sum(h, small, arrivals, tail, options))
    factor, results = torch.randn(8, 2, **DOUBLE), []
    for out in sums:
        grads = torch.autograd.grad(out, (score, h), factor, retain_graph=True)
        results.append([out, *grads])
    for same in results[1:]:
        torch.testing.assert_close(same, results[0])


# Eight temporaries of 3 draws * (3 arrivals + 8 of the tail) * 8 bytes: 2112 a row.
@pytest.mark.parametrize(
    ('group', 'budget', 'sizes'),
    [
        (1, 1, []),  # A tail of its own is not gathered.
        (3, 1, [3, 3, 2]),  # At least one group, and whole ones.
        (3, 2112 * 6 - 1, [3, 3, 2]),
        (3, 2112 * 6, [6, 2]),
        (3, 2**25, []),
        (16, 1, []),
    ],
    indirect=['group'],
)
def test_blocks_are_checkpointed(group, budget, sizes, monkeypatch, spy):
    options = DrawOptions(3, 1.0, 3, 8)
    calls = spy(runtime, 'checkpoint', lambda _, run, block, *args: block.size(0))
    pairs = matrix_pairs(torch.randn(8, 8, **DOUBLE))._replace(memory=budget)
    args = torch.randn(8, 2, **DOUBLE), pairs, *drawn(pairs, options), options
    expected = drawn_sum(*args)
    assert calls == []  # A few blocks are kept.
    monkeypatch.setattr(aggregate, '_KEPT_BLOCKS', 1)
    out = drawn_sum(*args)
    assert torch.equal(out, expected)
    assert calls == sizes
    with torch.no_grad():  # There is no backward pass to save memory for.
        same = drawn_sum(*args)
    assert calls == sizes
    assert torch.equal(out, same)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize('num_tail', [0, 8])
def test_messages_keep_their_type(dtype, num_tail):
    options = DrawOptions(3, 1.0, 3, num_tail)
    pairs = matrix_pairs(torch.randn(8, 8, **DOUBLE))
    args = pairs, *drawn(pairs, options), options
    h = torch.randn(8, 2).to(dtype).requires_grad_()
    out = drawn_sum(h, *args)
    assert out.dtype == dtype
    expected = drawn_sum(h.detach().double(), *args)
    atol = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=atol)
    out.sum().backward()
    assert h.grad.dtype == dtype


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 20), st.integers(0, 2**32))
def test_weighted_sum(num_sources, num_targets, size, seed):
    # Repeated edges, targets without any edge, no edges at all.
    generator = seeded(seed)
    source = torch.randint(num_sources, (size,), generator=generator)
    target = torch.randint(num_targets, (size,), generator=generator).sort().values
    edges = torch.stack([source, target])
    h = torch.randn(num_sources, 3, dtype=torch.float64, generator=generator)
    weight = torch.randn(size, dtype=torch.float64, generator=generator)
    out = weighted_sum(h, edges, weight, num_targets)
    expected = to_matrix(edges, weight, num_targets, num_sources) @ h
    torch.testing.assert_close(out, expected)
