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
        for path in sorted(root.glob('*.runs.json')) if root.is_dir() else []:
            read_archive(path)  # If one is damaged, it is told before a run is begun.

    def folder(self, config: RunConfig) -> Path:
        run = f'{config.method}-{config.setting}'
        return self.root / 'runs' / _file_name(config) / run / str(config.seed)

    def archive(self, config: RunConfig) -> Path:
        # One for each data set: no run can stand in two.
        return self.root / f'{_file_name(config)}.runs.json'

    def record(self, config: RunConfig) -> Record | None:
        """The finished run: config, outcome, cost, environment; or :obj:`None`."""
        archived = read_archive(self.archive(config)).get(str(config))
        own = None if self.archives_only else self._own_record(config)
        # A machine with more memory may have put its result into the archive since.
        if archived is None or own is None:
            return own or archived
        return own if memory_of(own) >= memory_of(archived) else archived

    def _own_record(self, config: RunConfig) -> Record | None:
        """What stands in the folder of the run."""
        folder = self.folder(config)
        found = read_json(folder / 'result.json')
        about = read_json(folder / 'about.json')
        if found is None or about is None or found['config'] != config.to_dict():
            return None
        outcome = {key: value for key, value in found.items() if key != 'config'}
        return {
            'config': found['config'],
            'outcome': outcome,
            'cost': {k: v for k, v in about.items() if k != 'starts'},
            'environment': _environment(about['starts']),
        }

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
        finished: dict[Path, list[RunConfig]] = {}
        for config in configs:
            if self._own_record(config) is not None:
                finished.setdefault(self.archive(config), []).append(config)
        for path, found in finished.items():
            # Looked up once more when the archive is ours: another process may have
            # forgotten them meanwhile.
            add_to_archive(path, filter(None, map(self._own_record, found)))

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
                for name in ('result.json', 'about.json', 'checkpoint.pt'):
                    (self.folder(config) / name).unlink(missing_ok=True)
                # Last, when no other process finds it in the folder any more.
                remove_from_archive(self.archive(config), str(config))


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
