"""Sample graphs over a grid of settings, and compare two versions of the package.

    PYTHONPATH=old python benchmark/graphs.py draw old.pt
    PYTHONPATH=new python benchmark/graphs.py draw new.pt
    python benchmark/graphs.py compare old.pt new.pt

Each setting gives a graph and a sum, in training and in evaluation mode. The script
uses only public names. The comparison counts settings whose results are equal bit by
bit, equal up to rounding, or different; it fails if any is different.
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

from torch_geometric_gsl import Budget, GumbelKNNSampler, resolve_similarity
from torch_geometric_gsl.nn.similarity.resolver import SIMILARITIES

SIZES = (60, 400)
METHODS = ('auto', 'dense', 'race', 'stream')
NAMES = (*SIMILARITIES, 'uniform')
TEMPERATURES = (0.1, 0.25, 1.0, 3.0)
SCALES = (1.0, 5.0, 20.0)
FORMS = ('all', 'batch', 'edges')
PLAIN = ('', False)
# Seed, `num_tail` and a variant, which are not crossed with each other.
KINDS: tuple[tuple[int, int | None, tuple[str, bool]], ...] = (
    (0, None, PLAIN),
    (1, None, PLAIN),
    (0, 0, PLAIN),
    (0, None, ('hard', True)),
    (0, None, ('replace', False)),
    (0, None, ('loop', False)),
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
    points = product(SIZES, METHODS, NAMES, TEMPERATURES, SCALES, FORMS, KINDS)
    for size, method, similarity, tau, scale, form, kind in points:
        yield Setting(size, method, similarity, tau, scale, form, *kind)


def candidates(form: str, n: int) -> dict[str, Any]:
    """Return the arguments that restrict the candidates."""
    if form == 'batch':
        return {'batch': torch.arange(n) // (n // 4)}
    generator = torch.Generator().manual_seed(1)
    edges = torch.randint(0, n, (2, 20 * n), generator=generator)
    return {'edge_index': edges} if form == 'edges' else {}


def draw(setting: Setting) -> Result:
    """Sample the graphs and sums of a setting, or return the error that it raises."""
    generator = torch.Generator().manual_seed(setting.size)
    x = torch.randn(setting.size, 8, generator=generator)
    among = candidates(setting.form, setting.size)
    name, value = setting.variant
    variant: dict[str, Any] = {name: value} if name else {}
    torch.manual_seed(3)
    try:
        sampler = GumbelKNNSampler.paper(
            resolve_similarity(setting.similarity, 8),
            k=3,
            tau=setting.tau,
            scale=setting.scale,
            method=setting.method,
            budget=Budget(tail=setting.num_tail),
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
    """Classify two results as equal, equal up to rounding, or different."""
    if isinstance(old, str) or isinstance(new, str):
        return 'equal' if old == new else 'different'
    if any(a.shape != b.shape for a, b in zip(old, new, strict=True)):
        return 'different'
    if all(torch.equal(a, b) for a, b in zip(old, new, strict=True)):
        return 'equal'
    close = (torch.allclose(a, b, 1e-5, 1e-6) for a, b in zip(old, new, strict=True))
    return 'equal up to rounding' if all(close) else 'different'


def compare(old: dict[Setting, Result], new: dict[Setting, Result]) -> int:
    """Print the table, and return the number of differences."""
    found = {setting: verdict(result, new[setting]) for setting, result in old.items()}
    different = [setting for setting, text in found.items() if text == 'different']
    for setting in different:
        print('different:', setting)
    for text, number in sorted(Counter(found.values()).items()):
        print(f'{number:>6}  {text}')
    return len(different)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('command', choices=['draw', 'compare'])
    parser.add_argument('files', nargs='+', help='the file to write, or two to compare')
    args = parser.parse_args()
    warnings.simplefilter('ignore')
    if args.command == 'draw':
        # Plain tuples and tensors: reading them executes no code of the file.
        torch.save({tuple(s): draw(s) for s in grid()}, args.files[0])
        return
    old, new = (
        {Setting(*key): value for key, value in torch.load(file).items()}
        for file in args.files
    )
    sys.exit(1 if compare(old, new) else 0)


if __name__ == '__main__':
    main()
