"""The Triton kernel of sums over a pool against its definition in torch.

Triton reads when it is imported whether it interprets kernels, so this file runs itself
in a process of its own, once for all cases. The definition computes in double
precision, with the same noise.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from oracles import ERROR_RATE, run_alone, seeded
from pool_weights import keyed_weights
from scipy.stats import binomtest, kstest

from torch_geometric_gsl.nn import TableNet
from torch_geometric_gsl.ops import pool_sum as pool
from torch_geometric_gsl.ops.edges import Candidates
from torch_geometric_gsl.ops.noise import draw_seed
from torch_geometric_gsl.ops.pair_scores import PairScores, distances_as_dots
from torch_geometric_gsl.ops.scores import Identity, Negative

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec('triton') is None, reason='needs Triton (the extra of the tests)'
    ),
]

CPU = torch.device('cpu')


class Softplus(Identity):
    """A user's response, which takes all but the formula of one of the package."""

    @staticmethod
    def value(t):
        return torch.nn.functional.softplus(t)


class Case(NamedTuple):
    n: int = 7
    num_sources: int = 130
    channels: int = 5
    width: int = 3
    p: float = 0.0
    draws: int | None = None
    excluded: bool = False
    layout: str = 'contiguous'
    programs: int = 256

    def __str__(self):
        return '-'.join(map(str, self))


NOISE = ({}, {'p': 0.3}, {'draws': 1}, {'draws': 3})
CASES = [
    *(Case(**noise, excluded=own) for noise in NOISE for own in (False, True)),
    # Blocks of targets and of sources that are not full, and channels of the nets.
    *(Case(20, 40, 97, 194, **noise, excluded=True) for noise in NOISE),
    *(Case(5, 40, channels, 1, draws=1) for channels in (1, 16, 17, 140)),
    *(Case(5, 40, 5, width, p=0.1) for width in (16, 17, 257, 300)),
    *(Case(n=1, **noise) for noise in NOISE),
    *(Case(num_sources=1, **noise) for noise in NOISE),
    *(Case(1, 2, excluded=True, **noise) for noise in NOISE),
    Case(65, 64, 16, 16, draws=2),
    # One program sums all, or many a part each.
    *(Case(40, 300, draws=2, excluded=True, programs=size) for size in (1, 6, 99)),
    *(Case(140, 70, p=0.3, excluded=True, programs=size) for size in (1, 6, 99)),
    *(Case(40, layout='strided', excluded=True, **noise) for noise in NOISE),
    *(Case(40, layout='huge', **noise) for noise in NOISE),
    *(Case(40, layout='scaled', **noise) for noise in NOISE),
    *(Case(40, layout='shifted', excluded=True, **noise) for noise in NOISE),
]


def make(case):
    """Return messages and pairs; huge scores are numbers without rounding errors."""
    torch.manual_seed(CASES.index(case))
    dst = torch.randn(case.n, case.channels)
    src = torch.randn(case.num_sources, case.channels)
    h = torch.randn(case.num_sources, case.width)
    excluded = torch.arange(case.n) % case.num_sources
    if case.layout == 'strided':
        h, src = (x.repeat_interleave(2, dim=1)[:, ::2] for x in (h, src))
        dst, excluded = dst.t().contiguous().t(), excluded.repeat_interleave(3)[::3]
    elif case.layout == 'huge':
        dst, src = (2.0**45 * x.round() for x in (dst, src))
    scale = torch.tensor(1.7) if case.layout == 'scaled' else 1.0
    pairs = PairScores(
        dst,
        src,
        Identity(),
        scale=scale,
        excluded=excluded if case.excluded else None,
        first=9 if case.layout == 'shifted' else 0,
    )
    return h, pairs


def results(case, run, dtype, device=CPU):
    """Return the sums, and the gradients of targets, sources and messages."""
    h, pairs = make(case)
    given = [x.to(device, dtype).requires_grad_() for x in (pairs.dst, pairs.src, h)]
    excluded = None if pairs.excluded is None else pairs.excluded.to(device)
    pairs = pairs._replace(dst=given[0], src=given[1], excluded=excluded)
    out = run(given[2], pairs)
    factor = torch.linspace(-9, 9, out.numel()).sin().view_as(out).to(out)
    return [out.detach(), *torch.autograd.grad((out * factor).sum(), given)]


def definition(case):
    """Compute the definition in double precision."""
    seed = draw_seed(CPU, seeded(CASES.index(case)))

    def run(h, pairs):
        return keyed_weights(pairs, case.p, case.draws, seed=seed) @ h

    return results(case, run, torch.float64)


def _run_kernel(path, device):
    """Run the kernel for each case, with the seeds of the CPU."""
    from torch_geometric_gsl.ops._triton import pool_kernel as module

    calls, run_kernel = [], module.pool_kernel
    module.pool_kernel = lambda *args: calls.append(0) or run_kernel(*args)
    module.draw_seed = lambda device, generator: draw_seed(CPU, generator).to(device)
    pool.has_triton = lambda device: True
    found = {}
    for case in CASES:

        def run(h, pairs, case=case):
            generator = seeded(CASES.index(case))
            return pool.pool_sum(h, pairs, case.p, case.draws, generator=generator)

        calls.clear()
        module._PROGRAMS = case.programs
        found[str(case)] = results(case, run, torch.float32, torch.device(device))
        assert len(calls) == 1, f'no kernel ran for {case}'
    if device == 'cpu':
        for name, run in (('laws', _laws), ('others', _others), ('net', _net)):
            found[name] = run(module)
    torch.save(found, path)


def _laws(module):
    """Return weights of equal scores: with dropout, and of a draw."""
    pairs = PairScores(torch.zeros(200, 3), torch.randn(128, 3), Identity())
    every = torch.eye(128)
    drop = module.pool_kernel(every, pairs, 0.2, None, seeded(1))
    return drop, module.pool_kernel(every, pairs, 0.0, 1, seeded(2))


def _others(module):
    """Return what calls of one state give, and what has no candidates or gradient."""
    pairs, h = PairScores(torch.randn(9, 4), torch.randn(80, 4), Identity()), {}
    generator, x = seeded(3), torch.randn(80, 2)
    for name, state in (
        ('first', generator),
        ('next', generator),
        ('again', seeded(3)),
    ):
        h[name] = module.pool_kernel(x, pairs, 0.0, 2, state)
    h['half'] = module.pool_kernel(x.bfloat16(), pairs)
    h['full'] = module.pool_kernel(x.bfloat16().float(), pairs)
    dst, src = torch.ones(2, 1, requires_grad=True), torch.ones(1, 1)
    lone = PairScores(dst, src, Identity(), excluded=torch.tensor([0, -1]))
    for name, draws in (('lone', None), ('lone draw', 2)):
        out = module.pool_kernel(torch.tensor([[3.0]]), lone, 0.0, draws, seeded())
        h[name] = torch.cat([out.detach(), *torch.autograd.grad(out.sum(), dst)])
    dst = torch.randn(2, 1, requires_grad=True)
    out = module.pool_kernel(torch.ones(3, 1), PairScores(dst, dst, Identity()))
    (grad,) = torch.autograd.grad(out.square().sum(), dst, create_graph=True)
    try:
        grad.sum().backward()
    except RuntimeError as error:
        h['error'] = str(error)
    return h


def _net(module):
    """Return outputs and gradients of a net, by the kernel and without."""
    found = []
    for has_kernel in (True, False):
        pool.has_triton = lambda device, has_kernel=has_kernel: has_kernel
        torch.manual_seed(0)
        net = TableNet(6, 16, 1, num_frequencies=0, dropout=0.0, graph_dropout=0.0)
        out = net(torch.randn(60, 6), torch.randn(60))
        out.square().mean().backward()
        found.append(
            [out.detach(), *(parameter.grad for parameter in net.parameters())]
        )
    return found


@pytest.fixture(scope='module')
def found(tmp_path_factory):
    """Return what the kernel finds in each case."""
    path = str(tmp_path_factory.mktemp('kernel') / 'found.pt')
    _run_alone(path, 'cpu', TRITON_INTERPRET='1')
    return dict(torch.load(path))


def _run_alone(path, device, **environment):
    folder = Path(__file__).parents[1]  # Of the oracles.
    roots = folder, folder.parent, folder.parent / 'benchmark'
    paths = os.pathsep.join(map(str, roots))
    run_alone(__file__, path, device, PYTHONPATH=paths, **environment)


def compare(result, expected, rtol=1e-5):
    """Compare tensors, relative to the largest number of each; some are zero."""
    for one, other in zip(result, expected, strict=True):
        assert one.shape == other.shape
        size = max(0.1, float(other.abs().max()))
        difference = (one.double().cpu() - other.double()).abs().max()
        assert float(difference) <= rtol * size


@pytest.mark.parametrize('case', CASES, ids=str)
def test_equals_the_definition(case, found):
    result = found[str(case)]
    assert all(x.dtype == torch.float32 for x in result)
    compare(result, definition(case))


@pytest.mark.skipif(not torch.cuda.is_available(), reason='needs a GPU')
def test_equals_the_definition_on_a_gpu(tmp_path):
    path = tmp_path / 'found.pt'
    _run_alone(str(path), 'cuda', TRITON_INTERPRET='0')
    found = torch.load(path)
    for case in CASES:
        compare(found[str(case)], definition(case), 1e-4)


def test_dropout_leaves_out_its_share(found):
    weight, _ = found['laws']
    is_left = weight > 0
    torch.testing.assert_close(weight[is_left] * 128 * 0.8, torch.ones(is_left.sum()))
    kept, number = int(is_left.sum()), is_left.numel()
    assert binomtest(kept, number, 0.8).pvalue > ERROR_RATE
    # Neither the targets nor the sources share their numbers.
    for dim, size in ((0, 200), (1, 128)):
        counts = is_left.sum(dim=dim)
        assert binomtest(int(counts.max()), size, 0.8).pvalue > ERROR_RATE / 200
        assert binomtest(int(counts.min()), size, 0.8).pvalue > ERROR_RATE / 200


def test_draws_have_gumbel_noise(found):
    _, weight = found['laws']
    torch.testing.assert_close(weight.sum(dim=1), torch.ones(200))
    # The difference of two Gumbel numbers is logistic.
    noise = weight.double().log()
    law = kstest((noise[:, ::2] - noise[:, 1::2]).flatten(), 'logistic')
    assert ERROR_RATE / 2 < law.pvalue < 1 - ERROR_RATE / 2
    # No two targets share their numbers: of the largest each is another source's.
    counts = weight.argmax(dim=1).bincount(minlength=128)
    assert binomtest(int(counts.max()), 200, 1 / 128).pvalue > ERROR_RATE / 128


def test_a_seed_gives_the_same_bits(found):
    others = found['others']
    assert torch.equal(others['first'], others['again'])
    assert not torch.equal(others['first'], others['next'])


def test_messages_of_half_precision(found):
    others = found['others']
    assert others['half'].dtype == torch.bfloat16
    assert torch.equal(others['half'], others['full'].bfloat16())


def test_a_target_without_candidates_gets_zero(found):
    for name in ('lone', 'lone draw'):
        assert found['others'][name].tolist() == [[0.0], [3.0], [0.0], [0.0]]


def test_second_derivatives_raise(found):
    assert 'second derivatives are not implemented' in found['others']['error']


def test_nets_for_tables_train_by_the_kernel(found):
    by_kernel, without = found['net']
    compare(by_kernel, without, 1e-4)


def words(seed, place):
    """SplitMix64 over the integers of Python."""
    mask = 2**64 - 1
    word = (seed + place * 0x9E3779B97F4A7C15) & mask
    word = ((word ^ word >> 30) * 0xBF58476D1CE4E5B9) & mask
    word = ((word ^ word >> 27) * 0x94D049BB133111EB) & mask
    return word ^ word >> 31


def test_definition_by_loops():
    score = torch.randn(2, 3, dtype=torch.float64)
    eye = torch.eye(3, dtype=torch.float64)
    pairs, seed = PairScores(score, eye, Identity()), torch.tensor(-(2**62) + 5)
    torch.testing.assert_close(keyed_weights(pairs, seed=seed), score.softmax(1))
    found = keyed_weights(pairs, 0.5, seed=seed)
    drawn = keyed_weights(pairs, draws=2, seed=seed)
    expected = torch.zeros_like(score)
    for i in range(2):
        for j in range(3):
            lower = words(words(int(seed), i + 1), j + 1) & 0x7FFFFF
            kept = (lower + 0.5) / 2**23 >= 0.5
            weight = 2 * kept * score[i].softmax(0)[j]
            torch.testing.assert_close(found[i, j], weight)
        for draw in range(2):
            state = words(int(seed), 2 * i + draw + 1)
            upper = [words(state, j + 1) >> 32 for j in range(3)]
            number = [2**32 - x if x >= 2**31 else x for x in upper]
            share = torch.tensor(number, dtype=torch.float64).add(0.5) / 2**31
            rate = score[i].exp() / -share.neg().log1p()
            expected[i] += rate / rate.sum() / 2
    torch.testing.assert_close(drawn, expected, rtol=1e-5, atol=1e-6)


def test_what_the_kernel_serves(monkeypatch):
    monkeypatch.setattr(pool, 'has_triton', lambda device: True)
    x = torch.randn(4, 2)
    pairs = PairScores(x, x, Identity())
    assert pool._has_kernel(pairs)
    assert pool._has_kernel(distances_as_dots(pairs))
    ends = torch.zeros(4, dtype=torch.long), torch.ones(4, dtype=torch.long)
    for change in (
        {'dst': x.double(), 'src': x.double()},
        {'response': Negative()},
        {'response': Softplus()},
        {'comparison': 'squared_distance'},
        {'candidates': Candidates(*ends, None)},
        {'null': torch.tensor(0.0)},
    ):
        assert not pool._has_kernel(pairs._replace(**change))
    monkeypatch.undo()
    assert not pool._has_kernel(pairs)  # A CPU has none.


def test_products_follow_the_setting_of_pytorch():
    from torch_geometric_gsl.ops._triton.pool_kernel import _allows_tf32

    matmul = torch.backends.cuda.matmul
    before = matmul.allow_tf32
    try:
        for allowed in (True, False):
            matmul.allow_tf32 = allowed
            assert _allows_tf32() is allowed
    finally:
        matmul.allow_tf32 = before


COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from torch_geometric_gsl.ops._triton import pool_kernel, pool_program

INTEGERS = 'num_targets num_sources channels width draws size'.split()
TILES = {
    'BLOCK_TARGETS': pool_kernel._BLOCK_TARGETS,
    'BLOCK_SOURCES': pool_kernel._BLOCK_SOURCES,
    'BLOCK_KEYS': pool_kernel._MOST_KEYS,
    'BLOCK_WIDTH': pool_kernel._MOST_WIDTH,
    'BLOCK_DRAWS': 4,
}
# Shared memory of a block; cards of 8.6, 8.9 and 12.0 have the least.
MOST_BYTES = {80: 99 * 1024, 90: 227 * 1024}

def build(name, arch, noise, absent=(), precision='tf32x3', **tiles):
    program = getattr(pool_program, name)
    constants = {'NOISE': noise, 'PRECISION': precision, **TILES, **tiles}
    constants |= dict.fromkeys(absent)
    if noise is None:
        constants['state'] = None
    types = {name: '*fp32' for name in program.arg_names}
    types |= {'excluded': '*i64', 'state': '*i64', 'p': 'fp32'}
    types |= dict.fromkeys(INTEGERS, 'i32') | dict.fromkeys(constants, 'constexpr')
    constants = {k: v for k, v in constants.items() if k in program.arg_names}
    types = {name: types[name] for name in program.arg_names}
    options = {'num_warps': pool_kernel._WARPS, 'num_stages': pool_kernel._STAGES}
    source = ASTSource(program, types, constants)
    target = GPUTarget('cuda', arch, 32)
    kernel = triton.compile(source, target=target, options=options)
    assert kernel.asm['cubin']
    assert kernel.metadata.shared <= MOST_BYTES[arch], (name, kernel.metadata.shared)

few = {'BLOCK_TARGETS': pool_kernel._FEW_TARGETS}
keys = {'BLOCK_WIDTH': pool_kernel._MOST_KEYS}
for arch in (80, 90):
    build('find_totals', arch, 'draws', ('grad',))
    build('find_totals', arch, 'draws')
    build('sum_sources', arch, 'draws', ('grad', 'mean'))
    build('sum_sources', arch, 'draws', **keys)
    build('sum_targets', arch, 'draws', **few)
build('sum_sources', 90, None, ('grad', 'mean', 'excluded'), 'tf32')
build('sum_targets', 80, 'dropout', **few)
"""


def test_compiles_without_a_gpu(tmp_path):
    # The interpreter accepts more than the compiler, to which types matter.
    run_alone(
        *('-W', 'ignore', '-c', COMPILE),
        TRITON_INTERPRET='0',
        TRITON_CACHE_DIR=str(tmp_path),
    )


if __name__ == '__main__':
    _run_kernel(*sys.argv[1:])
