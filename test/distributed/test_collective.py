"""Collective operations, their gradients of both orders, and their refusals."""

import pytest
import torch
from ranks import blocks, group_of_one, run_ranks
from sharded import numbers

from torch_geometric_gsl.distributed.collective import all_gather_rows, all_reduce_sum

N, M = 11, 3
DTYPES = [torch.long, torch.bool, torch.float, torch.bfloat16]


def differentiate(out, factor, x):
    """Return the gradient of squares, and the gradient of its sum."""
    (grad,) = torch.autograd.grad((out.square() * factor).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(grad.sum(), x)
    return grad.detach(), second


def gather(rank, sizes):
    x = numbers(0, N, M).split(sizes)[rank].clone().requires_grad_()
    out = all_gather_rows(x, sizes)
    own = 9 * numbers(0, N).split(sizes)[rank]
    others = [all_gather_rows(own.to(dtype), sizes) for dtype in DTYPES]
    return [out.detach(), *others], *differentiate(out, numbers(1 + rank, N, M), x)


@pytest.mark.parametrize('kind', ['even', 'uneven', 'empty'])
@pytest.mark.parametrize('world_size', [2, 3])
def test_gather_and_its_gradients(world_size, kind, tmp_path):
    sizes = blocks(N, world_size, kind)
    found = run_ranks(gather, world_size, tmp_path, sizes)
    whole = numbers(0, N, M).requires_grad_()
    factor = sum(numbers(1 + rank, N, M) for rank in range(world_size))
    expected = differentiate(whole, factor, whole)
    every = 9 * numbers(0, N)
    for out, *_ in found:
        assert [part.dtype for part in out[1:]] == DTYPES
        assert torch.equal(out[0], whole.detach())
        assert all(torch.equal(part, every.to(part.dtype)) for part in out[1:])
    for order in (0, 1):
        own = torch.cat([gradients[order] for _, *gradients in found])
        torch.testing.assert_close(own, expected[order])


def reduce(rank):
    x = numbers(rank, N, M).requires_grad_()
    out = all_reduce_sum(x)
    gradients = differentiate(out, numbers(5 + rank, N, M), x)
    return out.detach(), *gradients, x.detach()


@pytest.mark.parametrize('world_size', [2, 3])
def test_sum_and_its_gradients(world_size, tmp_path):
    found = run_ranks(reduce, world_size, tmp_path)
    ranks = range(world_size)
    total = sum(numbers(rank, N, M) for rank in ranks).requires_grad_()
    factor = sum(numbers(5 + rank, N, M) for rank in ranks)
    grad, second = differentiate(total, factor, total)
    # The gradient that each rank adds up is summed over the ranks as well.
    expected = [total.detach(), grad, world_size * second]
    for rank, (*own, x) in enumerate(found):
        torch.testing.assert_close(own, expected)
        assert torch.equal(x, numbers(rank, N, M))  # It is left as it was.


BAD = {
    'list': ([1.0], r"'x' must be a torch\.Tensor \(got list\)"),
    'sparse': (torch.eye(3).to_sparse_csr(), r"'x' must be dense .*got torch\.sparse_"),
    'scalar': (torch.tensor(1.0), r"'x' must have \[3\] rows on .*\(got \[0\]\)"),
}


@pytest.mark.parametrize('name', BAD)
def test_bad_input(name, tmp_path):
    x, text = BAD[name]
    with group_of_one(tmp_path), pytest.raises((TypeError, ValueError), match=text):
        all_gather_rows(x, [3])


def unlike(rank, kind):
    x = torch.ones(3, 2)
    if rank == 1:
        other = {'rows': torch.ones(4, 2), 'wide': torch.ones(3, 5)}
        x = other.get(kind, x.double())
    return all_gather_rows(x, [3, 3])


UNLIKE = {
    'rows': ['must have [3, 3] rows on the ranks (got [3, 4])'] * 2,
    'wide': ['must be equally wide on all ranks (got [2, 5])'] * 2,
    'type': ['(got torch.float32 on [0] alone)', '(got torch.float64 on [1] alone)'],
}


@pytest.mark.parametrize('kind', UNLIKE)
def test_blocks_that_are_unlike_are_refused_by_all_ranks(kind, tmp_path):
    found = run_ranks(unlike, 2, tmp_path, kind)
    for text, error in zip(UNLIKE[kind], found, strict=True):
        assert error.startswith("ValueError: 'x' must")
        assert text in error
