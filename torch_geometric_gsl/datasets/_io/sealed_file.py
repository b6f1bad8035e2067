"""Write files atomically, sealed by a checksum, and read them without trust."""

from __future__ import annotations

import hashlib
import io
import os
import re
import uuid

import torch

from torch_geometric_gsl.datasets._io.damage import ERRORS, check_memory

_DIGEST_BYTES = hashlib.sha256().digest_size


class DamagedFileError(OSError):
    """A file is not as it was written."""


def write_atomically(path: str, content: bytes) -> None:
    """Replace a file: a kill, or another process, sees the old content or the new."""
    folder, name = os.path.split(path)
    # Of this process alone, should two ever write the same file.
    draft = os.path.join(folder, f'.{name}.{uuid.uuid4().hex[:8]}.tmp')
    try:
        with open(draft, 'wb') as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        if os.path.exists(draft):
            os.remove(draft)


def write_sealed(path: str, content: dict[str, object]) -> None:
    """Write tensors and plain values, led by the digest of the file's rest."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    payload = buffer.getvalue()
    try:
        _load(payload)
    except ERRORS as error:
        check_memory(error, len(payload))
        raise TypeError(
            f"'{path}' can only hold tensors, numbers, text, and lists and dicts of "
            f'them (got {_reason(error)})'
        ) from error
    write_atomically(path, hashlib.sha256(payload).digest() + payload)


def read_sealed(path: str) -> object:
    """Read a file of :func:`write_sealed`; nothing in it is executed."""
    with open(path, 'rb') as file:
        content = file.read()
    digest, payload = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    if hashlib.sha256(payload).digest() != digest:
        raise damaged_file(path, 'its digest is wrong')
    try:
        return _load(payload)
    except ERRORS as error:  # Whoever forges a file can seal it, too.
        check_memory(error, len(payload))
        raise damaged_file(path, f'it holds {_reason(error)}') from error


def damaged_file(path: str, reason: str) -> DamagedFileError:
    """Return the error of a damaged file."""
    return DamagedFileError(f"'{path}' is damaged ({reason})")


def _load(payload: bytes) -> object:
    found: object = torch.load(
        io.BytesIO(payload), map_location='cpu', weights_only=True
    )
    return found


def _reason(error: Exception) -> str:
    """Return what was refused, without torch's advice to trust the file."""
    found = re.search(r'GLOBAL (\S{1,100})', str(error))
    return found[1] if found else type(error).__name__
