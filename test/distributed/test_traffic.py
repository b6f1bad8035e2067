"""What training on several ranks sends, and what DistributedDataParallel would."""

import pytest
import torch
from ranks import blocks, run_ranks
from sharded import IN, N, arguments, labels, make
from torch.nn.parallel import DistributedDataParallel
from torch.testing import assert_close

from torch_geometric_gsl.distributed import RowShard, ShardedModel


def traffic(rank, sizes):
    shard = RowShard(sizes[rank])
    rows = slice(*shard.rows)
    found = []
    for name in ('net', 'net, input', 'net, relations', 'net, transition'):
        module, (x, given) = make(name), arguments(name, rows)
        shard.traffic.reset()
        model = ShardedModel(module, shard)
        model.loss(x, *labels(name, rows), **given).backward()
        widths = [conv.out_channels for conv in module.convs]
        expected = shard.expected_traffic(widths, itemsize=8)
        found.append((shard.traffic.gather, shard.traffic.scatter, expected))
    module.zero_grad()
    shard.traffic.reset()
    shard.sum_gradients(module)
    sums = shard.traffic.sum
    x, _ = arguments('transition', rows)
    shard.traffic.reset()
    ShardedModel(make('transition'), shard)(x).sum().backward()
    return found, sums, (shard.traffic.sum, shard.traffic.gather), module


@pytest.mark.parametrize('world_size', [2, 3])
def test_what_is_sent_is_what_was_expected(world_size, tmp_path):
    sizes = blocks(N, world_size, 'even')
    others, most = world_size - 1, max(sizes)
    for found, sums, layer, module in run_ranks(traffic, world_size, tmp_path, sizes):
        plain, given, relations, transition = found
        # Two layers of 16 and 4 channels, in double precision, to each other rank.
        assert plain == (others * most * 20 * 8,) * 3
        # And the input, once for both layers; its gradient goes back.
        assert given == (*[others * most * (20 + IN) * 8] * 2, plain[2])
        # Relations whose messages are the same gather them once.
        assert relations == plain
        assert transition[:2] == (0, 0)
        parameters = list(module.parameters())
        count = sum(p.numel() for p in parameters) + len(parameters)
        assert sums == 2 * others * -(-count // world_size) * 8
        # The transition nodes and their messages, back and forth: 9 rows of 4 numbers.
        assert layer == (2 * 2 * 2 * others * (36 // world_size) * 8, 0)


def sharp_traffic(rank, sizes):
    found = []
    for name in ('transition, sharp', 'free'):
        shard = RowShard(sizes[rank])
        x, _ = arguments('transition, sharp', slice(*shard.rows))
        model = ShardedModel(make(name), shard)
        model(x).sum().backward()
        model.eval()(x)
        found.append((shard.traffic.gather, shard.traffic.scatter))
    return found


def test_bounds_of_sharp_scores_need_the_rows_of_all(tmp_path):
    # Once, in training, and without the gradient: 75 rows of 4 numbers.
    expected = [(75 * 4 * 8, 0), (0, 0)]
    assert run_ranks(sharp_traffic, 2, tmp_path, [75, 75]) == [expected] * 2


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
