"""Write the pages of the reference from what the package exports.

A module exports ``__all__``, or the public names that it defines if it has none. A
package whose packages export all that it does (``nn``), or that exports nothing
(``ops``), is documented by its parts. Each package has a page with a table of its
names; each class has a page of its own, and so have the functions of each module. Names
that are exported later appear without a change here.
"""

from __future__ import annotations

import inspect
import pkgutil
import re
from collections.abc import Iterator
from functools import cached_property
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType
from typing import Any, NamedTuple

from docutils.nodes import Element
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.pycode import ModuleAnalyzer
from sphinx.util.docstrings import prepare_docstring

PACKAGE = 'torch_geometric_gsl'
TITLES = {'ops': 'functional (ops)'}
ORDER = [
    'nn',
    'baselines',
    'transforms',
    'diagnostics',
    'visualization',
    'datasets',
    'ops',
]
# What users call stands before what a module is made of.
FIRST = ['forward', 'graph', 'graphs', 'plan', 'propagate', 'distribution', 'loss']
# A summary names no paper; the page of the class does.
PAPER = re.compile(
    r',? from the `"[^`]*`_ paper(?: \([^)]*\))?|,? of the `"[^`]*`_ paper'
)
LAST = ['encode', 'project', 'response', 'reset_parameters', 'extra_repr']

PACKAGE_PAGE = """\
{{ title }}
{{ '=' * title|length }}

.. automodule:: {{ name }}
   :no-members:
{% for part in parts %}
{% if parts|length > 1 %}
{{ part.title }}
{{ '-' * part.title|length }}

.. automodule:: {{ part.name }}
   :no-members:
{% endif %}
.. list-table::
   :width: 100%
   :widths: 40 60
{% for member in part.members %}
   * - :{{ member.role }}:`~{{ part.name }}.{{ member.name }}`
     - {{ member.summary }}
{%- endfor %}
{% endfor %}
.. toctree::
   :hidden:
   :maxdepth: 1
{% for path in paths %}
   {{ path }}
{%- endfor %}
"""

MEMBER_PAGE = """\
{{ title }}
{{ '=' * title|length }}

.. currentmodule:: {{ module }}
{% for member in members %}
.. {{ member.directive }}:: {{ member.name }}
{%- if member.directive == 'autoclass' %}
   :show-inheritance:
{% for directive, name in member.attributes %}
   .. {{ directive }}:: {{ member.name }}.{{ name }}
{%- endfor %}
{%- endif %}
{% endfor %}
"""

INDEX = """\
Reference
=========

Similarities, the sampler, layers, models and baselines can also be imported from
``torch_geometric_gsl`` itself.

.. toctree::
   :maxdepth: 1
{% for page in pages %}
   {{ page }}
{%- endfor %}
"""


class Member(NamedTuple):
    """A documented name, how Sphinx documents it, and its first sentence."""

    name: str
    directive: str
    summary: str
    attributes: list[tuple[str, str]]

    @property
    def role(self) -> str:
        """Return the role that links to it."""
        roles = {'autofunction': 'func', 'autodata': 'data', 'autoexception': 'class'}
        return 'py:' + roles.get(self.directive, 'class')


def write_pages(app: Sphinx) -> None:
    """Write a page per public part of the package, its members' pages, and an index."""
    folder = Path(app.srcdir) / 'generated'
    folder.mkdir(exist_ok=True)
    found = children(import_module(PACKAGE))
    pages = sorted(found, key=lambda page: (rank(page), page))
    documented: set[str] = set()
    written = {folder / 'index.rst'}
    for page in pages:
        module = found[page]
        parts = [describe(part, page) for part in leaves(module)]
        parts = [part for part in parts if part['members']]
        documented |= {member.name for part in parts for member in part['members']}
        paths = []
        for part in parts:
            for title, members in groups(part):
                path = folder / page / f'{re.sub("[. ]", "_", title)}.rst'
                context = {'title': title, 'module': part['name'], 'members': members}
                render(app, path, MEMBER_PAGE, context)
                paths.append(f'{page}/{path.stem}')
                written.add(path)
        context = {
            'title': TITLES.get(page, page),
            'name': module.__name__,
            'parts': parts,
            'paths': paths,
        }
        render(app, folder / f'{page}.rst', PACKAGE_PAGE, context)
        written.add(folder / f'{page}.rst')
    render(app, folder / 'index.rst', INDEX, {'pages': pages})
    for path in set(folder.rglob('*.rst')) - written:
        path.unlink()
    missing = set(import_module(PACKAGE).__all__) - documented - {'__version__'}
    if missing:
        raise ExtensionError(f'the reference lacks {sorted(missing)}')


def groups(part: dict[str, Any]) -> Iterator[tuple[str, list[Member]]]:
    """Yield each class alone, and the other names of a part together."""
    others = []
    for member in part['members']:
        if member.directive == 'autoclass' and not part['is_functional']:
            yield member.name, [member]
        else:
            others.append(member)
    if others:
        title = part['title']
        are_warnings = all(m.directive == 'autoexception' for m in others)
        kind = 'warnings' if are_warnings else 'functions'
        yield title if part['is_functional'] else f'{kind} of {title}', others


def rank(page: str) -> int:
    return ORDER.index(page) if page in ORDER else len(ORDER)


def children(module: ModuleType) -> dict[str, ModuleType]:
    """Return the public modules of a package, by name."""
    return {
        info.name: import_module(f'{module.__name__}.{info.name}')
        for info in pkgutil.iter_modules(module.__path__)
        if not info.name.startswith('_')
    }


def leaves(module: ModuleType) -> list[ModuleType]:
    """Return the modules whose members document a module."""
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
    """Return the packages in the order in which ``__all__`` first takes from them."""
    homes = [
        child.__name__
        for name in getattr(module, '__all__', [])
        for child in packages
        if name in getattr(child, '__all__', [])
    ]
    return list(dict.fromkeys(homes))


def describe(module: ModuleType, page: str) -> dict[str, Any]:
    """Return the name, the title and the members of a part."""
    members = [member(module, name) for name in exports(module)]
    # What one uses stands before the base that one extends.
    members.sort(key=lambda m: inspect.isabstract(getattr(module, m.name)))
    title = module.__name__.removeprefix(f'{PACKAGE}.{page}').removeprefix('.')
    return {
        'name': module.__name__,
        'title': title or page,
        'members': members,
        # A module of functions is one page, its few classes included.
        'is_functional': not hasattr(module, '__path__') and bool(title),
    }


def member(module: ModuleType, name: str) -> Member:
    """Return how a name of a module is documented."""
    value = getattr(module, name)
    kind = directive(value)
    return Member(name, kind, summary(module, name, kind), attributes(value))


def summary(module: ModuleType, name: str, kind: str) -> str:
    """Return the first sentence of a name's description, on one line."""
    if kind == 'autodata':
        lines = constant_doc(module, name)
    else:
        lines = prepare_docstring(inspect.getdoc(getattr(module, name)) or '')
    text = PAPER.sub('', ' '.join(' '.join(lines).split()))
    text = re.sub(r'^The (network|model)\b', rf'The {name} \1', text)
    sentence = re.split(r'(?<=[^.A-Z]\.) (?=[A-Z.:])|: (?=\.\.)| \.\. ', text)[0]
    return sentence.strip() or name


def constant_doc(module: ModuleType, name: str) -> list[str]:
    """Return the comment of a constant, where it is defined."""
    inside = getattr(module, '__path__', None)
    homes = [info.name for info in pkgutil.iter_modules(inside)] if inside else []
    for home in [module.__name__, *(f'{module.__name__}.{child}' for child in homes)]:
        found = ModuleAnalyzer.for_module(home).find_attr_docs()
        if ('', name) in found:
            return list(found['', name])
    raise ExtensionError(f'{module.__name__}.{name} has no comment')


def attributes(value: object) -> list[tuple[str, str]]:
    """Return the public methods and attributes of a class, users' methods first."""
    if not inspect.isclass(value):
        return []
    found = []
    described = ModuleAnalyzer.for_module(value.__module__).find_attr_docs()
    for name, item in vars(value).items():
        is_field = type(item).__name__ == '_tuplegetter'
        if name.startswith('_') or is_field:
            continue
        if isinstance(item, property | cached_property) and item.__doc__:
            found.append(('autoproperty', name))
        elif inspect.isroutine(getattr(value, name)) and getattr(value, name).__doc__:
            found.append(('automethod', name))
        elif (value.__name__, name) in described:
            found.append(('autoattribute', name))
    places = {name: i for i, name in enumerate([*FIRST, None, *LAST])}
    return sorted(found, key=lambda pair: places.get(pair[1], places[None]))


def exports(module: ModuleType) -> list[str]:
    """Return ``__all__``, or what the module defines and the constants it explains."""
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
    """Write a page if it changed, so that Sphinx reads only what is new."""
    path.parent.mkdir(exist_ok=True)
    text = app.builder.templates.render_string(template, context)
    if not path.exists() or path.read_text(encoding='utf-8') != text:
        path.write_text(text, encoding='utf-8')


def show_public_bases(
    app: Sphinx, name: str, obj: type, options: object, bases: list[type]
) -> None:
    """Name the bases of a base that is private to the package."""
    bases[:] = [shown for base in bases for shown in public_bases(base)]


def public_bases(base: type) -> list[type]:
    """Return the base, or its own public bases where it is private."""
    if not is_private(base):
        return [base]
    return [shown for above in base.__bases__ for shown in public_bases(above)]


def is_private(base: type) -> bool:
    module = base.__module__
    return module.startswith(f'{PACKAGE}.') and '._' in module


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


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect('builder-inited', write_pages)
    app.connect('autodoc-process-bases', show_public_bases)
    app.connect('warn-missing-reference', exists)
    return {'parallel_read_safe': True}
