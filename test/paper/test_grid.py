from __future__ import annotations

import pytest
from grid import FORMATS, Entry, Grid

GRID = Grid(
    ['', 'wine', 'iris'],
    [
        ('GCN_knn', [Entry('70.1 ± 0.2 (3)', '69.1 ± 0.3', True), Entry('', 'OOM')]),
        ('MLP', [Entry('60.0† (1)'), Entry('50%')]),
    ],
    ['A note.'],
)


def test_markdown() -> None:
    assert GRID.render('markdown') == (
        '|  | wine | iris |\n'
        '| --- | --- | --- |\n'
        '| GCN_knn | **70.1 ± 0.2 (3)**<br>69.1 ± 0.3 | OOM |\n'
        '| MLP | 60.0† (1) | 50% |\n'
        '\n'
        'A note.\n'
    )


def test_rst() -> None:
    assert GRID.render('rst') == (
        '.. list-table::\n'
        '   :header-rows: 1\n'
        '\n'
        '   * -\n'
        '     - wine\n'
        '     - iris\n'
        '   * - GCN_knn\n'
        '     - | **70.1 ± 0.2 (3)**\n'
        '       | 69.1 ± 0.3\n'
        '     - | OOM\n'
        '   * - MLP\n'
        '     - | 60.0† (1)\n'
        '     - | 50%\n'
        '\n'
        'A note.\n'
    )


def test_latex() -> None:
    assert GRID.render('latex') == (
        '% Needs \\usepackage{booktabs,makecell}.\n'
        '\\begin{tabular}{lcc}\n'
        '\\toprule\n'
        ' & wine & iris \\\\\n'
        '\\midrule\n'
        'GCN\\_knn & \\makecell{\\textbf{70.1 $\\pm$ 0.2 (3)} \\\\ 69.1 $\\pm$ 0.3}'
        ' & OOM \\\\\n'
        'MLP & 60.0$\\dagger$ (1) & 50\\% \\\\\n'
        '\\bottomrule\n'
        '\\end{tabular}\n'
        '\\par\\smallskip A note.\n'
    )


def test_latex_of_any_text() -> None:
    name = 'a&b_50%#{$}~^\\.csv'
    rows = [('A - B-C', [Entry('-0.6 ± 1.0, p < 0.001 (3)')])]
    lines = Grid(['', name], rows, ['100 %']).render('latex').splitlines()
    assert lines[3] == (
        r' & a\&b\_50\%\#\{\$\}\textasciitilde{}\textasciicircum{}'
        r'\textbackslash{}.csv \\'
    )
    assert lines[5] == r'A $-$ B-C & $-$0.6 $\pm$ 1.0, p $<$ 0.001 (3) \\'
    assert lines[-1] == r'\par\smallskip 100 \%'


def test_nothing_to_show() -> None:
    empty = Grid(['', 'wine'], [('MLP', [Entry('', 'paper: 1')])], ['A note.'])
    for kind in FORMATS:
        assert empty.render(kind).startswith('Nothing to show: no finished runs')


def test_unknown_format() -> None:
    with pytest.raises(ValueError, match=r"'format' must be one of .* \(got 'html'\)"):
        GRID.render('html')
