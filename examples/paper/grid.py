"""A table as text: Markdown, reStructuredText or LaTeX."""

from __future__ import annotations

from typing import NamedTuple

FORMATS = ('markdown', 'rst', 'latex')
SIGNS = {
    '±': r'$\pm$',
    '_': r'\_',
    '<': '$<$',
    '†': r'$\dagger$',
    '‡': r'$\ddagger$',
    '§': r'\S{}',
}


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
    """

    head: list[str]
    rows: list[tuple[str, list[Entry]]]
    notes: list[str]

    def render(self, kind: str) -> str:
        if kind not in FORMATS:
            raise ValueError(f"'format' must be one of {FORMATS} (got {kind!r})")
        if not any(entries for _, entries in self.rows):
            return 'No finished runs yet.\n'
        return {'markdown': _markdown, 'rst': _rst, 'latex': _latex}[kind](self)


def _markdown(grid: Grid) -> str:
    def text(entry: Entry) -> str:
        ours = f'**{entry.ours}**' if entry.is_best else entry.ours
        return '<br>'.join(part for part in (ours, entry.paper) if part)

    lines = [_bar(grid.head), _bar(['---'] * len(grid.head))]
    lines += [_bar([title, *map(text, entries)]) for title, entries in grid.rows]
    return '\n'.join([*lines, '', *grid.notes]) + '\n'


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
    return '\n'.join([*lines, '', *grid.notes]) + '\n'


def _latex(grid: Grid) -> str:
    def text(entry: Entry) -> str:
        ours = entry.ours.replace('%', r'\%')
        ours = rf'\textbf{{{ours}}}' if entry.is_best else ours
        parts = [part for part in (ours, entry.paper) if part]
        content = r' \\ '.join(parts)
        return rf'\makecell{{{content}}}' if len(parts) > 1 else content

    def line(cells: list[str]) -> str:
        joined = ' & '.join(cells)
        for sign, command in SIGNS.items():
            joined = joined.replace(sign, command)
        return f'{joined} \\\\'

    body = [line([title, *map(text, entries)]) for title, entries in grid.rows]
    top = [r'% Needs \usepackage{booktabs,makecell}.']
    top.append(rf'\begin{{tabular}}{{l{"c" * (len(grid.head) - 1)}}}')
    top += [r'\toprule', line(grid.head), r'\midrule']
    notes = [
        line([rf'\multicolumn{{{len(grid.head)}}}{{l}}{{{text(Entry(note))}}}'])
        for note in grid.notes
        if note
    ]
    return '\n'.join([*top, *body, r'\bottomrule', *notes, r'\end{tabular}']) + '\n'
