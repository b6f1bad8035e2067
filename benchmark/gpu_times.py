"""Time steps on a device, compared with other methods, and count bytes and operations.

For each of K draws a step gathers the rows of P proposals and, six times in the two
passes, of M arrivals: N K (P + 6 M) rows of `width` channels, with 4 bytes and 2
operations per channel. Evaluation and nearest-neighbour search compute N^2 pairs.
Operations are compared with those of a matrix product, bytes with those that a large
copy reads and writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import gpu_tables
import torch
from embeddings import CHANNELS, NOISE
from gpu_frame import Found, Part, Setup, rates, timed
from measure import gathered_rows, make_step
from models import TAU, K, gsl_net, node_former
from plain import PlainNet
from torch import Tensor
from torch.nn import functional as F
from workloads import Workload, load

from torch_geometric_gsl import GumbelKNNSampler, resolve_similarity

AUTOCAST = 'race, autocast to bfloat16'
MODELS = ('race', 'race, CSR', AUTOCAST, 'dense definition', 'NodeFormer')
NODES, SMALL_NODES = 3_327, 1_000  # Nodes of CiteSeer.
SIZES, SMALL_SIZES = (100_000, 1_000_000), (1_500,)
# Beyond, evaluation and nearest-neighbour search use a subset of the targets.
PAIRS, SMALL_PAIRS = 10**10, 10**6
BLOCK = 2**27  # Pairs per block of the search.


def parts(setup: Setup) -> Iterator[Part]:
    """Yield the timings: the speed of the card first, then small sizes."""
    yield Part('speed', speeds)
    for task in ('forward+backward', 'evaluation'):
        first = f'CiteSeer size, {task}: race'
        for name in MODELS:
            run = partial(time_model, name=name, task=task)
            yield Part(f'CiteSeer size, {task}: {name}', run, first)
    yield from gpu_tables.times(setup)
    for size in SMALL_SIZES if setup.is_small else SIZES:
        first = f'{size} rows: flat step'
        yield Part(first, partial(time_step, size=size, scale=1.0), first)
        half = partial(time_step, size=size, scale=1.0, dtype=torch.bfloat16)
        yield Part(f'{size} rows: flat step, bfloat16', half, first)
        sharp = partial(time_step, size=size, scale=20.0)
        yield Part(f'{size} rows: sharp step', sharp, first)
        evaluation = partial(time_evaluation, size=size)
        yield Part(f'{size} rows: evaluation', evaluation, first)
        nearest = partial(time_nearest, size=size)
        yield Part(f'{size} rows: nearest by blocks', nearest, first)
        first = f'{size} rows, model: race'
        for name in ('race', 'NodeFormer', 'dense definition'):
            run = partial(time_model, name=name, task='forward+backward', size=size)
            yield Part(f'{size} rows, model: {name}', run, first)


def speeds(setup: Setup) -> Found:
    """Measure the speed of a copy (read and written) and of matrix products."""
    size = 2**22 if setup.is_small else 2**30
    source = torch.ones(size // 4, device=setup.device)
    target = torch.empty_like(source)
    copied = timed(setup, lambda: target.copy_(source))
    n = 512 if setup.is_small else 8192
    a = setup.randn(n, n)
    product = timed(setup, lambda: a @ a)
    half = a.bfloat16()
    half_product = timed(setup, lambda: half @ half)
    return {
        'copy_bytes_per_second': 2 * size / copied['min'],
        'product_operations_per_second': 2 * n**3 / product['min'],
        'bfloat16_operations_per_second': 2 * n**3 / half_product['min'],
    }


def add_ratios(times: dict[str, Found], parts: list[Part]) -> None:
    """Add times relative to the reference, and rates relative to the card's."""
    speed = times.get('speed', {})
    kinds = {
        'bytes_per_second': ('share_of_copy', 'copy_bytes_per_second'),
        'operations_per_second': (
            'share_of_product',
            'product_operations_per_second',
        ),
    }
    for part in parts:
        found = times.get(part.name, {})
        reference = times.get(part.reference or '', {})
        if 'median' in found and 'median' in reference:
            found['ratio'] = found['median'] / reference['median']
        for name, (share, of) in kinds.items():
            if name in found and of in speed:
                found[share] = found[name] / speed[of]


def time_model(setup: Setup, name: str, task: str, size: int | None = None) -> Found:
    """Time a two-layer net on bags of words of CiteSeer's size or on random rows."""
    nodes = SMALL_NODES if setup.is_small else NODES
    if name == 'dense definition' and size is not None:
        return {'status': 'skipped', 'reason': 'its matrices hold all pairs'}
    work = load(f'synthetic-{size}' if size else f'words-{nodes}', setup.seed)
    x = work.x if size or name.endswith('CSR') else work.x.to_dense()
    work = Workload(work.name, x.to(setup.device), work.y.to(setup.device))
    torch.manual_seed(setup.seed)
    model: torch.nn.Module
    if name == 'NodeFormer':
        model = node_former('nodeformer-1', work, dropout=0.5)
    else:
        model = net = gsl_net('race', 'full', work, dropout=0.5)
        if name == 'dense definition':
            model = PlainNet(net, x.size(0))
    model = model.to(setup.device)
    if name == AUTOCAST:
        run = torch.autocast(setup.device.type, torch.bfloat16)(model.forward)
        model.forward = run  # type: ignore[method-assign]
    return timed(setup, make_step(model, work, task))


def problem(setup: Setup, size: int, scale: float) -> tuple[GumbelKNNSampler, Tensor]:
    """Return a sampler, and `size` unit rows around sqrt(`size`) centres."""
    generator = torch.Generator(setup.device).manual_seed(setup.seed)
    given: dict[str, Any] = {'generator': generator, 'device': setup.device}
    count = round(size**0.5)
    centre = F.normalize(torch.randn(count, CHANNELS, **given))
    x = centre[torch.randint(count, (size,), **given)]
    x = x + NOISE / CHANNELS**0.5 * torch.randn(size, CHANNELS, **given)
    torch.manual_seed(setup.seed)
    similarity = resolve_similarity('linear', CHANNELS)
    sampler = GumbelKNNSampler.paper(similarity, K, TAU, scale)
    return sampler.to(setup.device), F.normalize(x)


def time_step(
    setup: Setup, size: int, scale: float, dtype: torch.dtype = torch.float32
) -> Found:
    """Time the sum of messages over a sampled graph, and its backward pass."""
    sampler, x = problem(setup, size, scale)
    h = setup.randn(size, CHANNELS).to(dtype).requires_grad_()
    x = x.to(dtype).requires_grad_()

    def step() -> None:
        sampler.propagate(x, h).square().mean().backward()
        x.grad = h.grad = None

    found = timed(setup, step)
    plan = sampler.plan(x)
    found |= plan._asdict()
    if plan.method != 'race' or dtype != torch.float32:
        return found
    rows = gathered_rows(plan, size)
    return rates(found, 4 * CHANNELS * rows, 2 * CHANNELS * rows)


def some(setup: Setup, size: int) -> int:
    """Return the number of targets within the limit of pairs."""
    return min(size, (SMALL_PAIRS if setup.is_small else PAIRS) // size)


def time_evaluation(setup: Setup, size: int) -> Found:
    """Time exact sums over all sources for all or some targets."""
    sampler, x = problem(setup, size, 1.0)
    sampler.eval().budget = sampler.budget._replace(eval_pairs=size**2)
    count = some(setup, size)
    h = setup.randn(size, CHANNELS)
    with torch.no_grad():
        found = timed(setup, lambda: sampler.propagate((x, x[:count]), h))
    found |= {'targets': count}
    return extrapolate(rates(found, None, 4.0 * CHANNELS * count * size), size)


def time_nearest(setup: Setup, size: int) -> Found:
    """Time nearest-neighbour search by blocks of products for all or some targets."""
    _, x = problem(setup, size, 1.0)
    count, rows = some(setup, size), max(1, BLOCK // size)

    def step() -> None:
        for target in x[:count].split(rows):
            (target @ x.t()).topk(K, dim=1)

    found = timed(setup, step) | {'targets': count}
    return extrapolate(rates(found, None, 2.0 * CHANNELS * count * size), size)


def extrapolate(found: Found, size: int) -> Found:
    """Extrapolate the times of some targets to all, and mark the result."""
    factor = size / found['targets']
    times = {name: factor * found[name] for name in ('median', 'min', 'max', 'first')}
    return found | times | {'is_extrapolated': factor > 1}
