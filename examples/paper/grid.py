"""A table as text: Markdown, reStructuredText or LaTeX."""

from __future__ import annotations

import re
from typing import NamedTuple

FORMATS = ('markdown', 'rst', 'latex')
#: What TeX would take for a command or does not know.
SIGNS = {
    '\\': r'\textbackslash{}',
    **{sign: rf'\{sign}' for sign in '&%#$_{}'},
    '~': r'\textasciitilde{}',
    '^': r'\textasciicircum{}',
    '<': '$<$',
    '>': '$>$',
    '±': r'$\pm$',
    '†': r'$\dagger$',
    '‡': r'$\ddagger$',
    '§': r'\S{}',
}
#: A sign of a number, or a minus between two names.
MINUS = re.compile(r'(?:(?<=\s)|^)-(?=[\d\s])')


class Entry(NamedTuple):
    """A cell: our figure, the paper's below it, and whether ours is the best."""

    ours: str
    paper: str = ''
    is_best: bool = False


class Grid(NamedTuple):
    """Column titles and rows of a title and entries.

    Args:
        head: The titles; the first stands above the titles of the rows.
        rows: Title and entries of each row.
        notes: Lines below the table.
        empty: Why there may be nothing to show.
    """

    head: list[str]
    rows: list[tuple[str, list[Entry]]]
    notes: list[str]
    empty: str = 'no finished runs of this choice yet'

    @property
    def is_empty(self) -> bool:
        return not any(entry.ours for _, entries in self.rows for entry in entries)

    def render(self, kind: str) -> str:
        if kind not in FORMATS:
            raise ValueError(f"'format' must be one of {FORMATS} (got {kind!r})")
        if self.is_empty:
            return f'Nothing to show: {self.empty}.\n'
        return {'markdown': _markdown, 'rst': _rst, 'latex': _latex}[kind](self)


def _markdown(grid: Grid) -> str:
    def text(entry: Entry) -> str:
        ours = f'**{entry.ours}**' if entry.is_best else entry.ours
        return '<br>'.join(part for part in (ours, entry.paper) if part)

    lines = [_bar(grid.head), _bar(['---'] * len(grid.head))]
    lines += [_bar([title, *map(text, entries)]) for title, entries in grid.rows]
    return '\n'.join([*lines, '', '\n\n'.join(grid.notes)]) + '\n'


def _bar(cells: list[str]) -> str:
    return f'| {" | ".join(cells)} |'


def _rst(grid: Grid) -> str:
    def text(entry: Entry) -> str:
        ours = f'**{entry.ours}**' if entry.is_best and entry.ours else entry.ours
        parts = [part for part in (ours, entry.paper) if part]
        return '\n       '.join(f'| {part}' for part in parts)

    lines = ['.. list-table::', '   :header-rows: 1', '']
    rows = [(grid.head[0], grid.head[1:])]
    rows += [(title, [text(entry) for entry in cells]) for title, cells in grid.rows]
    for title, cells in rows:
        lines.append(f'   * - {title}'.rstrip())
        lines += [f'     - {cell}'.rstrip() for cell in cells]
    return '\n'.join([*lines, '', '\n\n'.join(grid.notes)]) + '\n'


def _latex(grid: Grid) -> str:
    def text(entry: Entry) -> str:
        ours, paper = _tex(entry.ours), _tex(entry.paper)
        ours = rf'\textbf{{{ours}}}' if entry.is_best else ours
        parts = [part for part in (ours, paper) if part]
        content = r' \\ '.join(parts)
        return rf'\makecell{{{content}}}' if len(parts) > 1 else content

    def line(cells: list[str]) -> str:
        return f'{" & ".join(cells)} \\\\'

    body = [line([_tex(title), *map(text, entries)]) for title, entries in grid.rows]
    top = [r'% Needs \usepackage{booktabs,makecell}.']
    top.append(rf'\begin{{tabular}}{{l{"c" * (len(grid.head) - 1)}}}')
    top += [r'\toprule', line([_tex(title) for title in grid.head]), r'\midrule']
    # Below the table, where lines are broken.
    notes = [rf'\par\smallskip {_tex(note)}' for note in grid.notes if note]
    return '\n'.join([*top, *body, r'\bottomrule', r'\end{tabular}', *notes]) + '\n'


def _tex(text: str) -> str:
    """The text as TeX prints it."""
    parts = [''.join(SIGNS.get(sign, sign) for sign in t) for t in MINUS.split(text)]
    return '$-$'.join(parts)
