"""Adapt the reference that autosummary writes to what the package exports."""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Collection, Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name, walk_packages
from types import ModuleType

from docutils.nodes import Element
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.errors import ExtensionError
from sphinx.util.inspect import signature, stringify_signature

import torch_geometric_gsl

PACKAGE = torch_geometric_gsl.__name__
#: Methods, and those whose arguments they take.
HANDED_ON = {'paper': '__init__', 'graph': 'forward', 'graphs': 'forward'}
WRAPPERS = (classmethod, staticmethod, property)


def remove_pages(app: Sphinx) -> None:
    """Remove all pages, of which those of lost names would stay."""
    shutil.rmtree(Path(app.srcdir) / 'generated', ignore_errors=True)


def skip_field(
    app: Sphinx, what: str, name: str, obj: object, skip: bool, options: object
) -> bool | None:
    """Leave out the fields of named tuples, which `Args` describes."""
    return True if type(obj).__name__ == '_tuplegetter' else None


def show_public_bases(
    app: Sphinx, name: str, obj: type, options: object, bases: list[type]
) -> None:
    """Name the bases of a base that is private to the package."""
    bases[:] = [shown for base in bases for shown in public_bases(base)]


def public_bases(base: type) -> list[type]:
    """Return the base, or its own public bases where it is private."""
    if not (base.__module__.startswith(f'{PACKAGE}.') and '._' in base.__module__):
        return [base]
    return [shown for above in base.__bases__ for shown in public_bases(above)]


def show_arguments(
    app: Sphinx,
    what: str,
    name: str,
    obj: type,
    options: object,
    args: str | None,
    returns: str | None,
) -> tuple[str, str | None] | None:
    """Show the arguments where `*args` are handed on to another method."""
    if args is None or not args.startswith('(*args'):
        return None
    path, _, method = name.rpartition('.')
    if what != 'class' and method not in HANDED_ON:
        return None
    cls = obj if what == 'class' else resolve_name(path)
    callee = getattr(cls, HANDED_ON.get(method, '__init__'))
    shown = signature(callee, bound_method=True)
    if 'args' in shown.parameters:  # An abstract class, which has no constructor.
        return '()', returns
    parameters = [
        each for each in shown.parameters.values() if each.name != 'return_graph'
    ]
    shown = shown.replace(parameters=parameters)
    text = stringify_signature(
        shown, show_return_annotation=False, unqualified_typehints=True
    )
    return text, returns


def exists(app: Sphinx, domain: object, node: Element) -> bool | None:
    """Let a reference to a name pass that the package has but does not export."""
    target = str(node.get('reftarget', ''))
    if not target.startswith(f'{PACKAGE}.'):
        return None
    try:
        resolve_name(target)
    except (AttributeError, ImportError):
        return None
    return True


def check_exports(app: Sphinx, env: BuildEnvironment) -> None:
    """Refuse a reference that lacks a public name of the package, or a method."""
    if missing := missing_names(env.domains.python_domain.objects):
        raise ExtensionError(f'the reference lacks {missing}')


def missing_names(documented: Collection[str]) -> list[str]:
    """Return the public names of the package, and their methods, without an entry."""
    missing = []
    for (name, _), (value, paths) in public_names().items():
        shown = [path for path in paths if path in documented]
        if not shown:
            missing.append(name)
        elif isinstance(value, type):
            missing += [
                f'{name}.{method}'
                for method in public_methods(value)
                if not any(f'{path}.{method}' in documented for path in shown)
            ]
    return sorted(missing)


def public_names() -> dict[tuple[str, int], tuple[object, list[str]]]:
    """Return what the package exports, by name and identity, with all its paths."""
    names: dict[tuple[str, int], tuple[object, list[str]]] = {}
    for module in public_modules():
        for name in exported(module):
            value = getattr(module, name)
            paths = names.setdefault((name, id(value)), (value, []))[1]
            paths.append(f'{module.__name__}.{name}')
    return {key: value for key, value in names.items() if not key[0].startswith('_')}


def public_modules() -> Iterator[ModuleType]:
    """Yield the packages, and the modules that have pages."""
    yield torch_geometric_gsl
    for info in walk_packages(torch_geometric_gsl.__path__, f'{PACKAGE}.'):
        modules = 'ops.', 'typing', 'nn.points', 'datasets'
        has_page = info.name.removeprefix(f'{PACKAGE}.').startswith(modules)
        if '._' not in info.name and (info.ispkg or has_page):
            yield import_module(info.name)


def exported(module: ModuleType) -> list[str]:
    """Return what a module lists, or else the classes and functions it defines."""
    defined = [
        name
        for name, value in vars(module).items()
        if inspect.isfunction(value) or isinstance(value, type)
        if value.__module__ == module.__name__
    ]
    return getattr(module, '__all__', defined)


def public_methods(cls: type) -> Iterator[str]:
    """Yield the names of the documented methods that the package gives to a class."""
    for base in reversed(cls.__mro__):
        if base.__module__.partition('.')[0] != PACKAGE:
            continue
        for method, value in vars(base).items():
            attribute = inspect.getattr_static(cls, method)
            is_method = inspect.isfunction(attribute) or isinstance(attribute, WRAPPERS)
            is_shown = is_method and attribute is value and value.__doc__
            if is_shown and not method.startswith('_'):
                yield method


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect('builder-inited', remove_pages, priority=400)  # before autosummary
    app.connect('autodoc-skip-member', skip_field)
    app.connect('autodoc-process-bases', show_public_bases)
    app.connect('autodoc-process-signature', show_arguments)
    app.connect('warn-missing-reference', exists)
    app.connect('env-check-consistency', check_exports)
    return {'parallel_read_safe': True}
