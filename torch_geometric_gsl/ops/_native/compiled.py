"""Compile the C++ of this package once for a machine, load it and call it.

A compiled library holds no Python: it is called by :mod:`ctypes`, which leaves the
interpreter to other threads meanwhile.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torch_geometric_gsl._warnings import warn_caller
from torch_geometric_gsl.ops.pair_scores import PairScores

_FLAGS = (
    '-O3',
    '-std=c++17',
    '-fno-math-errno',
    '-fno-trapping-math',  # Conditions in loops become masks.
    '-fopenmp-simd',
    '-shared',
    '-fPIC',
)
# Of the very processor, whose widest registers it takes.
_NATIVE = '-mcpu' if platform.machine() in ('arm64', 'aarch64') else '-march'

#: The formulas in the order of `functions.h`, with their numbers of parameters.
RESPONSES = {
    'identity': 0,
    'negative': 0,
    'difference': 0,
    'heat_kernel': 1,
    'gaussian': 2,
    'mixture': 3,
}
# The fields of the structures in C++, in their order: those of scores come first.
_POINTER, _INTEGER, _FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
_SCORES = {
    _POINTER: 'a b c',
    _INTEGER: 'a_stride b_stride c_stride response is_dot',
    _FLOAT: 'scale',
}
FIELDS: dict[str, dict[type, str]] = {
    'race': {
        _POINTER: 'dst src excluded start listed count bound total share head member '
        'offset state out_source out_noise out_horizon out_accepted out_clock',
        _INTEGER: 'channels races_per_target num_proposals min_arrivals num_arrivals '
        'num_bounds num_clusters scan_factor is_distinct',
    },
    'rates': {
        _POINTER: 'compared norm radius min_norm max_norm log_size bound total share',
        _FLOAT: 'upper error',
        _INTEGER: 'num_clusters',
    },
}
_TYPES = {torch.float32: 'float', torch.float64: 'double'}
# Below this number of items one thread is used; above, each has this number of blocks.
_MIN_THREADED = 256
_BLOCKS_PER_THREAD = 4


@cache
def find_compiler() -> str | None:
    """Return the path of a C++ compiler: in ``CXX``, after words such as ccache."""
    command = os.environ.get('CXX', '')
    names = [command, *reversed(command.split()), 'g++', 'clang++']
    return next((path for name in names if (path := shutil.which(name))), None)


def is_compiling_off() -> bool:
    """Return whether the user has turned compilation off."""
    is_off = os.environ.get('TORCH_COMPILE_DISABLE') == '1'
    return is_off or bool(torch._dynamo.config.disable)


def find_library(name: str, pairs: PairScores) -> ctypes.CDLL | None:
    """Return a compiled library if it serves the scores of these dense rows.

    The environment variable :obj:`TORCH_COMPILE_DISABLE=1` turns it off.
    """
    is_on_cpu = pairs.dst.device.type == 'cpu' and not is_compiling_off()
    return load(name) if is_on_cpu and has_formula(pairs) else None


def has_formula(pairs: PairScores) -> bool:
    """Return whether the libraries have the formula and the type of these rows."""
    response = pairs.response
    if pairs.is_sparse or response.kernel_formula is None:
        return False
    if RESPONSES.get(response.kernel_formula) != len(response.params):
        return False
    tensors = pairs.dst, pairs.src, *pairs.response.params
    dtypes = set(map(attrgetter('dtype'), tensors))
    return len(dtypes) == 1 and pairs.dst.dtype in _TYPES


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
        return _find(compiler, source)
    except (OSError, subprocess.SubprocessError) as error:
        lines = (getattr(error, 'stderr', None) or str(error)).strip().splitlines()
        warn_caller(
            f'{source.name} could not be compiled by {compiler} and loaded; PyTorch '
            f'runs in its place: {lines[0] if lines else type(error).__name__}',
            RuntimeWarning,
        )
        return None


def _find(compiler: str, source: Path) -> ctypes.CDLL:
    """Load the library of this source, compiler and processor, or make it.

    Its name ends with its digest: a damaged one is made again.
    """
    flags = [*_FLAGS, f'{_NATIVE}=native']
    # The macros name the compiler's version and what the processor knows.
    macros = _run(compiler, *flags, '-dM', '-E', '-x', 'c++', os.devnull)
    sources = source, *sorted(source.parent.glob('*.h'))
    contents = *(path.read_text() for path in sources), *flags, macros
    key = hashlib.sha256('\n'.join(contents).encode())
    stem = f'{source.stem}-{key.hexdigest()[:16]}'
    folder = _private_folder()
    for path in () if folder is None else sorted(folder.glob(f'{stem}-*.so')):
        if path.stem == f'{stem}-{_digest(path)}':
            return ctypes.CDLL(str(path))
        path.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as draft_folder:
        draft = Path(draft_folder) / f'{stem}.so'
        _run(compiler, *flags, '-o', str(draft), str(source))
        library = ctypes.CDLL(str(draft))  # It stays when the file is gone.
        if folder is not None:
            draft.replace(folder / f'{stem}-{_digest(draft)}.so')
    return library


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _run(*command: str) -> str:
    process = subprocess.run(command, check=True, capture_output=True, text=True)
    return process.stdout


def _private_folder() -> Path | None:
    """Return a folder of the user's cache that nobody else can write, if there is one.

    What lies there is executed.
    """
    try:
        root = Path(os.environ.get('XDG_CACHE_HOME') or Path.home() / '.cache')
        folder = root / 'torch_geometric_gsl'
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
    except (AttributeError, OSError, RuntimeError):  # No users, or one without a home.
        return None
    is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    is_closed = not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return folder if is_own and is_closed and os.access(folder, os.W_OK) else None


def run_kernel(
    name: str, function: str, pairs: PairScores, rows: slice, size: int, **fields: Any
) -> Tensor:
    """Call a function of a library, on all threads, for races or rows of some targets.

    It takes a structure with the formula of the scores and the fields in
    :obj:`FIELDS`, and a range of the :obj:`size` items. Returns the least and the
    largest score, if there are any.
    """
    params = [None, None, None, *(param[rows] for param in pairs.response.params)][-3:]
    for letter, param in zip('abc', params, strict=True):
        fields[letter] = param
        fields[f'{letter}_stride'] = 0 if param is None else param.stride(0)
    fields['response'] = [*RESPONSES].index(str(pairs.response.kernel_formula))
    fields['is_dot'] = pairs.comparison == 'dot'
    fields['scale'] = float(pairs.scale)
    make = structure_of(name)
    names = {field for field, _ in make._fields_}
    if fields.keys() != names:
        raise TypeError(f'fields of {name!r} differ: {sorted(fields.keys() ^ names)}')
    structure = make(
        **{k: x.data_ptr() if isinstance(x, Tensor) else x for k, x in fields.items()}
    )
    kernel = getattr(load(name), f'{function}_{_TYPES[pairs.dst.dtype]}')
    threads = torch.get_num_threads() if size >= _MIN_THREADED else 1
    num_blocks = threads * _BLOCKS_PER_THREAD if threads > 1 else 1
    limits = [size * i // num_blocks for i in range(num_blocks + 1)]
    extremes = [(ctypes.c_double * 2)() for _ in range(num_blocks)]

    def run(i: int) -> None:
        limits_in_c = map(ctypes.c_int64, limits[i : i + 2])
        kernel(ctypes.byref(structure), *limits_in_c, extremes[i])

    if threads == 1:
        run(0)
    else:
        with ThreadPoolExecutor(threads) as pool:
            [*pool.map(run, range(num_blocks))]
    scores = torch.tensor([[*pair] for pair in extremes], dtype=torch.float64)
    lowest, highest = scores[:, 0].amin(), scores[:, 1].amax()
    is_any = lowest <= highest  # Else there are none, or NaN alone.
    return torch.stack([lowest, highest]) if is_any else scores.new_empty(0)


@cache
def structure_of(name: str) -> Any:
    """Return the structure that the functions of a library take."""
    fields = [
        (field, c_type)
        for group in (_SCORES, FIELDS[name])
        for c_type, names in group.items()
        for field in names.split()
    ]
    return type('Fields', (ctypes.Structure,), {'_fields_': fields})
