"""The floors of the package: who may import whom."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import torch_geometric_gsl

PACKAGE = 'torch_geometric_gsl'
ROOT = Path(torch_geometric_gsl.__file__).parent

FLOORS = {
    'typing': 0,
    '_checks': 0,
    '_columns': 0,
    '_files': 0,
    '_warnings': 0,
    'ops': 1,
    'distributed': 6,
    'datasets': 1,
    'nn.clouds': 1,
    'nn.embeddings': 1,
    'nn.linear': 1,
    'nn.one_type': 1,
    'nn.similarity': 2,
    'nn.sampler': 3,
    'nn.conv': 4,
    'nn.nearest_neighbours': 4,
    'nn.models': 5,
    'nn.self_supervision': 5,
    'transforms': 5,
    'diagnostics': 7,
    'visualization': 7,
    'baselines': 6,
    'sklearn': 7,
}


def is_in(module, package):
    return module == package or module.startswith(f'{package}.')


def floor_of(module):
    """The floor of a module, given by its name inside the package."""
    for unit, floor in FLOORS.items():
        if is_in(module, unit):
            return floor
    return None


def names(root):
    """All modules by their names inside the package; the root is ''."""
    found = {}
    for path in sorted(root.rglob('*.py')):
        parts = path.relative_to(root).with_suffix('').parts
        found['.'.join(parts[:-1] if parts[-1] == '__init__' else parts)] = path
    return found


def imports(path, modules):
    """Lines and targets of the imports from the package, wherever they stand."""
    for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                yield node.lineno, 'relative'
                continue
            # `from package import module` imports the module.
            inner = (node.module or '').removeprefix(PACKAGE).removeprefix('.')
            targets = []
            for alias in node.names:
                own = f'{inner}.{alias.name}'.removeprefix('.')
                is_module = is_in(node.module or '', PACKAGE) and own in modules
                targets.append(
                    f'{node.module}.{alias.name}' if is_module else node.module or ''
                )
        else:
            continue
        for target in targets:
            if is_in(target, PACKAGE):
                yield node.lineno, target.removeprefix(PACKAGE).removeprefix('.')


def owner_of(module):
    """The package inside which a private module may be imported, if it is private."""
    parts = module.split('.')
    private = [i for i, part in enumerate(parts) if part.startswith('_')]
    # What lies beside the packages serves them all.
    return '.'.join(parts[: private[0]]) if private and private[0] > 0 else None


def complaint(module, target, modules):
    if target == 'relative':
        return 'a relative import'
    if target not in modules:
        return f"'{target}' does not exist"
    is_facade = modules[target].name == '__init__.py'
    if modules[module].name == '__init__.py':
        # It shows what lies below it and nothing else.
        is_below = target != module and (module == '' or is_in(target, module))
        return None if is_below else f"'{target}' does not lie below"
    if target == '' or is_in(module, target):
        return 'the __init__ of its own package'
    if (owner := owner_of(target)) is not None and not is_in(module, owner):
        return f"'{target}' is private to '{owner}'"
    own, other = floor_of(module), floor_of(target)
    if own is None or other is None:
        return f"'{module if own is None else target}' has no floor"
    if other > own:
        return f"floor {other} ('{target}') from floor {own}"
    if other == own and is_facade:
        return f"sibling '{target}' by its __init__"
    return None


def violations(root):
    modules = names(root)
    return [
        f'{path.relative_to(root)}:{line}: {text}'
        for module, path in modules.items()
        for line, target in imports(path, modules)
        if (text := complaint(module, target, modules)) is not None
    ]


def cycle(root):
    """Modules each of which imports the next, the last one the first."""
    modules = names(root)
    below = {
        module: {target for _, target in imports(path, modules)}
        for module, path in modules.items()
    }
    try:
        TopologicalSorter(below).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_floors():
    modules = names(ROOT)
    assert {'', 'ops.scan', 'nn.sampler.methods', 'nn.models'} <= set(modules)
    total = sum(len(list(imports(path, modules))) for path in modules.values())
    assert total > 50  # The walk sees the imports.
    assert violations(ROOT) == []


@pytest.mark.parametrize('folder', ['examples', 'paper', 'benchmark', 'docs'])
def test_scripts_import_public_modules(folder):
    modules = names(ROOT)
    paths = sorted((ROOT.parent / folder).rglob('*.py'))
    assert paths
    assert [
        f'{path.name}:{line}: {target}'
        for path in paths
        for line, target in imports(path, modules)
        # The published models have the checks of ours.
        if path.parent != ROOT.parent / 'paper' / 'reproduction' / 'baselines'
        and (owner_of(target) is not None or target.startswith('_'))
    ] == []


def test_no_cycles():
    assert cycle(ROOT) == []


@pytest.fixture
def house(tmp_path):
    """A small package that keeps the rules."""
    files = {
        '__init__.py': 'from torch_geometric_gsl.nn import conv\n',
        'typing.py': 'import torch\n',
        '_checks.py': 'from torch_geometric_gsl.typing import Features\n',
        'ops/__init__.py': '',
        'ops/scores.py': 'from torch_geometric_gsl._checks import check\n',
        'ops/stream.py': 'from torch_geometric_gsl.ops import scores\n',
        'nn/__init__.py': 'from torch_geometric_gsl.nn.conv import conv\n',
        'nn/conv/__init__.py': 'from torch_geometric_gsl.nn.conv.conv import Conv\n',
        'nn/conv/conv.py': 'import torch_geometric_gsl.nn.conv._parts\n',
        'nn/conv/_parts.py': 'import torch_geometric_gsl.ops.stream\n',
        'transforms/__init__.py': '',
        'diagnostics.py': 'from torch_geometric_gsl.nn.conv import conv\n',
        'visualization.py': 'from torch_geometric_gsl.diagnostics import show\n',
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding='utf-8')
    return tmp_path


def test_checker_accepts_a_clean_house(house):
    assert violations(house) == []
    assert cycle(house) == []


FROM = 'from torch_geometric_gsl'
WRONG = [
    ('ops/scores.py', f'{FROM}.nn.conv.conv import Conv',
     "floor 4 ('nn.conv.conv') from floor 1"),
    ('ops/scores.py', 'def f():\n    import torch_geometric_gsl.diagnostics as d',
     "floor 7 ('diagnostics') from floor 1"),
    ('typing.py', f'if TYPE_CHECKING:\n    {FROM}.ops.scores import dot',
     "floor 1 ('ops.scores') from floor 0"),
    ('nn/conv/conv.py', f'{FROM} import Conv', 'the __init__ of its own package'),
    ('nn/conv/conv.py', f'{FROM}.nn import Conv', 'the __init__ of its own package'),
    ('diagnostics.py', f'{FROM}.nn.conv._parts import Part',
     "'nn.conv._parts' is private to 'nn.conv'"),
    ('nn/conv/conv.py', 'from . import other', 'a relative import'),
    ('ops/__init__.py', f'{FROM}.nn.conv import conv',
     "'nn.conv.conv' does not lie below"),
    ('ops/scores.py', 'import torch_geometric_gsl.elsewhere',
     "'elsewhere' does not exist"),
    ('stray.py', f'{FROM}.typing import Features', "'stray' has no floor"),
    ('nn/self_supervision.py', f'{FROM}.transforms import T',
     "sibling 'transforms' by its __init__"),
]  # fmt: skip


@pytest.mark.parametrize(('file', 'line', 'found'), WRONG)
def test_checker_finds_a_violation(house, file, line, found):
    with (house / file).open('a', encoding='utf-8') as module:
        module.write(f'{line}\n')
    (violation,) = violations(house)
    assert violation.startswith(f'{file}:')
    assert violation.endswith(f': {found}')


def test_checker_finds_a_cycle(house):
    path = house / 'ops' / 'scores.py'
    path.write_text('import torch_geometric_gsl.ops.stream\n', encoding='utf-8')
    assert violations(house) == []
    assert set(cycle(house)) == {'ops.scores', 'ops.stream'}
