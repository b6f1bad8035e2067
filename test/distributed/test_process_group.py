"""Ranks begin together, and end together where one of them dies."""

import os
import signal
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks
from sharded import IN, OUT

from torch_geometric_gsl import GSLNet
from torch_geometric_gsl.distributed import RowShard, ShardedModel, start


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
    ((args, given),) = joined
    assert args == ('gloo',)
    assert given.pop('timeout') == timedelta(seconds=60)
    if num_machines == 1:
        assert not given.pop('store').check(['address'])
        assert given == {'rank': 1, 'world_size': 2}
    else:
        assert given == {}


def test_bad_input(joined):
    with pytest.raises(ValueError, match=r"'backend' must be one of .*got 'mpi'"):
        start('mpi')
    with pytest.raises(ValueError, match=r"'timeout' must be positive .*\(got 0\)"):
        start(timeout=0)
    with pytest.raises(TypeError, match="'timeout' must be a positive number"):
        start(timeout='1')
    assert joined == []


def dying(rank):
    model = ShardedModel(GSLNet(IN, 8, 2, OUT), RowShard(6))
    loss = model.loss(torch.randn(6, IN), torch.arange(6) % OUT)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    loss.backward()


def test_a_killed_rank_ends_the_others(tmp_path):
    found = run_ranks(dying, 3, tmp_path)
    assert found[1] is None
    for error in (found[0], found[2]):
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
    error, other = run_ranks(hanging, 2, tmp_path, str(tmp_path / 'released'))
    assert error.startswith(('RuntimeError', 'DistBackendError')), error
    assert other == 'released'
