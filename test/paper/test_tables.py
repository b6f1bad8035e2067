"""Tables: their numbers and formats, and the documents that hold them."""

import re

import pytest

from reproduction.documents import DOCS, DOCUMENTS, RESULTS, STUDIES, fill
from reproduction.formats import FORMATS, text_of
from reproduction.settings import PAPER
from reproduction.store import ARCHIVE, Store, read_archive
from reproduction.tables import TABLES, Entry, Grid

GRID = Grid(
    ['', 'wine', 'iris'],
    [
        ('GCN_knn', [Entry('70.1 ± 0.2 (3)', '69.1 ± 0.3', True), Entry('', 'OOM')]),
        ('MLP', [Entry('60.0† (1)'), Entry('50%')]),
    ],
    ['A note.'],
)


TEXTS = {
    'markdown': """\
|  | wine | iris |
| --- | --- | --- |
| GCN_knn | **70.1 ± 0.2 (3)**<br>69.1 ± 0.3 | OOM |
| MLP | 60.0† (1) | 50% |

A note.
""",
    'rst': """\
.. csv-table::
   :header-rows: 1
   :class: results

   ,wine,iris
   GCN_knn,**70.1 ± 0.2 (3)**; 69.1 ± 0.3,OOM
   MLP,60.0† (1),50%

A note.
""",
    'csv': """\
,wine,iris
GCN_knn,**70.1 ± 0.2 (3)**; 69.1 ± 0.3,OOM
MLP,60.0† (1),50%
""",
    'latex': r"""% Needs \usepackage{booktabs,makecell}.
\begin{tabular}{lcc}
\toprule
 & wine & iris \\
\midrule
GCN\_knn & \makecell{\textbf{70.1 $\pm$ 0.2 (3)} \\ 69.1 $\pm$ 0.3} & OOM \\
MLP & 60.0$\dagger$ (1) & 50\% \\
\bottomrule
\end{tabular}
\par\smallskip A note.
""",
}


@pytest.mark.parametrize('markup', FORMATS)
def test_formats(markup):
    assert text_of(GRID, markup) == TEXTS[markup]
    empty = Grid(['', 'wine'], [('MLP', [Entry('', 'paper: 1')])], ['A note.'])
    assert text_of(empty, markup).startswith('Nothing to show: no finished runs')
    with pytest.raises(ValueError, match=r"'format' must be one of .* \(got 'html'\)"):
        text_of(GRID, 'html')


@pytest.mark.parametrize('path', DOCUMENTS, ids=lambda path: path.name)
def test_tables_are_what_the_script_writes(path):
    text = path.read_text(encoding='utf-8')
    filled = fill(text, Store(RESULTS, archives_only=True))
    assert filled.text == text
    for name, rows in filled.files.items():
        assert (DOCS / name).read_text(encoding='utf-8') == rows, name


def test_every_table_stands_in_a_document():
    pages = '\n'.join(path.read_text(encoding='utf-8') for path in DOCUMENTS)
    names = re.findall(r'^\.\. begin (\w+)', pages, re.M)
    assert sorted(names) == sorted([*TABLES, *STUDIES])


def test_results_are_of_committed_code_and_one_thread():
    # A user's own runs may stand beside them.
    for path in (RESULTS / f'{name}{ARCHIVE}' for name in PAPER):
        assert path.exists()
        for name, record in read_archive(path).items():
            assert not record['environment']['git_changes'], name
            assert record['cost']['threads'] == 1, name
            # None stands in the archive of another data set.
            assert path.name == f'{record["config"]["dataset"]}{ARCHIVE}'
