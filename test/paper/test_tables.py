"""Tables: their numbers and formats, and the documents that hold them."""

import re

import pytest

from reproduction.documents import DOCS, DOCUMENTS, OWN, RESULTS, SEEDS, fill, render
from reproduction.experiments import Choice, make_config
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


@pytest.mark.parametrize('kind', FORMATS)
def test_formats(kind):
    assert text_of(GRID, kind) == TEXTS[kind]
    empty = Grid(['', 'wine'], [('MLP', [Entry('', 'paper: 1')])], ['A note.'])
    assert text_of(empty, kind).startswith('Nothing to show: no finished runs')
    with pytest.raises(ValueError, match=r"'format' must be one of .* \(got 'html'\)"):
        text_of(GRID, 'html')


def finish(store, config, test, status='done'):
    store.finish(config, {'status': status, 'test': test, 'val': 0.5}, {'starts': [{}]})


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path)
    for seed, test in enumerate((0.70, 0.71, 0.73)):
        finish(store, make_config('CiteSeer', 'mlp', seed), test)
        finish(
            store, make_config('CiteSeer', 'lin_sim', seed), test - 0.02 + seed / 200
        )
        finish(store, make_config('CiteSeer', 'lin_sim', seed, k=10), test)
    return store


def lines(store, name, *methods):
    return render(
        name, 'markdown', store, Choice(('CiteSeer',), methods, SEEDS)
    ).splitlines()


def test_numbers(store):
    found = lines(store, 'table1')
    assert len(found) == 2 + 16 + 2
    assert '| MLP | **71.3 ± 1.5 (3)** |' in found
    assert '| LinSim | 69.8 ± 2.0 (3)<br>paper: 67.23 ± 0.23 |' in found
    assert '| SLAPS | paper: 68.23 ± 0.22 |' in found
    found = lines(store, 'table2')
    assert '| K = 10, LinSim | **71.3 ± 1.5 (3)**<br>paper: 66.10 ± 0.82 |' in found
    assert '| K = 20, LinSim | paper: 64.39 ± 0.76 |' in found


def test_paired_and_verdicts(store):
    found = lines(store, 'paired', 'lin_sim')
    assert found[2] == '| LinSim - MLP | -1.5 ± 0.5, p = 0.081 (3) |'
    assert lines(store, 'verdicts', 'lin_sim')[2] == '| LinSim | above |'
    # A run that was ended early marks the verdict, too.
    finish(store, make_config('CiteSeer', 'lin_sim', 3), 0.70, status='timeout')
    found = lines(store, 'verdicts', 'lin_sim')
    assert found[2] == '| LinSim | above† |'
    assert found[-1].startswith('† stopped at its time limit')
    finish(store, make_config('CiteSeer', 'idgl', 0), None, status='timeout')
    assert lines(store, 'verdicts', 'idgl')[2] == '| IDGL-Full | † |'


@pytest.mark.parametrize('path', DOCUMENTS, ids=lambda path: path.name)
def test_tables_are_what_the_script_writes(path):
    text = path.read_text(encoding='utf-8')
    kind = 'markdown' if path.suffix == '.md' else 'rst'
    filled = fill(text, kind, Store(RESULTS, archives_only=True))
    assert filled.text == text
    for name, rows in filled.files.items():
        assert (DOCS / name).read_text(encoding='utf-8') == rows, name


def test_every_table_stands_in_a_document():
    pages = '\n'.join(path.read_text(encoding='utf-8') for path in DOCUMENTS)
    found = re.findall(r'^(?:\.\.|<!--) begin (\w+)', pages, re.M)
    assert sorted(found) == sorted([*TABLES, *OWN])


def test_results_are_of_committed_code_and_one_thread():
    # A user's own runs may stand beside them.
    for path in (RESULTS / f'{name}{ARCHIVE}' for name in PAPER):
        assert path.exists()
        for name, record in read_archive(path).items():
            assert not record['environment']['git_changes'], name
            assert record['cost']['threads'] == 1, name
            # None stands in the archive of another data set.
            assert path.name == f'{record["config"]["dataset"]}{ARCHIVE}'
