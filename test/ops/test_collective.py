import pytest
import torch
from ranks import blocks, run_ranks

from torch_geometric_gsl.ops.collective import (
    Traffic,
    _exchange,
    _reduce_scatter,
    all_gather_rows,
    all_reduce_sum,
    attach,
    rows_traffic,
    sum_traffic,
)

N, M = 11, 3


def numbers(seed, *size):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*size, generator=generator, dtype=torch.double)


def gather(rank, sizes):
    x = numbers(0, N, M).split(sizes)[rank].clone().requires_grad_()
    traffic = Traffic()
    out = all_gather_rows(x, sizes, None, traffic)
    loss = (out.square() * numbers(1 + rank, N, M)).sum()
    (grad,) = torch.autograd.grad(loss, x, create_graph=True)
    (second,) = torch.autograd.grad(grad.sum(), x)
    return out.detach(), grad.detach(), second, traffic


@pytest.mark.parametrize('kind', ['even', 'uneven', 'empty'])
@pytest.mark.parametrize('world_size', [2, 3])
def test_gather_and_its_gradients(world_size, kind, tmp_path):
    sizes = blocks(N, world_size, kind)
    found = run_ranks(gather, world_size, tmp_path, sizes)
    whole = numbers(0, N, M).requires_grad_()
    factor = sum(numbers(1 + rank, N, M) for rank in range(world_size))
    (grad,) = torch.autograd.grad(
        (whole.square() * factor).sum(), whole, create_graph=True
    )
    (second,) = torch.autograd.grad(grad.sum(), whole)
    for out, _, _, traffic in found:
        assert torch.equal(out, whole.detach())
        # To each other rank a block of the largest size; two directions, two orders.
        sent = (world_size - 1) * max(sizes) * M * 8
        assert traffic == Traffic(gather=2 * sent, scatter=2 * sent, sum=0)
    torch.testing.assert_close(torch.cat([own for _, own, *_ in found]), grad.detach())
    torch.testing.assert_close(torch.cat([own for *_, own, _ in found]), second)


def gather_types(rank, sizes):
    found = []
    for dtype in (torch.long, torch.bool, torch.float, torch.bfloat16):
        own = (numbers(0, N).split(sizes)[rank] * 9).to(dtype)
        found.append(all_gather_rows(own, sizes))
    return found


def test_gathered_types_and_shapes(tmp_path):
    for found in run_ranks(gather_types, 2, tmp_path, [4, 7]):
        for out in found:
            assert torch.equal(out, (numbers(0, N) * 9).to(out.dtype))
        assert [out.dtype for out in found][::3] == [torch.long, torch.bfloat16]


def reduce(rank):
    x = numbers(rank, N, M).requires_grad_()
    traffic = Traffic()
    out = all_reduce_sum(x, None, traffic)
    (out.square() * numbers(5 + rank, N, M)).sum().backward()
    return out.detach(), x.grad, x.detach(), traffic


@pytest.mark.parametrize('world_size', [2, 3])
def test_sum_and_its_gradient(world_size, tmp_path):
    found = run_ranks(reduce, world_size, tmp_path)
    total = sum(numbers(rank, N, M) for rank in range(world_size)).requires_grad_()
    factor = sum(numbers(5 + rank, N, M) for rank in range(world_size))
    (total.square() * factor).sum().backward()
    for rank, (out, grad, x, traffic) in enumerate(found):
        torch.testing.assert_close(out, total.detach())
        torch.testing.assert_close(grad, total.grad)
        assert torch.equal(x, numbers(rank, N, M))  # It is left as it was.
        # Each rank sends its part of 33 numbers, 17 or 11, to all others, twice.
        part = {2: 17, 3: 11}[world_size]
        assert traffic == Traffic(sum=2 * 2 * (world_size - 1) * part * 8)


def unused(rank, sizes):
    x = numbers(0, N, M).split(sizes)[rank].clone().requires_grad_()
    gathered = all_gather_rows(x, sizes)
    # The last rank makes nothing of what it gathered.
    out = gathered.square() if rank == 0 else torch.zeros(2, M).double()
    attach(out, gathered).sum().backward()
    return x.grad


def test_a_rank_that_uses_nothing_takes_part(tmp_path):
    found = run_ranks(unused, 2, tmp_path, [5, 6])
    torch.testing.assert_close(torch.cat(found), 2 * numbers(0, N, M))


def two_ways(rank):
    rows = numbers(rank, 3, 2, M)
    return _exchange(rows, None), _reduce_scatter(rows, None)


def test_both_ways_to_reduce_and_scatter(tmp_path):
    found = run_ranks(two_ways, 3, tmp_path)
    if 'not support' in str(found[0]):
        pytest.skip(found[0])
    total = sum(numbers(rank, 3, 2, M) for rank in range(3))
    for rank, ways in enumerate(found):
        for way in ways:
            torch.testing.assert_close(way, total[rank])


def alone(rank, x):
    return all_gather_rows(x, [3, 3])


@pytest.mark.parametrize(
    ('x', 'text'),
    [
        ([1.0], "TypeError: 'x' must be a torch.Tensor (got list)"),
        (
            torch.eye(3).to_sparse_csr(),
            "ValueError: 'x' must be dense to be sent to other ranks "
            '(got torch.sparse_csr)',
        ),
        (torch.ones(4, 2), "'x' must have the 3 rows of this rank (got [4, 2])"),
        (torch.tensor(1.0), "'x' must have the 3 rows of this rank (got [])"),
    ],
)
def test_bad_input(x, text, tmp_path):
    for found in run_ranks(alone, 2, tmp_path, x):
        assert found.endswith(text)


def unlike(rank, kind):
    x = torch.ones(3, 2)
    if rank == 1:
        other = {'rows': torch.ones(4, 2), 'wide': torch.ones(3, 5)}
        x = other.get(kind, x.double())
    return all_gather_rows(x, [3, 3])


@pytest.mark.parametrize(
    ('kind', 'texts'),
    [
        ('rows', ['must have [3, 3] rows on the ranks (got [3, 4])', '(got [4, 2])']),
        ('wide', ["'x' must be equally wide on all ranks (got [2, 5])"] * 2),
        ('type', ['(got torch.float32 on [0] alone)', '(got torch.float64 on [1]']),
    ],
)
def test_blocks_of_one_rank_that_are_unlike_the_others(kind, texts, tmp_path):
    found = run_ranks(unlike, 2, tmp_path, kind)
    for text, error in zip(texts, found, strict=True):
        assert text in error
        assert error.startswith("ValueError: 'x' must")


def test_traffic_of_a_layer():
    # Two machines, a hundred million rows of width 32 in single precision.
    assert rows_traffic([50_000_000] * 2, 32, 4) == 6_400_000_000
    assert rows_traffic([7], 32, 4) == sum_traffic(7, 1, 4) == 0
    assert rows_traffic([2, 5, 0], 3, 8) == 2 * 5 * 3 * 8
    traffic = Traffic(gather=1, scatter=2, sum=4)
    assert traffic.total == 7
    traffic.reset()
    assert traffic == Traffic()
