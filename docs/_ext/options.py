"""Show the arguments of classes and functions as tables: name, default, meaning."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

#: The class of these tables, and the entries of the reference that have one.
OPTIONS = 'options'
KINDS = 'class', 'exception', 'function'
DASH = ' \N{EN DASH} '  # Between an argument and its meaning.
HEADER = 'Argument', 'Default', 'Meaning'
DEFAULT = re.compile(r'\s*\(default:\s*')


def lay_out(app: Sphinx, doctree: nodes.document) -> None:
    """Replace the list of arguments of an entry by a table."""
    for entry in doctree.findall(addnodes.desc):
        if entry.get('objtype') not in KINDS:
            continue
        defaults = signature_defaults(entry[0])
        for fields in [
            each for each in entry[-1] if isinstance(each, nodes.field_list)
        ]:
            for field in [each for each in fields if each[0].astext() == 'Parameters']:
                index = fields.parent.index(fields)
                title = nodes.rubric('', 'Arguments')
                fields.parent.insert(index, [title, make_table(field[1], defaults)])
                fields.remove(field)
            if not fields.children:
                fields.parent.remove(fields)


def signature_defaults(signature: nodes.Element) -> dict[str, str]:
    """Return the defaults that a signature shows, by argument."""
    defaults = {}
    for parameter in signature.findall(addnodes.desc_parameter):
        for node in parameter:
            if 'default_value' in node.get('classes', ()):
                defaults[parameter[0].astext()] = node.astext()
    return defaults


def make_table(body: nodes.field_body, defaults: dict[str, str]) -> nodes.table:
    """Return the table of a list of arguments, or of one."""
    is_list = isinstance(body[0], nodes.bullet_list)
    items = [item.children for item in body[0]] if is_list else [body.children]
    group = nodes.tgroup('', cols=3)
    group += [nodes.colspec(colwidth=width) for width in (25, 15, 60)]
    titles = [[nodes.paragraph('', text)] for text in HEADER]
    group += nodes.thead('', make_row(titles))
    rows = [row for item in items for row in separate(split(item), defaults)]
    group += nodes.tbody('', *map(make_row, rows))
    return nodes.table('', group, classes=[OPTIONS])


def make_row(cells: Iterable[list[nodes.Node]]) -> nodes.row:
    return nodes.row('', *[nodes.entry('', *cell) for cell in cells])


def split(item: list[nodes.Node]) -> list[list[nodes.Node]]:
    """Return the name with its type, the default, and the meaning of an argument."""
    paragraph, *paragraphs = (node.deepcopy() for node in item)
    texts = [child.astext() for child in paragraph]
    dash = texts.index(DASH) if DASH in texts else len(texts)
    types = paragraph.children[2 : max(dash - 1, 2)]  # Between brackets.
    is_optional = bool(types) and types[-1].astext().strip() == 'optional'
    types = types[:-2] if is_optional else types
    name = [nodes.paragraph('', '', nodes.literal('', texts[0]))]
    if types:
        name.append(nodes.paragraph('', '', *types, classes=['type']))
    said = paragraph.children[dash + 1 :]
    if len(said) == 1 and isinstance(said[0], nodes.inline):  # It marks translations.
        said = said[0].children
    meaning = [nodes.paragraph('', '', *said), *paragraphs]
    default = cut_default(meaning[-1])
    cell = [nodes.paragraph('', '', *default)] if default else []
    if not cell and not is_optional:
        cell = [nodes.paragraph('', 'required', classes=['required'])]
    return [name, cell, meaning]


def separate(
    row: list[list[nodes.Node]], defaults: dict[str, str]
) -> Iterator[list[list[nodes.Node]]]:
    """Yield a row without a default for each of its names, with that of the signature.

    Such a row refers to another class for the meaning: "k, tau (optional): As in ...".
    """
    (title, *types), default, meaning = row
    names = title.astext().split(', ')
    if default or not any(name in defaults for name in names):
        yield row
        return
    for name in names:
        cell = nodes.paragraph('', '', nodes.literal('', defaults.get(name, '')))
        argument = nodes.paragraph('', '', nodes.literal('', name))
        copies = [[node.deepcopy() for node in cell] for cell in (types, meaning)]
        yield [[argument, *copies[0]], [cell], copies[1]]


def cut_default(paragraph: nodes.Node) -> list[nodes.Node]:
    """Remove the default from the end of a paragraph and return it."""
    for i, child in enumerate(paragraph.children):
        match = DEFAULT.search(child) if isinstance(child, nodes.Text) else None
        if match is None:
            continue
        default = [nodes.Text(child[match.end() :]), *paragraph.children[i + 1 :]]
        if default[-1].astext().endswith(')'):
            default[-1] = nodes.Text(default[-1].astext()[:-1])
            paragraph.children[i:] = [nodes.Text(child[: match.start()])]
            return [each for each in default if each.astext()]
    return []


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect('doctree-read', lay_out)
    return {'parallel_read_safe': True}
