"""Write files atomically, and read them back unless they are damaged."""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import json
import os
import pickle
import uuid
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

#: File from which a run resumes.
CHECKPOINT = 'checkpoint.pt'
DIGEST_BYTES = hashlib.sha256().digest_size


def write_bytes(path: Path, content: bytes) -> None:
    """Replace a file atomically: a kill leaves the old content or the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f'.{path.name}.{uuid.uuid4().hex[:8]}.tmp')
    try:
        with open(draft, 'wb') as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def claim_folder(folder: Path) -> Iterator[bool]:
    """Lock a folder; yield :obj:`False` if another process works in it."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / '.lock')
    try:
        lock.acquire(blocking=False)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def remove_drafts(folder: Path, name: str = '*') -> None:
    """Delete drafts of killed processes; no other process may write meanwhile."""
    for draft in folder.glob(f'.{name}.*.tmp'):
        draft.unlink(missing_ok=True)


def remove_checkpoints(folder: Path) -> None:
    """Delete the checkpoints of a run and of its trainings."""
    for checkpoint in folder.rglob(CHECKPOINT):
        checkpoint.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Replace a text file atomically, compressed if its name ends in `.gz`."""
    content = text.encode()
    is_packed = path.suffix == '.gz'
    write_bytes(path, gzip.compress(content, mtime=0) if is_packed else content)


def read_bytes(path: Path) -> bytes:
    """Read a file, decompressed if its name ends in `.gz`.

    Raises:
        OSError: If it is absent or damaged.
    """
    content = path.read_bytes()
    try:
        return gzip.decompress(content) if path.suffix == '.gz' else content
    except (EOFError, zlib.error) as error:
        raise OSError(f"'{path}' is damaged ({error})") from error


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write JSON with the digest of its content."""
    sealed = content | {'sha256': _json_digest(content)}
    items = [f'{json.dumps(key)}: {_lines(value)}' for key, value in sealed.items()]
    write_text(path, '{\n' + ',\n'.join(items) + '\n}\n')


def read_json(path: Path) -> dict[str, Any] | None:
    """Read a file of :func:`write_json`; :obj:`None` if absent or damaged."""
    try:
        content = json.loads(read_bytes(path))
        if not isinstance(content, dict):
            return None
        seal = content.pop('sha256', None)
        return content if seal == _json_digest(content) else None
    except (OSError, ValueError, RecursionError):
        return None


def read_results(path: Path) -> dict[str, Any] | None:
    """Read results that are costly to compute again; :obj:`None` if absent.

    Raises:
        ValueError: If the file exists but is damaged.
    """
    content = read_json(path)
    if content is None and path.exists():
        raise ValueError(
            f"'{path}' is damaged or was edited: restore it, or delete it to begin anew"
        )
    return content


def write_tensors(path: Path, content: dict[str, Any]) -> None:
    """Write tensors and plain values, preceded by their digest."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    payload = buffer.getvalue()
    write_bytes(path, hashlib.sha256(payload).digest() + payload)


def read_tensors(path: Path) -> Any:
    """Read a file of :func:`write_tensors`; :obj:`None` if absent or damaged."""
    content = path.read_bytes() if path.is_file() else b''
    digest, payload = content[:DIGEST_BYTES], content[DIGEST_BYTES:]
    if hashlib.sha256(payload).digest() != digest:
        return None
    try:
        return torch.load(io.BytesIO(payload), map_location='cpu', weights_only=True)
    except pickle.UnpicklingError:  # It holds more than tensors and plain values.
        return None


def digest_of(path: Path) -> str | None:
    """Return the digest of a file, cached until the file changes."""
    if not path.is_file():
        return None  # Loading it raises the error.
    status = path.stat()
    return _digest(path, status.st_mtime_ns, status.st_size)


@functools.lru_cache
def _digest(path: Path, *state: int) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _lines(value: Any) -> str:
    """Return JSON with one line per entry of a list, for readable diffs."""
    if not isinstance(value, list) or not value:
        return json.dumps(value, ensure_ascii=False)
    entries = ',\n'.join(json.dumps(entry, ensure_ascii=False) for entry in value)
    return f'[\n{entries}\n]'


def _json_digest(content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
