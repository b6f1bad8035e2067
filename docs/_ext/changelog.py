"""Includes ``CHANGELOG.md``, whose few forms of Markdown are turned into rst."""

from __future__ import annotations

import re
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

UNDERLINES = {2: '-', 3: '~'}


class Changelog(SphinxDirective):
    """The changes, without the file's title and without sections that are empty."""

    has_content = False

    def run(self) -> list[nodes.Node]:
        path = Path(self.env.srcdir).parent / 'CHANGELOG.md'
        self.env.note_dependency(str(path))
        lines = to_rst(path.read_text(encoding='utf-8')).splitlines()
        parent = nodes.section()
        parent.document = self.state.document
        content = StringList(lines, source=str(path))
        self.state.nested_parse(content, 0, parent, match_titles=True)
        return parent.children


def to_rst(text: str) -> str:
    r"""Translates headings, links, code and lists.

    Example:
        >>> to_rst('# Changelog\n\n## [1.0]\n\n### Fixed\n\n### Added\n\n- `x`')
        '1.0\n---\n\nAdded\n~~~~~\n\n- ``x``'
    """
    text = re.sub(r'\[([^\]]+)\]\((\S+?)\)', r'`\1 <\2>`__', text)
    text = re.sub(r'(?<!`)`([^`\n]+)`(?![`_])', r'``\1``', text)
    text = re.sub(r'^(## )\[([^\]]+)\]', r'\1\2', text, flags=re.MULTILINE)
    blocks = re.split(r'^(?=#{1,3} )', text, flags=re.MULTILINE)
    out = []
    for block in blocks:
        heading, _, body = block.partition('\n')
        marks, _, title = heading.partition(' ')
        level = len(marks) if set(marks) == {'#'} else 0
        if level == 3 and not body.strip():
            continue
        if level in UNDERLINES:
            out.append(f'{title}\n{UNDERLINES[level] * len(title)}')
        out.append(body.strip())
    return '\n\n'.join(part for part in out if part)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive('changelog', Changelog)
    return {'parallel_read_safe': True}
