"""Compile the C++ of this package once for a machine, and load it.

A compiled library holds no Python: it is called by :mod:`ctypes`, which leaves the
interpreter to other threads meanwhile.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from torch_geometric_gsl._warnings import warn_caller
from torch_geometric_gsl.ops.runtime import find_compiler

_FLAGS = ('-O3', '-std=c++17', '-fno-math-errno', '-fopenmp-simd', '-shared', '-fPIC')
# Of the very processor, whose widest registers it takes.
_NATIVE = '-mcpu' if platform.machine() in ('arm64', 'aarch64') else '-march'


@cache
def load(name: str) -> ctypes.CDLL | None:
    """Return the library of a source file, compiled where that has not been done.

    :obj:`None` without a C++ compiler. Threads that ask at once may compile it twice.
    """
    compiler = find_compiler()
    if compiler is None:
        return None
    source = Path(__file__).with_name(f'{name}.cpp')
    try:
        path = _compile(compiler, source)
        return ctypes.CDLL(str(path))
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, 'stderr', None) or str(error)).strip().splitlines()
        warn_caller(
            f'{source.name} could not be compiled by {compiler}, and PyTorch runs in '
            f'its place: {said[0] if said else type(error).__name__}',
            RuntimeWarning,
        )
        return None


def _compile(compiler: str, source: Path) -> Path:
    """Return a library that was compiled for this source, compiler and processor."""
    flags = [*_FLAGS, f'{_NATIVE}=native']
    # The macros name the compiler's version and what the processor knows.
    macros = _run(compiler, *flags, '-dM', '-E', '-x', 'c++', os.devnull)
    key = hashlib.sha256(b'\n'.join([source.read_bytes(), *map(str.encode, flags)]))
    key.update(macros.encode())
    folder = _folder()
    path = folder / f'{source.stem}-{key.hexdigest()[:16]}.so'
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=folder) as own:
            made = Path(own) / path.name
            _run(compiler, *flags, '-o', str(made), str(source))
            made.replace(path)  # Whole, or not there.
    return path


def _run(*command: str) -> str:
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout


def _folder() -> Path:
    """Return the folder of compiled libraries: the user's cache, if it can be written.

    Only the user writes it, since what lies there is executed.
    """
    root = Path(os.environ.get('XDG_CACHE_HOME') or Path.home() / '.cache')
    folder = root / 'torch_geometric_gsl'
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    return Path(tempfile.mkdtemp())
