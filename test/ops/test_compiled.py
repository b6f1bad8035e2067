"""C++ is compiled once for a machine, and PyTorch runs where that fails."""

import os
import subprocess

import pytest

from torch_geometric_gsl.ops._native import compiled
from torch_geometric_gsl.ops.runtime import find_compiler

needs_compiler = pytest.mark.skipif(
    find_compiler() is None, reason='needs a C++ compiler'
)


@needs_compiler
def test_a_library_is_compiled_once(tmp_path, monkeypatch):
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    commands = []
    run_command = compiled._run

    def counted(*command):
        commands.append(command)
        return run_command(*command)

    monkeypatch.setattr(compiled, '_run', counted)
    compiled.load.__wrapped__('race')
    made = [*(tmp_path / 'torch_geometric_gsl').iterdir()]
    assert [path.suffix for path in made] == ['.so']
    compiled.load.__wrapped__('race')
    # Twice for the key, once for the compiled.
    assert len(commands) == 3


@needs_compiler
def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / 'torch_geometric_gsl').write_text('a file')
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    assert compiled.load.__wrapped__('race') is not None


@pytest.mark.parametrize(
    'error',
    [
        OSError('no space left'),
        subprocess.CalledProcessError(1, 'c++', stderr='unknown option\nmore'),
    ],
)
def test_a_compiler_that_fails(monkeypatch, error):
    def fail(*command):
        raise error

    monkeypatch.setattr(compiled, 'find_compiler', lambda: os.devnull)
    monkeypatch.setattr(compiled, '_run', fail)
    said = 'no space left' if isinstance(error, OSError) else 'unknown option'
    text = f'race.cpp could not be compiled by {os.devnull}, .*: {said}$'
    with pytest.warns(RuntimeWarning, match=text):
        assert compiled.load.__wrapped__('race') is None


def test_without_a_compiler(monkeypatch):
    monkeypatch.setattr(compiled, 'find_compiler', lambda: None)
    assert compiled.load.__wrapped__('race') is None
