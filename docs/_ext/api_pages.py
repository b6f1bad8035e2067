"""Writes the pages of the reference from what the package exports.

A module exports ``__all__``, or the public names that it defines if it has none. A
package whose packages export all that it does (``nn``), or that exports nothing
(``ops``), is documented by its parts. Names that are exported later appear without a
change here.
"""

from __future__ import annotations

import inspect
import pkgutil
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType

from docutils.nodes import Element
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.pycode import ModuleAnalyzer

PACKAGE = 'torch_geometric_gsl'
TITLES = {'ops': 'functional (ops)'}
ORDER = [
    'nn',
    'baselines',
    'ops',
    'transforms',
    'datasets',
    'diagnostics',
    'visualization',
]

TEMPLATE = """\
{{ title }}
{{ '=' * title|length }}

.. automodule:: {{ name }}
   :no-members:
{% for part in parts %}
{% if part.name != name %}
{{ part.title }}
{{ '-' * part.title|length }}

.. automodule:: {{ part.name }}
   :no-members:
{% endif %}
.. currentmodule:: {{ part.name }}
{% for directive, member in part.members %}
.. {{ directive }}:: {{ member }}
{%- if directive == 'autoclass' %}
   :members:
   :show-inheritance:
{%- endif %}
{% endfor %}
{% endfor %}
"""

INDEX = """\
Reference
=========

Similarities, the sampler, layers, models and baselines can also be imported from
``torch_geometric_gsl`` itself.

.. toctree::
{% for page in pages %}
   {{ page }}
{%- endfor %}
"""


def write_pages(app: Sphinx) -> None:
    """Writes one page per public part of the package, and a page that lists them."""
    folder = Path(app.srcdir) / 'generated'
    folder.mkdir(exist_ok=True)
    found = children(import_module(PACKAGE))
    pages = sorted(found, key=lambda page: (rank(page), page))
    documented: set[object] = set()
    for page in pages:
        module = found[page]
        parts = [describe(part, page) for part in leaves(module)]
        documented |= {name for part in parts for _, name in part['members']}
        context = {
            'title': TITLES.get(page, page),
            'name': module.__name__,
            'parts': [part for part in parts if part['members']],
        }
        render(app, folder / f'{page}.rst', TEMPLATE, context)
    render(app, folder / 'index.rst', INDEX, {'pages': pages})
    for path in folder.glob('*.rst'):
        if path.stem not in [*pages, 'index']:
            path.unlink()
    missing = set(import_module(PACKAGE).__all__) - documented - {'__version__'}
    if missing:
        raise ExtensionError(f'the reference lacks {sorted(missing)}')


def rank(page: str) -> int:
    return ORDER.index(page) if page in ORDER else len(ORDER)


def children(module: ModuleType) -> dict[str, ModuleType]:
    """The public modules of a package, by name."""
    return {
        info.name: import_module(f'{module.__name__}.{info.name}')
        for info in pkgutil.iter_modules(module.__path__)
        if not info.name.startswith('_')
    }


def leaves(module: ModuleType) -> list[ModuleType]:
    """The modules whose members document a module."""
    if not hasattr(module, '__path__'):
        return [module]
    inner = list(children(module).values())
    packages = [child for child in inner if hasattr(child, '__path__')]
    below = {name for child in packages for name in exports(child)}
    if packages and below >= set(getattr(module, '__all__', ())):
        order = {name: i for i, name in enumerate(exported_from(module, packages))}
        return sorted(packages, key=lambda child: order.get(child.__name__, 99))
    return [module] if getattr(module, '__all__', None) else inner


def exported_from(module: ModuleType, packages: list[ModuleType]) -> list[str]:
    """The packages in the order in which ``__all__`` first takes from them."""
    homes = [
        child.__name__
        for name in getattr(module, '__all__', [])
        for child in packages
        if name in getattr(child, '__all__', [])
    ]
    return list(dict.fromkeys(homes))


def describe(module: ModuleType, page: str) -> dict[str, object]:
    members = [(directive(getattr(module, n)), n) for n in exports(module)]
    return {
        'name': module.__name__,
        'title': module.__name__.removeprefix(f'{PACKAGE}.{page}.'),
        'members': members,
    }


def exports(module: ModuleType) -> list[str]:
    """Names in ``__all__``; else what the module defines, and constants it explains."""
    if hasattr(module, '__all__'):
        return list(module.__all__)
    constants = ModuleAnalyzer.for_module(module.__name__).find_attr_docs()
    names = [name for scope, name in constants if not scope]
    names += [
        name
        for name, value in vars(module).items()
        if getattr(value, '__module__', None) == module.__name__
        and (inspect.isclass(value) or inspect.isroutine(value))
    ]
    return [name for name in names if not name.startswith('_')]


def directive(value: object) -> str:
    if inspect.isclass(value):
        return 'autoexception' if issubclass(value, BaseException) else 'autoclass'
    return 'autofunction' if callable(value) else 'autodata'


def render(app: Sphinx, path: Path, template: str, context: dict[str, object]) -> None:
    """Writes a page if it changed, so that Sphinx reads only what is new."""
    text = app.builder.templates.render_string(template, context)
    if not path.exists() or path.read_text(encoding='utf-8') != text:
        path.write_text(text, encoding='utf-8')


def show_public_bases(
    app: Sphinx, name: str, obj: type, options: object, bases: list[type]
) -> None:
    """Names the bases of a base that is private to the package."""
    bases[:] = [shown for base in bases for shown in public_bases(base)]


def public_bases(base: type) -> list[type]:
    if not is_private(base):
        return [base]
    return [shown for above in base.__bases__ for shown in public_bases(above)]


def is_private(base: type) -> bool:
    module = base.__module__
    return module.startswith(f'{PACKAGE}.') and '._' in module


def exists(app: Sphinx, domain: object, node: Element) -> bool | None:
    """Lets a reference to a name pass that the package has but does not export."""
    target = str(node.get('reftarget', ''))
    if not target.startswith(f'{PACKAGE}.'):
        return None
    try:
        resolve_name(target)
    except (AttributeError, ImportError):
        return None
    return True


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect('builder-inited', write_pages)
    app.connect('autodoc-process-bases', show_public_bases)
    app.connect('warn-missing-reference', exists)
    return {'parallel_read_safe': True}
