"""Files that are either whole or not there, and tell when they were damaged."""

from __future__ import annotations

import functools
import hashlib
import json
from pathlib import Path
from typing import Any

from torch_geometric_gsl.datasets._sealed_file import (
    read_sealed,
    write_atomically,
    write_sealed,
)


def write_text(path: Path, text: str) -> None:
    """Replaces a file atomically: a kill leaves the old content or the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(str(path), text.encode())


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


def read_kept(path: Path) -> dict[str, Any] | None:
    """Reads what stands for work that was done; :obj:`None` if absent.

    Raises:
        ValueError: If the file is there but damaged.
    """
    content = read_json(path)
    if content is None and path.exists():
        raise ValueError(
            f"'{path}' is damaged or was edited: restore it, or delete it to begin anew"
        )
    return content


def write_tensors(path: Path, content: dict[str, Any]) -> None:
    """Writes tensors and plain values, led by the digest of the file's rest."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_sealed(str(path), content)


def read_tensors(path: Path) -> Any:
    """Reads what :func:`write_tensors` wrote; :obj:`None` if absent or damaged."""
    try:
        return read_sealed(str(path))
    except OSError:
        return None


def remove_drafts(folder: Path, name: str = '*') -> None:
    """Deletes what killed processes left; nobody else may write there meanwhile."""
    for draft in folder.glob(f'.{name}.*.tmp'):
        draft.unlink(missing_ok=True)


def digest_of(path: Path) -> str | None:
    """Of the content of a file, which is read once until it changes."""
    if not path.is_file():
        return None  # Whoever loads it says so.
    status = path.stat()
    return _digest(path, status.st_mtime_ns, status.st_size)


@functools.lru_cache
def _digest(path: Path, *state: int) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _lines(value: Any) -> str:
    """JSON with one line per entry of a list, which version control can compare."""
    if not isinstance(value, list) or not value:
        return json.dumps(value, ensure_ascii=False)
    entries = ',\n'.join(json.dumps(entry, ensure_ascii=False) for entry in value)
    return f'[\n{entries}\n]'


def _json_digest(content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
