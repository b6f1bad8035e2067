"""What layers and models refuse beside a shard."""

import pytest
import torch
from ranks import group_of_one
from sharded import IN, OUT, numbers

from torch_geometric_gsl import GSLNet, LatentGraphConv, TransitionGraphConv
from torch_geometric_gsl.distributed import RowShard

BAD = {
    'no shard': (
        lambda shard, x: LatentGraphConv(IN, OUT).double()(x, shard=3),
        "TypeError: 'shard' must be a RowShard (got int)",
    ),
    'rows': (
        lambda shard, x: LatentGraphConv(IN, OUT).double()(x[:2], shard=shard),
        "ValueError: 'x' must have the 12 rows of this rank (got 2)",
    ),
    'batch': (
        lambda shard, x: LatentGraphConv(IN, OUT).double()(
            x, batch=torch.zeros(12, dtype=torch.long), shard=shard
        ),
        "ValueError: 'batch' has no meaning with a 'shard' (got a Tensor)",
    ),
    'candidates': (
        lambda shard, x: LatentGraphConv(IN, OUT).double()(
            x, torch.zeros(2, 1, dtype=torch.long), shard=shard
        ),
        "ValueError: 'edge_index' has no meaning with a 'shard' (got a Tensor)",
    ),
    'context': (
        lambda shard, x: GSLNet(IN, 8, 2, OUT).double()(x, context=x, shard=shard),
        "ValueError: 'context' has no meaning with a 'shard' (got a Tensor)",
    ),
    'readout': (
        lambda shard, x: GSLNet(IN, 8, 2, OUT, readout='sum').double()(x, shard=shard),
        "ValueError: 'readout' has no meaning with a 'shard' (got a SumAggregation)",
    ),
    'context of transition nodes': (
        lambda shard, x: TransitionGraphConv(IN, OUT, 12, 4).double()(
            x, context=x, shard=shard
        ),
        "ValueError: 'context' has no meaning with a 'shard' (got a Tensor)",
    ),
    'nodes': (
        lambda shard, x: TransitionGraphConv(IN, OUT, 13, 4).double()(x, shard=shard),
        "ValueError: 'shard' must have num_nodes=13 rows on all ranks together "
        '(got 12)',
    ),
    'targets': (
        lambda shard, x: LatentGraphConv(IN, OUT, observed='prior').double()(
            x, torch.tensor([[0, 0], [3, 12]]), shard=shard
        ),
        "ValueError: 'edge_index' must lead to the rows (0, 12) of this rank "
        '(got 3..12)',
    ),
    'sparse': (
        lambda shard, x: LatentGraphConv(IN, OUT, compare='input').double()(
            x.to_sparse_csr(), shard=shard
        ),
        "ValueError: 'x' must be dense to be sent to other ranks "
        '(got torch.sparse_csr)',
    ),
}


@pytest.mark.parametrize('name', BAD)
def test_bad_input(name, tmp_path):
    call, text = BAD[name]
    with group_of_one(tmp_path), pytest.raises((TypeError, ValueError)) as info:
        call(RowShard(12), numbers(0, 12, IN))
    assert f'{type(info.value).__name__}: {info.value}' == text
