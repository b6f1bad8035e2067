"""The tables in README and documentation are those of the finished runs."""

import csv
import re

import optuna
import pytest
from optuna.trial import TrialState

from reproduction import half_tables
from reproduction.documents import DOCUMENTS, FOLDER, OWN, RESULTS, SEEDS, fill, render
from reproduction.experiments import COMPARED, FULL, KS, TRANSITION, Choice
from reproduction.files import read_bytes, read_kept
from reproduction.search import JOURNAL, open_journal
from reproduction.settings import METHODS, PAPER
from reproduction.store import ARCHIVE, Store, read_archive
from reproduction.summary import accuracies, compare, verdict
from reproduction.tables import TABLES, cells

SEARCHES = DOCUMENTS[1].parent / FOLDER / 'results_searches.csv'


def kind_of(path):
    return 'markdown' if path.suffix == '.md' else 'rst'


@pytest.mark.parametrize('path', DOCUMENTS, ids=lambda path: path.name)
def test_tables_equal_the_results(path):
    text = path.read_text(encoding='utf-8')
    filled = fill(text, kind_of(path), Store(RESULTS, archives_only=True))
    assert filled.text == text
    for name, rows in filled.files.items():
        assert (path.parent / name).read_text(encoding='utf-8') == rows, name


def test_what_the_text_says_of_our_rows():
    """Of their comparisons with the controls."""
    store, choice = Store(RESULTS, archives_only=True), Choice((), (), SEEDS)
    ours = [m for m in METHODS.values() if m.group == 'ours']
    heads = {f'{m.title} - {c}' for m in ours for c in ('MLP', 'Uniform random graph')}
    beside_knn = {f'{m.title} - kNN-GCN, root weight' for m in ours}
    detected, count = [], 0
    knn = []
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


def test_what_the_text_says_of_the_number_of_draws():
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
                assert pair.num_splits == 3
                changes[key] = (round(pair.difference, 1), round(pair.p_value, 2))
    assert below == [(k, 'gau_sim_t', 'CiteSeer') for k in (15, 20)]
    assert min(p for _, p in changes.values()) == 0.09
    lost = {key[0]: changes.pop(key) for key in [*changes] if key[1] == 'CiteSeer'}
    of_transition = [lost.pop(method) for method in TRANSITION]
    assert min(of_transition) == (-4.0, 0.33)
    assert max(of_transition)[0] == -2.5
    assert changes.pop(('lin_sim', 'Chameleon')) == (-2.6, 0.2)
    assert all(abs(mean) < 1 for mean, _ in [*lost.values(), *changes.values()])


def test_what_the_text_says_of_a_searched_control():
    """Of half of the nodes labelled, on splits that did not select its setting."""
    store, half = Store(RESULTS, archives_only=True), half_tables.read_cells(RESULTS)
    names = ('20News', 'CiteSeer', 'Chameleon')
    choice = Choice(names, ('knn_gcn_root',), COMPARED, 'tuned', results=RESULTS)
    found = cells(store, choice)
    pairs = [
        compare(half[d, half_tables.OURS], found['knn_gcn_root', d]) for d in names
    ]
    assert [
        (round(p.difference, 1), round(p.p_value, 2), p.num_splits) for p in pairs
    ] == [(1.1, 0.27, 4), (0.4, 0.74, 4), (-0.2, 0.94, 4)]


def test_every_table_stands_in_a_document():
    found = []
    for path in DOCUMENTS:
        text = path.read_text(encoding='utf-8')
        found += re.findall(r'^(?:\.\.|<!--) begin (\w+)', text, re.M)
    assert sorted(found) == sorted([*TABLES, *OWN])


@pytest.mark.filterwarnings('ignore::optuna.exceptions.ExperimentalWarning')
def test_the_studies_of_the_search(tmp_path):
    journal = tmp_path / JOURNAL
    journal.write_bytes(read_bytes(RESULTS / f'{JOURNAL}.gz'))
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
    with open(SEARCHES, newline='', encoding='utf-8') as file:
        head, *shown = csv.reader(file)
    assert head[1:] == [*columns]
    studies = {title: [f'{c}/{name}' for c in columns] for title, name in rows.items()}
    assert shown == [
        [title, *(ended(study, storage) if study in names else '' for study in own)]
        for title, own in studies.items()
    ]
    assert {*names} == {f'{c}/{name}' for c in columns for name in rows.values()} - {
        *('Chameleon/neural_gau_sim/standard/1', '20News/neural_gau_sim/standard/1'),
        '20News/neural_gau_sim/standard',
    }


def ended(name, storage):
    study = optuna.load_study(study_name=name, storage=storage)
    whole, cut_short = (
        len(study.get_trials(states=(state,)))
        for state in (TrialState.COMPLETE, TrialState.PRUNED)
    )
    return f'{whole + cut_short} ({whole}): {100 * study.best_value:.2f}'


@pytest.mark.parametrize('name', ['hidden', 'noise', 'labels', 'half'])
def test_results_name_a_command_that_anyone_can_run(name):
    environment = (read_kept(RESULTS / f'{name}.json') or {})['environment']
    assert environment['command'].startswith(f'python paper/run.py {name} ')
    # No folder of the machine that ran it.
    assert ' /' not in environment['command']
    assert not environment['git_changes']


def test_results_are_of_committed_code_and_one_thread():
    # A user's own runs may stand beside them.
    for path in (RESULTS / f'{name}{ARCHIVE}' for name in PAPER):
        assert path.exists()
        for name, record in read_archive(path).items():
            assert not record['environment']['git_changes'], name
            assert record['cost']['threads'] == 1, name
            # None stands in the archive of another data set.
            assert path.name == f'{record["config"]["dataset"]}{ARCHIVE}'
