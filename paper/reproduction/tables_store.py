"""Store finished units of tables, and execute missing ones in separate processes."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import multiprocessing
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from reproduction import studies
from reproduction.files import claim_folder, write_text
from reproduction.record import environment

#: Subfolder of the folder of results.
FOLDER = 'tables'
#: Libraries whose versions are recorded.
LIBRARIES = (
    *('numpy', 'scikit-learn', 'lightgbm', 'xgboost', 'xgboost-cpu', 'catboost'),
    *('rtdl_num_embeddings', 'pytabkit'),
)
#: Variables of the number of threads, which libraries read when they are loaded.
THREADS = ('OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'MKL_NUM_THREADS')
#: The result of a unit.
Result = dict[str, Any]


class Run(NamedTuple):
    """A method on a split of a table."""

    table: str
    method: str
    split: str

    def __str__(self) -> str:
        return f'{self.table}/{self.method}/{self.split}'

    @property
    def seed(self) -> int:
        """Return the seed of the method; 0 for splits by place and by time."""
        return int(self.split) if self.split.isdigit() else 0


Task = Callable[[Run], Result]


def unit_folder(root: Path, run: Run) -> Path:
    """Return the folder of the trials and errors of a unit."""
    return root / 'runs' / FOLDER / str(run)


def results_path(root: Path, table: str) -> Path:
    return root / FOLDER / f'{table}.json'


class TableResults(studies.Results):
    """The finished units of a table, each with the environment that it ran in."""

    def __init__(
        self,
        root: Path,
        table: str,
        setting: dict[str, Any],
        methods: Mapping[str, Any],
        threads: int = 1,
    ) -> None:
        self.root = root
        self.table = table
        self.environments: dict[str, Any] = {}
        self.environment = environment(
            device='cpu', threads=threads, versions=_versions()
        )
        text = json.dumps(self.environment)
        self.key = hashlib.sha256(text.encode()).hexdigest()[:10]
        super().__init__(results_path(root, table), setting, methods)

    def _note(self, content: dict[str, Any]) -> None:
        self.environments |= content.get('environments', {})

    def _environments(self, runs: Mapping[str, Result]) -> dict[str, Any]:
        environments = self.environments | {self.key: self.environment}
        keys = {run['environment'] for run in runs.values()}
        return {'environments': {key: environments[key] for key in sorted(keys)}}

    def finish(self, run: Run, result: Result) -> None:
        """Add the result of a unit."""
        self.add(str(run), result | {'environment': self.key})

    def is_finished(self, run: Run) -> bool:
        """Return whether a unit is finished, also by another command."""
        if str(run) not in self.runs:
            self._read()
        return str(run) in self.runs

    def check_trials(self, methods: Iterable[str], trials: int) -> None:
        """Refuse to mix searches of different lengths.

        Raises:
            ValueError: If the file has units of another number of trials.
        """
        for name, result in self.runs.items():
            stored_trials = result['trials']
            if name.split('/')[1] in methods and stored_trials not in (None, trials):
                raise ValueError(
                    f"'--trials' must be {stored_trials}, as of {name} in "
                    f"'{self.path}', or another folder be named by '--results' "
                    f'(got {trials})'
                )

    def claim(self, run: Run) -> contextlib.AbstractContextManager[bool]:
        """Lock a unit; yield :obj:`False` if another process works on it."""
        return claim_folder(unit_folder(self.root, run))


def _versions() -> dict[str, str]:
    versions = {}
    for name in LIBRARIES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def complete(
    units: list[Run],
    results: Mapping[str, TableResults],
    task: Task,
    jobs: int,
    threads: int,
) -> int:
    """Execute the missing units, and store each result immediately.

    A unit that fails is reported, and the next one follows.

    Returns:
        int: The number of units that failed.
    """
    missing = [run for run in units if str(run) not in results[run.table].runs]
    print(f'tables: {len(units)} units, {len(units) - len(missing)} finished')
    start_server(threads)
    failures = 0
    execute = functools.partial(_complete_unit, results, task)
    with ThreadPool(jobs) as pool, tqdm(total=len(missing), disable=None) as bar:
        apply: Any = map if jobs == 1 else pool.imap_unordered
        for text, is_failure in apply(execute, missing):
            failures += is_failure
            bar.write(text)
            bar.update()
    return failures


def _complete_unit(
    results: Mapping[str, TableResults], task: Task, run: Run
) -> tuple[str, bool]:
    """Execute a unit, unless another command has it; return a message."""
    table = results[run.table]
    with table.claim(run) as is_ours:
        if not is_ours:
            return f'{run}: left to another process', False
        if table.is_finished(run):
            return f'{run}: finished by another process', False
        folder = unit_folder(table.root, run)
        result, error = in_own_process(task, run)
        if result is None:
            write_text(folder / 'error.txt', error)
            return f'{run}: FAILED, {error.splitlines()[-1]}', True
        (folder / 'error.txt').unlink(missing_ok=True)
        table.finish(run, result)
    scores = ', '.join(f'{name} {x:.4g}' for name, x in result['test'].items())
    seconds = sum(result['seconds'].values())
    return f'{run}: {scores}, {seconds:.1f} s', False


def in_own_process(task: Task, run: Run) -> tuple[Result | None, str]:
    """Execute a unit in its own process; return its result, or an error."""
    context = multiprocessing.get_context('forkserver')
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(sender, task, run), daemon=True)
    process.start()
    sender.close()
    try:
        result, error = receiver.recv()
    except EOFError:
        result = None
        error = ''
    process.join()
    if result is None and not error:
        error = f'the process ended with code {process.exitcode}: too little memory?'
    return result, error


def _send(sender: Connection, task: Task, run: Run) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        answer = task(run), ''
    except Exception:
        answer = None, traceback.format_exc()  # type: ignore[assignment]
    sender.send(answer)


def _end_with_parent() -> None:
    """End this process when the command that waits for it is killed."""
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)


def start_server(threads: int) -> None:
    """Start the server that forks the processes of units, with all shared imports.

    It must not compute anything: a fork fails after a computation with threads.
    """
    changed = dict.fromkeys(THREADS, str(threads))
    changed['PYTHONPATH'] = os.pathsep.join(sys.path)
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        context = multiprocessing.get_context('forkserver')
        context.set_forkserver_preload(['reproduction.tables_runs'])
        forkserver.ensure_running()
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
