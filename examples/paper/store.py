"""The folder of all runs: who works on which, and which are finished.

A run is finished when its `result.json` is whole. While a process works on it, the
process holds a lock of the operating system, which falls when the process ends, by
whatever means. So several processes can share a folder, and a killed one leaves
nothing behind that must be cleared away.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from archive import Record, add_to_archive, read_archive
from config import RunConfig
from filelock import FileLock, Timeout
from files import read_json

# What the archive tells of the machine: not what differs from start to start.
UNSTABLE = ('command', 'time')


class Store:
    """Archives of finished runs in a folder, and a folder for each run below it.

    Args:
        root: The folder. Its `runs/` can be deleted: archives keep the results.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        paths = sorted(root.glob('*.runs.json')) if root.is_dir() else []
        self._archived: dict[str, Record] = {}
        for path in paths:
            self._archived |= read_archive(path)

    def folder(self, config: RunConfig) -> Path:
        # A path of a user's file must not lead out of the store.
        name = re.sub(r'[^\w.-]', '_', config.dataset).lstrip('.') or '_'
        run = f'{config.method}-{config.setting}'
        return self.root / 'runs' / name / run / str(config.seed)

    def record(self, config: RunConfig) -> Record | None:
        """The finished run: config, outcome, cost, environment; or :obj:`None`."""
        folder = self.folder(config)
        found = read_json(folder / 'result.json')
        about = read_json(folder / 'about.json')
        if found is None or about is None or found['config'] != config.to_dict():
            return self._archived.get(str(config))
        outcome = {key: value for key, value in found.items() if key != 'config'}
        *before, start = about['starts']
        environment = {k: v for k, v in start.items() if k not in UNSTABLE}
        commits = {start.get('git_commit'), *(s.get('git_commit') for s in before)}
        if len(commits) > 1:
            environment['git_commits_before'] = sorted(
                map(str, commits - {start.get('git_commit')})
            )
        return {
            'config': found['config'],
            'outcome': outcome,
            'cost': {k: v for k, v in about.items() if k != 'starts'},
            'environment': environment,
        }

    def is_finished(self, config: RunConfig, memory_limit: float = 0.0) -> bool:
        """Whether there is a result that this much memory (GB) would not change."""
        record = self.record(config)
        if record is None:
            return False
        return float(record['outcome'].get('memory_limit', math.inf)) >= memory_limit

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

    def collect(self, name: str, configs: Iterable[RunConfig]) -> int:
        """Adds the finished among the runs to the archive of that name."""
        records = [self.record(config) for config in configs]
        finished = [record for record in records if record is not None]
        return add_to_archive(self.root / f'{name}.runs.json', finished)
