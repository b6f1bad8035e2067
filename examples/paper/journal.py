"""The file in which the trials of all searches stand, one entry a line."""

from __future__ import annotations

import json
import os
from pathlib import Path

from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock


def open_journal(path: Path) -> JournalStorage:
    """The storage of a journal; a line that was not written to its end is cut off.

    Raises:
        ValueError: If the file is damaged elsewhere.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # The lock is a link to the path, whose age tells that its holder was killed: a
    # relative one would lead nowhere.
    path = path.resolve()
    lock = JournalFileSymlinkLock(str(path))
    if path.exists():
        lock.acquire()
        try:
            _repair(path)
        finally:
            lock.release()
    return JournalStorage(JournalFileBackend(str(path), lock_obj=lock))


def _repair(path: Path) -> None:
    content = path.read_bytes()
    size = content.rfind(b'\n') + 1
    for number, line in enumerate(content[:size].splitlines(), start=1):
        if not _is_json(line):
            raise ValueError(
                f"'{path}' is damaged in line {number}: restore it, or delete it to "
                'search again'
            )
    if size < len(content):
        os.truncate(path, size)


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True
