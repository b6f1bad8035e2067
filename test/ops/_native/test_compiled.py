"""C++ is compiled once for a machine, and PyTorch runs where that fails."""

import ctypes
import os
import re
import subprocess
import tempfile
from pathlib import Path

import pytest
import torch

from torch_geometric_gsl.ops._native import compiled
from torch_geometric_gsl.ops._native.compiled import find_compiler, is_compiling_off
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.scores import Identity

needs_compiler = pytest.mark.skipif(
    find_compiler() is None, reason='needs a C++ compiler'
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The cache, in a folder of its own; a library is compiled fast, not to be fast."""
    monkeypatch.setattr(compiled, '_FLAGS', ('-O0', *compiled._FLAGS[1:]))
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path))
    return tmp_path / 'torch_geometric_gsl'


@needs_compiler
def test_a_library_is_compiled_once(folder, spy):
    commands = spy(compiled, '_run')
    compiled.load.__wrapped__('race')
    assert [path.suffix for path in folder.iterdir()] == ['.so']
    compiled.load.__wrapped__('race')
    # Twice for the key, once for the compiled.
    assert len(commands) == 3


@needs_compiler
def test_a_cache_that_cannot_be_written(folder):
    folder.write_text('a file')
    assert compiled.load.__wrapped__('race') is not None
    assert [*folder.parent.iterdir()] == [folder]  # Nothing is left.


@needs_compiler
def test_a_damaged_library_is_made_again(folder):
    compiled.load.__wrapped__('race')
    (path,) = folder.iterdir()
    library = path.read_bytes()
    for damaged in (b'', library[:9000], library[:14000], library[:-1] + b'?'):
        path.unlink()  # Not in place: this process has it in memory.
        path.write_bytes(damaged)
        assert compiled.load.__wrapped__('race') is not None
        (path,) = folder.iterdir()
        assert path.read_bytes() != damaged


@needs_compiler
@pytest.mark.parametrize('flaw', ['writable', 'link', 'foreign'])
def test_what_others_can_write_is_not_loaded(folder, monkeypatch, flaw):
    compiled.load.__wrapped__('race')
    if flaw == 'writable':
        folder.chmod(0o770)
    elif flaw == 'link':
        folder.rename(folder.with_name('elsewhere'))
        folder.symlink_to(folder.with_name('elsewhere'))
    else:
        monkeypatch.setattr(os, 'geteuid', lambda: folder.stat().st_uid + 1)
    loaded, load = [], ctypes.CDLL
    monkeypatch.setattr(ctypes, 'CDLL', lambda path: loaded.append(path) or load(path))
    assert compiled.load.__wrapped__('race') is not None
    assert len(loaded) == 1
    assert Path(loaded[0]).parent != folder


@needs_compiler
def test_without_a_home(folder, monkeypatch):
    def fail():
        raise RuntimeError('Could not determine home directory.')

    monkeypatch.delenv('XDG_CACHE_HOME')
    monkeypatch.setattr(Path, 'home', fail)
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
    text = f'race.cpp could not be compiled by {os.devnull} .*: {said}$'
    with pytest.warns(RuntimeWarning, match=text):
        assert compiled.load.__wrapped__('race') is None


def test_without_a_compiler(monkeypatch):
    monkeypatch.setattr(compiled, 'find_compiler', lambda: None)
    assert compiled.load.__wrapped__('race') is None


@pytest.mark.parametrize('name', compiled.FIELDS)
def test_structures_are_those_of_cpp(name):
    source = Path(compiled.__file__).with_name(f'{name}.cpp').read_text()
    body = re.search(rf'struct {name.title()} {{(.*?)}};', source, re.S)[1]
    types = {'double': ctypes.c_double, 'int64_t': ctypes.c_int64}
    declared = []
    for line in re.sub('//.*', '', body).split(';')[:-1]:
        c_type = ctypes.c_void_p if '*' in line else types[line.split()[0]]
        names = re.sub(r'^\s*(const )?\w+|[*\s]', '', line)
        declared += [(field, c_type) for field in names.split(',')]
    assert compiled.structure_of(name)._fields_ == declared


def test_fields_of_other_names_are_refused():
    x = torch.ones(2, 1)
    pairs = PairScores(x, x, Identity())
    with pytest.raises(TypeError, match=r"fields of 'rates' differ: \['bound', "):
        compiled.run_kernel('rates', 'rates', pairs, slice(None), 2, compared=x)


@pytest.mark.parametrize('reason', ['variable', 'config', None])
def test_compiling_is_turned_off(reason, monkeypatch):
    monkeypatch.delenv('TORCH_COMPILE_DISABLE', raising=False)
    if reason == 'variable':
        monkeypatch.setenv('TORCH_COMPILE_DISABLE', '1')
    with torch._dynamo.config.patch(disable=reason == 'config'):
        assert is_compiling_off() is (reason is not None)


@pytest.mark.parametrize('present', ['g++', 'clang++', 'special', None])
def test_find_compiler(monkeypatch, present):
    uncached = find_compiler.__wrapped__
    monkeypatch.setattr(
        compiled.shutil, 'which', lambda name: name if name == present else None
    )
    monkeypatch.setenv('CXX', 'special')
    assert uncached() == present
    monkeypatch.delenv('CXX')
    assert uncached() == (None if present == 'special' else present)


@pytest.mark.parametrize(
    ('command', 'present', 'expected'),
    [
        ('ccache clang++', ['ccache', 'g++', 'clang++'], 'clang++'),
        ('/my path/c++', ['/my path/c++', 'c++'], '/my path/c++'),
        ('g++-9 -m64', ['g++-9', 'g++'], 'g++-9'),
        ('ccache lost', ['g++'], 'g++'),
    ],
)
def test_a_compiler_of_several_words(monkeypatch, command, present, expected):
    paths = {name: name for name in present}
    monkeypatch.setattr(compiled.shutil, 'which', paths.get)
    monkeypatch.setenv('CXX', command)
    assert find_compiler.__wrapped__() == expected
