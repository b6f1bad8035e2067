"""Compare samples of `method='race'` with those of `method='dense'`, the definition.

    python benchmark/laws.py
    python benchmark/laws.py --repeats 1000 --out laws.json
    python benchmark/laws.py --similarities linear cosine --tau 0.25 --scale 1

Both methods sample graphs between the same targets and sources, from independent
noise. A row of the table holds two-sample z-scores of the means of: a loss with second
moments of the neighbourhoods, its gradient (one score for each parameter), a target's
mean similarity to its neighbours, its largest weight and its entropy. The relative
difference of the means follows each score: it shows whether a significant difference
is large.

The entropy is measured with every later arrival listed: by default a few sources
represent all later ones, and their entropy differs on purpose. Replacing weights by
their mean increases the entropy, so a difference from the definition remains. The race
must keep the entropy of exact first arrivals with the same mean of the later ones,
which `method='stream'` finds among all pairs: the second score. This score is missing
where a race has tighter bounds than one for all scores: it draws the sources of its
tail in proportion to these bounds, which changes their weights.

The exit status is 1 if any score except the first entropy score exceeds the bound.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
from record import at_least, environment, line, write_json
from torch import Tensor
from tqdm import tqdm

from torch_geometric_gsl.nn import Budget, GumbelKNNSampler
from torch_geometric_gsl.nn.similarity.resolver import SIMILARITIES, resolve_similarity

CHANNELS, EMBEDDING_CHANNELS, MESSAGES, K = 8, 4, 3, 2
# Enough sources that few of them arrive twice before a race has its arrivals.
SOURCES, TARGETS = 4096, 16
HEADER = (
    *('similarity', 'tau', 'scale', 'draws', 'sources', 'targets', 'z loss'),
    *('z similarity', 'z largest weight', 'z entropy', 'z entropy, stream'),
    *('rms z gradient', 'max z gradient', 'gradient variance ratio'),
)
# The probability that a correct method exceeds the bound anywhere in the table.
ERROR_RATE = 0.01
# The quantity that differs from the definition on purpose.
DIFFERS = 'entropy'
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


class Comparison(NamedTuple):
    """The z-scores of one quantity, and the relative differences of its means."""

    z: list[float]
    difference: list[float]

    @property
    def largest(self) -> float:
        return max(map(abs, self.z))

    @property
    def rms(self) -> float:
        return math.sqrt(statistics.fmean(z * z for z in self.z))

    def plain(self) -> dict[str, list[float | None]]:
        """Round to four digits; NaN and infinity, which JSON lacks, become `None`."""
        return {
            name: [float(f'{z:.4g}') if math.isfinite(z) else None for z in values]
            for name, values in self._asdict().items()
        }


def compare(dense: Tensor, race: Tensor) -> Comparison:
    """Return two-sample z-scores of columns; the rows are independent repeats."""
    difference = race.mean(0) - dense.mean(0)
    error = (race.var(0) / race.size(0) + dense.var(0) / dense.size(0)).sqrt()
    sizes = error, dense.mean(0).abs()
    # Equal means have no difference, also where nothing varies or both are zero.
    z_and_relative = (
        torch.where(difference == 0, 0, difference / size) for size in sizes
    )
    return Comparison(*(column.tolist() for column in z_and_relative))


def make_sampler(setting: Setting, method: str, **kwargs: Any) -> GumbelKNNSampler:
    """Build a sampler; its similarity does not depend on the method."""
    torch.manual_seed(0)
    kwargs |= setting._asdict() | {'k': K, 'method': method}
    similarity = resolve_similarity(
        kwargs.pop('similarity'), CHANNELS, out_channels=EMBEDDING_CHANNELS
    )
    return GumbelKNNSampler.paper(similarity, **kwargs)


def make_problem() -> Problem:
    """Draw features of sources and targets, messages and weights of the loss."""
    generator = torch.Generator().manual_seed(1)
    x_src = torch.randn(SOURCES, CHANNELS, generator=generator)
    h = torch.randn(SOURCES, MESSAGES, generator=generator)
    return Problem(
        x_src,
        torch.randn(TARGETS, CHANNELS, generator=generator),
        h + x_src[:, :MESSAGES],
        torch.rand(TARGETS, generator=generator),
    )


def losses(
    sampler: GumbelKNNSampler, problem: Problem, repeats: int, seed: int
) -> tuple[Tensor, Tensor]:
    """Compute the loss of each graph and its gradient for all parameters."""
    generator = torch.Generator().manual_seed(seed)
    loss, gradient, pair = [], [], (problem.x_src, problem.x_dst)
    for _ in range(repeats):
        out = sampler.propagate(pair, problem.h, generator=generator)
        value = out.square().mean() + (out[:, 0] * problem.linear).mean()
        gradients = torch.autograd.grad(value, list(sampler.parameters()))
        loss.append(value.detach())
        gradient.append(torch.cat([slope.flatten() for slope in gradients]))
    return torch.stack(loss).double().unsqueeze(1), torch.stack(gradient).double()


@torch.no_grad()
def shapes(
    sampler: GumbelKNNSampler, problem: Problem, repeats: int, seed: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the mean similarity, largest weight and entropy of each graph."""
    generator = torch.Generator().manual_seed(seed)
    pair, num_targets = (problem.x_src, problem.x_dst), problem.x_dst.size(0)
    similarity, means = sampler.similarity(pair), []
    for _ in range(repeats):
        (source, target), weight = sampler(pair, generator=generator)
        zero = weight.new_zeros(num_targets)
        quantities = (
            weight * similarity[target, source],
            zero.scatter_reduce(0, target, weight, 'amax'),
            torch.special.entr(weight),
        )
        means.append(torch.stack([values.sum() / num_targets for values in quantities]))
    similarities, largest, entropies = torch.stack(means).double().split(1, dim=1)
    return similarities, largest, entropies


def run_setting(setting: Setting, repeats: int, seed: int) -> dict[str, Any]:
    """Compute one row of the table; `seed` and the nine seeds after it are its own."""
    problem = make_problem()
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
        # Their noise is smaller than that of gradients: half the repeats suffice.
        row |= compare_shapes(setting, problem, repeats // 2, seed + 2)
    return row


def compare_shapes(
    setting: Setting, problem: Problem, repeats: int, seed: int
) -> dict[str, Comparison]:
    """Compare similarities, largest weights and entropies of relaxed draws."""
    everything = {'budget': Budget(tail=problem.x_src.size(0))}
    samplers = (
        make_sampler(setting, 'dense'),
        make_sampler(setting, 'race'),
        make_sampler(setting, 'race', **everything),
        make_sampler(setting, 'stream', **everything),
    )
    dense, race, listed, stream = (
        shapes(each, problem, repeats, seed + i) for i, each in enumerate(samplers)
    )
    rows_compared = {
        'similarity_mean': compare(dense[0], race[0]),
        'largest': compare(dense[1], race[1]),
        'entropy': compare(dense[2], listed[2]),
    }
    plan = samplers[1].plan((problem.x_src, problem.x_dst))
    if 'under' not in plan.reason:  # One bound serves all scores.
        rows_compared['entropy_stream'] = compare(stream[2], listed[2])
    return rows_compared


def comparisons(row: dict[str, Any]) -> dict[str, Comparison]:
    """Return the quantities that a row compares, by name."""
    return {
        name: comparison
        for name, comparison in row.items()
        if isinstance(comparison, Comparison)
    }


def bonferroni_bound(count: int, degrees: int) -> float:
    """Return the bound that the largest of `count` |z| exceeds at `ERROR_RATE`."""
    z = statistics.NormalDist().inv_cdf(1 - ERROR_RATE / 2 / count)
    # Student's quantile, to first order: variances are estimated, too.
    return z + (z**3 + z) / (4 * degrees)


def verdict(rows: list[dict[str, Any]], repeats: int) -> tuple[float, set[str], str]:
    """Return the bound, the quantities that exceed it, and a summary."""
    every = [pair for row in rows for pair in comparisons(row).items()]
    count = sum(len(each.z) for _, each in every)
    bound = bonferroni_bound(count, 2 * (repeats // 2 - 1))
    lines, above = [], set()
    for name in dict.fromkeys(name for name, _ in every):
        z = [abs(z) for compared, each in every if compared == name for z in each.z]
        over = sum(not value <= bound for value in z)  # NaN exceeds it, too.
        says = f'{over} ABOVE THE BOUND' if over else 'all below the bound'
        says += ', as documented' if over and name == DIFFERS else ''
        lines.append(f'- {name}: {says} (of {len(z)}; largest |z| {max(z):.2f})')
        above |= {name} if over else set()
    ratio = statistics.fmean(row['variance_ratio'] for row in rows)
    text = (
        f'{count} two-sided comparisons with {repeats} graphs of either method (half '
        f'as many without gradients): a correct method exceeds |z| = {bound:.2f} '
        f'anywhere with a probability of at most {ERROR_RATE:.0%} (Bonferroni).'
    )
    lines.append(f'- gradient variance ratio: {ratio:.3f} on average')
    return bound, above, '\n'.join([text, *lines])


def cell(comparison: Comparison | None) -> str:
    if comparison is None:
        return '-'
    return f'{comparison.z[0]:+.2f} ({comparison.difference[0]:+.2%})'


def markdown(rows: list[dict[str, Any]]) -> str:
    """Return the table, with relative differences in brackets."""
    lines = [line(HEADER), f'|{"---|" * len(HEADER)}']
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
        lines.append(line(cells))
    return '\n'.join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or '').splitlines()[0])
    add, names = parser.add_argument, list(SIMILARITIES)
    add('--repeats', type=at_least(20), default=100)
    add('--out', type=Path)
    add('--similarities', nargs='+', choices=names, default=names)
    add('--tau', nargs='+', type=float, default=[0.25, 0.5, 0.75, 1.0])
    add('--scale', nargs='+', type=float, default=[1.0, 3.0])
    args = parser.parse_args(argv)
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
        plain = [
            row
            | {
                name: comparison.plain()
                for name, comparison in comparisons(row).items()
            }
            for row in rows
        ]
        result = {'error_rate': ERROR_RATE, 'bound': bound, 'rows': plain}
        write_json(args.out, about | result)
    if above - {DIFFERS}:
        sys.exit(1)


if __name__ == '__main__':
    main()
