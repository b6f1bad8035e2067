"""Comparisons and sums along lists of sources, and what they save."""

from functools import partial
from itertools import pairwise

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from oracles import saved_tensors, seeded
from torch import Tensor

from torch_geometric_gsl.ops.dense import relaxed_weights
from torch_geometric_gsl.ops.neighbours import (
    Neighbours,
    compare_listed,
    neighbour_sum,
    pair_distances,
    pair_dots,
)
from torch_geometric_gsl.ops.relax import Arrivals, DrawOptions, relax

DOUBLE = {'dtype': torch.float64}
TYPES = [torch.float32, torch.float64]
# Numbers of targets n, sources N and of those that a target lists: N above, equal to
# and below q; one of each; nothing at all in three ways.
SIZES = [(5, 9, 3), (4, 3, 3), (3, 2, 7), (1, 1, 1), (0, 4, 3), (4, 3, 0), (0, 0, 0)]
COMPARE = pair_dots, pair_distances
rows = st.lists(st.lists(st.integers(0, 4), max_size=12), max_size=6)


def rand(*size, seed=0, dtype=torch.float64):
    return torch.randn(size, generator=seeded(seed), dtype=dtype)


def lists(size):
    n, num_sources, q = size
    source = torch.randint(max(1, num_sources), (n, q), generator=seeded(1))
    return Neighbours(source, num_sources)


def ragged(rows):
    source = torch.tensor([j for row in rows for j in row], dtype=torch.long)
    size = torch.tensor([0] + [len(row) for row in rows])
    return Neighbours(source, 5, size.cumsum(0))


def loop_pairs(neighbours):
    """The target and source of each pair, in their order."""
    source = neighbours.source.flatten().tolist()
    ranges = pairwise(neighbours.offsets.tolist())
    return [(i, j) for i, (a, b) in enumerate(ranges) for j in source[a:b]]


def loop(compare, dst, src, neighbours):
    """Compare all pairs, number by number."""
    term = (lambda a, b: a * b) if compare is pair_dots else (lambda a, b: (a - b) ** 2)
    u, v = dst.tolist(), src.tolist()
    values = [
        sum(term(a, b) for a, b in zip(u[i], v[j], strict=True))
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


def check(neighbours, dtype=torch.float64):
    n, num_sources = neighbours.offsets.numel() - 1, neighbours.num_sources
    dst, src = rand(n, 4, dtype=dtype), rand(num_sources, 4, seed=2, dtype=dtype)
    weight = rand(*neighbours.source.shape, seed=3, dtype=dtype)
    for value, expected in (
        *(
            (compare(dst, src, neighbours), loop(compare, dst, src, neighbours))
            for compare in COMPARE
        ),
        (neighbours.sum(src, weight), loop_sum(src, weight, neighbours, 0)),
        (neighbours.sum_targets(dst, weight), loop_sum(dst, weight, neighbours, 1)),
    ):
        torch.testing.assert_close(value, expected.to(dtype))


@pytest.mark.parametrize('dtype', TYPES)
@pytest.mark.parametrize('size', SIZES)
def test_against_loops(size, dtype):
    check(lists(size), dtype)


@given(rows)
@example([[], [1, 1, 0, 1, 0, 0, 1], [], [], [], []])
def test_ragged_lists_against_loops(listed):
    # Rows without a source, with more pairs than sources, no row at all.
    neighbours = ragged(listed)
    check(neighbours)
    assert neighbours.target.tolist() == [i for i, _ in loop_pairs(neighbours)]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), max_size=12))
def test_pairs_in_any_order_against_loops(pairs):
    dst, src, weight = rand(4, 3), rand(5, 3, seed=2), rand(len(pairs), seed=4)
    dst.requires_grad_(), src.requires_grad_()
    source, target = torch.tensor(pairs, dtype=torch.long).view(-1, 2).t()
    out = compare_listed(pair_dots, dst, src, source, target)
    expected = (dst[target] * src[source]).sum(dim=1)
    torch.testing.assert_close(out, expected)
    grads = [torch.autograd.grad(x, (dst, src), weight) for x in (out, expected)]
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize('size', [*SIZES, None])
@pytest.mark.parametrize('budget', [1, 2**25])
def test_gradients(size, budget):
    sources = [[4, 4, 0], [], [4, 1, 2, 2, 2, 3, 0]]
    neighbours = lists(size) if size else ragged(sources)
    neighbours.memory = budget
    n, num_sources = neighbours.offsets.numel() - 1, neighbours.num_sources
    dst = rand(n, 2).requires_grad_()
    src = rand(num_sources, 2, seed=2).requires_grad_()
    weight = rand(*neighbours.source.shape, seed=3).requires_grad_()
    check = torch.autograd.gradcheck
    for compare in COMPARE:
        assert check(partial(compare, neighbours=neighbours), (dst, src))
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
    results = []
    for change in (Tensor.detach, Tensor.contiguous):
        lists = Neighbours(change(source), num_sources)
        dst, src, weight = (change(value.detach()).requires_grad_() for value in values)
        outs = pair_dots(dst, src, lists), neighbour_sum(src, weight, lists)
        gradients = torch.autograd.grad(outs, (dst, src, weight), [*map(change, grads)])
        results.append([*outs, *gradients])
    assert not values[0].is_contiguous()
    assert not source.is_contiguous()
    torch.testing.assert_close(*results)


def test_indices_are_small_where_they_can_be():
    source = torch.tensor([[0, 1]])
    assert Neighbours(source, 2**31 - 1).source.dtype == torch.int32
    assert Neighbours(source, 2**31).source.dtype == torch.int64


def backward(function, left, right, lists):
    function(left, right, lists).square().sum().backward()


@pytest.mark.parametrize('num_sources', [64, 8])
@pytest.mark.parametrize('form', ['table', 'ragged'])
def test_no_gathered_tensor_is_made(meter, num_sources, form):
    n, q, m = 32, 16, 8
    # Few sources: no sparse product; blocks of pairs are gathered, here 40 at once.
    every = lists((n, num_sources, q))
    source = every.source if form == 'table' else every.source.flatten()
    offsets = None if form == 'table' else every.offsets
    budget = 40 * 3 * m * 4
    neighbours = Neighbours(source, num_sources, offsets, memory=budget)
    dst, src = torch.randn(n, m), torch.randn(num_sources, m)
    weight = torch.randn(neighbours.source.shape)
    with meter() as memory, saved_tensors() as saved:
        backward(pair_dots, dst.requires_grad_(), src.requires_grad_(), neighbours)
        backward(neighbour_sum, src, weight.requires_grad_(), neighbours)
        backward(pair_distances, dst, src, neighbours)
    # The pairs, the messages or a block of 40 gathered rows, not 4096 = n * q * m.
    assert max(tensor.numel() for tensor in saved) <= n * q
    assert memory.largest <= max(n * q, num_sources * m, 40 * m)


def relaxed_race(score):
    noise = torch.rand(N, 5, 14, generator=seeded()).sort(descending=True).values
    source = torch.zeros(noise.shape, dtype=torch.long)
    arrivals = Arrivals(source, noise, torch.zeros(N, 5))
    return relax(score.view(N, 5, 14), arrivals, DrawOptions(5, 0.5, 14))[0]


N, WIDTH = 6, 70
EVERY = Neighbours(torch.arange(N).repeat(N, 1), num_sources=N)
# Whatever has a gradient that is written by hand, of an input [N, WIDTH].
BY_HAND = {
    'relax': relaxed_race,
    'relaxed_weights': lambda x: relaxed_weights(x, 5, 0.5, generator=seeded()),
    'pair_dots': lambda x: pair_dots(x, x, EVERY),
    'pair_distances': lambda x: pair_distances(x, x, EVERY),
    'neighbour_sum': lambda x: neighbour_sum(x, x[:, :N].contiguous(), EVERY),
}


@pytest.mark.parametrize('name', BY_HAND)
@pytest.mark.parametrize('by', ['input', 'incoming gradient'])
def test_gradients_by_hand_ignore_autocast_and_are_derived_once(name, by):
    x = rand(N, WIDTH).requires_grad_()
    out = BY_HAND[name](x)
    incoming = rand(*out.shape, seed=6)
    (expected,) = torch.autograd.grad(out, x, incoming, retain_graph=True)
    with torch.autocast('cpu', dtype=torch.bfloat16):
        (inside,) = torch.autograd.grad(out, x, incoming, retain_graph=True)
    assert torch.equal(inside, expected)
    leaf = x if by == 'input' else incoming.requires_grad_()
    if by != 'input':  # A gradient that depends on what comes in alone.
        out = BY_HAND[name](x)
    (gradient,) = torch.autograd.grad(out, x, incoming, create_graph=True)
    text = 'second derivatives are not implemented: the gradient of [A-Z]'
    with pytest.raises(RuntimeError, match=text):
        torch.autograd.grad(gradient.square().sum(), leaf)
    # A first derivative that keeps its graph is the right one.
    torch.testing.assert_close(gradient.detach(), expected, rtol=0, atol=0)
