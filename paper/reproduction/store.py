"""Store finished runs, and lock the runs that a process works on.

A run is finished when its `result.json` is complete. A process that works on a run
holds a lock of the operating system, which is released when the process ends for any
reason. So several processes can share a folder, and a killed process leaves no lock
behind.

Finished runs are also stored in one small file per data set, which is committed and
shared: it groups runs by setting and holds each environment (machine, versions) once.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock

from reproduction.experiments import RunConfig
from reproduction.files import (
    CHECKPOINT,
    claim_folder,
    read_json,
    read_results,
    remove_checkpoints,
    remove_drafts,
    write_json,
)

#: Suffix of archives.
ARCHIVE = '.runs.json.gz'
#: Entries that differ between starts of a run; archives leave them out.
UNSTABLE = ('command', 'time')
#: Ways to end that another machine or other limits may avoid.
AGAIN = ('timeout', 'oom', 'diverged')

#: Config, outcome, cost and environment of a finished run.
Record = dict[str, Any]


class Store:
    """Archives of finished runs in a folder, and a folder for each run below it.

    Args:
        root: The folder. Its `runs/` can be deleted: archives keep the results.
        archives_only: If `True`, reads only the archives, as in a clone.
    """

    def __init__(self, root: Path, archives_only: bool = False) -> None:
        self.root = root
        self.archives_only = archives_only
        for path in root.glob('*.runs.json'):  # Old format: its runs would run again.
            raise ValueError(f"'{path}' must be compressed: gzip -n '{path}'")
        for path in sorted(root.glob(f'*{ARCHIVE}')) if root.is_dir() else []:
            read_archive(path)  # Raises before any run if it is damaged.

    def folder(self, config: RunConfig) -> Path:
        run = f'{config.method}-{config.setting}'
        return self.root / 'runs' / _file_name(config) / run / str(config.seed)

    def archive(self, config: RunConfig) -> Path:
        # One per data set: no run can be in two.
        return self.root / f'{_file_name(config)}{ARCHIVE}'

    def record(self, config: RunConfig) -> Record | None:
        """Return the finished run, or :obj:`None`."""
        archived = read_archive(self.archive(config)).get(str(config))
        from_folder = None if self.archives_only else self._folder_record(config)
        # A machine with more memory may have added its result to the archive since.
        return max(filter(None, (from_folder, archived)), key=memory_of, default=None)

    def _folder_record(self, config: RunConfig) -> Record | None:
        """Read the run from its folder; it may not be in an archive yet."""
        folder = self.folder(config)
        result = read_json(folder / 'result.json')
        about = read_json(folder / 'about.json')
        if result is None or about is None or result['config'] != config.to_dict():
            return None
        outcome = {key: value for key, value in result.items() if key != 'config'}
        return {
            'config': result['config'],
            'outcome': outcome,
            'cost': {k: v for k, v in about.items() if k != 'starts'},
            'environment': _last_environment(about['starts']),
        }

    def finish(
        self, config: RunConfig, outcome: dict[str, Any], about: dict[str, Any]
    ) -> None:
        """Write the outcome of a run, the environments of its starts and its cost.

        The result is written last: without it the run is not finished.
        """
        folder = self.folder(config)
        write_json(folder / 'about.json', about)
        write_json(folder / 'result.json', {'config': config.to_dict(), **outcome})

    def is_finished(self, config: RunConfig, memory_limit: float = 0.0) -> bool:
        """Return whether a run is finished, also with this much memory (GB)."""
        record = self.record(config)
        return record is not None and memory_of(record) >= memory_limit

    def missing(
        self, configs: Iterable[RunConfig], memory_limit: float = 0.0
    ) -> list[RunConfig]:
        return [c for c in configs if not self.is_finished(c, memory_limit)]

    def claim(self, config: RunConfig) -> AbstractContextManager[bool]:
        """Lock a run; yield :obj:`False` if another process works on it."""
        return claim_folder(self.folder(config))

    def collect(self, configs: Iterable[RunConfig]) -> None:
        """Add the finished runs to the archives of their data sets."""
        finished: dict[Path, list[RunConfig]] = {}
        for config in configs:
            if self._folder_record(config) is not None:
                finished.setdefault(self.archive(config), []).append(config)
        for path, collected in finished.items():
            # Read again: another process may have removed them meanwhile.
            add_to_archive(path, filter(None, map(self._folder_record, collected)))

    def remove_leftovers(self, configs: Iterable[RunConfig]) -> None:
        """Delete checkpoints of processes killed between result and cleanup."""
        for config in configs:
            folder = self.folder(config)
            if not any(folder.rglob(CHECKPOINT)):
                continue
            with self.claim(config) as is_ours:
                # Checkpoints of failed runs and of other processes are needed.
                if is_ours and self.is_finished(config):
                    remove_checkpoints(folder)

    def forget(self, configs: Iterable[RunConfig], status: str) -> None:
        """Remove the results of runs with a status, so that they run again."""
        for config in configs:
            with self.claim(config) as is_ours:
                record = self.record(config) if is_ours else None
                if record is None or record['outcome']['status'] != status:
                    continue
                for name in ('result.json', 'about.json'):
                    (self.folder(config) / name).unlink(missing_ok=True)
                remove_checkpoints(self.folder(config))
                # Last, when no other process can find it in the folder.
                remove_from_archive(self.archive(config), str(config))


def read_archive(path: Path) -> dict[str, Record]:
    """Return the records of an archive by the names of their runs.

    Raises:
        ValueError: If the file exists but is damaged.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        return {}
    # A replaced file has another inode.
    return dict(_read(path, status.st_ino, status.st_mtime_ns, status.st_size))


@functools.lru_cache
def _read(path: Path, *state: int) -> dict[str, Record]:
    content = read_results(path) or {'settings': ()}
    records = {}
    for group in content['settings']:
        for run in group['runs']:
            config = RunConfig(**group['config'], seed=run['seed'])
            record = {name: run[name] for name in ('outcome', 'cost')}
            record['environment'] = content['environments'][run['environment']]
            records[str(config)] = record | {'config': config.to_dict()}
    return records


def add_to_archive(path: Path, records: Iterable[Record]) -> None:
    """Add finished runs, which are read while the archive is locked."""
    with _opened(path) as archive:
        for record in records:
            name = str(RunConfig(**record['config']))
            if name not in archive or memory_of(record) >= memory_of(archive[name]):
                archive[name] = record


def remove_from_archive(path: Path, name: str) -> None:
    """Remove the record of a run, if there is one."""
    with _opened(path) as archive:
        archive.pop(name, None)


def memory_of(record: Record) -> float:
    """Return the gigabytes that a run exceeded; infinity if it did not."""
    return float(record['outcome'].get('memory_limit', math.inf))


@contextmanager
def _opened(path: Path) -> Iterator[dict[str, Record]]:
    """Yield the records of a locked archive, and write the changes of the caller."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f'.{path.name}.lock')):
        remove_drafts(path.parent, path.name)
        records = read_archive(path)
        yield records
        write_json(path, _grouped(records))


def _grouped(records: dict[str, Record]) -> dict[str, Any]:
    environments: list[dict[str, Any]] = []
    settings: dict[str, dict[str, Any]] = {}
    for name, record in sorted(records.items()):
        config = dict(record['config'])
        run = {'seed': config.pop('seed')} | {k: record[k] for k in ('outcome', 'cost')}
        if record['environment'] not in environments:
            environments.append(record['environment'])
        run['environment'] = environments.index(record['environment'])
        group = settings.setdefault(
            name.rpartition('/')[0], {'config': config, 'runs': []}
        )
        group['runs'].append(run)
    for group in settings.values():
        group['runs'].sort(key=lambda run: run['seed'])
    return {'environments': environments, 'settings': list(settings.values())}


def _file_name(config: RunConfig) -> str:
    # The path of a user's file must not lead out of the store.
    return re.sub(r'[^\w.-]', '_', config.data_name).lstrip('.') or '_'


def _last_environment(starts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the environment of the last start, with commits of earlier starts."""
    *before, start = starts
    environment = {key: value for key, value in start.items() if key not in UNSTABLE}
    commits = {s.get('git_commit') for s in before} - {start.get('git_commit')}
    if commits:
        environment['git_commits_before'] = sorted(map(str, commits))
    if any(s.get('git_changes') for s in before):
        environment['git_changes'] = True
    return environment
