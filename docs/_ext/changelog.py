"""Include ``CHANGELOG.md``, whose few forms of Markdown are turned into rst."""

from __future__ import annotations

import re
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

UNDERLINES = {'##': '-', '###': '~'}


class Changelog(SphinxDirective):
    """The changes, without the file's title."""

    def run(self) -> list[nodes.Node]:
        path = Path(self.env.srcdir).parent / 'CHANGELOG.md'
        self.env.note_dependency(path)
        text = to_rst(path.read_text(encoding='utf-8'))
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def to_rst(text: str) -> str:
    r"""Translate headings, tables, links and code; leave out the title.

    Example:
        >>> to_rst('# Changelog\n\n## [1.0] - May\n\n- `x`')
        '\n\n1.0 - May\n---------\n\n- ``x``'
    """
    text = re.sub(r'\A# .*', '', text)
    text = re.sub(r'(?:^\|.*\n)+', _table, text, flags=re.MULTILINE)
    text = re.sub(r'\[([^\]]+)\]\((\S+?)\)', r'`\1 <\2>`__', text)
    text = re.sub(r'(?<!`)`([^`\n]+)`(?![`_])', r'``\1``', text)
    return re.sub(r'^(##+) (.*)$', _heading, text, flags=re.MULTILINE)


def _table(match: re.Match[str]) -> str:
    """Turn a table into a list of its cells; the second line is a rule."""
    head, _, *rows = match[0].splitlines()
    lines = ['.. list-table::', '   :header-rows: 1', '   :widths: auto', '']
    for row in [head, *rows]:
        for column, cell in enumerate(row.strip('| ').split(' | ')):
            lines.append(f'   {" " if column else "*"} - {cell}')
    return '\n'.join(lines) + '\n'


def _heading(match: re.Match[str]) -> str:
    title = re.sub(r'[\[\]]', '', match[2])
    return f'{title}\n{UNDERLINES[match[1]] * len(title)}'


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive('changelog', Changelog)
    return {'parallel_read_safe': True}
