"""Read arrays out of a pickle without trusting it.

A pickle is a program that calls whatever it names. Here every name resolves to a
stand-in from a table, no stand-in lets a pickle set its state unchecked, and
numpy and torch only see arguments that have been checked: an array's bytes lie in
the file, so a small file cannot ask for much memory.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from torch_geometric_gsl._damage import ERRORS, check_memory, refused_global

# Types of numbers, as NumPy and torch name them.
_DTYPE = r'[iu][1248]|f[248]'
_TORCH_DTYPE = r'torch\.(uint8|int(8|16|32|64)|float(16|32|64))'
# What a pickle may ask for: modules and names, and what stands in for them.
Names = Mapping[tuple[str, str], object]
# Instructions that make objects or reach outside the file; arrays need none of them.
# NEWOBJ takes classes only, of which there are none but the stand-ins of a reader.
_REFUSED = (
    *('EXT1', 'EXT2', 'EXT4', 'INST', 'OBJ', 'NEWOBJ_EX'),
    *('PERSID', 'BINPERSID', 'NEXT_BUFFER', 'READONLY_BUFFER'),
)


def load_arrays(path: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Read arrays from a pickled dictionary; nothing in the file is executed."""
    found = read_pickle(path)
    if type(found) is not dict:
        raise ValueError(f"'{path}' must hold a dict (got {type(found).__name__})")
    if missing := [name for name in names if name not in found]:
        keys = sorted(key for key in found if type(key) is str)
        raise ValueError(f"'{path}' must have the keys {missing} (got {keys[:20]})")
    return {name: to_numbers(found[name], name, path) for name in names}


def read_pickle(
    path: Path, own: Names | None = None, unpack: Callable[[bytes], bytes] = bytes
) -> object:
    """Read a pickle that may ask for some more names; nothing is executed."""
    content = unpack(path.read_bytes())
    try:
        with warnings.catch_warnings():
            # Damage is reported once, as the error below.
            warnings.simplefilter('ignore')
            _scan(content)
            return _Unpickler(content, own or {}).load()
    except ERRORS as error:
        check_memory(error, len(content))
        raise OSError(
            f"'{path}' is not a readable pickle of arrays: {error}"
        ) from error


def to_numbers(value: object, name: str, path: Path) -> NDArray[Any]:
    """Return a value of a pickle as an array, in the machine's byte order."""
    array: NDArray[Any] | None = None
    if type(value) is _Array:
        array = value.value
    elif type(value) is list and all(
        # NumPy turns an integer beyond 64 bits into an object, or overflows.
        type(item) is float or (type(item) is int and abs(item) < 2**63)
        for item in value
    ):
        array = np.array(value)
    if array is None or array.dtype.kind not in 'iuf':
        raise ValueError(
            f"'{name}' in '{path}' must be an array, a tensor or a list of numbers "
            f'(got {type(value).__name__.lstrip("_")})'
        )
    return array.astype(array.dtype.newbyteorder('='))


def _scan(content: bytes) -> None:
    """Refuse instructions that would harm before any look-up of a name could."""
    for position, (opcode, argument, _) in enumerate(pickletools.genops(content)):
        if opcode.name in _REFUSED:
            raise refusal(f'the instruction {opcode.name}')
        # The unpickler allocates its memo up to the index that the file states.
        if opcode.name.endswith('PUT') and int(argument or 0) > position:
            raise refusal(f'a memo index of {argument}')


def refusal(what: str) -> pickle.UnpicklingError:
    """Return the error of a pickle that asks for what it may not have."""
    return pickle.UnpicklingError(f'it asks for {what}, which is refused')


class _Unpickler(pickle.Unpickler):
    """Resolve every name that a pickle asks for to a stand-in, or refuse."""

    def __init__(self, content: bytes, own: Names) -> None:
        # Strings of Python 2 are bytes, which this encoding keeps.
        super().__init__(io.BytesIO(content), encoding='latin1')
        self.names = {**_NAMES, **own}

    def find_class(self, module: str, name: str) -> Any:
        # numpy 2 renamed its core.
        key = (re.sub(r'^numpy\.core\b', 'numpy._core', module), name)
        if key not in self.names:
            raise refusal(f'the global {f"{module}.{name}"[:100]!r}')
        return self.names[key]


class StandIn:
    """An object whose state a pickle cannot set."""

    value: Any = None

    def __init__(self, value: Any = None) -> None:
        self.value = value

    def __setstate__(self, state: object) -> None:
        raise refusal(f'a change of {type(self).__name__.lstrip("_")}')


class Function(StandIn):
    """A callable; a real function's defaults could be overwritten by a pickle."""

    def __call__(self, *args: object) -> Any:
        return self.value(*args)


class DType(StandIn):
    """Stand in for :class:`numpy.dtype`, whose state is not safe to set."""

    def __init__(self, name: object, *flags: object, others: str = _DTYPE) -> None:
        if type(name) is not str or not re.fullmatch(f'{_DTYPE}|{others}', name):
            raise refusal(f'an array of type {str(name)[:20]!r}')
        super().__init__(np.dtype(name))

    def __setstate__(self, state: object) -> None:
        # (version, byte order, sub-array, names, fields, size, alignment, flags)
        if type(state) is not tuple or len(state) != 8 or any(state[2:5]):
            raise refusal('a compound data type')
        if state[1] not in ('<', '>', '|', '='):
            raise refusal('an unknown byte order')
        self.value = self.value.newbyteorder(state[1])


class _Array(StandIn):
    """An array, or the shell of one whose content follows."""

    def __setstate__(self, state: object) -> None:
        if self.value is not None or type(state) is not tuple or len(state) != 5:
            raise refusal('an array of unknown form')
        _, shape, dtype, fortran, content = state
        self.value = _to_array(content, dtype, shape, fortran)


class _Storage(StandIn):
    """The flat values that tensors are views of."""


def _check_sizes(sizes: object) -> tuple[int, ...]:
    if (
        type(sizes) is not tuple
        or len(sizes) > 8
        or not all(type(size) is int and 0 <= size < 2**48 for size in sizes)
    ):
        raise refusal('an array of unknown shape')
    return sizes


def _to_array(
    content: object, dtype: object, shape: object, order: object = False
) -> NDArray[Any]:
    if type(content) is str:
        content = content.encode('latin1')
    if not isinstance(content, bytes | bytearray) or type(dtype) is not DType:
        raise refusal('an array of unknown content')
    sizes = _check_sizes(shape)
    if math.prod(sizes) * dtype.value.itemsize != len(content):
        raise refusal(f'an array of shape {sizes} in {len(content)} bytes')
    flat = np.frombuffer(content, dtype.value)
    return flat.reshape(sizes, order='F' if order in (True, 'F') else 'C')


def _encode(text: object, encoding: object) -> bytes:
    if type(text) is not str or encoding != 'latin1':
        raise refusal('an unknown encoding')
    return text.encode('latin1')


def _load_storage(content: object) -> _Storage:
    # Tensors are pickled in torch's older format; a zip archive could expand.
    if type(content) is not bytes or content.startswith(b'PK'):
        raise refusal('a tensor in an unknown format')
    try:
        storage = torch.load(io.BytesIO(content), 'cpu', weights_only=True)
    except pickle.UnpicklingError as error:
        name = refused_global(error)
        what = f'the global {name!r} in' if name else 'more than values in'
        raise refusal(f'{what} a tensor') from error
    if type(storage) is not torch.storage.TypedStorage:
        raise refusal(f'a tensor stored as {type(storage).__name__}')
    if not re.fullmatch(_TORCH_DTYPE, str(storage.dtype)):
        raise refusal(f'a tensor of type {storage.dtype}')
    values = torch.empty(0, dtype=storage.dtype).set_(storage)
    if values.numel() * values.element_size() > len(content):
        raise refusal(f'a tensor of {values.numel()} values in {len(content)} bytes')
    return _Storage(values)


def _rebuild_tensor(
    storage: object, offset: object, size: object, stride: object, *rest: object
) -> _Array:
    # The rest: requires_grad, hooks, and marks of a negated or conjugated view.
    sizes, strides, (start,) = map(_check_sizes, (size, stride, (offset,)))
    if type(storage) is not _Storage or len(sizes) != len(strides) or any(rest[2:]):
        raise refusal('a tensor of unknown form')
    last = start + sum((n - 1) * step for n, step in zip(sizes, strides, strict=True))
    # Neither a view outside the values nor one that repeats them without end.
    if max(last + 1, math.prod(sizes)) > storage.value.numel():
        raise refusal(f'a tensor of size {sizes} in {storage.value.numel()} values')
    return _Array(storage.value.as_strided(sizes, strides, start).numpy())


def _make_directly(*args: object) -> None:
    raise refusal('an array that is made directly')


_NAMES: Names = {
    ('numpy', 'dtype'): Function(DType),
    ('numpy', 'ndarray'): Function(_make_directly),
    ('numpy._core.multiarray', '_reconstruct'): Function(lambda *args: _Array()),
    ('numpy._core.multiarray', 'scalar'): Function(
        lambda dtype, content: _to_array(content, dtype, ()).item()
    ),
    ('numpy._core.numeric', '_frombuffer'): Function(
        lambda *parts: _Array(_to_array(*parts))
    ),
    ('torch.storage', '_load_from_bytes'): Function(_load_storage),
    ('torch._utils', '_rebuild_tensor_v2'): Function(_rebuild_tensor),
    ('collections', 'OrderedDict'): Function(lambda *args: {}),
    ('_codecs', 'encode'): Function(_encode),
}
