"""The tables in README and documentation are those of the finished runs."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import optuna
import pytest
from archive import read_archive
from cells import cells
from config import RunConfig
from experiments import FULL, KS, TRANSITION, Choice
from files import write_json
from journal import open_journal
from methods import METHODS
from optuna.storages import JournalStorage
from optuna.trial import TrialState
from published import accuracies
from settings import PAPER, make_config
from store import Store
from summary import compare, verdict
from tables import DOCUMENTS, RESULTS, SEEDS, TABLES, fill, render


def kind_of(path: Path) -> str:
    return 'markdown' if path.suffix == '.md' else 'rst'


@pytest.mark.parametrize('path', DOCUMENTS, ids=lambda path: path.name)
def test_tables_equal_the_results(path: Path) -> None:
    text = path.read_text(encoding='utf-8')
    assert fill(text, kind_of(path), Store(RESULTS, archives_only=True)) == text


def test_what_the_text_says_of_our_rows() -> None:
    """Of their comparisons with the controls."""
    store, choice = Store(RESULTS, archives_only=True), Choice((), (), SEEDS)
    ours = [m for m in METHODS.values() if m.group == 'ours']
    heads = {f'{m.title} - {c}' for m in ours for c in ('MLP', 'Uniform random graph')}
    beside_knn = {f'{m.title} - kNN-GCN, root weight' for m in ours}
    detected, count = [], 0
    knn: list[tuple[str, float]] = []
    for line in render('paired', 'markdown', store, choice).splitlines():
        _, title, *entries = (entry.strip() for entry in f'{line}|'.split('|'))
        found = [re.match(r'(\S+) .*p [=<] ([\d.]+)', entry) for entry in entries]
        pairs = [(m[1], float(m[2])) for m in found if m is not None]
        if title in heads:
            detected += [(title, mean) for mean, p in pairs if p < 0.05]
            count += len(pairs)
        if title in beside_knn:
            knn += pairs
    assert (len(knn), sum(float(mean) < 0 for mean, _ in knn)) == (42, 36)
    worse = sorted(float(mean) for mean, p in knn if p < 0.05)
    assert worse == [-3.9, -3.8, -3.5, -3.0, -2.9, -2.7, -2.5, -2.4, -2.4, -2.2, -1.3]
    assert count == 84
    assert detected == [
        ('LinSim-T - Uniform random graph', '-0.7'),
        ('NeuralGauSim-T - MLP', '-0.4'),
        ('NeuralGauSim-T - Uniform random graph', '-0.4'),
    ]


def test_what_the_text_says_of_the_number_of_draws() -> None:
    """Rows below the paper, and differences of K = 20 and 5, in Tables 2 and 3."""
    store = Store(RESULTS, archives_only=True)
    names = ('CiteSeer', 'Chameleon', '20News')
    below, changes = [], {}
    for table, methods in (('table2', FULL), ('table3', TRANSITION)):
        paper, choice = accuracies(table), Choice(names, methods, SEEDS)
        found = {k: cells(store, choice, k=k) for k in KS}
        for k, row in found.items():
            judged = [
                (key, verdict(cell, paper.get((k, *key)))) for key, cell in row.items()
            ]
            below += [(k, *key) for key, word in judged if word == 'below']
        for key, cell in found[20].items():
            if (pair := compare(cell, found[5][key])) is not None:
                assert pair.count == 3
                changes[key] = (round(pair.difference, 1), round(pair.p_value, 2))
    assert below == [(k, 'gau_sim_t', 'CiteSeer') for k in (15, 20)]
    assert min(p for _, p in changes.values()) == 0.09
    lost = {key[0]: changes.pop(key) for key in [*changes] if key[1] == 'CiteSeer'}
    of_transition = [lost.pop(method) for method in TRANSITION]
    assert min(of_transition) == (-4.0, 0.33)
    assert max(of_transition)[0] == -2.5
    assert changes.pop(('lin_sim', 'Chameleon')) == (-2.6, 0.2)
    assert all(abs(mean) < 1 for mean, _ in [*lost.values(), *changes.values()])


def test_every_table_stands_in_a_document() -> None:
    found = []
    for path in DOCUMENTS:
        found += re.findall(r'begin (\w+)', path.read_text(encoding='utf-8'))
    assert sorted(found) == sorted([*TABLES, 'table4'])


@pytest.mark.filterwarnings('ignore::optuna.exceptions.ExperimentalWarning')
def test_the_studies_of_the_search(tmp_path: Path) -> None:
    journal = Path(shutil.copy(RESULTS / 'search.journal', tmp_path))
    storage = open_journal(journal)
    names = optuna.get_all_study_names(storage)
    rows = {
        'NeuralGauSim, first': 'neural_gau_sim/standard',
        **{
            f'NeuralGauSim, ``/{i}``': f'neural_gau_sim/standard/{i}' for i in (1, 2, 3)
        },
        'MLP': 'mlp/standard',
        'kNN-GCN, root weight': 'knn_gcn_root/standard',
    }
    columns = ('CiteSeer', 'Chameleon', '20News')
    lines = []
    for title, name in rows.items():
        lines.append(f'   * - {title}')
        for column in columns:
            study = f'{column}/{name}'
            shown = ended(study, storage) if study in names else ''
            lines.append(f'     - {shown}'.rstrip())
    assert {*names} == {f'{c}/{name}' for c in columns for name in rows.values()} - {
        *('Chameleon/neural_gau_sim/standard/1', '20News/neural_gau_sim/standard/1'),
        '20News/neural_gau_sim/standard',
    }
    text = DOCUMENTS[1].read_text(encoding='utf-8')
    assert '\n'.join(lines) in text


def ended(name: str, storage: JournalStorage) -> str:
    study = optuna.load_study(study_name=name, storage=storage)
    whole, cut_short = (
        len(study.get_trials(states=(state,)))
        for state in (TrialState.COMPLETE, TrialState.PRUNED)
    )
    return f'{whole + cut_short} ({whole}): {100 * study.best_value:.2f}'


def test_results_are_of_committed_code_and_one_thread() -> None:
    # A user's own runs may stand beside them.
    for path in (RESULTS / f'{name}.runs.json' for name in PAPER):
        assert path.exists()
        for name, record in read_archive(path).items():
            assert not record['environment']['git_changes'], name
            assert record['cost']['threads'] == 1, name
            # None stands in the archive of another data set.
            assert path.name == f'{record["config"]["dataset"]}.runs.json'


def finish(
    store: Store, config: RunConfig, test: float | None, status: str = 'done'
) -> None:
    folder = store.folder(config)
    write_json(folder / 'about.json', {'starts': [{}]})
    outcome = {'status': status, 'test': test, 'val': 0.5}
    write_json(folder / 'result.json', {'config': config.to_dict(), **outcome})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path)
    for seed, test in enumerate((0.70, 0.71, 0.73)):
        finish(store, make_config('CiteSeer', 'mlp', seed), test)
        finish(
            store, make_config('CiteSeer', 'lin_sim', seed), test - 0.02 + seed / 200
        )
        finish(store, make_config('CiteSeer', 'lin_sim', seed, k=10), test)
    return store


def lines(store: Store, name: str, **choice: tuple[str, ...]) -> list[str]:
    chosen = Choice(choice.get('datasets', ()), choice.get('methods', ()), SEEDS)
    return render(name, 'markdown', store, chosen).splitlines()


def test_table1(store: Store) -> None:
    found = lines(store, 'table1', datasets=('CiteSeer',))
    assert len(found) == 2 + 16 + 2
    assert '| MLP | **71.3 ± 1.5 (3)** |' in found
    assert '| LinSim | 69.8 ± 2.0 (3)<br>paper: 67.23 ± 0.23 |' in found
    assert '| SLAPS | paper: 68.23 ± 0.22 |' in found


def test_paired_and_verdicts(store: Store) -> None:
    found = lines(store, 'paired', datasets=('CiteSeer',), methods=('lin_sim',))
    assert found[2] == '| LinSim - MLP | -1.5 ± 0.5, p = 0.081 (3) |'
    found = lines(store, 'verdicts', datasets=('CiteSeer',), methods=('lin_sim',))
    assert found[2] == '| LinSim | above |'
    # A run that was ended early marks the verdict, too.
    config = make_config('CiteSeer', 'lin_sim', 3)
    finish(store, config, 0.70, status='timeout')
    found = lines(store, 'verdicts', datasets=('CiteSeer',), methods=('lin_sim',))
    assert found[2] == '| LinSim | above† |'
    assert found[-1].startswith('† stopped at its time limit')
    finish(store, make_config('CiteSeer', 'idgl', 0), None, status='timeout')
    found = lines(store, 'verdicts', datasets=('CiteSeer',), methods=('idgl',))
    assert found[2] == '| IDGL-Full | † |'


def test_one_run_is_not_the_best(store: Store) -> None:
    finish(store, make_config('CiteSeer', 'gau_sim', 0), 0.99)
    found = lines(store, 'table1', datasets=('CiteSeer',))
    assert '| GauSim | 99.0 (1)<br>paper: 69.19 ± 0.14 |' in found
    assert '| MLP | **71.3 ± 1.5 (3)** |' in found


def test_the_best_of_most_runs(store: Store) -> None:
    """Fewer splits may be easier ones."""
    for seed, test in enumerate((0.70, 0.71, 0.73, 0.60)):
        finish(store, make_config('CiteSeer', 'gau_sim', seed), test)
    found = lines(store, 'table1', datasets=('CiteSeer',))
    assert '| MLP | 71.3 ± 1.5 (3) |' in found
    assert '| GauSim | **68.5 ± 5.8 (4)**<br>paper: 69.19 ± 0.14 |' in found


def test_table2(store: Store) -> None:
    found = lines(store, 'table2', datasets=('CiteSeer',))
    assert '| K = 10, LinSim | **71.3 ± 1.5 (3)**<br>paper: 66.10 ± 0.82 |' in found
    assert '| K = 20, LinSim | paper: 64.39 ± 0.76 |' in found


@pytest.mark.parametrize('name', [*TABLES, 'table4'])
@pytest.mark.parametrize('kind', ['markdown', 'rst', 'latex'])
def test_every_table_renders_without_runs(tmp_path: Path, name: str, kind: str) -> None:
    assert render(name, kind, Store(tmp_path), Choice((), (), SEEDS)).strip()


def test_fill_renews_and_settles(store: Store) -> None:
    text = 'a\n<!-- begin table1 -->\nstale\n<!-- end table1 -->\nb\n'
    once = fill(text, 'markdown', store)
    assert 'stale' not in once
    assert '71.3' in once
    assert once.startswith('a\n')
    assert once.endswith('\nb\n')
    assert fill(once, 'markdown', store) == once
    with pytest.raises(ValueError, match="'begin' and 'end' of tables do not match"):
        fill(text.replace('end table1', 'end table2'), 'markdown', store)
