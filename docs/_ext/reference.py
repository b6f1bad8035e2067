"""Adapt the reference that autosummary writes to what the package exports."""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name

from docutils.nodes import Element
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.errors import ExtensionError
from sphinx.util.inspect import signature, stringify_signature

import torch_geometric_gsl

PACKAGE = torch_geometric_gsl.__name__
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


def show_constructor(
    app: Sphinx,
    what: str,
    name: str,
    obj: type,
    options: object,
    args: str | None,
    returns: str | None,
) -> tuple[str, str | None] | None:
    """Show the arguments of a constructor where a mixin's `__new__` takes any."""
    if what != 'class' or args is None or not args.startswith('(*args'):
        return None
    found = signature(obj.__init__, bound_method=True)  # type: ignore[misc]
    return stringify_signature(found, show_return_annotation=False), returns


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
    """Refuse a reference that lacks a name of the package."""
    objects = env.domains.python_domain.objects
    documented = {name.rpartition('.')[2] for name in objects}
    missing = {*torch_geometric_gsl.__all__} - documented - {'__version__'}
    methods = {'.'.join(name.split('.')[-2:]) for name in objects}
    missing |= {*public_methods()} - methods
    if missing:
        raise ExtensionError(f'the reference lacks {sorted(missing)}')


def public_methods() -> Iterator[str]:
    """Yield the documented methods of all classes that the package exports."""
    for name in torch_geometric_gsl.__all__:
        kind = getattr(torch_geometric_gsl, name)
        for base in reversed(kind.__mro__) if isinstance(kind, type) else ():
            if base.__module__.partition('.')[0] != PACKAGE:
                continue
            for method, value in vars(base).items():
                found = inspect.getattr_static(kind, method)
                is_method = inspect.isfunction(found) or isinstance(found, WRAPPERS)
                is_shown = is_method and found is value and value.__doc__
                if is_shown and not method.startswith('_'):
                    yield f'{name}.{method}'


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect('builder-inited', remove_pages, priority=400)  # before autosummary
    app.connect('autodoc-skip-member', skip_field)
    app.connect('autodoc-process-bases', show_public_bases)
    app.connect('autodoc-process-signature', show_constructor)
    app.connect('warn-missing-reference', exists)
    app.connect('env-check-consistency', check_exports)
    return {'parallel_read_safe': True}
