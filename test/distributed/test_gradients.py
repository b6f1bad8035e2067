"""Sums of gradients over ranks, and the messages that they take."""

import pytest
import torch
from ranks import run_ranks

from torch_geometric_gsl.distributed import RowShard
from torch_geometric_gsl.distributed.gradients import sum_gradients
from torch_geometric_gsl.ops.collective import Traffic

M = 3
DTYPES = [torch.bfloat16, torch.float16, torch.float32, torch.float64]


def numbers(seed, *size):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, generator=generator, dtype=torch.double)


def parameter(grad, dtype=torch.double, requires_grad=True):
    size = (2, M) if grad is None else grad.shape
    found = torch.nn.Parameter(torch.ones(size, dtype=dtype), requires_grad)
    found.grad = None if grad is None else grad.to(dtype)
    return found


def sum_over(ranks):
    """Sum the gradients of lists of parameters; return the messages of each rank."""
    sent = [[] for _ in ranks]
    for messages, parameters in zip(sent, ranks, strict=True):
        copies = [parameter(p.grad, p.dtype) for p in parameters]

        def record(x, messages=messages):
            messages.append(x)
            return x.clone()

        sum_gradients(copies, record)
    totals = [sum(of_all) for of_all in zip(*sent, strict=True)]
    for parameters in ranks:
        left = iter(totals)
        sum_gradients(iter(parameters), lambda x, left=left: next(left).to(x.dtype))
    return sent


def test_each_gradient_is_the_sum_of_all_ranks():
    ranks = [
        [
            parameter(numbers(10 * rank, 2, M)),
            parameter(numbers(10 * rank + 1, M, 4).t()),  # Not contiguous.
            parameter(numbers(10 * rank + 2)),
            parameter(numbers(10 * rank + 3, 0, M)),
        ]
        for rank in range(3)
    ]
    expected = [sum(p.grad for p in same) for same in zip(*ranks, strict=True)]
    for messages in sum_over(ranks):
        # One number for each number, and one for each of the parameters.
        assert [x.shape for x in messages] == [(6 + 12 + 1 + 0 + 4,)]
    for parameters in ranks:
        for found, total in zip(parameters, expected, strict=True):
            assert found.grad.shape == found.shape
            torch.testing.assert_close(found.grad, total)


def test_one_message_for_each_type_of_numbers_in_one_order():
    """The order of types does not depend on that of parameters, which stays."""
    ranks = []
    for rank in range(2):
        dtypes = [*DTYPES, torch.complex64, *DTYPES[::-1]]
        grads = [numbers(20 * rank + i, 2 + i) for i in range(len(dtypes))]
        parameters = [
            parameter(grad, dtype) for grad, dtype in zip(grads, dtypes, strict=True)
        ]
        ranks.append(parameters)
    before = [[p.grad.clone() for p in parameters] for parameters in ranks]
    own, other = zip(*before, strict=True), sum_over(ranks)
    kinds = [
        torch.bfloat16,
        torch.complex64,
        torch.float16,
        torch.float32,
        torch.float64,
    ]
    for messages, grads in zip(other, before, strict=True):
        assert [x.dtype for x in messages] == kinds
        for message in messages:
            same = [grad for grad in grads if grad.dtype == message.dtype]
            flags = message.new_ones(len(same))
            assert torch.equal(message, torch.cat([*same, flags]))
    for index, grads in enumerate(own):
        for parameters in ranks:
            assert torch.equal(parameters[index].grad, sum(grads))


def test_gradients_that_some_ranks_or_all_lack():
    given = [[True, False, False], [False, True, False], [True, False, False]]
    ranks = [
        [parameter(numbers(rank, 2, M) if has else None) for has in of_rank]
        for rank, of_rank in enumerate(given)
    ]
    first, second = numbers(0, 2, M) + numbers(2, 2, M), numbers(1, 2, M)
    for messages, of_rank in zip(sum_over(ranks), given, strict=True):
        assert messages[0][-3:].tolist() == of_rank
        assert (messages[0][:-3].view(3, -1) != 0).all(dim=1).tolist() == of_rank
    for a, b, c in ranks:
        torch.testing.assert_close(a.grad, first)
        torch.testing.assert_close(b.grad, second)
        assert c.grad is None


def test_gradients_of_zero_are_there():
    ranks = [[parameter(torch.zeros(2, M))], [parameter(None)]]
    sum_over(ranks)
    for (found,) in ranks:
        assert torch.equal(found.grad, torch.zeros(2, M).double())


def test_frozen_parameters_take_no_part():
    former = numbers(3, 2, M)
    frozen = parameter(former, requires_grad=False)
    learned = parameter(numbers(4, M))
    sent = []
    sum_gradients([frozen, learned], lambda x: sent.append(x) or 2 * x)
    assert [x.numel() for x in sent] == [M + 1]
    assert torch.equal(frozen.grad, former)
    assert torch.equal(learned.grad, 2 * numbers(4, M))


@pytest.mark.parametrize('parameters', [[], [parameter(None, requires_grad=False)]])
def test_nothing_is_sent_where_nothing_is_learned(parameters):
    sum_gradients(parameters, lambda _: pytest.fail('nothing is to be sent'))


def test_sums_share_no_memory():
    """An optimizer, or clipping, may change one of them in place."""
    first, second = parameter(numbers(0, 2, M)), parameter(numbers(1, 2, M))
    sum_gradients([first, second], lambda x: x)
    parts = [p.grad.untyped_storage() for p in (first, second)]
    assert parts[0].data_ptr() != parts[1].data_ptr()
    assert [part.nbytes() for part in parts] == [2 * M * 8] * 2


class Some(torch.nn.Module):
    """Parameters of two types, of which some ranks, or all, leave some unused."""

    def __init__(self):
        super().__init__()
        self.a = torch.nn.Parameter(torch.ones(2, M).double())
        self.b = torch.nn.Parameter(torch.ones(M).double())
        self.unused = torch.nn.Parameter(torch.ones(4).double())
        self.single = torch.nn.Parameter(torch.ones(()))
        self.fixed = torch.nn.Parameter(torch.ones(1), requires_grad=False)


def gradients(rank):
    model, shard = Some(), RowShard(rank)
    loss = (model.a * numbers(rank, 2, M)).sum() + (1 + rank) * model.single
    if rank == 1:
        loss = loss + (model.b * numbers(7, M)).sum()
    loss.backward()
    shard.sum_gradients(model)
    return {name: p.grad for name, p in model.named_parameters()}, shard.traffic


def test_ranks_that_are_processes(tmp_path):
    for found, traffic in run_ranks(gradients, 3, tmp_path):
        torch.testing.assert_close(found['a'], sum(numbers(r, 2, M) for r in range(3)))
        torch.testing.assert_close(found['b'], numbers(7, M))
        assert found['single'] == 6
        assert found['unused'] is found['fixed'] is None
        # Thirteen doubles and one single, and one number for each of the parameters.
        assert traffic == Traffic(sum=2 * 2 * (6 * 8 + 1 * 4))
