"""Files that are either whole or not there, and tell when they were damaged."""

from __future__ import annotations

import hashlib
import io
import json
import os
import uuid
from pathlib import Path
from typing import Any

import torch

DIGEST_BYTES = hashlib.sha256().digest_size


def write_bytes(path: Path, content: bytes) -> None:
    """Replaces a file atomically: a kill leaves the old content or the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Of this process alone, should two ever write the same file.
    draft = path.with_name(f'.{path.name}.{uuid.uuid4().hex[:8]}.tmp')
    try:
        with open(draft, 'wb') as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Writes JSON together with the digest of its content."""
    sealed = content | {'sha256': _json_digest(content)}
    items = [f'{json.dumps(key)}: {_lines(value)}' for key, value in sealed.items()]
    write_text(path, '{\n' + ',\n'.join(items) + '\n}\n')


def read_json(path: Path) -> dict[str, Any] | None:
    """Reads what :func:`write_json` wrote; :obj:`None` if absent or damaged."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(content, dict):
        return None
    seal = content.pop('sha256', None)
    return content if seal == _json_digest(content) else None


def write_tensors(path: Path, content: dict[str, Any]) -> None:
    """Writes tensors and plain values, led by the digest of the file's rest."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    payload = buffer.getvalue()
    write_bytes(path, hashlib.sha256(payload).digest() + payload)


def read_tensors(path: Path) -> dict[str, Any] | None:
    """Reads what :func:`write_tensors` wrote; :obj:`None` if absent or damaged."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, payload = content[:DIGEST_BYTES], content[DIGEST_BYTES:]
    if hashlib.sha256(payload).digest() != digest:
        return None
    # Also on a machine without the device that they were written on.
    found: dict[str, Any] = torch.load(
        io.BytesIO(payload), map_location='cpu', weights_only=True
    )
    return found


def remove_drafts(folder: Path, name: str = '*') -> None:
    """Deletes what killed processes left; nobody else may write there meanwhile."""
    for draft in folder.glob(f'.{name}.*.tmp'):
        draft.unlink(missing_ok=True)


def _lines(value: Any) -> str:
    """JSON with one line per entry of a list, which version control can compare."""
    if not isinstance(value, list) or not value:
        return json.dumps(value, ensure_ascii=False)
    entries = ',\n'.join(json.dumps(entry, ensure_ascii=False) for entry in value)
    return f'[\n{entries}\n]'


def _json_digest(content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
