"""Lay out what tables of results and texts say of numbers."""

from __future__ import annotations

from docutils import nodes
from sphinx.application import Sphinx

#: The class of tables whose cells have parts, a line each.
RESULTS = 'results'
BETWEEN = '; '
PLUS_MINUS = '\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}'


def lay_out(app: Sphinx, doctree: nodes.document) -> None:
    """Break lines between the parts of a cell, and none inside a number."""
    for text in [*doctree.findall(nodes.Text)]:
        if ' ± ' in text:
            text.parent.replace(text, nodes.Text(text.replace(' ± ', PLUS_MINUS)))
    for table in doctree.findall(nodes.table):
        if RESULTS in table['classes']:
            for body in table.findall(nodes.tbody):
                for cell in [cell for row in body for cell in row[1:]]:
                    cell[:] = [nodes.line_block('', *split(words)) for words in cell]


def split(cell: nodes.paragraph) -> list[nodes.line]:
    """Return the parts of a cell, which a semicolon separates."""
    lines = [nodes.line()]
    for child in cell.children:
        texts = child.split(BETWEEN) if isinstance(child, nodes.Text) else []
        lines[-1] += nodes.Text(texts[0]) if texts else child
        lines += [nodes.line('', nodes.Text(text)) for text in texts[1:]]
    return lines


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect('doctree-read', lay_out)
    return {'parallel_read_safe': True}
