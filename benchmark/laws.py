"""Compare the law of `method='race'` with that of `method='dense'`, the definition.

    python benchmark/laws.py
    python benchmark/laws.py --repeats 1000 --out laws.json
    python benchmark/laws.py --similarities linear cosine --tau 0.25 --scale 1

Both methods sample graphs between the same targets and sources, from independent
noise, and a row of the table holds the two-sample z-scores of what they give: the mean
of a loss with second moments of the neighbourhoods and of its gradient (one score for
each parameter), and of a target's mean similarity to its neighbours, largest weight and
entropy. The relative difference of the means stands beside a score, so that one that
many repeats make significant can be told from one that matters. A race needs more than
four times as many sources as it has proposals: their number follows from that.

The entropy is measured with every later arrival listed: the few sources that stand for
all later ones by default have another one, on purpose. Weights that are replaced by
their mean have the larger entropy, so that a difference from the definition remains.
What the race may not change is the entropy of exact first arrivals with the same mean
of the later ones, which `method='stream'` finds among all pairs: the second score.

The exit status is 1 if any score but the first of the entropy exceeds the bound.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
from provenance import environment
from report import write_json
from torch import Tensor
from tqdm import tqdm
from zscores import DIFFERS, ERROR_RATE, Comparison, compare, comparisons, verdict

from torch_geometric_gsl.nn import GumbelKNNSampler
from torch_geometric_gsl.nn.similarity.resolver import SIMILARITIES, resolve_similarity

CHANNELS, EMBEDDING_CHANNELS, MESSAGES, K = 8, 4, 3, 2
# About as many pairs a call, so that settings take about as long.
PAIRS, MIN_TARGETS, MAX_TARGETS = 2**16, 8, 64
HEADER = (
    'similarity | tau | scale | draws | sources | targets | z loss | z similarity | '
    'z largest weight | z entropy | z entropy, stream | rms z gradient | '
    'max z gradient | gradient variance ratio'
)
SCALARS = ('loss', 'similarity_mean', 'largest', 'entropy', 'entropy_stream')


class Setting(NamedTuple):
    """One point of the grid."""

    similarity: str
    tau: float
    scale: float
    hard: bool


class Problem(NamedTuple):
    """Features of sources and targets, messages, and the weights of the loss."""

    x_src: Tensor
    x_dst: Tensor
    h: Tensor
    linear: Tensor


def make_sampler(setting: Setting, method: str, **kwargs: Any) -> GumbelKNNSampler:
    """Build a sampler, whose similarity is the same whatever the method."""
    torch.manual_seed(0)
    similarity = resolve_similarity(
        setting.similarity, CHANNELS, out_channels=EMBEDDING_CHANNELS
    )
    return GumbelKNNSampler(
        similarity,
        k=K,
        tau=setting.tau,
        scale=setting.scale,
        hard=setting.hard,
        method=method,
        **kwargs,
    )


def make_problem(setting: Setting) -> Problem:
    """Draw a problem with just so many sources that the sampler races."""
    sampler = make_sampler(setting, 'race')
    generator = torch.Generator().manual_seed(1)
    num_sources = 2
    while True:
        x_src = torch.randn(num_sources, CHANNELS, generator=generator)
        with contextlib.suppress(ValueError):  # Too few for a race.
            sampler.plan((x_src, x_src[:1]))
            break
        num_sources = math.ceil(1.1 * num_sources)
    num_targets = min(max(PAIRS // num_sources, MIN_TARGETS), MAX_TARGETS)
    h = torch.randn(num_sources, MESSAGES, generator=generator)
    return Problem(
        x_src,
        torch.randn(num_targets, CHANNELS, generator=generator),
        h + x_src[:, :MESSAGES],
        torch.rand(num_targets, generator=generator),
    )


def losses(
    sampler: GumbelKNNSampler, problem: Problem, repeats: int, seed: int
) -> tuple[Tensor, Tensor]:
    """Return a loss and its gradient by all parameters, for each graph."""
    generator = torch.Generator().manual_seed(seed)
    loss, gradient, pair = [], [], (problem.x_src, problem.x_dst)
    for _ in range(repeats):
        out = sampler.propagate(pair, problem.h, generator=generator)
        value = out.square().mean() + (out[:, 0] * problem.linear).mean()
        parts = torch.autograd.grad(value, list(sampler.parameters()))
        loss.append(value.detach())
        gradient.append(torch.cat([part.flatten() for part in parts]))
    return torch.stack(loss).double().unsqueeze(1), torch.stack(gradient).double()


@torch.no_grad()
def shapes(
    sampler: GumbelKNNSampler, problem: Problem, repeats: int, seed: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean similarity, largest weight and entropy, for each graph."""
    generator = torch.Generator().manual_seed(seed)
    pair, num_targets = (problem.x_src, problem.x_dst), problem.x_dst.size(0)
    similarity, found = sampler.similarity(pair), []
    for _ in range(repeats):
        (source, target), weight = sampler(pair, generator=generator)
        zero = weight.new_zeros(num_targets)
        parts = (
            weight * similarity[target, source],
            zero.scatter_reduce(0, target, weight, 'amax'),
            torch.special.entr(weight),
        )
        found.append(torch.stack([part.sum() / num_targets for part in parts]))
    similarities, largest, entropies = torch.stack(found).double().split(1, dim=1)
    return similarities, largest, entropies


def run_setting(setting: Setting, repeats: int, seed: int) -> dict[str, Any]:
    """Return one row of the table; a seed is followed by nine of its own."""
    problem = make_problem(setting)
    dense, race = make_sampler(setting, 'dense'), make_sampler(setting, 'race')
    loss, gradient = losses(dense, problem, repeats, seed)
    race_loss, race_gradient = losses(race, problem, repeats, seed + 1)
    row: dict[str, Any] = {
        **setting._asdict(),
        'num_sources': problem.x_src.size(0),
        'num_targets': problem.x_dst.size(0),
        'loss': compare(loss, race_loss),
        'gradient': compare(gradient, race_gradient),
        'variance_ratio': float(race_gradient.var(0).sum() / gradient.var(0).sum()),
    }
    if not setting.hard:
        # Their noise is small beside that of gradients: half the repeats do.
        row |= compare_shapes(setting, problem, repeats // 2, seed + 2)
    return row


def compare_shapes(
    setting: Setting, problem: Problem, repeats: int, seed: int
) -> dict[str, Comparison]:
    """Compare similarities, largest weights and entropies of relaxed draws."""
    everything: dict[str, Any] = {'num_tail': problem.x_src.size(0)}
    options: list[tuple[str, dict[str, Any]]] = [
        ('dense', {}),
        ('race', {}),
        ('race', everything),
        ('stream', everything),
    ]
    dense, race, listed, stream = (
        shapes(make_sampler(setting, method, **kwargs), problem, repeats, seed + i)
        for i, (method, kwargs) in enumerate(options)
    )
    return {
        'similarity_mean': compare(dense[0], race[0]),
        'largest': compare(dense[1], race[1]),
        'entropy': compare(dense[2], listed[2]),
        'entropy_stream': compare(stream[2], listed[2]),
    }


def cell(comparison: Comparison | None) -> str:
    if comparison is None:
        return '-'
    return f'{comparison.z[0]:+.2f} ({comparison.difference[0]:+.2%})'


def markdown(rows: list[dict[str, Any]]) -> str:
    """Return the table; a relative difference stands in brackets."""
    lines = [f'| {HEADER} |', '|' + '---|' * (1 + HEADER.count('|'))]
    for row in rows:
        cells = [
            row['similarity'],
            f'{row["tau"]:g}',
            f'{row["scale"]:g}',
            'hard' if row['hard'] else 'relaxed',
            str(row['num_sources']),
            str(row['num_targets']),
            *(cell(row.get(name)) for name in SCALARS),
            f'{row["gradient"].rms:.2f}',
            f'{row["gradient"].largest:.2f}',
            f'{row["variance_ratio"]:.3f}',
        ]
        lines.append('| ' + ' | '.join(cells) + ' |')
    return '\n'.join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or '').splitlines()[0])
    parser.add_argument('--repeats', type=int, default=100)
    parser.add_argument('--out', type=Path)
    names = list(SIMILARITIES)
    parser.add_argument('--similarities', nargs='+', choices=names, default=names)
    parser.add_argument('--tau', nargs='+', type=float, default=[0.25, 0.5, 0.75, 1.0])
    parser.add_argument('--scale', nargs='+', type=float, default=[1.0, 3.0])
    args = parser.parse_args(argv)
    if args.repeats < 20:
        parser.error(f"'--repeats' must be at least 20 (got {args.repeats})")
    if min(args.tau + args.scale) <= 0:
        parser.error(
            f"'--tau' and '--scale' must be positive (got {args.tau} and {args.scale})"
        )
    torch.set_num_threads(1)
    about = environment(repeats=args.repeats, seed='10 times the place of the row')
    grid = product(args.similarities, args.tau, args.scale, [False, True])
    rows = [
        run_setting(Setting(*point), args.repeats, seed=10 * i)
        for i, point in enumerate(tqdm(list(grid)))
    ]
    bound, above, says = verdict(rows, args.repeats)
    print(f'{markdown(rows)}\n\n{says}')
    if args.out is not None:
        # All z-scores, those of each parameter included.
        plain = [row | {n: c.plain() for n, c in comparisons(row)} for row in rows]
        result = {'error_rate': ERROR_RATE, 'bound': bound, 'rows': plain}
        write_json(args.out, about | result)
    if above - {DIFFERS}:
        sys.exit(1)


if __name__ == '__main__':
    main()
