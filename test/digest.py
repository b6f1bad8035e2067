"""A digest of all that an object holds, bit for bit."""

import hashlib

import numpy as np
import scipy.sparse
import torch


def digest(value):
    """Returns a text that differs if any value that an object holds differs."""
    summary = hashlib.sha256()
    _add(summary, value, {})
    return summary.hexdigest()


def _add(summary, value, seen):
    if isinstance(value, torch.Tensor):
        value = _parts_of(value)
    elif scipy.sparse.issparse(value):
        value = [value.data, value.indices, value.indptr, value.shape]
    if isinstance(value, np.ndarray) and value.dtype != object:
        summary.update(repr((value.dtype, value.shape)).encode() + value.tobytes())
        return
    if isinstance(value, np.ndarray):
        value = [value.shape, *value.ravel().tolist()]
    summary.update(type(value).__name__.encode())
    if isinstance(value, dict | list | tuple | set) or hasattr(value, '__dict__'):
        # Shared parts count by their place, and cycles end.
        if id(value) in seen:
            summary.update(str(seen[id(value)][0]).encode())
            return
        seen[id(value)] = len(seen), value  # Kept, so that no other has its id.
    if isinstance(value, dict):
        value = [item for pair in value.items() for item in pair]
    if isinstance(value, list | tuple | set):
        summary.update(str(len(value)).encode())
        for item in value:
            _add(summary, item, seen)
    elif hasattr(value, '__dict__') and not isinstance(value, type) and vars(value):
        _add(summary, vars(value), seen)
    elif callable(value):
        summary.update(getattr(value, '__qualname__', '').encode())
    else:
        summary.update(repr(value).encode())


def _parts_of(tensor):
    tensor = tensor.detach()
    if tensor.layout != torch.strided:
        indices = tensor.values(), tensor.crow_indices(), tensor.col_indices()
        return [tuple(tensor.shape), *indices]
    dtype = str(tensor.dtype)
    return [dtype, tensor.contiguous().view(-1).view(torch.uint8).numpy()]
