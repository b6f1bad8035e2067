"""What a model whose rows ranks share refuses."""

import pytest
import torch
from ranks import group_of_one
from sharded import IN, OUT, numbers

from torch_geometric_gsl import (
    KNNGCN,
    GSLNet,
    LatentGraphConv,
    MultiplexLatentGraphConv,
    TransitionGraphConv,
)
from torch_geometric_gsl.distributed import RowShard, ShardedModel

ZEROS = torch.zeros(12, dtype=torch.long)
KINDS = 'a GSLNet or one of its layers'
BAD = {
    'no shard': (
        lambda shard, x: ShardedModel(LatentGraphConv(IN, OUT), 3),
        "TypeError: 'shard' must be a RowShard (got int)",
    ),
    'model': (
        lambda shard, x: ShardedModel(KNNGCN(IN, 8, 2, OUT), shard),
        f"TypeError: 'model' must be {KINDS} (got KNNGCN)",
    ),
    'readout': (
        lambda shard, x: ShardedModel(GSLNet(IN, 8, 2, OUT, readout='sum'), shard),
        "ValueError: 'readout' has no meaning where ranks share the rows "
        '(got a SumAggregation)',
    ),
    'rows': (
        lambda shard, x: ShardedModel(LatentGraphConv(IN, OUT), shard)(x[:2]),
        "ValueError: 'x' must have the 12 rows of this rank (got 2)",
    ),
    'targets of a pair': (
        lambda shard, x: ShardedModel(GSLNet(IN, 8, 2, OUT), shard)((x, x[:2])),
        "ValueError: 'x' must have the 12 rows of this rank (got 2)",
    ),
    'batch': (
        lambda shard, x: ShardedModel(LatentGraphConv(IN, OUT), shard)(x, batch=ZEROS),
        "ValueError: 'batch' has no meaning where ranks share the rows (got a Tensor)",
    ),
    'candidates': (
        lambda shard, x: ShardedModel(MultiplexLatentGraphConv(IN, OUT, 2), shard)(
            x, torch.zeros(2, 1, dtype=torch.long)
        ),
        "ValueError: 'edge_index' has no meaning where ranks share the rows "
        '(got a Tensor)',
    ),
    'nodes': (
        lambda shard, x: ShardedModel(TransitionGraphConv(IN, OUT, 13, 4), shard)(x),
        "ValueError: 'shard' must have num_nodes=13 rows on all ranks together "
        '(got 12)',
    ),
    'edges': (
        lambda shard, x: ShardedModel(
            LatentGraphConv(IN, OUT, observed='prior'), shard
        )(x, torch.tensor([[0, 0], [3, 12]])),
        "ValueError: 'edge_index' must lead to the rows (0, 12) of this rank "
        '(got 3..12)',
    ),
    'sparse': (
        lambda shard, x: ShardedModel(LatentGraphConv(IN, OUT, z_channels=-1), shard)(
            x.to_sparse_csr()
        ),
        "ValueError: 'x' must be dense to be sent to other ranks "
        '(got torch.sparse_csr)',
    ),
}


@pytest.mark.parametrize('name', BAD)
def test_bad_input(name, tmp_path):
    call, text = BAD[name]
    with group_of_one(tmp_path), pytest.raises((TypeError, ValueError)) as info:
        call(RowShard(12), numbers(0, 12, IN).float())
    assert f'{type(info.value).__name__}: {info.value}' == text


def test_a_model_is_as_before_after_an_error():
    x = numbers(0, 12, IN).float()
    model = GSLNet(IN, 8, 2, OUT, num_relations=2).eval()
    sharded, expected = ShardedModel(model, RowShard(12)), model(x)
    with pytest.raises(ValueError, match="'batch' has no meaning"):
        sharded(x, batch=ZEROS)
    torch.testing.assert_close(model(x), expected)
    graph, other = model.graphs(x[:5])[0], sharded.graphs(x)[0]
    assert (graph.edge_index.size(1), other.edge_index.size(1)) == (25, 144)


def test_a_pair_with_a_prior():
    conv = LatentGraphConv(IN, OUT, observed='prior').double().eval()
    x, edges = numbers(0, 12, IN), torch.tensor([[5, 11], [1, 2]])
    expected, graph = conv((x, x[:3]), edges, return_graph=True)
    found, own = ShardedModel(conv, RowShard(3))((x, x[:3]), edges, return_graph=True)
    assert torch.equal(found, expected)
    assert torch.equal(own.edge_index, graph.edge_index)
