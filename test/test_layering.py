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
    '_labels': 0,
    '_files': 0,
    '_warnings': 0,
    'ops': 1,
    'datasets': 1,
    'nn.points': 1,
    'nn.embeddings': 1,
    'nn.linear': 1,
    'nn.shared_module': 1,
    'distributed': 2,
    'nn.similarity': 2,
    'nn.sampler': 3,
    'nn.conv': 4,
    'nn.models': 5,
    'transforms': 5,
    'diagnostics': 6,
    'visualization': 6,
    'sklearn': 6,
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
    paths = {}
    for path in sorted(root.rglob('*.py')):
        words = path.relative_to(root).with_suffix('').parts
        paths['.'.join(words[:-1] if words[-1] == '__init__' else words)] = path
    return paths


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
                name = f'{inner}.{alias.name}'.removeprefix('.')
                is_module = is_in(node.module or '', PACKAGE) and name in modules
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
    packages = module.split('.')
    private = [i for i, name in enumerate(packages) if name.startswith('_')]
    # What lies beside the packages serves them all.
    return '.'.join(packages[: private[0]]) if private and private[0] > 0 else None


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
    floor, target_floor = floor_of(module), floor_of(target)
    if floor is None or target_floor is None:
        return f"'{module if floor is None else target}' has no floor"
    if target_floor > floor:
        return f"floor {target_floor} ('{target}') from floor {floor}"
    if target_floor == floor and is_facade:
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
        # The published models and their losses have the checks of ours.
        if path.parent.name not in ('baselines', 'self_supervision')
        and (owner_of(target) is not None or target.startswith('_'))
    ] == []


def test_no_cycles():
    assert cycle(ROOT) == []
