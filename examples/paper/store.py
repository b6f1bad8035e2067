"""The folder of all runs: who works on which, and which are finished.

A run is finished when its `result.json` is whole. While a process works on it, the
process holds a lock of the operating system, which falls when the process ends, by
whatever means. So several processes can share a folder, and a killed one leaves
nothing behind that must be cleared away.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from archive import Record, add_to_archive, memory_of, read_archive, remove_from_archive
from config import RunConfig
from filelock import FileLock, Timeout
from files import read_json

# What the archive tells of the machine: not what differs from start to start.
UNSTABLE = ('command', 'time')
#: Ends that another machine or setting of it may spare a run.
AGAIN = ('timeout', 'oom', 'diverged')


class Store:
    """Archives of finished runs in a folder, and a folder for each run below it.

    Args:
        root: The folder. Its `runs/` can be deleted: archives keep the results.
        archives_only: Whether to look at nothing but the archives, as a clone does.
    """

    def __init__(self, root: Path, archives_only: bool = False) -> None:
        self.root, self.archives_only = root, archives_only
        paths = sorted(root.glob('*.runs.json')) if root.is_dir() else []
        self._archived: dict[str, Record] = {}
        for path in paths:
            self._archived |= read_archive(path)

    def folder(self, config: RunConfig) -> Path:
        run = f'{config.method}-{config.setting}'
        return self.root / 'runs' / _file_name(config) / run / str(config.seed)

    def archive(self, config: RunConfig) -> Path:
        # One for each data set: no run can stand in two.
        return self.root / f'{_file_name(config)}.runs.json'

    def record(self, config: RunConfig) -> Record | None:
        """The finished run: config, outcome, cost, environment; or :obj:`None`."""
        archived = self._archived.get(str(config))
        if self.archives_only:
            return archived
        folder = self.folder(config)
        found = read_json(folder / 'result.json')
        about = read_json(folder / 'about.json')
        if found is None or about is None or found['config'] != config.to_dict():
            return archived
        outcome = {key: value for key, value in found.items() if key != 'config'}
        own = {
            'config': found['config'],
            'outcome': outcome,
            'cost': {k: v for k, v in about.items() if k != 'starts'},
            'environment': _environment(about['starts']),
        }
        # A machine with more memory may have put its result into the archive since.
        is_newest = archived is None or memory_of(own) >= memory_of(archived)
        return own if is_newest else archived

    def is_finished(self, config: RunConfig, memory_limit: float = 0.0) -> bool:
        """Whether there is a result that this much memory (GB) would not change."""
        record = self.record(config)
        return record is not None and memory_of(record) >= memory_limit

    def missing(
        self, configs: Iterable[RunConfig], memory_limit: float = 0.0
    ) -> list[RunConfig]:
        return [c for c in configs if not self.is_finished(c, memory_limit)]

    @contextmanager
    def claim(self, config: RunConfig) -> Iterator[bool]:
        """Locks a run; gives :obj:`False` if another process works on it."""
        folder = self.folder(config)
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

    def collect(self, configs: Iterable[RunConfig]) -> None:
        """Adds the finished among the runs to the archives of their data sets."""
        finished: dict[Path, list[Record]] = {}
        for config in configs:
            record = self.record(config)
            if record is not None:
                finished.setdefault(self.archive(config), []).append(record)
        for path, records in finished.items():
            add_to_archive(path, records)

    def remove_leftovers(self, configs: Iterable[RunConfig]) -> None:
        """Deletes checkpoints of processes killed between result and clearing up."""
        for config in configs:
            checkpoint = self.folder(config) / 'checkpoint.pt'
            if not checkpoint.exists():
                continue
            with self.claim(config) as is_ours:
                # That of a run which failed, or which another process has, is needed.
                if is_ours and self.is_finished(config):
                    checkpoint.unlink(missing_ok=True)

    def forget(self, configs: Iterable[RunConfig], status: str) -> None:
        """Removes the results of runs that ended so: they are then to be done."""
        for config in configs:
            with self.claim(config) as is_ours:
                record = self.record(config) if is_ours else None
                if record is None or record['outcome']['status'] != status:
                    continue
                remove_from_archive(self.archive(config), str(config))
                self._archived.pop(str(config), None)
                for name in ('result.json', 'about.json', 'checkpoint.pt'):
                    (self.folder(config) / name).unlink(missing_ok=True)


def _file_name(config: RunConfig) -> str:
    # A path of a user's file must not lead out of the store.
    return re.sub(r'[^\w.-]', '_', config.data_name).lstrip('.') or '_'


def _environment(starts: list[dict[str, Any]]) -> dict[str, Any]:
    """That of the last start, with what earlier starts ran on besides."""
    *before, start = starts
    found = {key: value for key, value in start.items() if key not in UNSTABLE}
    commits = {s.get('git_commit') for s in before} - {start.get('git_commit')}
    if commits:
        found['git_commits_before'] = sorted(map(str, commits))
    if any(s.get('git_changes') for s in before):
        found['git_changes'] = True
    return found
