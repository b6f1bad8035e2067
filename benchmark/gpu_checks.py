"""Checks on a device: kernels, evaluation, sampling distribution, seeds, errors."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import product
from typing import Any
from unittest import mock

import gpu_tables
import torch
from gpu_frame import Found, Part, Setup, difference, expect, seeded
from torch import Tensor

from reproduction.baselines import NodeFormer
from torch_geometric_gsl import GSLNet, GumbelKNNSampler
from torch_geometric_gsl.nn.similarity.resolver import SIMILARITIES
from torch_geometric_gsl.ops import race, scan, tail
from torch_geometric_gsl.ops.aggregate import weighted_sum
from torch_geometric_gsl.ops.noise import draw_seed

Outputs = Callable[[Tensor | None], list[Tensor]]
# Numbers of nodes and of channels; no block size divides them.
SIZES = ((1000, 64), (257, 100), (31, 5), (31, 1), (1, 5))
SMALL_SIZES = ((67, 9), (1, 5))
# Fraction of targets whose draws may differ: another rounding of a score may accept
# another proposal.
DIFFERENT = 0.005
RTOL, GRADIENT_RTOL, HALF_RTOL = 1e-4, 1e-3, 2e-2
# The test of the distribution rejects a correct race with this probability.
ERROR_RATE, DRAWS = 1e-4, 20_000
OTHER = {'cuda': 'cpu', 'cpu': 'meta'}


def parts(setup: Setup) -> Iterator[Part]:
    """Return the checks, the most important ones first."""
    grid = list(product(SMALL_SIZES if setup.is_small else SIZES, SIMILARITIES))
    for (size, name), loop in product(grid, (True, False)):
        form = f'{name}, {size[0]} x {size[1]}{"" if loop else ", no loops"}'
        for check in (check_race, check_evaluation):
            run = partial(check, name=name, size=size, loop=loop)
            yield Part(f'{check.__name__[6:]}: {form}', run)
    yield from gpu_tables.checks(setup)
    for name in ('linear', 'neural_gaussian', 'heat_kernel'):
        yield Part(f'sharp race: {name}', partial(check_sharp, name=name))
    yield Part('law', check_law)
    for method in ('race', 'stream', 'dense'):
        yield Part(f'sum over the graph: {method}', partial(check_sum, method=method))
    options: Found = {
        'name': 'linear',
        'size': (257, 16),
        'loop': True,
        'method': 'stream',
    }
    stream_race = partial(check_race, **options)
    yield Part('one seed on CPU and device: stream', stream_race)
    for dtype in (torch.float16, torch.bfloat16):
        yield Part(f'half precision: {dtype}', partial(check_half, dtype=dtype))
    yield Part('empty inputs', check_empty)
    for name in refusals(setup):
        yield Part(f'devices: {name}', partial(check_refusal, name=name))
    for model in (GSLNet, NodeFormer):
        yield Part(f'model: {model.__name__}', partial(check_model, model=model))


@contextmanager
def cpu_seeds() -> Iterator[None]:
    """Draw the seeds of races on the CPU; they determine the noise on any device."""
    numbers = seeded(torch.empty(0)).initial_seed()

    def draw(device: torch.device, generator: torch.Generator | None = None) -> Tensor:
        own = torch.Generator().manual_seed(numbers)
        return draw_seed(torch.device('cpu'), own).to(device)

    with ExitStack() as stack:
        for module in (race, tail, scan):
            stack.enter_context(mock.patch.object(module, 'draw_seed', draw))
        yield


def outputs(sampler: GumbelKNNSampler, x: Tensor, mask: Tensor | None) -> list[Tensor]:
    """Return weights [targets, sources]; with a mask, sums and gradients."""
    if mask is None:
        edge_index, weight = sampler(x, generator=seeded(x))
        out = weight.new_zeros(x.size(0), x.size(0))
        return [out.index_put(tuple(edge_index.flip(0)), weight).detach().cpu()]
    x = x.detach().clone().requires_grad_()
    h = torch.linspace(-9, 9, 3 * x.size(0)).sin().view(-1, 3).to(x).requires_grad_()
    out = sampler.propagate(x, h, generator=seeded(x))[mask.to(x.device)]
    leaves = [x, h, *sampler.parameters()]
    # `0 * h.sum()` gives a gradient also where a lone node has no candidate.
    loss = (out * h.detach()[mask.to(x.device)].cos()).sum() + 0 * h.sum()
    return [out, *torch.autograd.grad(loss, leaves, materialize_grads=True)]


def compare(ours: Outputs, theirs: Outputs) -> Found:
    """Compare the draws, then the sums and gradients of targets with equal draws."""
    found, expected = ours(None)[0], theirs(None)[0]
    is_same = (found - expected).abs().amax(dim=1) <= RTOL
    lost, n = int((~is_same).sum()), len(is_same)
    expect(lost <= DIFFERENT * n, f'{lost} of {n} targets have other neighbours')
    pairs = zip(ours(is_same), theirs(is_same), strict=True)
    return {
        'different_targets': lost,
        'differences': [difference(*pair, GRADIENT_RTOL) for pair in pairs],
    }


def check_race(
    setup: Setup, name: str, size: tuple[int, int], loop: bool, method: str = 'race'
) -> Found:
    """Compare a race on the device with PyTorch's on the CPU in small blocks."""
    options: Found = {'k': 1 if size[0] == 1 else 5, 'method': method, 'loop': loop}
    sampler = setup.sampler(name, size[1], train_scale=True, **options)
    twin, x = copy.deepcopy(sampler).cpu(), setup.randn(*size)
    twin.budget = twin.budget._replace(memory=2**18)
    with cpu_seeds():
        ours, theirs = partial(outputs, sampler, x), partial(outputs, twin, x.cpu())
        return compare(ours, theirs)


def check_sharp(setup: Setup, name: str) -> Found:
    """Compare a race under tighter bounds with PyTorch's on the same device."""
    n = 300 if setup.is_small else 1000
    x = setup.randn(20, 16).repeat(n // 20, 1) + 0.1 * setup.randn(n, 16)
    sampler = setup.sampler(name, 16, scale=20.0, method='race')
    plan = sampler.plan(x)

    def in_torch(mask: Tensor | None) -> list[Tensor]:
        with mock.patch.object(race, 'has_triton', return_value=False):
            sampler.budget = sampler.budget._replace(memory=2**20)
            return outputs(sampler, x, mask)

    return compare(partial(outputs, sampler, x), in_torch) | plan._asdict()


def check_evaluation(
    setup: Setup, name: str, size: tuple[int, int], loop: bool
) -> Found:
    """Compare evaluation with a softmax in double precision on the CPU."""
    k = 1 if size[0] == 1 else 5
    sampler = setup.sampler(name, size[1], k=k, scale=5.0, loop=loop).eval()
    x, h = setup.randn(*size), setup.randn(size[0], 3)
    found = sampler.propagate(x, h)
    similarity = copy.deepcopy(sampler.similarity).cpu().double()
    phi = similarity(x.cpu().double()).detach()
    if not loop:
        phi.fill_diagonal_(-torch.inf)
    weight = torch.softmax(5.0 / sampler.tau * phi, dim=1).nan_to_num(0.0)
    return {'difference': difference(found, weight @ h.cpu().double(), GRADIENT_RTOL)}


def check_law(setup: Setup) -> Found:
    """Test first draws of equal targets against their probabilities (chi-square)."""
    options: Found = {'k': 1, 'scale': 3.0, 'hard': True, 'method': 'race'}
    sampler = setup.sampler('linear', 4, **options)
    x, target = setup.randn(64, 4), setup.randn(1, 4)
    with torch.no_grad():
        graph = sampler((x, target.repeat(DRAWS, 1)), generator=seeded(x))
        pi = sampler.similarity((x, target))[0].double().mul(3.0).softmax(0)
    drawn = graph.edge_index[0][graph.edge_weight > 0.5]
    count = torch.bincount(drawn, minlength=64)
    expect(drawn.numel() == DRAWS, f'{drawn.numel()} draws, not {DRAWS}')
    statistic = ((count - DRAWS * pi).square() / (DRAWS * pi)).sum().cpu()
    half = torch.tensor(63 / 2, dtype=torch.float64)
    p = float(torch.special.gammaincc(half, statistic / 2))
    expect(p >= ERROR_RATE, f'p = {p:.1e} < {ERROR_RATE}')
    return {'p': p, 'error_rate': ERROR_RATE, 'draws': DRAWS}


def check_sum(setup: Setup, method: str) -> Found:
    """Compare a sum with the sum over the graph of its seed; draw the graph twice."""
    sampler = setup.sampler('neural_gaussian', 16, method=method)
    x, h = setup.randn(257, 16), setup.randn(257, 5)
    graph, again = (sampler(x, generator=seeded(x)) for _ in range(2))
    for first, second in zip(graph, again, strict=True):
        expect(torch.equal(first, second), 'one seed gives two graphs')
    out = sampler.propagate(x, h, generator=seeded(x))
    return {
        'difference': difference(out, weighted_sum(h, graph[0], graph[1], 257), RTOL)
    }


def check_half(setup: Setup, dtype: torch.dtype) -> Found:
    """Compare sums in half precision with those of the same rows in full."""
    sampler = setup.sampler('linear', 16, method='race')
    x, h = setup.randn(257, 16).to(dtype), setup.randn(257, 5).to(dtype)
    errors = []
    for is_training in (True, False):
        sampler.train(is_training)
        out = sampler.propagate(x, h, generator=seeded(x))
        full = sampler.propagate(x.float(), h.float(), generator=seeded(x))
        expect(out.dtype == dtype, f'sums are {out.dtype}')
        errors.append(difference(out, full, HALF_RTOL))
    return {'differences': errors}


def check_empty(setup: Setup) -> Found:
    """Expect zero sums and no edges if there are no nodes, targets or candidates."""
    x = setup.randn(9, 4)
    edges = torch.empty(2, 0, dtype=torch.long, device=x.device)
    given: list[tuple[Any, Tensor, Tensor | None]] = [(x[:0], x[:0], None)]
    given += [((x, x[:0]), x, None), (x, x, edges)]
    for (rows, h, edge_index), is_training in product(given, (True, False)):
        sampler = setup.sampler('linear', 4, method='race').train(is_training)
        some = int(sampler.propagate(rows, h, edge_index).count_nonzero())
        graph = sampler(rows, edge_index)
        expect(some + graph.edge_weight.numel() == 0, 'there are edges or sums')
    return {}


def refusals(setup: Setup) -> dict[str, Callable[[], object]]:
    """Return calls that mix devices, keyed by the argument that the error names."""
    other, x = OTHER[setup.device.type], setup.randn(20, 6)
    edges, ones = torch.zeros(2, 9, dtype=torch.long, device=x.device), x.new_ones(9)
    moved, batch = x.to(other), edges.new_zeros(20).to(other)
    sampler = setup.sampler('neural_gaussian', 6, k=2)
    learned = partial(setup.sampler, 'linear', 6, k=2)
    net = NodeFormer(6, 4, 2, 3).to(x.device).eval()
    calls: dict[str, Callable[[], object]] = {
        'edge_index': lambda: sampler(x, edges.to(other)),
        'edge_weight': lambda: sampler(x, edges, ones.to(other)),
        'batch': lambda: sampler(x, batch=batch),
        "'h'": lambda: sampler.propagate(x, moved),
        'x_dst': lambda: sampler((x, moved)),
        'x_src': lambda: net((moved, x)),
        'parameters': lambda: copy.deepcopy(sampler).to(other)(x),
        'parameters of a scale': lambda: learned(train_scale=True).to(other)(x),
        'parameters of a null neighbour': lambda: learned(null_score=0.0).to(other)(x),
        'parameters of GSLNet': lambda: GSLNet(6, 4, 2, 3).to(other)(x),
    }
    if other != 'meta':  # The meta device has no generators.
        calls['generator'] = lambda: sampler(x, generator=torch.Generator(other))
    return calls


def check_refusal(setup: Setup, name: str) -> Found:
    """Expect an error that names the argument on another device."""
    try:
        refusals(setup)[name]()
    except ValueError as error:
        expect(name.split()[0] in str(error), f"{name} is not named by '{error}'")
        return {'says': str(error)}
    raise AssertionError(f'{name} on another device is accepted')


def check_model(setup: Setup, model: type[GSLNet | NodeFormer]) -> Found:
    """Compare evaluation with the CPU, dense and CSR; check for finite gradients."""
    torch.manual_seed(setup.seed)
    net = model(30, 8, 2, 3).to(setup.device)
    x = setup.randn(257, 30).relu()
    expected = copy.deepcopy(net).cpu().eval()(x.cpu())
    errors = []
    for rows in (x, x.to_sparse_csr()):
        errors.append(difference(net.eval()(rows), expected, GRADIENT_RTOL))
        net.train()(rows).square().mean().backward()
        for parameter in net.parameters():
            is_finite = parameter.grad is None or parameter.grad.isfinite().all()
            expect(bool(is_finite), 'a gradient is not finite')
    return {'differences': errors}
