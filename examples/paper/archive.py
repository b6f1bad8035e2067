"""Finished runs in one small file, which is committed and shared.

Runs of one setting stand together; the machines and versions that they ran on are
listed once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from config import RunConfig
from filelock import FileLock
from files import read_kept, remove_drafts, write_json

Record = dict[str, Any]


def read_archive(path: Path) -> dict[str, Record]:
    """The records of an archive by the names of their runs.

    Raises:
        ValueError: If the file is there but damaged.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        return {}
    # A file that is replaced has another number.
    return dict(_read(path, status.st_ino, status.st_mtime_ns, status.st_size))


@functools.lru_cache
def _read(path: Path, *state: int) -> dict[str, Record]:
    content = read_kept(path) or {'settings': ()}
    records = {}
    for group in content['settings']:
        for run in group['runs']:
            config = RunConfig(**group['config'], seed=run['seed'])
            about = content['environments'][run['environment']]
            records[str(config)] = {
                'config': config.to_dict(),
                'outcome': run['outcome'],
                'cost': run['cost'],
                'environment': about,
            }
    return records


def add_to_archive(path: Path, records: Iterable[Record]) -> int:
    """Adds finished runs to an archive; returns how many it then holds.

    They are looked up while nobody else can change the archive.
    """
    with _opened(path) as found:
        for record in records:
            name = str(RunConfig.from_dict(record['config']))
            if name not in found or memory_of(record) >= memory_of(found[name]):
                found[name] = record
    return len(found)


def remove_from_archive(path: Path, name: str) -> None:
    """Removes the record of a run, if there is one."""
    with _opened(path) as found:
        found.pop(name, None)


def memory_of(record: Record) -> float:
    """Gigabytes, of which less would not change the result: those it ran out of."""
    return float(record['outcome'].get('memory_limit', math.inf))


@contextmanager
def _opened(path: Path) -> Iterator[dict[str, Record]]:
    """The records of an archive, written when the caller has changed them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f'.{path.name}.lock')):
        remove_drafts(path.parent, path.name)
        found = read_archive(path)
        yield found
        write_json(path, _grouped(found))


def _grouped(records: dict[str, Record]) -> dict[str, Any]:
    environments: list[dict[str, Any]] = []
    settings: dict[str, dict[str, Any]] = {}
    for name in sorted(records):
        record = records[name]
        config = dict(record['config'])
        seed = config.pop('seed')
        if record['environment'] not in environments:
            environments.append(record['environment'])
        group = settings.setdefault(
            name.rpartition('/')[0], {'config': config, 'runs': []}
        )
        group['runs'].append(
            {
                'seed': seed,
                'outcome': record['outcome'],
                'cost': record['cost'],
                'environment': environments.index(record['environment']),
            }
        )
    for group in settings.values():
        group['runs'].sort(key=lambda run: run['seed'])
    return {'environments': environments, 'settings': list(settings.values())}
