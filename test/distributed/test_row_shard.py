import pytest
import torch
from ranks import blocks, run_ranks

from torch_geometric_gsl import SampledGraph
from torch_geometric_gsl.distributed import RowShard
from torch_geometric_gsl.ops.collective import Traffic

N, M = 11, 3


def numbers(seed, *size):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*size, generator=generator, dtype=torch.double)


def whole_graph():
    target = torch.arange(N).repeat_interleave(torch.arange(N))
    source = (3 * target + torch.arange(target.numel())) % N
    return SampledGraph(torch.stack([source, target]), numbers(1, target.numel()))


def describe(rank, sizes):
    shard = RowShard(sizes[rank])
    x = numbers(0, N, M)
    words = shard.split(x.round().to_sparse_csr())
    (source, target), weight = whole_graph()
    own = (target >= shard.first) & (target < shard.first + shard.num_rows)
    part = SampledGraph(torch.stack([source[own], target[own]]), weight[own])
    return {
        'numbers': (shard.sizes, shard.rank, shard.first, shard.total, shard.rows),
        'repr': repr(shard),
        'split': shard.split(x),
        'words': words.to_dense(),
        'gather': shard.gather(shard.split(x)),
        'sum': shard.sum(torch.tensor([1.0 + rank])),
        'concatenate': shard.concatenate(torch.full((rank,), rank)),
        'graph': shard.gather_graph(part),
    }


@pytest.mark.parametrize('kind', ['even', 'uneven', 'empty'])
@pytest.mark.parametrize('world_size', [2, 3])
def test_what_a_shard_knows_and_shares(world_size, kind, tmp_path):
    sizes = blocks(N, world_size, kind)
    x, first = numbers(0, N, M), 0
    for rank, found in enumerate(run_ranks(describe, world_size, tmp_path, sizes)):
        rows = first, first + sizes[rank]
        assert found['numbers'] == (sizes, rank, first, N, rows)
        assert found['repr'] == (
            f'RowShard(rows={rows}, total=11, rank={rank}, world_size={world_size})'
        )
        assert torch.equal(found['split'], x[slice(*rows)])
        assert torch.equal(found['words'], x.round()[slice(*rows)])
        assert torch.equal(found['gather'], x)
        assert found['sum'] == sum(range(1, world_size + 1))
        assert found['concatenate'].tolist() == [1, 2, 2][: 2 * world_size - 3]
        assert all(map(torch.equal, found['graph'], whole_graph()))
        first += sizes[rank]


def evenly(rank):
    return [RowShard.even(total).sizes for total in (11, 2, 6)]


def test_even_blocks(tmp_path):
    sizes = [[4, 4, 3], [1, 1, 0], [2, 2, 2]]
    assert run_ranks(evenly, 3, tmp_path) == [sizes] * 3
    assert RowShard.even(11).sizes == [11]


def losses(rank, counts):
    x = numbers(0, sum(counts)).split(counts)[rank].requires_grad_()
    shard = RowShard(2)
    loss = shard.mean_loss(x.square().sum(), counts[rank])
    loss.backward()
    return loss.detach(), x.grad


@pytest.mark.parametrize('counts', [[4, 3], [0, 5], [2, 0, 4]])
def test_mean_loss(counts, tmp_path):
    found = run_ranks(losses, len(counts), tmp_path, counts)
    x = numbers(0, sum(counts)).requires_grad_()
    expected = x.square().mean()
    expected.backward()
    for loss, _ in found:
        torch.testing.assert_close(loss, expected.detach())
    torch.testing.assert_close(torch.cat([grad for _, grad in found]), x.grad)


def test_mean_loss_of_nothing(tmp_path):
    text = "ValueError: 'count' must be at least 1 on some rank (got 0 on all)"
    assert run_ranks(losses, 2, tmp_path, [0, 0]) == [text, text]


class Some(torch.nn.Module):
    """Parameters, some of them fixed, and a buffer."""

    def __init__(self):
        super().__init__()
        self.a = torch.nn.Parameter(torch.ones(2, M).double())
        self.b = torch.nn.Parameter(torch.ones(M))
        self.fixed = torch.nn.Parameter(torch.ones(1), requires_grad=False)
        self.register_buffer('buffer', torch.ones(2))


def scattered(rank, is_global):
    generator = None if is_global else torch.Generator().manual_seed(rank)
    torch.manual_seed(rank)
    model = Some()
    for value in (*model.parameters(), *model.buffers()):
        value.data.fill_(rank)
    RowShard(3).synchronize(model, generator)
    return model.state_dict(), torch.rand(3), torch.rand(3, generator=generator)


@pytest.mark.parametrize('is_global', [True, False])
def test_synchronize(is_global, tmp_path):
    first, other = run_ranks(scattered, 2, tmp_path, is_global)
    assert all(bool((value == 0).all()) for value in other[0].values())
    assert torch.equal(first[1], other[1])
    assert torch.equal(first[2], other[2])


def test_one_process():
    shard = RowShard(N)
    x = numbers(0, N, M).requires_grad_()
    assert shard.gather(x) is shard.sum(x) is shard.concatenate(x) is x
    assert torch.equal(shard.split(x), x)
    assert shard.attach(x, x) is x
    assert all(map(torch.equal, shard.gather_graph(whole_graph()), whole_graph()))
    shard.mean_loss(x.sum(), N).backward()
    torch.testing.assert_close(x.grad, torch.full((N, M), 1 / N).double())
    model = Some()
    model.a.sum().backward()
    shard.sum_gradients(model)
    shard.synchronize(model)
    assert torch.equal(model.a.grad, torch.ones(2, M).double())
    assert model.b.grad is None
    assert (shard.rows, shard.world_size, shard.traffic) == ((0, N), 1, Traffic())
    assert shard.expected_traffic([M, 7]) == 0


def some_ranks(rank):
    """Share rows in a group that lacks the first process."""
    group = torch.distributed.new_group([1, 2])
    if rank == 0:
        return None
    shard = RowShard(3 + rank, group)
    torch.manual_seed(rank)
    model = Some()
    model.a.data.fill_(rank)
    shard.synchronize(model)
    (model.a.sum() * rank).backward()
    shard.sum_gradients(model)
    return {
        'numbers': (shard.sizes, shard.rank, shard.first, shard.rows),
        'gather': shard.gather(shard.split(numbers(0, 9, M))),
        'sum': shard.sum(torch.tensor([1.0 + rank])),
        'even': RowShard.even(5, group).sizes,
        'loss': float(shard.mean_loss(torch.tensor(2.0 * rank), rank)),
        'parameter': model.a.detach(),
        'gradient': model.a.grad,
        'next': torch.rand(3),
    }


def test_a_group_of_some_ranks(tmp_path):
    none, *found = run_ranks(some_ranks, 3, tmp_path)
    assert none is None
    for rank, one in enumerate(found):
        assert one['numbers'] == ([4, 5], rank, 4 * rank, ((0, 4), (4, 9))[rank])
        assert torch.equal(one['gather'], numbers(0, 9, M))
        assert one['sum'] == 2 + 3
        assert one['even'] == [3, 2]
        assert one['loss'] == 2.0
        assert torch.equal(one['parameter'], torch.ones(2, M).double())
        assert torch.equal(one['gradient'], torch.full((2, M), 3.0).double())
        assert torch.equal(one['next'], found[0]['next'])


def widths(rank):
    return RowShard(4 + rank).expected_traffic([32, 7], itemsize=2)


def test_expected_traffic(tmp_path):
    assert run_ranks(widths, 3, tmp_path) == [2 * 6 * 39 * 2] * 3


@pytest.mark.parametrize(
    ('call', 'error', 'text'),
    [
        (lambda _: RowShard(-1), ValueError, "'num_rows' must be at least 0 (got -1)"),
        (
            lambda _: RowShard.even(-2),
            ValueError,
            "'total' must be at least 0 (got -2)",
        ),
        (lambda _: RowShard(2.0), TypeError, "'num_rows' must be an integer"),
        (
            lambda shard: shard.gather(torch.ones(3, 2)),
            ValueError,
            "'x' must have the 11 rows of all ranks (got [3, 2])",
        ),
        (
            lambda shard: shard.split(torch.ones(())),
            ValueError,
            "'x' must have the 11 rows of all ranks (got [])",
        ),
        (lambda shard: shard.split([1]), TypeError, "'x' must be a torch.Tensor"),
        (
            lambda shard: shard.sum_gradients(None),
            TypeError,
            "'module' must be a torch.nn.Module (got NoneType)",
        ),
        (
            lambda shard: shard.synchronize([]),
            TypeError,
            "'module' must be a torch.nn.Module (got list)",
        ),
    ],
)
def test_bad_input(call, error, text):
    with pytest.raises(error) as info:
        call(RowShard(N))
    assert text in str(info.value)
