"""Copies of generators, and one generator where PyTorch's functions take none."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from oracles import seeded
from torch.nn import functional as F
from torch_geometric.nn import Linear

from torch_geometric_gsl import GSLNet, HeteroLatentGraphConv
from torch_geometric_gsl.ops.dense import relaxed_weights
from torch_geometric_gsl.ops.generators import GeneratorMode, clone_generator, dropout

CPU = torch.device('cpu')


@pytest.fixture(autouse=True)
def untouched():
    """The global generator is as before after each test."""
    torch.manual_seed(8)
    state = torch.get_rng_state()
    yield
    assert torch.equal(torch.get_rng_state(), state)


def by_manual_seed(function):
    """What the global generator gives with the seed of `seeded`."""
    with torch.random.fork_rng([]):
        torch.manual_seed(4)
        return function()


def lazily():
    lin = Linear(-1, 5)
    lin(torch.ones(2, 3))
    return lin.weight


def numbers_of(model):
    return torch.nn.utils.parameters_to_vector(model.parameters())


DRAWS = {
    'lazy': lazily,
    'torch linear': lambda: torch.nn.Linear(3, 4).bias,
    'recurrent': lambda: torch.nn.GRU(3, 4).weight_hh_l0,
    'orthogonal': lambda: torch.nn.init.orthogonal_(torch.empty(3, 3)),
    'truncated': lambda: torch.nn.init.trunc_normal_(torch.empty(9)),
    'normal': lambda: torch.nn.init.normal_(
        torch.nn.Parameter(torch.empty(9)), 1.0, 0.1
    ),
    'whole numbers': lambda: torch.zeros(5, dtype=torch.long).random_(2**31),
    'orders': lambda: torch.randperm(20),
    'uniform': lambda: torch.rand(3, dtype=torch.double, generator=None),
    'choices': lambda: torch.ones(2, 9).multinomial(4),
    'loader': lambda: torch.stack(
        [*torch.utils.data.DataLoader(torch.arange(9), shuffle=True)]
    ),
    'GSLNet': lambda: numbers_of(GSLNet(3, 4, 2, 2)),
    'HeteroLatentGraphConv': lambda: numbers_of(
        HeteroLatentGraphConv({'a': 3}, 4, [('a', 'to', 'a')])
    ),
}


@pytest.mark.parametrize('name', DRAWS)
def test_it_draws_what_the_global_generator_would_with_that_seed(name):
    draw = DRAWS[name]
    generator = seeded(4)
    with GeneratorMode(generator), torch.no_grad():
        values, next_values = draw(), draw()
    with torch.no_grad():
        assert torch.equal(values, by_manual_seed(draw))
    assert not torch.equal(values, next_values)


def test_other_threads_have_the_global_generator():
    expected = by_manual_seed(lambda: torch.rand(3))
    with torch.random.fork_rng([]), ThreadPoolExecutor(1) as pool:
        torch.manual_seed(4)
        with GeneratorMode(seeded(9)):
            here = torch.rand(3)
            there = pool.submit(torch.rand, 3).result()
    assert torch.equal(there, expected)
    assert torch.equal(here, torch.rand(3, generator=seeded(9)))


def test_compiled_functions_run_inside():
    def function(x):
        return (x * x).sum()

    x = torch.arange(4.0)
    compiled = torch.compile(function, backend='eager')
    with GeneratorMode(seeded(4)):
        assert compiled(x) == 14


@pytest.mark.parametrize('inplace', [True, False])
def test_modules_with_dropout_draw_from_the_generator(inplace):
    x = torch.ones(50)
    expected = dropout(x, 0.3, True, seeded(4))
    with GeneratorMode(seeded(4)):
        out = F.dropout(x, 0.3, inplace=inplace)
        next_out = torch.nn.Dropout(0.3)(torch.ones(50))
    assert torch.equal(out, expected)
    assert (out is x) == inplace
    assert not torch.equal(out, next_out)


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize('p', [0.0, 0.2, 0.9, 1.0])
def test_dropout_without_a_generator_is_that_of_torch(dtype, p):
    x = torch.randn(40, 7, generator=seeded(1)).to(dtype).requires_grad_()
    expected = by_manual_seed(lambda: F.dropout(x, p))
    assert by_manual_seed(lambda: torch.equal(dropout(x, p, True, None), expected))
    assert torch.equal(dropout(x, p, False, seeded(4)), x)


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize('p', [0.2, 0.9, 0.9999999])
def test_dropout_keeps_a_share_and_scales_it(dtype, p):
    x = torch.randn(301, 333, generator=seeded(1)).to(dtype).requires_grad_()
    out = dropout(x, p, True, seeded(4))
    is_kept = out != 0
    # Within five deviations, but never more than the precision of 16 bits.
    share, n = is_kept.double().mean().item(), x.numel()
    assert abs(share - (1 - p)) < 5 * (p * (1 - p) / n) ** 0.5 + 2**-16
    torch.testing.assert_close(out[is_kept], x[is_kept] / (1 - p))
    (gradient,) = torch.autograd.grad(out.sum(), x)
    expected = (is_kept / (1 - p)).to(dtype)
    torch.testing.assert_close(gradient, expected)
    # The four entries of a word, and rows, are independent.
    words = is_kept.view(-1)[: n // 4 * 4].view(-1, 4).double()
    assert words.t().corrcoef().fill_diagonal_(0).nan_to_num().abs().max() < 0.03


def test_one_generator_drops_others_in_each_call():
    x, generator = torch.ones(500), seeded(4)
    out, next_out = (dropout(x, 0.5, True, generator) for _ in range(2))
    assert not torch.equal(out, next_out)
    assert torch.equal(out, dropout(x, 0.5, True, seeded(4)))


def test_gradients_see_the_draws_of_the_forward_pass():
    def gradient(generator):
        score = torch.randn(6, 6, generator=seeded(1)).requires_grad_()
        weight = relaxed_weights(score, 3, 0.5, generator=generator)
        return weight, torch.autograd.grad(weight.square().sum(), score)[0]

    expected = gradient(seeded(4))
    with GeneratorMode(seeded(4)):
        assert all(map(torch.equal, gradient(None), expected))
        with torch.device('cpu'):
            assert clone_generator(None, CPU).initial_seed() == 4


@pytest.mark.parametrize('has_generator', [True, False])
def test_clone_repeats_what_comes_next(has_generator):
    generator = torch.Generator().manual_seed(3) if has_generator else None
    with torch.random.fork_rng([]):
        torch.rand(5, generator=generator)
        twin = clone_generator(generator, CPU)
        ahead = torch.rand(4, generator=twin)
        assert torch.equal(torch.rand(4, generator=generator), ahead)
        # Neither disturbs the other from here on.
        torch.rand(9, generator=twin)
        second = clone_generator(generator, CPU)
        expected = torch.rand(4, generator=second)
        assert torch.equal(torch.rand(4, generator=generator), expected)
