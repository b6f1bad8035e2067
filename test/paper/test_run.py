"""Runs: from the start to their result, in order, alone, and as a user types them."""

from pathlib import Path
from unittest import mock

import pytest
import torch

from reproduction import documents, search, settings
from reproduction import run as module
from reproduction.experiments import make_config
from reproduction.files import write_json
from reproduction.run import execute, main
from reproduction.settings import METHODS
from reproduction.store import Store

CONFIG = make_config('wine', 'mlp', 0, epochs=2, eval_every=1)
FOLDER = Path(settings.RESULTS).parent
QUICK = ['table1', '--quick', '--results']


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
    words = [*QUICK, tmp_path, '--methods', 'gau_sim']
    assert call(main, *words).startswith('table1: 2 runs, 0 finished, 2 to do\n')
    assert call(main, *words).startswith('table1: 2 runs, 2 finished, 0 to do\n')
    shown = ['--preset', 'quick', '--results', tmp_path, '--datasets', 'wine']
    assert call(documents.main, 'table1', *shown).count('(2)') == 1


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
