from itertools import pairwise

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from oracles import saved_tensors, seeded
from torch import Tensor

from torch_geometric_gsl.ops import neighbours as module
from torch_geometric_gsl.ops.distances import pair_distances
from torch_geometric_gsl.ops.neighbours import (
    Neighbours,
    _gathered_dots,
    compare_listed,
    neighbour_sum,
    pair_dots,
)

DOUBLE = {'dtype': torch.float64}
TYPES = [torch.float32, torch.float64]
# Numbers of targets n, sources N and of those that a target lists: N above, equal to
# and below q; one of each; nothing at all in three ways.
SIZES = [(5, 9, 3), (4, 3, 3), (3, 2, 7), (1, 1, 1), (0, 4, 3), (4, 3, 0), (0, 0, 0)]
rows = st.lists(st.lists(st.integers(0, 4), max_size=12), max_size=6)


def rand(*size, seed=0, dtype=torch.float64):
    return torch.randn(size, generator=seeded(seed), dtype=dtype)


def lists(size):
    n, num_sources, q = size
    source = torch.randint(max(1, num_sources), (n, q), generator=seeded(1))
    return Neighbours(source, num_sources)


def ragged(rows, num_sources=5):
    source = torch.tensor([j for row in rows for j in row], dtype=torch.long)
    size = torch.tensor([0] + [len(row) for row in rows])
    return Neighbours(source, num_sources, size.cumsum(0))


def loop_pairs(neighbours):
    """The target and source of each pair, in their order."""
    source = neighbours.source.flatten().tolist()
    ranges = pairwise(neighbours.offsets.tolist())
    return [(i, j) for i, (a, b) in enumerate(ranges) for j in source[a:b]]


def loop_dots(dst, src, neighbours):
    u, v = dst.tolist(), src.tolist()
    values = [
        sum(a * b for a, b in zip(u[i], v[j], strict=True))
        for i, j in loop_pairs(neighbours)
    ]
    return torch.tensor(values, **DOUBLE).view(neighbours.source.shape)


def loop_sum(h, weight, neighbours, to):
    """Sums over the sources (`to=0`) of each target, or the other way round."""
    count = [neighbours.offsets.numel() - 1, neighbours.num_sources][to]
    total = [[0.0] * h.size(1) for _ in range(count)]
    values = weight.flatten().tolist()
    for pair, w in zip(loop_pairs(neighbours), values, strict=True):
        for channel, value in enumerate(h[pair[1 - to]].tolist()):
            total[pair[to]][channel] += w * value
    return torch.tensor(total, **DOUBLE).view(count, h.size(1))


@pytest.mark.parametrize('dtype', TYPES)
@pytest.mark.parametrize('size', SIZES)
def test_against_loops(size, dtype):
    neighbours, (n, num_sources, q) = lists(size), size
    dst, src = rand(n, 4, dtype=dtype), rand(num_sources, 4, seed=2, dtype=dtype)
    weight = rand(n, q, seed=3, dtype=dtype)
    out = neighbours.dots(dst, src)
    assert out.shape == (n, q)
    assert out.dtype == dtype
    torch.testing.assert_close(out, loop_dots(dst, src, neighbours).to(dtype))
    for found, h, to in (
        (neighbours.sum(src, weight), src, 0),
        (neighbours.sum_targets(dst, weight), dst, 1),
    ):
        expected = loop_sum(h, weight, neighbours, to)
        assert found.dtype == dtype
        torch.testing.assert_close(found, expected.to(dtype))


@given(rows)
@example([[], [1, 1, 0, 1, 0, 0, 1], [], [], [], []])
def test_ragged_lists_against_loops(listed):
    # Rows without a source, with more pairs than sources, no row at all.
    neighbours, n = ragged(listed), len(listed)
    dst, src, weight = rand(n, 3), rand(5, 3, seed=2), rand(sum(map(len, listed)))
    assert neighbours.target.tolist() == [i for i, _ in loop_pairs(neighbours)]
    for found, expected in (
        (neighbours.dots(dst, src), loop_dots(dst, src, neighbours)),
        (neighbours.sum(src, weight), loop_sum(src, weight, neighbours, 0)),
        (neighbours.sum_targets(dst, weight), loop_sum(dst, weight, neighbours, 1)),
    ):
        torch.testing.assert_close(found, expected)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), max_size=12))
def test_pairs_in_any_order_against_loops(pairs):
    dst, src, given = rand(4, 3), rand(5, 3, seed=2), rand(len(pairs), seed=4)
    dst.requires_grad_(), src.requires_grad_()
    source, target = torch.tensor(pairs, dtype=torch.long).view(-1, 2).t()
    out = compare_listed(pair_dots, dst, src, source, target)
    expected = (dst[target] * src[source]).sum(dim=1)
    torch.testing.assert_close(out, expected)
    found = [torch.autograd.grad(x, (dst, src), given) for x in (out, expected)]
    torch.testing.assert_close(*found)


@pytest.mark.parametrize('size', [*SIZES, None])
def test_gradients(size):
    some = [[4, 4, 0], [], [4, 1, 2, 2, 2, 3, 0]]
    neighbours = lists(size) if size else ragged(some)
    n, num_sources = neighbours.offsets.numel() - 1, neighbours.num_sources
    dst, src = rand(n, 2).requires_grad_(), rand(num_sources, 2).requires_grad_()
    weight = rand(*neighbours.source.shape, seed=3).requires_grad_()
    check = torch.autograd.gradcheck
    assert check(lambda dst, src: pair_dots(dst, src, neighbours), (dst, src))
    assert check(lambda h, w: neighbour_sum(h, w, neighbours), (src, weight))


@pytest.mark.parametrize('dtype', TYPES)
@pytest.mark.parametrize('size', [(5, 9, 3), (3, 2, 7)])
def test_non_contiguous_inputs(size, dtype):
    n, num_sources, q = size
    source = torch.randint(num_sources, (q, n), generator=seeded(1)).t()
    values = [
        rand(channels, rows, seed=rows, dtype=dtype).t().requires_grad_()
        for rows, channels in ((n, 4), (num_sources, 4), (n, q))
    ]
    grads = rand(q, n, dtype=dtype).t(), rand(4, n, dtype=dtype).t()
    found = []
    for change in (Tensor.detach, Tensor.contiguous):
        lists = Neighbours(change(source), num_sources)
        dst, src, weight = (change(value.detach()).requires_grad_() for value in values)
        outs = pair_dots(dst, src, lists), neighbour_sum(src, weight, lists)
        some = torch.autograd.grad(outs, (dst, src, weight), [*map(change, grads)])
        found.append([*outs, *some])
    assert not values[0].is_contiguous()
    assert not source.is_contiguous()
    torch.testing.assert_close(*found)


@pytest.mark.parametrize('needs', [(True, False), (False, True), (False, False)])
def test_gradients_that_are_not_needed(needs, monkeypatch):
    neighbours, calls = lists((5, 9, 3)), []
    for name in ('sum', 'sum_targets', 'dots'):
        plain = getattr(Neighbours, name)

        def spy(*args, name=name, plain=plain):
            calls.append(name)
            return plain(*args)

        monkeypatch.setattr(Neighbours, name, spy)
    for function, shape, backward in (
        (pair_dots, (5, 4), ('sum', 'sum_targets')),
        (neighbour_sum, (5, 3), ('dots', 'sum_targets')),
    ):
        src = rand(9, 4).requires_grad_(needs[1])
        other = rand(*shape).requires_grad_(needs[0])
        args = (other, src) if function is pair_dots else (src, other)
        out = function(*args, neighbours)
        assert out.requires_grad == any(needs)
        calls.clear()
        if any(needs):
            out.sum().backward()
        expected = [name for name, need in zip(backward, needs, strict=True) if need]
        assert calls == expected


def test_indices_are_small_where_they_can_be():
    source = torch.tensor([[0, 1]])
    assert Neighbours(source, 2**31 - 1).source.dtype == torch.int32
    assert Neighbours(source, 2**31).source.dtype == torch.int64


def backward(function, first, second, lists):
    function(first, second, lists).square().sum().backward()


@pytest.mark.parametrize('num_sources', [64, 8])
@pytest.mark.parametrize('form', ['table', 'ragged'])
def test_no_gathered_tensor_is_made(meter, num_sources, form):
    n, q, m = 32, 16, 8
    # Few sources: no sparse product; blocks of pairs are gathered, here 40 at once.
    every = lists((n, num_sources, q))
    source = every.source if form == 'table' else every.source.flatten()
    offsets = None if form == 'table' else every.offsets
    budget = 40 * 3 * m * 4
    neighbours = Neighbours(source, num_sources, offsets, memory_budget=budget)
    dst, src = torch.randn(n, m), torch.randn(num_sources, m)
    weight = torch.randn(neighbours.source.shape)
    with meter() as found, saved_tensors() as saved:
        backward(pair_dots, dst.requires_grad_(), src.requires_grad_(), neighbours)
        backward(neighbour_sum, src, weight.requires_grad_(), neighbours)
        backward(pair_distances, dst, src, neighbours)
    # The pairs, the messages or a block of 40 gathered rows, not 4096 = n * q * m.
    assert max(tensor.numel() for tensor in saved) <= n * q
    assert found.largest <= max(n * q, num_sources * m, 40 * m)


@pytest.mark.parametrize('width', [4, 64])
def test_wide_pairs_are_not_compiled(monkeypatch, width):
    called = []

    def quick(*args):
        called.append(1)
        return _gathered_dots(*args)

    monkeypatch.setattr(module, 'maybe_compile', lambda *_: quick)
    dst, src = rand(40, width), rand(40, width, seed=1)
    neighbours = lists((40, 40, 6))
    found = pair_dots(dst, src, neighbours)
    assert bool(called) == (width < 64)
    torch.testing.assert_close(
        found, _gathered_dots(dst, src, neighbours.source.long())
    )
    # A matrix has no place for more pairs than it has entries.
    few = lists((3, 2, 7))
    expected = _gathered_dots(dst[:3], src[:2], few.source.long())
    called.clear()
    torch.testing.assert_close(pair_dots(dst[:3], src[:2], few), expected)
    assert called
