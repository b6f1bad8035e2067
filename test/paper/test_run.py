"""Runs: from the start to their result, in order, alone, and as a user types them."""

import multiprocessing.context
import os
import runpy
import signal
from pathlib import Path
from unittest import mock

import pytest
import torch

from reproduction import documents, search, settings
from reproduction import run as module
from reproduction.experiments import make_config
from reproduction.files import read_json, read_tensors, write_json
from reproduction.run import execute, main
from reproduction.settings import METHODS
from reproduction.store import Store

CONFIG = make_config('wine', 'mlp', 0, epochs=2, eval_every=1)
FOLDER = Path(settings.RESULTS).parent
QUICK = ['table1', '--quick', '--results']


def write_table(path, rows=28):
    lines = [f'{i % 5},{i % 7},{"ab"[i % 2]}' for i in range(rows)]
    path.write_text('\n'.join(['u,v,kind', *lines]) + '\n')
    return path


def test_folder(tmp_path, data):
    store = Store(tmp_path)
    folder = store.folder(CONFIG)
    draft = folder / '.checkpoint.pt.0123abcd.tmp'
    draft.parent.mkdir(parents=True)
    draft.write_bytes(b'half')  # By a process that was killed.
    outcome = execute(CONFIG, lambda: data, store)
    assert {path.name for path in folder.iterdir()} == {
        *('config.json', 'about.json', 'metrics.csv', 'model.pt', 'result.json')
    }
    assert read_json(folder / 'config.json') == CONFIG.to_dict()
    (start,) = (read_json(folder / 'about.json') or {})['starts']
    assert {'command', 'torch', 'git_commit', 'time', 'device'} <= start.keys()
    names = {'status', 'val', 'test', 'best_epoch', 'epochs'}
    record = store.record(CONFIG) or {}
    assert record['outcome'] == outcome
    assert outcome.keys() == names
    assert record['cost'].keys() == {'seconds', 'parameters', 'threads'}
    assert read_tensors(folder / 'model.pt') is not None
    # Figures show models of the first seed only.
    other = make_config('wine', 'mlp', 1, epochs=2, eval_every=1)
    execute(other, lambda: data, store)
    assert not (store.folder(other) / 'model.pt').exists()


def test_a_checkpoint_is_taken_up_and_told(tmp_path, data):
    store, told, seen = Store(tmp_path), [], []
    config = make_config('wine', 'mlp', 0, epochs=6, eval_every=1)

    def kill(metrics):
        if metrics['epoch'] == 4:
            raise KeyboardInterrupt

    def again(watch):
        options = {'resumed': told.append, 'checkpoint_seconds': 0}
        return execute(config, lambda: data, store, watch, **options)

    with pytest.raises(KeyboardInterrupt):
        again(kill)
    assert told == []
    outcome = again(lambda metrics: seen.append(metrics['epoch']))
    assert (told, seen) == ([4], [4, 5])
    assert outcome['epochs'] == 6
    lines = (store.folder(config) / 'metrics.csv').read_text().splitlines()
    assert [line.split(',')[0] for line in lines[1:]] == list('012345')


@pytest.mark.parametrize(
    'error',
    [
        MemoryError(),
        torch.OutOfMemoryError('CUDA out of memory'),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"),
        RuntimeError('std::bad_alloc'),
    ],
)
def test_out_of_memory_is_a_result(tmp_path, error):
    def read():
        raise error

    store = Store(tmp_path)
    with pytest.raises(MemoryError):  # Beside other runs, which may have used it.
        execute(CONFIG, read, store, is_alone=False)
    assert store.record(CONFIG) is None
    outcome = execute(CONFIG, read, store, memory_limit=24.0)
    expected = {'status': 'oom', 'detail': 'OOM at 24 GB', 'memory_limit': 24.0}
    assert outcome == expected
    assert store.missing([CONFIG], memory_limit=24.0) == []
    # More memory is worth another try.
    assert store.missing([CONFIG], memory_limit=25.0) == [CONFIG]


def test_quick_run_and_tables(tmp_path, call):
    words = [*QUICK, tmp_path, '--methods', 'gau_sim', 'mlp']
    assert call(main, *words).startswith('table1: 4 runs, 0 finished, 4 to do\n')
    assert call(main, *words).startswith('table1: 4 runs, 4 finished, 0 to do\n')
    shown = ['--preset', 'quick', '--results', tmp_path, '--datasets', 'wine']
    assert call(documents.main, 'table1', *shown).count('(2)') == 2


@pytest.mark.parametrize('name', ['run', 'tables', 'figures', 'search', 'cost'])
def test_every_command_starts(name, call):
    path = str(FOLDER / f'{name}.py')
    out = call(lambda: runpy.run_path(path, run_name='__main__'), '--help')
    assert f'python paper/{name}.py' in out


@pytest.mark.slow
def test_every_method_serves_a_small_table(tmp_path, call):
    words = ['--seeds', '1', '--label', 'kind', '--tensorboard', '--datasets']
    path = write_table(tmp_path / 'my.csv')
    with pytest.warns(UserWarning, match=r"'k' is 27 instead of 30 for slaps"):
        out = call(main, *QUICK, tmp_path / 'found', *words, path)
    assert out.count('done, validation') == len(METHODS)
    for name in ('events.out.tfevents.*', 'result.json'):
        assert len(list((tmp_path / 'found').rglob(name))) == len(METHODS)


@pytest.fixture
def broken(monkeypatch):
    """Lets one of two runs fail."""

    def use(error):
        method = METHODS['gau_sim']._replace(build=mock.Mock(side_effect=error))
        monkeypatch.setitem(METHODS, 'gau_sim', method)
        return ['--seeds', '1', '--methods', 'gau_sim', 'mlp']

    return use


def test_a_run_that_fails_does_not_stop_the_others(tmp_path, broken, call):
    words = broken(RuntimeError("'k' is wrong"))
    for _ in range(2):
        out = call(main, *QUICK, tmp_path, *words)
        assert '1 runs failed: error.txt' in out
        assert "FAILED, RuntimeError: 'k' is wrong" in out
    assert out.startswith('table1: 2 runs, 1 finished, 1 to do')
    (log,) = tmp_path.rglob('error.txt')
    assert 'Traceback' in log.read_text()


@pytest.mark.slow
@pytest.mark.parametrize('is_killed', [False, True])
def test_a_run_without_memory_gets_a_process_of_its_own(
    tmp_path, broken, call, monkeypatch, is_killed
):
    """The system may kill it for lack of memory, though the limit was not reached."""
    kind = multiprocessing.context.SpawnProcess
    start = kind.start

    def start_and_kill(self):
        start(self)
        os.kill(self.pid or 0, signal.SIGKILL)

    if is_killed:
        monkeypatch.setattr(kind, 'start', start_and_kill)
    out = call(main, *QUICK, tmp_path, *broken(MemoryError()))
    assert 'too little memory, again in a process of its own' in out
    assert len(list(tmp_path.rglob('result.json'))) == 2 - is_killed
    assert ('1 runs failed' in out) == is_killed
    logs = [path.read_text() for path in tmp_path.rglob('error.txt')]
    assert len(logs) == is_killed
    for log in logs:
        assert log.startswith('killed by signal 9: if by the system')
        assert log in out


@pytest.mark.parametrize(
    ('file', 'program', 'words'),
    [
        ('wine.runs.json.gz', documents, 'table1'),
        ('hidden.json', module, 'hidden'),
        ('tuned.json', documents, 'tuned'),
        ('tuned.json', module, 'table1 --preset tuned'),
        ('tuned.json', search, '--dataset wine --trials 1'),
    ],
)
def test_damaged_results_are_told(tmp_path, monkeypatch, call, file, program, words):
    """None counts as absent, to be written anew without what it held."""
    monkeypatch.setattr(search, 'work', lambda *args: 0)
    monkeypatch.setattr(search, 'validation', lambda *args: 0.5)
    write_json(tmp_path / 'a.runs.json.gz', {'environments': [], 'settings': []})
    (tmp_path / file).write_text('{"wine": {}}')
    told = call(program.main, *words.split(), '--results', tmp_path)
    assert 'ValueError: ' in told
    assert f"{file}' is damaged or was edited" in told
    assert (tmp_path / file).read_text() == '{"wine": {}}'
