"""Count the calls of package functions in one step of a layer, and their files.

    python benchmark/calls.py [--verbose]

It also reports the size of the code: lines, files, public names, options of classes,
refusals of combinations (calls of ``check_absent``), docstrings, and ``Any``.

A step is the forward pass of a one-layer network on 400 nodes with warm caches.
*Switches* counts consecutive calls in different files; *up* counts calls of ``nn`` by
a function of ``ops``. Comprehensions count as calls where Python makes a frame for
them (up to 3.11). The script uses only public names, so it can measure any version of
the package.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import torch

import torch_geometric_gsl
from torch_geometric_gsl import GSLNet

PACKAGE = Path(torch_geometric_gsl.__file__).parent
ROOT = PACKAGE.parent
NODES = 400


class Call(NamedTuple):
    """A call: file and name of the function, and whether ``ops`` calls ``nn``."""

    file: str
    name: str
    is_up: bool


def calls_of(step: Callable[[], object]) -> list[Call]:
    """Run a step and return its calls of package functions, in order."""
    found: list[Call] = []

    def place(frame: FrameType | None) -> str:
        path = '' if frame is None else frame.f_code.co_filename
        inside = path.startswith(f'{PACKAGE}/')
        return path.removeprefix(f'{PACKAGE}/') if inside else ''

    def profile(frame: FrameType, event: str, _: object) -> None:
        file = place(frame)
        if event == 'call' and file:
            caller = frame.f_back
            while caller is not None and not place(caller):
                caller = caller.f_back
            is_up = file.startswith('nn/') and place(caller).startswith('ops/')
            found.append(Call(file, frame.f_code.co_name, is_up))

    sys.setprofile(profile)
    try:
        step()
    finally:
        sys.setprofile(None)
    return found


def measure(name: str) -> list[Call]:
    """Record the calls of a training step with a method, or of an evaluation."""
    is_training = name != 'evaluation'
    torch.manual_seed(0)
    x = torch.randn(NODES, 16)
    net: Any = getattr(GSLNet, 'paper', GSLNet)
    model = net(16, 8, 1, 3, method=name if is_training else 'auto')
    model.train(is_training)(x)
    return calls_of(lambda: model(x))


def sizes(folder: Path) -> tuple[int, str, str]:
    """Return the lines, the longest file and the longest function of a folder."""
    files, functions = [(0, '-')], [(0, '-')]
    for path in folder.rglob('*.py'):
        text = path.read_text(encoding='utf-8')
        files.append((len(text.splitlines()), str(path.relative_to(folder))))
        functions += [
            (_length(node), node.name)
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.FunctionDef)
        ]
    (most, file), (longest, function) = max(files), max(functions)
    lines = sum(count for count, _ in files)
    return lines, f'{file} ({most})', f'{function} ({longest})'


def counts(folder: Path) -> dict[str, float]:
    """Count files, public names, refusals and other properties of a package."""
    texts = [path.read_text(encoding='utf-8') for path in folder.rglob('*.py')]
    trees = [ast.parse(text) for text in texts]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docs = [
        node.body[0]
        for node in nodes
        if isinstance(node, documented) and ast.get_docstring(node)
    ]
    called = [
        node.func.id
        for node in nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    lines = sum(len(text.splitlines()) for text in texts)
    of_docs = sum((doc.end_lineno or 0) - doc.lineno + 1 for doc in docs)
    return {
        'files': len(texts),
        'public names': len(torch_geometric_gsl.__all__),
        'refusals of combinations': called.count('check_absent'),
        'lines of docstrings, %': 100 * of_docs / lines,
        "uses of 'Any'": sum(
            isinstance(node, ast.Name) and node.id == 'Any' for node in nodes
        ),
        "calls of 'getattr'": called.count('getattr'),
    }


def options(kind: type) -> int:
    """Count the arguments of a class, without ``*args`` and ``**kwargs``."""
    kinds = inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL
    parameters = inspect.signature(kind).parameters.values()
    return sum(parameter.kind not in kinds for parameter in parameters)


def _length(function: ast.FunctionDef) -> int:
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return (function.end_lineno or 0) - body[0].lineno + 1 if body else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--verbose', action='store_true', help='list the calls')
    verbose = parser.parse_args().verbose
    print(f'{"one step":<24}{"calls":>8}{"files":>8}{"switches":>10}{"up":>6}')
    for name in ('race', 'stream', 'dense', 'evaluation'):
        calls = measure(name)
        files = [call.file for call in calls]
        switches = sum(a != b for a, b in pairwise(files))
        up = sum(call.is_up for call in calls)
        print(f'{name:<24}{len(calls):>8}{len(set(files)):>8}{switches:>10}{up:>6}')
        if verbose:
            print(*(f'    {call.file}: {call.name}' for call in calls), sep='\n')
    print(f'\n{"folder":<24}{"lines":>8}  longest file, longest function without docs')
    others = (ROOT / name for name in ('examples', 'paper', 'test', 'benchmark'))
    for folder in (PACKAGE, *others):
        if folder.is_dir():
            lines, file, function = sizes(folder)
            print(f'{folder.name:<24}{lines:>8}  {file}, {function}')
    print()
    for name, count in counts(PACKAGE).items():
        print(
            f'{name:<24}{count:>8g}' if count % 1 == 0 else f'{name:<24}{count:>8.1f}'
        )
    public = [getattr(torch_geometric_gsl, n) for n in torch_geometric_gsl.__all__]
    kinds = [kind for kind in public if isinstance(kind, type)]
    kinds = [kind for kind in kinds if issubclass(kind, torch.nn.Module)]
    most = sorted((options(kind), kind.__name__) for kind in kinds)
    print('most options:', ', '.join(f'{name} {n}' for n, name in most[:-11:-1]))


if __name__ == '__main__':
    main()
