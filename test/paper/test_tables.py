"""What the command that prints tables takes, and what it refuses."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import tables
from files import write_json
from settings import make_config
from store import Store

METHODS = ('mlp', 'lin_sim')
SEEDS = range(3)


@pytest.fixture(autouse=True)
def _documents_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        tables, 'write_documents', lambda store: sys.stdout.write('written\n')
    )


@pytest.fixture
def call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """The lines that the command prints, or the text with which it ends."""

    def main(*words: object) -> str:
        monkeypatch.setattr(sys, 'argv', ['tables.py', *map(str, words)])
        try:
            tables.main()
        except SystemExit as ended:
            return f'{ended} {capsys.readouterr().err}'
        return capsys.readouterr().out

    return main


def write_table(path: Path, first: int = 0) -> Path:
    path.parent.mkdir(exist_ok=True)
    rows = [f'{first + i},{"ab"[i % 2]}' for i in range(8)]
    path.write_text('\n'.join(['u,kind', *rows]) + '\n')
    return path


def finish(results: Path, *datasets: object, count: int = len(SEEDS)) -> None:
    store = Store(results)
    configs = [
        make_config(str(dataset), method, seed, label='kind')
        for dataset in datasets
        for method in METHODS
        for seed in SEEDS[:count]
    ]
    for config in configs:
        folder = store.folder(config)
        write_json(folder / 'about.json', {'starts': [{}]})
        outcome = {'status': 'done', 'test': 0.7 + config.seed / 100, 'val': 0.5}
        write_json(folder / 'result.json', {'config': config.to_dict(), **outcome})
    store.collect(configs)


def test_write(call: Callable[..., str], tmp_path: Path) -> None:
    assert call('--write') == 'written\n'
    assert call('--write', '--results', tables.RESULTS) == 'written\n'
    link = tmp_path / 'link'
    link.symlink_to(tables.RESULTS)
    assert call('--write', '--results', link) == 'written\n'


@pytest.mark.parametrize(
    'words',
    [
        ['table1'],
        ['--datasets', 'wine'],
        ['--preset', 'quick'],
        ['--preset', 'standard'],
        ['--methods', 'mlp'],
        ['--label', 'kind'],
        ['--format', 'markdown'],
        ['--results', 'found'],
    ],
)
def test_write_renews_all_tables(
    call: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    finish(tmp_path / 'found', 'wine')
    told = call('--write', *words)
    rest = ' '.join(words) if words[0] == '--results' else words[0]
    assert told.endswith(f'from the results of this program: leave out {rest}\n')


def test_write_needs_results(
    call: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, 'RESULTS', tmp_path)
    told = call('--write', '--results', tmp_path)
    assert "must be a folder with *.runs.json (got '" in told


@pytest.mark.parametrize(
    ('words', 'text'),
    [
        (['table4', '--datasets', 'wine'], 'table4 has data of its own: leave out --d'),
        (['table4', '--label', 'y'], 'table4 has labels of its own: leave out --label'),
        (['table4', '--preset', 'quick'], 'table4 has settings of its own: leave out '),
        (['table4', '--methods', 'mlp'], 'table4 has rows of its own: leave out --met'),
        (['tuned', '--preset', 'paper'], 'tuned has settings of its own: leave out --'),
        (['tuned', '--methods', 'mlp'], 'tuned has rows of its own: leave out --meth'),
        (['controls', '--methods', 'mlp'], 'controls has rows of its own'),
        ([], 'name a table, or --write'),
    ],
)
def test_what_has_no_meaning_is_refused(
    call: Callable[..., str], words: list[str], text: str
) -> None:
    assert f'error: {text}' in call(*words)


@pytest.mark.parametrize('name', [*tables.TABLES, 'table4'])
def test_a_folder_without_results_is_refused(
    call: Callable[..., str], tmp_path: Path, name: str
) -> None:
    needed = 'cost.json' if name == 'table4' else '*.runs.json'
    for folder, what in ((tmp_path, 'holds none'), (tmp_path / 'no', 'is no folder')):
        told = call(name, '--results', folder)
        assert told.endswith(
            f"--results must be a folder with {needed} (got '{folder}', which {what})\n"
        )
    assert not (tmp_path / 'no').exists()


def test_table4_needs_its_own_file_only(
    call: Callable[..., str], tmp_path: Path
) -> None:
    shutil.copy(tables.RESULTS / 'cost.json', tmp_path)
    assert '| seconds | MB |' in call('table4', '--results', tmp_path)
    assert 'holds none' in call('table1', '--results', tmp_path)


def test_what_is_named_twice_counts_once(
    call: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path / 'my.csv')
    finish(tmp_path, 'wine', 'my.csv')
    words = ['--results', '.', '--label', 'kind', '--datasets', 'wine', 'my.csv']
    words += ['wine', './my.csv', tmp_path / 'my.csv', '--methods', 'mlp', 'mlp']
    lines = call('table1', *words).splitlines()
    assert lines[0] == '|  | wine | my.csv |'
    assert len(re.findall(r'^\| MLP ', '\n'.join(lines), re.M)) == 1


@pytest.mark.parametrize('name', ['table1', 'controls', 'paired'])
def test_a_file_heads_its_column_by_its_name(
    call: Callable[..., str], tmp_path: Path, name: str
) -> None:
    path, twin = (write_table(tmp_path / f / 'my.csv', i) for i, f in enumerate('ab'))
    finish(tmp_path, path, twin)
    words = ['--results', tmp_path, '--label', 'kind', '--datasets']
    assert call(name, *words, 'wine', path).startswith('|  | wine | my.csv |\n')
    # Two of one name are told apart.
    assert call(name, *words, path, twin).startswith(f'|  | {path} | {twin} |\n')


def test_verdicts_on_what_the_paper_has_not(
    call: Callable[..., str], tmp_path: Path
) -> None:
    path = write_table(tmp_path / 'my.csv')
    finish(tmp_path, 'CiteSeer', path)
    words = ['verdicts', '--results', tmp_path, '--label', 'kind', '--datasets', path]
    absent = 'paper has no figures of my.csv'
    assert call(*words) == f'Nothing to show: the {absent}.\n\n'
    found = call(*words, 'CiteSeer')
    assert found.startswith('|  | CiteSeer |\n')
    assert found.endswith(f'\n\nThe {absent}.\n\n')
    told = call('verdicts', '--results', tmp_path, '--methods', 'mlp')
    assert told == 'Nothing to show: the paper has no figures of controls.\n\n'
    words = ['verdicts', '--results', tmp_path, '--methods', 'mlp', '--preset', 'quick']
    assert call(*words) == told


@pytest.mark.parametrize(
    ('words', 'text'),
    [
        (['verdicts'], 'no method has 3 finished runs of this choice yet'),
        (
            ['paired', '--preset', 'quick'],
            'no finished runs to compare on the same splits yet, but some of --preset',
        ),
        (
            ['table1', '--preset', 'quick'],
            'no finished runs of this choice yet, but some of --preset standard.',
        ),
        (['tuned'], 'no finished runs of settings that a search has found yet'),
    ],
)
def test_why_there_is_nothing_to_show(
    call: Callable[..., str], tmp_path: Path, words: list[str], text: str
) -> None:
    finish(tmp_path, 'CiteSeer', count=2)
    assert f'Nothing to show: {text}' in call(*words, '--results', tmp_path)
