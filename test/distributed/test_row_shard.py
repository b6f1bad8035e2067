"""What a shard knows and shares: rows, sums, graphs, losses and gradients."""

import pytest
import torch
import torch.distributed as dist
from ranks import blocks, group_of_one, run_ranks
from sharded import numbers

from torch_geometric_gsl import SampledGraph
from torch_geometric_gsl.distributed import RowShard

N, M = 11, 3


def whole_graph():
    target = torch.arange(N).repeat_interleave(torch.arange(N))
    source = (3 * target + torch.arange(target.numel())) % N
    return SampledGraph(torch.stack([source, target]), numbers(1, target.numel()))


def describe(rank, sizes):
    shard = RowShard(sizes[rank])
    x = numbers(0, N, M)
    words = shard.split(x.round().to_sparse_csr())
    (source, target), weight = whole_graph()
    is_own = (target >= shard.first) & (target < shard.first + shard.num_rows)
    graph = SampledGraph(torch.stack([source[is_own], target[is_own]]), weight[is_own])
    return {
        'numbers': (shard.sizes, shard.rank, shard.first, shard.total, shard.rows),
        'repr': repr(shard),
        'split': shard.split(x),
        'words': words.to_dense(),
        'gather': shard.gather(shard.split(x)),
        'sum': shard.sum(torch.tensor([1.0 + rank])),
        'concatenate': shard.concatenate(torch.full((rank,), rank)),
        'graph': shard.gather_graph(graph),
        'even': [RowShard.even(total).sizes for total in (11, 2, 6)],
    }


@pytest.mark.parametrize('split', ['even', 'uneven', 'empty'])
def test_what_a_shard_knows_and_shares(split, tmp_path):
    sizes = blocks(N, 3, split)
    x, start = numbers(0, N, M), 0
    for rank, shard in enumerate(run_ranks(describe, 3, tmp_path, sizes)):
        rows = start, start + sizes[rank]
        assert shard['numbers'] == (sizes, rank, start, N, rows)
        assert shard['repr'] == (
            f'RowShard(rows={rows}, total=11, rank={rank}, world_size=3)'
        )
        assert torch.equal(shard['split'], x[slice(*rows)])
        assert torch.equal(shard['words'], x.round()[slice(*rows)])
        assert torch.equal(shard['gather'], x)
        assert shard['sum'] == 1 + 2 + 3
        assert shard['concatenate'].tolist() == [1, 2, 2]
        assert all(map(torch.equal, shard['graph'], whole_graph()))
        assert shard['even'] == [[4, 4, 3], [1, 1, 0], [2, 2, 2]]
        start += sizes[rank]


def losses(rank, counts):
    x = numbers(0, sum(counts)).split(counts)[rank].requires_grad_()
    shard = RowShard(2)
    loss = shard.mean_loss(x.square().sum(), counts[rank])
    loss.backward()
    return loss.detach(), x.grad


def test_mean_loss_of_nothing(tmp_path):
    text = "ValueError: 'count' must be at least 1 on some rank (got 0 on all)"
    assert run_ranks(losses, 2, tmp_path, [0, 0]) == [text, text]


class Some(torch.nn.Module):
    """Parameters of two types, some of them without gradient, and a buffer."""

    def __init__(self):
        super().__init__()
        self.a = torch.nn.Parameter(torch.ones(M, 4).double())
        self.b = torch.nn.Parameter(torch.ones(M).double())
        self.zero = torch.nn.Parameter(torch.ones(2).double())
        self.unused = torch.nn.Parameter(torch.ones(4).double())
        self.single = torch.nn.Parameter(torch.ones(()))
        self.fixed = torch.nn.Parameter(torch.ones(1), requires_grad=False)
        self.register_buffer('buffer', torch.ones(2))


def gradients(rank):
    model, shard = Some(), RowShard(rank)
    loss = (model.a.t() * numbers(rank, 4, M)).sum() + (1 + rank) * model.single
    if rank == 0:
        loss = loss + 0 * model.zero.sum()
    if rank == 1:
        loss = loss + (model.b * numbers(7, M)).sum()
    loss.backward()
    model.fixed.grad = torch.ones(1)
    shard.sum_gradients(model)
    return {name: p.grad for name, p in model.named_parameters()}


def test_gradients_are_summed(tmp_path):
    for grads in run_ranks(gradients, 3, tmp_path):
        expected = sum(numbers(rank, 4, M).t() for rank in range(3))
        torch.testing.assert_close(grads['a'], expected)
        torch.testing.assert_close(grads['b'], numbers(7, M))
        assert grads['single'] == 6
        assert grads['zero'].tolist() == [0, 0]
        assert grads['unused'] is None
        assert grads['fixed'] == 1


DTYPES = [torch.bfloat16, torch.complex64, torch.float16, torch.float32, torch.float64]


def test_one_message_for_each_type_of_numbers_in_one_order(tmp_path, monkeypatch):
    """Their order does not depend on that of the parameters."""
    sent = []
    monkeypatch.setattr(dist, 'all_reduce', lambda x, **_: sent.append(x.clone()))
    model = torch.nn.ParameterList()
    for i, dtype in enumerate([*DTYPES[::-1], *DTYPES]):
        parameter = torch.nn.Parameter(torch.ones(2 + i, dtype=dtype))
        parameter.grad = numbers(i, 2 + i).to(dtype)
        model.append(parameter)
    model.append(torch.nn.Parameter(torch.ones(3, dtype=torch.float64)))
    before = [None if p.grad is None else p.grad.clone() for p in model]
    with group_of_one(tmp_path):
        RowShard(1).sum_gradients(model)
        assert [message.dtype for message in sent] == DTYPES
        RowShard(1).sum_gradients(torch.nn.Flatten())  # Nothing to learn.
    assert len(sent) == len(DTYPES)
    # The numbers, and one for each parameter, of which the last has no gradient.
    assert sent[-1].tolist() == [*before[0], *before[9], 0, 0, 0, 1, 1, 0]
    assert [p.grad is None for p in model] == [False] * 10 + [True]
    storages = {
        p.grad.untyped_storage().data_ptr() for p in model if p.grad is not None
    }
    assert len(storages) == 10  # An optimizer may change one of them in place.


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
    root, receiver = run_ranks(scattered, 2, tmp_path, is_global)
    assert all(bool((value == 0).all()) for value in receiver[0].values())
    assert torch.equal(root[1], receiver[1])
    assert torch.equal(root[2], receiver[2])


def test_a_group_of_one(tmp_path):
    x, model = numbers(0, N, M), Some()
    with group_of_one(tmp_path):
        shard = RowShard.even(N)
        assert shard.sizes == [N]
        assert torch.equal(shard.gather(x), x)
        assert all(map(torch.equal, shard.gather_graph(whole_graph()), whole_graph()))
        model.b.sum().backward()
        shard.sum_gradients(model)
        shard.synchronize(model, torch.Generator())
        shard.sum(x.requires_grad_()).sum().backward()
        with pytest.raises(ValueError, match='on some rank'):
            shard.mean_loss(x.sum(), 0)
    assert torch.equal(model.b.grad, torch.ones(M).double())
    assert torch.equal(x.grad, torch.ones(N, M).double())


def test_one_process_without_a_group():
    shard = RowShard(N)
    x = numbers(0, N, M).requires_grad_()
    assert shard.gather(x) is shard.sum(x) is shard.concatenate(x) is x
    assert torch.equal(shard.split(x), x)
    assert all(map(torch.equal, shard.gather_graph(whole_graph()), whole_graph()))
    shard.mean_loss(x.sum(), N).backward()
    torch.testing.assert_close(x.grad, torch.full((N, M), 1 / N).double())
    model = Some()
    model.a.sum().backward()
    shard.sum_gradients(model)
    shard.synchronize(model)
    assert torch.equal(model.a.grad, torch.ones(M, 4).double())
    assert model.b.grad is None
    assert (shard.rows, shard.world_size, RowShard.even(N).sizes) == ((0, N), 1, [N])


def some_ranks(rank):
    """Share rows in a group that lacks the first process."""
    group = dist.new_group([1, 2])
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
    none, *members = run_ranks(some_ranks, 3, tmp_path)
    assert none is None
    for rank, member in enumerate(members):
        assert member['numbers'] == ([4, 5], rank, 4 * rank, ((0, 4), (4, 9))[rank])
        assert torch.equal(member['gather'], numbers(0, 9, M))
        assert (member['sum'], member['even'], member['loss']) == (2 + 3, [3, 2], 2.0)
        assert torch.equal(member['parameter'], torch.ones(M, 4).double())
        assert torch.equal(member['gradient'], torch.full((M, 4), 3.0).double())
        assert torch.equal(member['next'], members[0]['next'])


ROWS = "ValueError: 'x' must have the 11 rows of all ranks"
MODULE = "TypeError: 'module' must be a torch.nn.Module"
BAD = [
    (lambda _: RowShard(-1), "ValueError: 'num_rows' must be at least 0 (got -1)"),
    (lambda _: RowShard.even(-2), "ValueError: 'total' must be at least 0 (got -2)"),
    (lambda _: RowShard(2.0), "TypeError: 'num_rows' must be an integer"),
    (lambda shard: shard.gather(torch.ones(3, 2)), f'{ROWS} (got [3, 2])'),
    (lambda shard: shard.split(torch.ones(())), f'{ROWS} (got [])'),
    (lambda shard: shard.split([1]), "TypeError: 'x' must be a torch.Tensor"),
    (lambda shard: shard.sum_gradients(None), f'{MODULE} (got NoneType)'),
    (lambda shard: shard.synchronize([]), f'{MODULE} (got list)'),
]


@pytest.mark.parametrize(('call', 'text'), BAD)
def test_bad_input(call, text):
    with pytest.raises((TypeError, ValueError)) as info:
        call(RowShard(N))
    assert f'{info.typename}: {info.value}'.startswith(text)
