"""Write a table as Markdown, reStructuredText, CSV or LaTeX."""

from __future__ import annotations

import csv
import io
import re
import textwrap
from collections.abc import Callable, Iterable
from typing import Any

from reproduction.tables import Entry, Grid

#: Characters that TeX treats as commands or does not have.
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


def _texts(entry: Entry) -> list[str]:
    ours = f'**{entry.ours}**' if entry.is_best and entry.ours else entry.ours
    return [text for text in (ours, entry.paper) if text]


def _markdown(grid: Grid) -> str:
    rows = [grid.head, ['---'] * len(grid.head)]
    rows += [
        [title, *('<br>'.join(_texts(entry)) for entry in entries)]
        for title, entries in grid.rows
    ]
    lines = [f'| {" | ".join(row)} |' for row in rows]
    return '\n'.join([*lines, '', '\n\n'.join(grid.notes)]) + '\n'


def csv_rows(rows: Iterable[Iterable[Any]]) -> str:
    """Write rows as CSV, one line each."""
    file = io.StringIO()
    csv.writer(file, lineterminator='\n').writerows(rows)
    return file.getvalue()


def _csv(grid: Grid) -> str:
    rows = [[title, *('; '.join(_texts(e)) for e in row)] for title, row in grid.rows]
    return csv_rows([grid.head, *rows])


def rst_table(grid: Grid, file: str | None = None) -> str:
    """Write a table for Sphinx; the rows are in a file if one is given."""
    lines = ['.. csv-table::', '   :header-rows: 1', '   :class: results']
    if file is None:
        lines += ['', textwrap.indent(_csv(grid), '   ').rstrip()]
    else:
        lines.insert(1, f'   :file: {file}')
    return '\n'.join([*lines, '', '\n\n'.join(grid.notes)]) + '\n'


def _latex(grid: Grid) -> str:
    def text(entry: Entry) -> str:
        ours, paper = _tex(entry.ours), _tex(entry.paper)
        ours = rf'\textbf{{{ours}}}' if entry.is_best else ours
        return rf'\makecell{{{ours} \\ {paper}}}' if ours and paper else ours or paper

    rows = [[_tex(title), *map(text, entries)] for title, entries in grid.rows]
    top, *body = (f'{" & ".join(row)} \\\\' for row in [[*map(_tex, grid.head)], *rows])
    lines = [
        r'% Needs \usepackage{booktabs,makecell}.',
        rf'\begin{{tabular}}{{l{"c" * (len(grid.head) - 1)}}}',
        *(r'\toprule', top, r'\midrule', *body, r'\bottomrule', r'\end{tabular}'),
        # Below the table, where TeX breaks lines.
        *(rf'\par\smallskip {_tex(note)}' for note in grid.notes if note),
    ]
    return '\n'.join(lines) + '\n'


def _tex(text: str) -> str:
    """Escape a text for TeX."""
    escaped = [''.join(SIGNS.get(sign, sign) for sign in t) for t in MINUS.split(text)]
    return '$-$'.join(escaped)


FORMATS: dict[str, Callable[[Grid], str]] = {
    'markdown': _markdown,
    'rst': rst_table,
    'csv': _csv,
    'latex': _latex,
}


def text_of(grid: Grid, markup: str) -> str:
    """Write a table in a format, or a message that there is nothing to show."""
    if markup not in FORMATS:
        raise ValueError(f"'format' must be one of {(*FORMATS,)} (got {markup!r})")
    if grid.is_empty:
        return f'Nothing to show: {grid.empty}.\n'
    return FORMATS[markup](grid)
