"""Tables: their numbers, formats and notes, and the command that prints them."""

import functools
import re
import shutil
import sys

import pytest

from reproduction import documents
from reproduction.documents import SEEDS, fill, render, write_documents
from reproduction.experiments import Choice, make_config
from reproduction.formats import FORMATS, text_of
from reproduction.settings import RESULTS
from reproduction.store import Store
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


def test_latex_of_any_text():
    name = 'a&b_50%#{$}~^\\.csv'
    rows = [('A - B-C', [Entry('-0.6 ± 1.0, p < 0.001 (3)')])]
    lines = text_of(Grid(['', name], rows, ['100 %']), 'latex').splitlines()
    assert lines[3] == (
        r' & a\&b\_50\%\#\{\$\}\textasciitilde{}\textasciicircum{}'
        r'\textbackslash{}.csv \\'
    )
    assert lines[5] == r'A $-$ B-C & $-$0.6 $\pm$ 1.0, p $<$ 0.001 (3) \\'
    assert lines[-1] == r'\par\smallskip 100 \%'


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


@pytest.mark.parametrize(
    ('scores', 'gau_sim', 'mlp'),
    [
        # One run is not the best.
        ((0.99,), '99.0 (1)', '**71.3 ± 1.5 (3)**'),
        # Fewer splits may be easier ones.
        ((0.70, 0.71, 0.73, 0.60), '**68.5 ± 5.8 (4)**', '71.3 ± 1.5 (3)'),
    ],
)
def test_the_best_of_most_runs(store, scores, gau_sim, mlp):
    for seed, test in enumerate(scores):
        finish(store, make_config('CiteSeer', 'gau_sim', seed), test)
    found = lines(store, 'table1')
    assert f'| GauSim | {gau_sim}<br>paper: 69.19 ± 0.14 |' in found
    assert f'| MLP | {mlp} |' in found


@pytest.mark.parametrize('name', [*TABLES, *documents.OWN])
def test_every_table_renders_without_runs(tmp_path, name):
    for kind in FORMATS:
        assert render(name, kind, Store(tmp_path), Choice(('wine',), (), SEEDS)).strip()


def test_fill_renews_and_settles(store):
    text = 'a\n<!-- begin table1 -->\nstale\n<!-- end table1 -->\nb\n'
    once, files = fill(text, 'markdown', store)
    assert 'stale' not in once
    assert re.search(r'^a\n.*71\.3.*\nb\n$', once, re.S)
    assert fill(once, 'markdown', store) == (once, {})
    assert files == {}
    with pytest.raises(ValueError, match="'begin' and 'end' of tables do not match"):
        fill(text.replace('end table1', 'end table2'), 'markdown', store)


def test_rows_of_a_page_stand_in_files(store, tmp_path, capsys):
    page, rows = tmp_path / 'page.rst', tmp_path / '_tables' / 'table1.csv'
    names = ('table1', 'tuned')  # One has runs.
    page.write_text(''.join(f'.. begin {n}\nstale\n.. end {n}\n' for n in names))
    write_documents(store, (page,))
    text = page.read_text()
    assert ':file: _tables/table1.csv\n' in text
    assert '71.3' not in text
    assert 'Nothing to show: ' in text
    assert 'MLP,**71.3 ± 1.5 (3)**,' in rows.read_text()
    assert [*rows.parent.iterdir()] == [rows]
    assert capsys.readouterr().out == f'wrote {page}\nwrote {rows}\n'
    write_documents(store, (page,))
    assert capsys.readouterr().out == ''


@pytest.fixture
def show(call):
    return functools.partial(call, documents.main)


@pytest.fixture(autouse=True)
def _documents_stay(monkeypatch):
    monkeypatch.setattr(
        documents, 'write_documents', lambda store: sys.stdout.write('written\n')
    )


def write_table(path, first=0):
    path.parent.mkdir(exist_ok=True)
    rows = [f'{first + i},{"ab"[i % 2]}' for i in range(8)]
    path.write_text('\n'.join(['u,kind', *rows]) + '\n')
    return path


def finish_all(results, *datasets, count=3):
    store = Store(results)
    configs = [
        make_config(str(dataset), method, seed, label='kind')
        for dataset in datasets
        for method in ('mlp', 'lin_sim')
        for seed in range(count)
    ]
    for config in configs:
        finish(store, config, 0.7 + config.seed / 100)
    store.collect(configs)


def test_write(show, tmp_path):
    link = tmp_path / 'link'
    link.symlink_to(RESULTS)
    for words in ([], ['--results', RESULTS], ['--results', link]):
        assert show('--write', *words) == 'written\n'


ALL = '--write renews all tables, from the results of this program: leave out '


@pytest.mark.parametrize(
    ('words', 'text'),
    [
        ('--write table1', f'{ALL}table1'),
        ('--write --preset standard', f'{ALL}--preset'),
        ('--write --methods mlp', f'{ALL}--methods'),
        ('--write --label kind', f'{ALL}--label'),
        ('--write --format markdown', f'{ALL}--format'),
        ('--write --datasets wine', f'{ALL}--datasets'),
        ('--write --results found', f'{ALL}--results found'),
        ('table4 --datasets wine', 'table4 has data of its own: leave out --datasets'),
        ('table4 --label y', 'table4 has labels of its own: leave out --label'),
        ('table4 --preset quick', 'table4 has settings of its own: leave out --preset'),
        ('table4 --methods mlp', 'table4 has rows of its own: leave out --methods'),
        ('hidden --datasets wine', 'hidden has data of its own: leave out --datasets'),
        ('table2 --methods mlp', 'table2 has rows of its own: leave out --methods'),
        ('tuned --preset paper', 'tuned has settings of its own: leave out --preset'),
        ('tuned --methods mlp', 'tuned has rows of its own: leave out --methods'),
        ('controls --methods mlp', 'controls has rows of its own: leave out --methods'),
        ('', 'name a table, or --write'),
    ],
)
def test_what_has_no_meaning_is_refused(show, words, text):
    assert f'error: {text}\n' in show(*words.split())


@pytest.mark.parametrize('name', [*TABLES, *documents.OWN, '--write'])
def test_a_folder_without_results_is_refused(show, tmp_path, monkeypatch, name):
    own = {'table4': 'cost.json', 'hidden': 'hidden.json', 'pays': 'hidden.json'}
    own |= {name: f'{name}.json' for name in ('noise', 'labels', 'half')}
    own['tables'] = 'tables/*.json'
    needed = own.get(name.partition('_')[0], '*.runs.json.gz')
    for folder, what in ((tmp_path, 'holds none'), (tmp_path / 'no', 'is no folder')):
        monkeypatch.setattr(documents, 'RESULTS', folder)
        told = show(name, '--results', folder)
        text = f"must be a folder with {needed} (got '{folder}', which {what})"
        assert told.endswith(f'--results {text}\n')
    assert not (tmp_path / 'no').exists()


def test_table4_needs_its_own_file_only(show, tmp_path):
    shutil.copy(RESULTS / 'cost.json', tmp_path)
    assert '| seconds | MB |' in show('table4', '--results', tmp_path)
    assert 'holds none' in show('table1', '--results', tmp_path)


def test_what_is_named_twice_counts_once(show, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path / 'my.csv')
    finish_all(tmp_path, 'wine', 'my.csv')
    words = ['--results', '.', '--label', 'kind', '--datasets', 'wine', 'my.csv']
    words += ['wine', './my.csv', tmp_path / 'my.csv', '--methods', 'mlp', 'mlp']
    text = show('table1', *words)
    assert text.startswith('|  | wine | my.csv |\n')
    assert len(re.findall(r'^\| MLP ', text, re.M)) == 1


@pytest.mark.parametrize('name', ['table1', 'controls', 'paired'])
def test_a_file_heads_its_column_by_its_name(show, tmp_path, name):
    path, twin = (write_table(tmp_path / f / 'my.csv', i) for i, f in enumerate('ab'))
    finish_all(tmp_path, path, twin)
    # Two of one name are told apart.
    heads = {('wine', path): 'wine | my.csv', (path, twin): f'{path} | {twin}'}
    for datasets, head in heads.items():
        words = ['--results', tmp_path, '--label', 'kind', '--datasets', *datasets]
        assert show(name, *words).startswith(f'|  | {head} |\n')


def test_verdicts_on_what_the_paper_has_not(show, tmp_path):
    path = write_table(tmp_path / 'my.csv')
    finish_all(tmp_path, 'CiteSeer', path)
    verdicts = ['verdicts', '--results', tmp_path]
    words = [*verdicts, '--label', 'kind', '--datasets', path]
    absent = 'paper has no figures of my.csv'
    assert show(*words) == f'Nothing to show: the {absent}.\n\n'
    found = show(*words, 'CiteSeer')
    assert found.startswith('|  | CiteSeer |\n')
    assert found.endswith(f'\n\nThe {absent}.\n\n')
    for more in ([], ['--preset', 'quick']):
        told = show(*verdicts, '--methods', 'mlp', *more)
        assert told == 'Nothing to show: the paper has no figures of controls.\n\n'


@pytest.mark.parametrize(
    ('words', 'text'),
    [
        ('verdicts', 'no method has 3 finished runs of this choice yet'),
        (
            'paired --preset quick',
            'no finished runs to compare on the same splits yet, but some of --preset',
        ),
        (
            'table1 --preset quick',
            'no finished runs of this choice yet, but some of --preset standard.',
        ),
        ('tuned', 'no finished runs of settings that a search has found yet'),
    ],
)
def test_why_there_is_nothing_to_show(show, tmp_path, words, text):
    finish_all(tmp_path, 'CiteSeer', count=2)
    told = show(*words.split(), '--results', tmp_path)
    assert f'Nothing to show: {text}' in told
