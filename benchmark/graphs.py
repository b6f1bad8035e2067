"""Draw graphs over a grid of settings, and compare two versions of the package.

    PYTHONPATH=old python benchmark/graphs.py draw old.pt
    PYTHONPATH=new python benchmark/graphs.py draw new.pt
    python benchmark/graphs.py compare old.pt new.pt

Each setting is drawn as a graph and as a sum, in training and in evaluation mode. Only
public names are used. The comparison counts settings whose results are equal bit by
bit, equal up to rounding, or different, with the reason for which they may differ; it
fails if one differs without a reason.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torch_geometric_gsl import GumbelKNNSampler, resolve_similarity

SIZES = (60, 400)
METHODS = ('auto', 'dense', 'race', 'stream')
SIMILARITIES = (
    'linear',
    'difference',
    'gaussian',
    'neural_gaussian',
    'heat_kernel',
    'cosine',
    'uniform',
)
TEMPERATURES = (0.1, 0.25, 1.0, 3.0)
SCALES = (1.0, 5.0, 20.0)
FORMS = ('all', 'batch', 'edges')
VARIANTS: tuple[tuple[str, bool], ...] = (
    ('', False),
    ('hard', True),
    ('replace', False),
    ('loop', False),
)


class Setting(NamedTuple):
    """One point of the grid."""

    size: int
    method: str
    similarity: str
    tau: float
    scale: float
    form: str
    seed: int
    num_tail: int | None
    variant: tuple[str, bool]


Result = list[Tensor] | str


def grid() -> Iterator[Setting]:
    """Yield the settings; variants and seeds are not multiplied with each other."""
    plain, *variants = VARIANTS
    kinds: list[tuple[int, int | None, tuple[str, bool]]]
    kinds = [(0, None, plain), (1, None, plain), (0, 0, plain)]
    kinds += [(0, None, variant) for variant in variants]
    points = product(SIZES, METHODS, SIMILARITIES, TEMPERATURES, SCALES, FORMS, kinds)
    for size, method, similarity, tau, scale, form, kind in points:
        yield Setting(size, method, similarity, tau, scale, form, *kind)


def candidates(form: str, n: int) -> dict[str, Any]:
    """Return what restricts the candidates."""
    if form == 'batch':
        return {'batch': torch.arange(n) // (n // 4)}
    generator = torch.Generator().manual_seed(1)
    edges = torch.randint(0, n, (2, 20 * n), generator=generator)
    return {'edge_index': edges} if form == 'edges' else {}


def draw(setting: Setting) -> Result:
    """Return graphs and sums of a setting, or the error that it raises."""
    generator = torch.Generator().manual_seed(setting.size)
    x = torch.randn(setting.size, 8, generator=generator)
    among = candidates(setting.form, setting.size)
    name, value = setting.variant
    variant: dict[str, Any] = {name: value} if name else {}
    torch.manual_seed(3)
    try:
        sampler = GumbelKNNSampler(
            resolve_similarity(setting.similarity, 8),
            k=3,
            tau=setting.tau,
            scale=setting.scale,
            method=setting.method,
            num_tail=setting.num_tail,
            **variant,
        )
        found: list[Tensor] = []
        for is_training in (True, False):
            sampler.train(is_training)
            torch.manual_seed(setting.seed)
            found += [part.detach().clone() for part in sampler(x, **among)]
            torch.manual_seed(setting.seed)
            found.append(sampler.propagate(x, x, **among).detach().clone())
    except (ValueError, OverflowError) as error:
        return f'{type(error).__name__}: {error}'
    return found


def verdict(old: Result, new: Result) -> str:
    """Return how two results compare."""
    if isinstance(old, str) or isinstance(new, str):
        return 'equal' if old == new else 'different'
    if any(a.shape != b.shape for a, b in zip(old, new, strict=True)):
        return 'different'
    if all(torch.equal(a, b) for a, b in zip(old, new, strict=True)):
        return 'equal'
    close = (torch.allclose(a, b, 1e-5, 1e-6) for a, b in zip(old, new, strict=True))
    return 'equal up to rounding' if all(close) else 'different'


def reason(setting: Setting, old: Result, new: Result) -> str:
    """Return why a setting may differ; empty if it may not."""
    if isinstance(old, str) and old.startswith('OverflowError'):
        return 'raised an OverflowError'
    if setting.method == 'race' and isinstance(new, str):
        return 'a forced race that cannot serve raises'
    if setting.method == 'stream' and setting.form == 'edges':
        return 'a forced stream of given candidates raises'
    if setting.method == 'stream' and setting.form == 'batch':
        return 'a forced stream of a batch streams'
    if setting.method == 'auto' and setting.tau > 1:
        return 'beyond tau = 1 dense serves'
    if setting.num_tail is None and setting.variant != ('replace', False):
        return 'sources that arrived leave the tail'
    return ''


def compare(old: dict[Setting, Result], new: dict[Setting, Result]) -> int:
    """Print the table, and return the number of differences without a reason."""
    count: Counter[tuple[str, str]] = Counter()
    unexplained = 0
    for setting, result in old.items():
        found = verdict(result, new[setting])
        why = reason(setting, result, new[setting]) if found == 'different' else ''
        count[found, why] += 1
        if found == 'different' and not why:
            unexplained += 1
            print('without a reason:', setting)
    for (found, why), number in sorted(count.items()):
        print(f'{number:>6}  {found}{": " if why else ""}{why}')
    return unexplained


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('command', choices=['draw', 'compare'])
    parser.add_argument('files', nargs='+', help='the file to write, or two to compare')
    args = parser.parse_args()
    warnings.simplefilter('ignore')
    if args.command == 'draw':
        # Plain tuples and tensors: files are read without executing what they hold.
        torch.save({tuple(s): draw(s) for s in grid()}, args.files[0])
        return
    old, new = (
        {Setting(*key): value for key, value in torch.load(file).items()}
        for file in args.files
    )
    sys.exit(1 if compare(old, new) else 0)


if __name__ == '__main__':
    main()
