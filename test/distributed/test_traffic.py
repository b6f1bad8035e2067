"""What training on several ranks sends, and what DistributedDataParallel would."""

from functools import partial

import torch
import torch.distributed as dist
from ranks import blocks, group_of_one, run_ranks
from sharded import IN, MANY, N, arguments, labels, make, num_nodes
from torch.nn.parallel import DistributedDataParallel
from torch.testing import assert_close

from torch_geometric_gsl.distributed import RowShard, ShardedModel


def sent(name, folder, monkeypatch):
    """Return the numbers that a step gathers, scatters and sums, but short messages."""
    found = dict.fromkeys(('all_gather', 'all_to_all_single', 'all_reduce'), 0)

    def spy(kind, call, out, *args, **kwargs):
        numel = (args[0] if args else out).numel()
        found[kind] += numel if numel > 3 else 0
        return call(out, *args, **kwargs)

    for kind in found:
        call = getattr(dist, kind)
        monkeypatch.setattr(dist, kind, partial(spy, kind, call))
    module, rows = make(name), slice(0, num_nodes(name))
    x, given = arguments(name, rows)
    with group_of_one(folder):
        model = ShardedModel(module, RowShard(num_nodes(name)))
        if 'net' in name:
            model.loss(x, *labels(name, rows), **given).backward()
        else:
            model(x, **given).sum().backward()
    monkeypatch.undo()
    return [*found.values()]


def test_rows_are_gathered_once(tmp_path, monkeypatch):
    expected = {
        # Two layers of 16 and 4 channels.
        'net': [N * 20, N * 20, 0],
        # And the input, once for both layers; its gradient goes back.
        'net, input': [N * (20 + IN)] * 2 + [0],
        # Relations whose messages are the same gather them once.
        'net, relations': [N * 20, N * 20, 0],
        # The transition nodes and their messages, back and forth: 9 rows of 4 numbers.
        'transition': [0, 0, 2 * 2 * 36],
        'free': [0, 0, 0],
        # Bounds of sharp scores need all rows, without the gradient.
        'transition, sharp': [MANY * 4, 0, 2 * 2 * 130 * 4],
    }
    for name, numbers in expected.items():
        folder = tmp_path / name
        folder.mkdir()
        assert sent(name, folder, monkeypatch) == numbers, name


class Wrapped(torch.nn.Module):
    """What DistributedDataParallel calls: a module that returns a loss."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *args, **kwargs):
        return self.module.loss(*args, **kwargs)


def averaged(rank, sizes):
    """The gradients of DistributedDataParallel, and those that are summed once."""
    shard = RowShard(sizes[rank])
    rows, found = slice(*shard.rows), []
    for is_ddp in (True, False):
        module, (x, _) = make('net'), arguments('net', rows)
        torch.manual_seed(6)
        model, args = ShardedModel(module, shard), (x, *labels('net', rows))
        if is_ddp:
            parallel = DistributedDataParallel(Wrapped(model))
            loss = shard.world_size * parallel(*args)
        else:
            loss = model.loss(*args)
        loss.backward()
        if not is_ddp:
            shard.sum_gradients(module)
        found.append([p.grad.clone() for p in module.parameters()])
    return found


def test_distributed_data_parallel(tmp_path):
    for averages, sums in run_ranks(averaged, 2, tmp_path, blocks(N, 2)):
        assert_close(averages, sums)
