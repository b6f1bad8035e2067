"""Ranks begin and end together; collective operations and their gradients."""

import os
import signal
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks import blocks, group_of_one, run_ranks
from sharded import IN, OUT, numbers

from torch_geometric_gsl import GSLNet
from torch_geometric_gsl.distributed import RowShard, start
from torch_geometric_gsl.distributed.collective import all_gather_rows, all_reduce_sum


@pytest.fixture
def joined(monkeypatch):
    """What groups are made of, which are not made."""
    calls = []
    monkeypatch.setattr(
        dist, 'init_process_group', lambda *args, **kwargs: calls.append((args, kwargs))
    )
    for name in (
        *('RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'LOCAL_WORLD_SIZE'),
        'TORCHELASTIC_RESTART_COUNT',
    ):
        monkeypatch.delenv(name, raising=False)
    return calls


def test_a_program_by_itself_is_one_process(joined):
    assert start('gloo') == torch.device('cpu')
    assert joined == []


def test_processes_of_torchrun_join(joined, monkeypatch):
    monkeypatch.setenv('RANK', '3')
    monkeypatch.setenv('LOCAL_RANK', '1')
    devices = []
    monkeypatch.setattr(torch.cuda, 'set_device', devices.append)
    assert start('gloo', timeout=5) == torch.device('cpu')
    # A GPU for each of two processes of this machine, and for one of them.
    monkeypatch.setenv('LOCAL_WORLD_SIZE', '2')
    monkeypatch.setattr(torch.cuda, 'device_count', lambda: 2)
    assert start() == torch.device('cuda', 1)
    monkeypatch.setattr(torch.cuda, 'device_count', lambda: 1)
    for rank in '10':  # Both take the same backend.
        monkeypatch.setenv('LOCAL_RANK', rank)
        assert start() == torch.device('cpu')
    minute = {'timeout': timedelta(seconds=60)}
    assert joined == [
        (('gloo',), {'timeout': timedelta(seconds=5)}),
        (('nccl',), minute),
        (('gloo',), minute),
        (('gloo',), minute),
    ]
    assert devices == [torch.device('cuda', 1)]


@pytest.mark.parametrize('num_machines', [1, 2])
def test_processes_that_torchrun_starts_again(num_machines, joined, monkeypatch):
    # The store still has what the dead have left in it.
    store = dist.HashStore()
    store.set('address', 'of the dead')
    calls = iter([(store, 1, 2)])
    monkeypatch.setattr(dist, 'rendezvous', lambda *args, **kwargs: calls)
    numbers = {'RANK': 1, 'WORLD_SIZE': 2, 'LOCAL_WORLD_SIZE': 2 // num_machines}
    for name, value in (numbers | {'TORCHELASTIC_RESTART_COUNT': 3}).items():
        monkeypatch.setenv(name, str(value))
    start('gloo')
    ((args, kwargs),) = joined
    assert args == ('gloo',)
    assert kwargs.pop('timeout') == timedelta(seconds=60)
    if num_machines == 1:
        assert not kwargs.pop('store').check(['address'])
        assert kwargs == {'rank': 1, 'world_size': 2}
    else:
        assert kwargs == {}


def test_bad_start(joined):
    with pytest.raises(ValueError, match=r"'backend' must be one of .*got 'mpi'"):
        start('mpi')
    with pytest.raises(ValueError, match=r"'timeout' must be positive .*\(got 0\)"):
        start(timeout=0)
    with pytest.raises(TypeError, match="'timeout' must be a positive number"):
        start(timeout='1')
    assert joined == []


def dying(rank):
    x, y = torch.randn(6, IN), torch.arange(6) % OUT
    loss = GSLNet(IN, 8, 2, OUT).loss(x, y, shard=RowShard(6))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    loss.backward()


def test_a_killed_rank_ends_the_others(tmp_path):
    errors = run_ranks(dying, 3, tmp_path)
    assert errors[1] is None
    for error in (errors[0], errors[2]):
        assert error.startswith(('RuntimeError', 'DistBackendError')), error


def hanging(rank, path):
    group = dist.new_group(timeout=timedelta(seconds=2))
    if rank == 1:
        while not Path(path).exists():
            time.sleep(0.05)
        return 'released'
    try:
        RowShard(6, group)
    finally:
        Path(path).touch()


def test_a_rank_that_hangs_ends_the_others(tmp_path):
    error, hung = run_ranks(hanging, 2, tmp_path, str(tmp_path / 'released'))
    assert error.startswith(('RuntimeError', 'DistBackendError')), error
    assert hung == 'released'


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
    rows = 9 * numbers(0, N).split(sizes)[rank]
    gathered = [all_gather_rows(rows.to(dtype), sizes) for dtype in DTYPES]
    return [out.detach(), *gathered], *differentiate(out, numbers(1 + rank, N, M), x)


@pytest.mark.parametrize('split', ['even', 'uneven', 'empty'])
@pytest.mark.parametrize('world_size', [2, 3])
def test_gather_and_its_gradients(world_size, split, tmp_path):
    sizes = blocks(N, world_size, split)
    ranks = run_ranks(gather, world_size, tmp_path, sizes)
    x = numbers(0, N, M).requires_grad_()
    factor = sum(numbers(1 + rank, N, M) for rank in range(world_size))
    expected = differentiate(x, factor, x)
    every = 9 * numbers(0, N)
    for out, *_ in ranks:
        assert [rows.dtype for rows in out[1:]] == DTYPES
        assert torch.equal(out[0], x.detach())
        assert all(torch.equal(rows, every.to(rows.dtype)) for rows in out[1:])
    for order in (0, 1):
        grad = torch.cat([gradients[order] for _, *gradients in ranks])
        torch.testing.assert_close(grad, expected[order])


def reduce(rank):
    x = numbers(rank, N, M).requires_grad_()
    out = all_reduce_sum(x)
    gradients = differentiate(out, numbers(5 + rank, N, M), x)
    return out.detach(), *gradients, x.detach()


@pytest.mark.parametrize('world_size', [2, 3])
def test_sum_and_its_gradients(world_size, tmp_path):
    results = run_ranks(reduce, world_size, tmp_path)
    ranks = range(world_size)
    total = sum(numbers(rank, N, M) for rank in ranks).requires_grad_()
    factor = sum(numbers(5 + rank, N, M) for rank in ranks)
    grad, second = differentiate(total, factor, total)
    # The gradient that each rank adds up is summed over the ranks as well.
    expected = [total.detach(), grad, world_size * second]
    for rank, (*derivatives, x) in enumerate(results):
        torch.testing.assert_close(derivatives, expected)
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


def unlike(rank, case):
    x = torch.ones(3, 2)
    if rank == 1:
        unlike_rows = {'rows': torch.ones(4, 2), 'wide': torch.ones(3, 5)}
        x = unlike_rows.get(case, x.double())
    return all_gather_rows(x, [3, 3])


UNLIKE = {
    'rows': ['must have [3, 3] rows on the ranks (got [3, 4])'] * 2,
    'wide': ['must have one width on all ranks (got [2, 5])'] * 2,
    'type': ['(got torch.float32 on [0] only)', '(got torch.float64 on [1] only)'],
}


@pytest.mark.parametrize('case', UNLIKE)
def test_blocks_that_are_unlike_are_refused_by_all_ranks(case, tmp_path):
    errors = run_ranks(unlike, 2, tmp_path, case)
    for text, error in zip(UNLIKE[case], errors, strict=True):
        assert error.startswith("ValueError: 'x' must")
        assert text in error
