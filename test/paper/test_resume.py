"""Runs that are killed, resumed and shared end as one that nothing disturbed."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import sys
import time
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from config import RunConfig
from resume_worker import worker
from run import load
from store import Store
from training import Metrics, Run, Watcher

KILLS = 12
METHODS: dict[str, dict[str, Any]] = {
    'gau_sim': {'k': 3},
    'mlp': {},
    'slaps': {'k': 4, 'binary': False, 'graph_generator': 'mlp'},
}
# The folder of the modules must be known to the process that forks the workers.
CONTEXT = multiprocessing.get_context('forkserver')
CONTEXT.set_forkserver_preload(['resume_worker'])


@pytest.fixture(scope='module', autouse=True)
def server() -> None:
    """Starts the process that forks the workers, which has imported all they need."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('PYTHONPATH', os.pathsep.join(sys.path))
        forkserver.ensure_running()


@pytest.fixture(scope='module')
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of features and labels, as a user would bring it."""
    generator = np.random.default_rng(0)
    y = np.arange(60) % 3
    x = generator.normal(size=(60, 5)) + y[:, None]
    path = tmp_path_factory.mktemp('table') / 'points.npz'
    np.savez(path, x=x, y=y)
    return path


def configs(table: Path, seeds: int = 2, epochs: int = 24) -> list[RunConfig]:
    return [
        RunConfig(
            str(table),
            method,
            seed,
            options={'hidden_channels': 8, 'num_layers': 2, **options},
            lr=0.01,
            epochs=epochs,
            eval_every=3,
        )
        for seed in range(seeds)
        for method, options in METHODS.items()
    ]


def start(root: Path, wanted: list[RunConfig]) -> multiprocessing.process.BaseProcess:
    values = [config.to_dict() for config in wanted]
    ready = CONTEXT.Event()
    process = CONTEXT.Process(target=worker, args=(str(root), values, ready))
    process.start()
    assert ready.wait(60)
    return process


def finish(root: Path, wanted: list[RunConfig]) -> None:
    process = start(root, wanted)
    process.join(120)
    assert process.exitcode == 0


def results(root: Path) -> dict[str, Any]:
    """Config and outcome of each run in the archive."""
    (path,) = root.glob('*.runs.json')
    content = json.loads(path.read_text())
    return {
        f'{group["config"]["method"]} {run["seed"]}': (group['config'], run['outcome'])
        for group in content['settings']
        for run in group['runs']
    }


def stop_after(epochs: int) -> Watcher:
    def watch(metrics: Metrics) -> None:
        if metrics['epoch'] + 1 == epochs:
            raise KeyboardInterrupt

    return watch


def starts(root: Path) -> int:
    """How often a run was started or taken up."""
    found = [json.loads(path.read_text()) for path in root.rglob('about.json')]
    return sum(len(about['starts']) for about in found)


@pytest.fixture(scope='module')
def undisturbed(
    tmp_path_factory: pytest.TempPathFactory, table: Path
) -> dict[str, Any]:
    root = tmp_path_factory.mktemp('undisturbed')
    finish(root, configs(table))
    found = results(root)
    assert len(found) == 6
    return found


def test_killed_at_random_moments(
    tmp_path: Path, table: Path, undisturbed: dict[str, Any]
) -> None:
    root, wanted = tmp_path / 'killed', configs(table)
    delays = random.Random(0)
    kills = 0
    while kills < KILLS:
        before = starts(root)
        process = start(root, wanted)
        longest = 0.8
        if kills % 2 == 1:  # In the middle of a run, however slow the machine is.
            longest = 0.1
            while process.is_alive() and starts(root) == before:
                time.sleep(0.005)
        process.join(delays.uniform(0.0, longest))
        kills += process.is_alive()
        process.kill()
        process.join()
        if not Store(root).missing(wanted):
            break
    assert kills >= 10, 'all runs ended before there were ten kills'
    finish(root, wanted)
    assert results(root) == undisturbed
    # Whole files only, and a record of every start.
    assert not list(root.rglob('checkpoint.pt'))
    assert starts(root) >= len(wanted) + 5


def test_finished_runs_are_not_run_again(tmp_path: Path, table: Path) -> None:
    root, wanted = tmp_path / 'twice', configs(table, seeds=1, epochs=5)
    finish(root, wanted)
    before = {path: path.stat().st_mtime_ns for path in root.rglob('result.json')}
    finish(root, wanted)
    after = {path: path.stat().st_mtime_ns for path in root.rglob('result.json')}
    assert before == after


def test_two_workers_share(
    tmp_path: Path, table: Path, undisturbed: dict[str, Any]
) -> None:
    root, wanted = tmp_path / 'shared', configs(table)
    both = [start(root, wanted) for _ in range(2)]
    for process in both:
        process.join(120)
        assert process.exitcode == 0
    assert results(root) == undisturbed
    assert starts(root) == len(wanted)


@pytest.mark.parametrize('name', ['checkpoint.pt', 'result.json'])
@pytest.mark.parametrize('damage', ['truncated', 'changed', 'empty'])
def test_damaged_files_are_redone(
    tmp_path: Path, table: Path, undisturbed: dict[str, Any], name: str, damage: str
) -> None:
    root, wanted = tmp_path / 'damaged', configs(table)[:1]
    folder = Store(root).folder(wanted[0])
    finish(root, wanted)
    if name == 'checkpoint.pt':
        # As after a kill in the middle.
        config = wanted[0]
        for path in folder.iterdir():
            path.unlink()
        half = Run(config, load(config.dataset, config.label), folder)
        with pytest.raises(KeyboardInterrupt):
            half.train(stop_after(10))
        half.save()
    content = (folder / name).read_bytes()
    middle = len(content) // 2
    flipped = bytes([content[middle] ^ 255])
    (folder / name).write_bytes(
        {
            'truncated': content[:middle],
            'changed': content[:middle] + flipped + content[middle + 1 :],
            'empty': b'',
        }[damage]
    )
    for path in root.glob('*.runs.json'):
        path.unlink()
    finish(root, wanted)
    found = results(root)
    assert found == {key: undisturbed[key] for key in ('gau_sim 0',)}


def test_a_checkpoint_left_behind_is_cleared(tmp_path: Path, table: Path) -> None:
    """As by a kill after the result was written."""
    root, wanted = tmp_path / 'left', configs(table, seeds=1, epochs=5)
    finish(root, wanted)
    left = Store(root).folder(wanted[0]) / 'checkpoint.pt'
    left.write_bytes(b'left')
    finish(root, wanted)
    assert not left.exists()
