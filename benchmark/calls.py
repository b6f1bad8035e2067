"""Count the functions and files of one step, and the size of the repository.

    python benchmark/calls.py [--verbose]

A step is the forward pass of a layer on 300 rows, or on 3,000, for which it searches
bounds of a race, the prediction of a network of two layers, or a step of a network for
tables on 400 rows in two blocks, with warm caches. *Functions* and *files* of the
package count once, however often they are called, which *calls* counts; *switches*
counts consecutive calls in different files, and *up* the calls of ``nn`` by a function
of ``ops``. Comprehensions count as functions where Python makes a frame for them (up to
3.11). The script uses only public names, so it can measure any version of the package:
lines and files of each folder, public names, refusals of combinations (calls of
``check_absent``), and ``Any``.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import torch

import torch_geometric_gsl
from torch_geometric_gsl import GSLNet, LatentGraphConv, TableNet

PACKAGE = Path(torch_geometric_gsl.__file__).parent
ROOT = PACKAGE.parent


class Call(NamedTuple):
    """A call: file and name of the function, and whether ``ops`` calls ``nn``."""

    file: str
    name: str
    is_up: bool


def calls_of(step: Callable[[], object]) -> list[Call]:
    """Run a step and return its calls of package functions, in order."""
    calls: list[Call] = []

    def file_of(frame: FrameType | None) -> str:
        path = '' if frame is None else frame.f_code.co_filename
        inside = path.startswith(f'{PACKAGE}/')
        return path.removeprefix(f'{PACKAGE}/') if inside else ''

    def is_caller(frame: FrameType) -> bool:
        return bool(file_of(frame)) and frame.f_code.co_name != 'wrapper'

    def profile(frame: FrameType, event: str, _: object) -> None:
        file = file_of(frame)
        if event == 'call' and file:
            caller = frame.f_back
            while caller is not None and not is_caller(caller):
                caller = caller.f_back
            is_up = file.startswith('nn/') and file_of(caller).startswith('ops/')
            calls.append(Call(file, frame.f_code.co_name, is_up))

    sys.setprofile(profile)
    try:
        step()
    finally:
        sys.setprofile(None)
    return calls


def layer_step(*, is_training: bool, num_rows: int = 300) -> list[Call]:
    """Record the calls of a layer with its defaults."""
    torch.manual_seed(0)
    x, conv = torch.randn(num_rows, 16), LatentGraphConv(16, 8)
    for _ in range(2):  # The first call compiles.
        conv.train(is_training)(x)
    return calls_of(lambda: conv(x))


def prediction() -> list[Call]:
    """Record the calls of a prediction by two layers with their defaults."""
    torch.manual_seed(0)
    x, net = torch.randn(300, 16), GSLNet(16, 32, 2, 7).eval()
    net.predict(x)
    return calls_of(lambda: net.predict(x))


def table_step() -> list[Call]:
    """Record the calls of a training step on two blocks of rows of a table."""
    torch.manual_seed(0)
    x, y, net = torch.randn(400, 8), torch.randn(400), TableNet(8, 16, 1)
    batch = torch.arange(400) // 200
    net(x, y, batch=batch)
    return calls_of(lambda: net(x, y, batch=batch))


STEPS: dict[str, Callable[[], list[Call]]] = {
    'training': lambda: layer_step(is_training=True),
    'training, 3000 rows': lambda: layer_step(is_training=True, num_rows=3000),
    'evaluation': lambda: layer_step(is_training=False),
    'prediction': prediction,
    'table': table_step,
}


def num_functions(calls: list[Call]) -> int:
    return len({(call.file, call.name) for call in calls})


def num_files(calls: list[Call]) -> int:
    return len({call.file for call in calls})


def sizes(folder: Path, suffix: str = '.py') -> tuple[int, int]:
    """Return the lines and the files of a folder, without what is made from others."""
    made = {'generated', 'auto_gallery', '_build'}
    paths = [path for path in folder.rglob(f'*{suffix}') if made.isdisjoint(path.parts)]
    return sum(len(path.read_text('utf-8').splitlines()) for path in paths), len(paths)


def counts(folder: Path) -> dict[str, int]:
    """Count public names, named tuples, refusals and other properties of a package."""
    trees = {
        path: ast.parse(path.read_text(encoding='utf-8'))
        for path in folder.rglob('*.py')
    }
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    called = [
        node.func.id
        for node in nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    return {
        'public names': len(torch_geometric_gsl.__all__),
        'named tuples of the sampler': sum(
            is_named_tuple(node)
            for path, tree in trees.items()
            if path.parent.name == 'sampler'
            for node in ast.walk(tree)
        ),
        'refusals of combinations': called.count('check_absent'),
        "uses of 'Any'": sum(
            isinstance(node, ast.Name) and node.id == 'Any' for node in nodes
        ),
        "calls of 'getattr'": called.count('getattr'),
    }


def is_named_tuple(node: ast.AST) -> bool:
    return isinstance(node, ast.ClassDef) and any(
        isinstance(base, ast.Name) and base.id == 'NamedTuple' for base in node.bases
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--verbose', action='store_true', help='list the calls')
    verbose = parser.parse_args().verbose
    titles = f'{"functions":>10}{"files":>8}{"calls":>8}{"switches":>10}{"up":>6}'
    print(f'{"step":<24}{titles}')
    for name, step in STEPS.items():
        calls = step()
        switches = sum(a.file != b.file for a, b in pairwise(calls))
        up = sum(call.is_up for call in calls)
        size = f'{num_functions(calls):>10}{num_files(calls):>8}{len(calls):>8}'
        print(f'{name:<24}{size}{switches:>10}{up:>6}')
        if verbose:
            print(*(f'    {call.file}: {call.name}' for call in calls), sep='\n')
    print(f'\n{"folder":<24}{"lines":>10}{"files":>8}')
    for name in (PACKAGE.name, 'test', 'paper', 'benchmark', 'examples'):
        lines, files = sizes(ROOT / name)
        print(f'{name:<24}{lines:>10}{files:>8}')
    lines, files = sizes(ROOT / 'docs', '.rst')
    print(f'{"docs, rst":<24}{lines:>10}{files:>8}\n')
    for name, count in counts(PACKAGE).items():
        print(f'{name:<30}{count:>4}')


if __name__ == '__main__':
    main()
