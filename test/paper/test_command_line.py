"""The commands as a user types them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import command
import cost
import figures
import pytest
import run
import search
import settings
import tables
from files import write_json
from methods import METHODS
from resume_worker import kill_oneself
from settings import make_config
from store import Store

FOLDER = Path(run.__file__).parent


def call(*words: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, str(FOLDER / words[0]), *words[1:]],
        capture_output=True,
        text=True,
        cwd=cwd,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_quick_run_and_tables(tmp_path: Path) -> None:
    words = ['--quick', '--results', 'found', '--methods', 'gau_sim', 'mlp']
    first = call('run.py', 'table1', *words, cwd=tmp_path)
    assert first.startswith('table1: 4 runs, 0 finished, 4 to do\n')
    again = call('run.py', 'table1', *words, cwd=tmp_path)
    assert again.startswith('table1: 4 runs, 4 finished, 0 to do\n')
    shown = ['--preset', 'quick', '--results', 'found', '--datasets', 'wine']
    table = call('tables.py', 'table1', *shown, cwd=tmp_path)
    assert table.count('(2)') == 2


def test_own_file_and_tensorboard(tmp_path: Path) -> None:
    rows = [f'{i % 7},{i % 3},{"ab"[i % 2]}' for i in range(40)]
    (tmp_path / 'my.csv').write_text('\n'.join(['u,v,kind', *rows]) + '\n')
    words = ['--quick', '--seeds', '1', '--methods', 'mlp', '--results', 'found']
    words += ['--datasets', 'my.csv', '--label', 'kind', '--tensorboard']
    out = call('run.py', 'table1', *words, cwd=tmp_path)
    assert 'seed-0: done, validation' in out
    assert list((tmp_path / 'found').rglob('events.out.tfevents.*'))
    assert list((tmp_path / 'found').rglob('result.json'))


def test_every_method_serves_a_small_table(tmp_path: Path) -> None:
    rows = [f'{i % 5},{i % 7},{"ab"[i % 2]}' for i in range(28)]
    (tmp_path / 'my.csv').write_text('\n'.join(['u,v,kind', *rows]) + '\n')
    words = ['--quick', '--seeds', '1', '--label', 'kind', '--datasets', 'my.csv']
    out = call('run.py', 'table1', *words, '--results', 'found', cwd=tmp_path)
    assert out.count('done, validation') == len(METHODS)


def test_a_run_that_fails_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise ValueError("'k' is wrong")

    broken = METHODS['gau_sim']._replace(build=fail)
    monkeypatch.setitem(METHODS, 'gau_sim', broken)
    words = ['table1', '--quick', '--seeds', '1', '--methods', 'gau_sim', 'mlp']
    monkeypatch.setattr(sys, 'argv', ['run.py', *words, '--results', str(tmp_path)])
    monkeypatch.setattr(command, 'limit_memory', lambda gigabytes: None)
    for _ in range(2):
        with pytest.raises(SystemExit, match=r'1 runs failed: error\.txt'):
            run.main()
        out = capsys.readouterr().out
        assert "FAILED, ValueError: 'k' is wrong" in out
    assert out.startswith('table1: 2 runs, 1 finished, 1 to do')
    (log,) = tmp_path.rglob('error.txt')
    assert 'Traceback' in log.read_text()


def test_results_that_may_end_otherwise_are_redone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, 'limit_memory', lambda gigabytes: None)
    words = ['table1', '--quick', '--methods', 'mlp', '--results', str(tmp_path)]
    monkeypatch.setattr(sys, 'argv', ['run.py', *words])
    monkeypatch.setitem(settings.QUICK, 'time_limit', 0.0)
    run.main()
    assert capsys.readouterr().out.startswith('table1: 2 runs, 0 finished')
    monkeypatch.setattr(sys, 'argv', ['run.py', *words, '--again', 'oom'])
    run.main()
    assert capsys.readouterr().out.startswith('table1: 2 runs, 2 finished')
    monkeypatch.setattr(sys, 'argv', ['run.py', *words, '--again', 'timeout'])
    run.main()
    assert capsys.readouterr().out.startswith('table1: 2 runs, 0 finished')


@pytest.fixture
def crowded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two runs the first one lacks memory here, not in a process of its own."""

    def fail(*args: object, **kwargs: object) -> None:
        raise MemoryError

    monkeypatch.setitem(METHODS, 'gau_sim', METHODS['gau_sim']._replace(build=fail))
    words = ['table1', '--quick', '--seeds', '1', '--methods', 'gau_sim', 'mlp']
    monkeypatch.setattr(sys, 'argv', ['run.py', *words, '--results', str(tmp_path)])
    monkeypatch.setattr(command, 'limit_memory', lambda gigabytes: None)


def test_a_run_without_memory_gets_a_process_of_its_own(
    tmp_path: Path, crowded: None, capsys: pytest.CaptureFixture[str]
) -> None:
    run.main()
    assert 'too little memory, again in a process of its own' in capsys.readouterr().out
    store = Store(tmp_path)
    for method in ('gau_sim', 'mlp'):
        record = store.record(make_config('wine', method, 0, 'quick'))
        assert record is not None
        assert record['outcome']['status'] == 'done'


def test_a_process_that_is_killed_is_told(
    tmp_path: Path,
    crowded: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As the system does for lack of memory, though the limit was not reached."""
    monkeypatch.setattr(run, '_only', kill_oneself)
    with pytest.raises(SystemExit, match='1 runs failed'):
        run.main()
    (log,) = tmp_path.rglob('error.txt')
    assert log.read_text().startswith('killed by signal 9: if by the system')
    assert log.read_text() in capsys.readouterr().out
    assert len(list(tmp_path.rglob('result.json'))) == 1


def test_memory_of_a_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [tmp_path / name for name in ('absent', 'none', 'limit')]
    monkeypatch.setattr(command, 'CONTAINER_LIMITS', paths)
    paths[1].write_text('max\n')
    whole = command.memory_of('cpu')
    assert whole > 0.5
    paths[2].write_text('500000000\n')
    assert command.memory_of('cpu') == pytest.approx(0.45)
    paths[2].write_text(f'{10**18}\n')
    assert command.memory_of('cpu') == whole


def test_data_that_cannot_be_read_is_tried_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def load_dataset(name: str) -> None:
        asked.append(name)
        raise OSError('no network')

    monkeypatch.setattr(command, 'load_dataset', load_dataset)
    monkeypatch.setattr(command, '_UNREADABLE', {})
    monkeypatch.setattr(command, 'limit_memory', lambda gigabytes: None)
    command.load.cache_clear()
    words = ['table1', '--quick', '--methods', 'mlp', '--results', str(tmp_path)]
    monkeypatch.setattr(sys, 'argv', ['run.py', *words])
    with pytest.raises(SystemExit, match='2 runs failed'):
        run.main()
    assert capsys.readouterr().out.count('FAILED, OSError: no network') == 2
    assert asked == ['wine']


def test_a_limit_of_memory_is_told(tmp_path: Path) -> None:
    # Small enough to be read, but not to be multiplied.
    rows = [f'{i % 5},{"ab"[i % 2]}' for i in range(2000)]
    (tmp_path / 'my.csv').write_text('\n'.join(['u,kind', *rows]) + '\n')
    words = ['--quick', '--seeds', '1', '--label', 'kind', '--datasets', 'my.csv']
    words += ['--methods', 'gcn_knn', '--results', 'found', '--memory-limit', '0.001']
    out = call('run.py', 'table1', *words, cwd=tmp_path)
    assert 'too little memory, again in a process of its own' in out
    assert 'OOM at 0.001 GB' in out


@pytest.mark.parametrize(
    ('words', 'text'),
    [
        (['table9'], "invalid choice: 'table9'"),
        (['table1', '--memory-limit', '-1'], "must be a positive number (got '-1')"),
        (['table1', '--device', 'nodev'], "'nodev' cannot be used: "),
        (['table1', '--seeds', '21'], 'must be at most 20 (got 21)'),
        (['table1', '--seeds', '0'], "must be a positive integer (got '0')"),
        (['table1', '--methods', 'gcn'], "invalid choice: 'gcn'"),
        (
            ['table1', '--checkpoint-seconds', '-1'],
            "must be a non-negative number (got '-1')",
        ),
    ],
)
def test_errors(
    words: list[str],
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, 'argv', ['run.py', *words])
    with pytest.raises(SystemExit):
        run.main()
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ('program', 'words', 'text'),
    [
        (run, ['table1', '--datasets', 'nosuch'], 'must be one of '),
        (run, ['table2', '--methods', 'mlp'], "a setting 'k' to vary (got 'mlp')"),
        (run, ['temperature', '--methods', 'knn_gcn_root'], "a setting 'tau' to vary"),
        (run, ['table1', '--preset', 'tuned', '--datasets', 'wine'], 'no search has'),
        (run, ['table1', '--preset', 'tuned'], 'no search has tuned such a method'),
        (run, ['table1', '--label', 'y'], "column of a file (got 'y' without one)"),
        (run, ['table1', '--datasets', 'MiniImageNet'], 'MiniImageNet'),
        (search, ['--dataset', 'nosuch.csv'], 'nosuch.csv'),
        (tables, ['table1', '--datasets', 'nosuch'], 'must be one of '),
        (tables, ['table2', '--methods', 'lin_sim'], 'table2 has rows of its own'),
        (figures, ['nosuch'], "'figure' must be one of curves, "),
        (cost, ['--repeats', '1'], 'must be at least 2 (got 1)'),
    ],
)
def test_plain_messages(
    program: ModuleType,
    words: list[str],
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(command, 'limit_memory', lambda gigabytes: None)
    monkeypatch.setattr(command, '_UNREADABLE', {})
    words = [*words, '--results', str(tmp_path / 'found')]
    monkeypatch.setattr(sys, 'argv', ['program.py', *words])
    with pytest.raises(SystemExit) as found:
        program.main()
    assert text in f'{found.value} {capsys.readouterr().err}'
    assert not (tmp_path / 'found').exists()


@pytest.mark.parametrize(
    ('file', 'words'),
    [
        ('wine.runs.json', ['tables.py', 'table1']),
        ('cost.json', ['tables.py', 'table4']),
        ('tuned.json', ['tables.py', 'tuned']),
        ('tuned.json', ['run.py', 'table1', '--preset', 'tuned']),
        ('tuned.json', ['search.py', '--dataset', 'wine', '--trials', '1']),
    ],
)
def test_damaged_results_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, words: list[str]
) -> None:
    """None counts as absent, to be written anew without what it held."""
    write_json(tmp_path / 'a.runs.json', {'environments': [], 'settings': []})
    (tmp_path / file).write_text('{"wine": {}}')
    monkeypatch.setattr(command, 'limit_memory', lambda gigabytes: None)
    monkeypatch.setattr(sys, 'argv', [*words, '--results', str(tmp_path)])
    program = sys.modules[words[0].removesuffix('.py')]
    with pytest.raises(SystemExit, match=rf"^ValueError: .*{file}' is damaged or was"):
        program.main()
    assert (tmp_path / file).read_text() == '{"wine": {}}'
