"""Check and time the sum over a pool of the nets for tables on a device.

A step compares n targets with N sources by m channels, and sums messages of w channels:
2 n N (m + w) operations forward and twice as many backward; recomputed operations do
not count. An epoch runs the steps of `GSLRegressor('learned', n_members=1)` without
averaging parameters and without validation. Its operations are those of the sums only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple
from unittest import mock

import torch
from gpu_frame import Found, Part, Setup, difference, rates, seeded, timed
from pool_weights import keyed_weights
from torch import Tensor

from torch_geometric_gsl.nn import TableNet
from torch_geometric_gsl.ops import pool_sum as pool
from torch_geometric_gsl.ops.noise import draw_seed
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.runtime import has_triton
from torch_geometric_gsl.ops.scores import Identity

# Targets, sources, their channels, message channels; no block size divides them.
SIZES = ((512, 3_584, 97, 194), (257, 1_000, 33, 300), (31, 70, 5, 3), (1, 5, 1, 1))
SMALL_SIZES = ((67, 130, 9, 5), (1, 5, 1, 1))
NOISE: dict[str, Found] = {
    'no noise': {},
    'dropout': {'p': 0.2},
    '1 draw': {'draws': 1},
    '4 draws': {'draws': 4},
}
RTOL = 1e-3  # For gradients as well.
COLUMNS, DRAWS = 8, 4
KERNEL, TORCH = 'kernel', 'PyTorch'


class Sizes(NamedTuple):
    """Rows of a table, of a batch and of a pool, and hidden units."""

    rows: int = 43_000
    batch: int = 512
    pool: int = 4_096
    hidden: int = 192


def checks(setup: Setup) -> Iterator[Part]:
    """Yield the comparisons of the kernel with its definition."""
    for size in SMALL_SIZES if setup.is_small else SIZES:
        for name, noise in NOISE.items():
            form = f'{" x ".join(map(str, size))}, {name}'
            run = partial(check_pool, size=size, noise=noise)
            yield Part(f'sum over a pool: {form}', run)


def times(setup: Setup) -> Iterator[Part]:
    """Yield the timings of a sum and of an epoch, with and without the kernel."""
    sizes = Sizes(1_500, 128, 512, 32) if setup.is_small else Sizes()
    tasks = {
        'sum over a pool': time_pool,
        f'{sizes.rows} rows, table epoch': time_epoch,
    }
    for task, run in tasks.items():
        for path in (KERNEL, TORCH):
            yield Part(
                f'{task}: {path}',
                partial(run, sizes=sizes, path=path),
                f'{task}: {KERNEL}',
            )


def draw_pairs(
    setup: Setup, size: tuple[int, int, int, int]
) -> tuple[PairScores, Tensor]:
    """Draw pairs with scores of order one, and messages of the sources."""
    num_targets, num_sources, channels, width = size
    rows = setup.randn(num_targets + num_sources, channels) / channels**0.25
    own = torch.arange(num_targets, device=setup.device) % num_sources
    dst, src = rows.split([num_targets, num_sources])
    pairs = PairScores(dst, src, Identity(), excluded=own)
    return pairs, setup.randn(num_sources, width)


def gradients(
    run: Callable[[Tensor, PairScores], Tensor], pairs: PairScores, h: Tensor
) -> list[Tensor]:
    """Return sums, and their gradients for targets, sources and messages."""
    leaves = [x.detach().requires_grad_() for x in (pairs.dst, pairs.src, h)]
    out = run(leaves[2], pairs._replace(dst=leaves[0], src=leaves[1]))
    factor = torch.linspace(-9, 9, out.numel(), dtype=torch.double).sin()
    loss = (out * factor.view_as(out).to(out)).sum()
    return [out, *torch.autograd.grad(loss, leaves)]


def check_pool(setup: Setup, size: tuple[int, int, int, int], noise: Found) -> Found:
    """Compare sums and gradients with the definition in double precision on the CPU."""
    if noise and not has_triton(setup.device):
        return {'status': 'skipped', 'reason': 'only the kernel has such noise'}
    pairs, h = draw_pairs(setup, size)
    found = gradients(
        lambda h, pairs: pool.pool_sum(h, pairs, **noise, generator=seeded(h)),
        pairs,
        h,
    )
    seed = draw_seed(setup.device, seeded(h)).cpu()
    exact, messages = draw_pairs(setup._replace(device=torch.device('cpu')), size)
    exact = exact._replace(dst=exact.dst.double(), src=exact.src.double())
    expected = gradients(
        lambda h, pairs: keyed_weights(pairs, **noise, seed=seed) @ h,
        exact,
        messages.double(),
    )
    both = zip(found, expected, strict=True)
    return {'differences': [difference(*pair, RTOL) for pair in both]}


def by(path: str) -> AbstractContextManager[Any]:
    """Select the kernel, if there is one, or PyTorch."""
    if path == KERNEL:
        return nullcontext()
    return mock.patch.object(pool, 'has_triton', return_value=False)


def time_pool(setup: Setup, sizes: Sizes, path: str) -> Found:
    """Time a sum of draws, and its backward pass."""
    channels, width = sizes.hidden // 2 + 1, sizes.hidden + 2
    size = sizes.batch, sizes.pool - sizes.batch, channels, width
    pairs, h = draw_pairs(setup, size)
    with by(path):
        found = timed(
            setup,
            lambda: gradients(
                lambda h, pairs: pool.pool_sum(h, pairs, draws=DRAWS), pairs, h
            ),
        )
    found['has_kernel'] = path == KERNEL and has_triton(setup.device)
    return rates(found, None, 6.0 * size[0] * size[1] * (channels + width))


def time_epoch(setup: Setup, sizes: Sizes, path: str) -> Found:
    """Time the steps of an epoch of a net for tables."""
    torch.manual_seed(setup.seed)
    # Periodic embeddings need another library.
    number = 32 if find_spec('rtdl_num_embeddings') else 0
    net = TableNet(COLUMNS, sizes.hidden, 1, num_frequencies=number, draws=DRAWS)
    net = net.to(setup.device).train()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    x, counts = setup.randn(sizes.rows, COLUMNS), list[int]()
    y = x[:, :2].square().sum(dim=1)

    def epoch() -> None:
        counts.clear()
        for batch, others in batches(sizes, setup.device):
            out = net((x[others], x[batch]), y[others])[:, 0]
            loss = (out - y[batch]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            float(loss.detach())  # The estimator also sums up losses.
            counts.append(len(batch) * len(others))

    with by(path):
        found = timed(setup, epoch) | {'steps': len(counts), 'frequencies': number}
    found['has_kernel'] = path == KERNEL and has_triton(setup.device)
    channels, width = sizes.hidden // 2 + 1, sizes.hidden + 2
    return rates(found, None, 6.0 * sum(counts) * (channels + width))


def batches(sizes: Sizes, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the batches of an epoch, each with a pool of other rows."""
    order, everyone = (torch.randperm(sizes.rows, device=device) for _ in range(2))
    is_in_batch = torch.zeros(sizes.rows, dtype=torch.bool, device=device)
    window = torch.arange(sizes.pool, device=device)
    for number, batch in enumerate(order.split(sizes.batch)):
        others = everyone[(window + number * sizes.batch) % sizes.rows]
        is_in_batch[batch] = True
        yield batch, others[~is_in_batch[others]]
        is_in_batch[batch] = False
