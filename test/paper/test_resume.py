"""Runs that are killed, resumed and shared end as one that nothing disturbed."""

import argparse
import json
import random
import signal

import numpy as np
import pytest
from server import CONTEXT, ensure_running

from reproduction.experiments import RunConfig
from reproduction.files import read_json
from reproduction.store import Store

pytestmark = pytest.mark.slow

KILLS = 4
METHODS = {
    'gau_sim': {'k': 3},
    'mlp': {},
}
#: Does what `run.py` does. Of the files that it replaces, one is its last: it is killed
#: after the replacement, or before it.
WORKER = """
import os, signal
import torch
from reproduction import run

def replace_or_die(draft, path):
    global count
    count -= 1
    if count or is_after:
        replace(draft, path)
    if not count:
        os.kill(os.getpid(), signal.SIGKILL)

torch.set_num_threads(1)
replace, os.replace = os.replace, replace_or_die
run.work('table1', configs, store, args)
"""
ARGS = argparse.Namespace(
    tensorboard=False, device='cpu', threads=1, memory_limit=8.0, checkpoint_seconds=0.0
)


@pytest.fixture(scope='module', autouse=True)
def _server():
    ensure_running()


@pytest.fixture(scope='module')
def table(tmp_path_factory):
    """A file of features and labels, as a user would bring it."""
    generator = np.random.default_rng(0)
    y = np.arange(60) % 3
    x = generator.normal(size=(60, 5)) + y[:, None]
    path = tmp_path_factory.mktemp('table') / 'points.npz'
    np.savez(path, x=x, y=y)
    return path


def configs(table, seeds=2, epochs=6):
    common = {'hidden_channels': 8, 'num_layers': 2}
    training = {'lr': 0.01, 'epochs': epochs, 'eval_every': 3}
    return [
        RunConfig(str(table), method, seed, options=common | options, **training)
        for seed in range(seeds)
        for method, options in METHODS.items()
    ]


def start(root, runs, count=-1, is_after=False):
    names = {'configs': runs, 'store': Store(root), 'args': ARGS}
    values = names | {'count': count, 'is_after': is_after}
    process = CONTEXT.Process(target=exec, args=(WORKER, values))
    process.start()
    return process


def finish(root, runs):
    process = start(root, runs)
    process.join()
    assert process.exitcode == 0


def results(root):
    """Config and outcome of each run in the archive."""
    (path,) = root.glob('*.runs.json.gz')
    return {
        f'{group["config"]["method"]} {run["seed"]}': (group['config'], run['outcome'])
        for group in (read_json(path) or {})['settings']
        for run in group['runs']
    }


def starts(root):
    """How often a run was started or taken up."""
    records = [json.loads(path.read_text()) for path in root.rglob('about.json')]
    return sum(len(about['starts']) for about in records)


@pytest.fixture(scope='module')
def undisturbed(tmp_path_factory, table):
    root = tmp_path_factory.mktemp('undisturbed')
    finish(root, configs(table))
    outcomes = results(root)
    assert len(outcomes) == 4
    return outcomes


def test_killed_at_random_moments(tmp_path, table, undisturbed):
    """Of the 6 epochs of 4 runs each replaces two files: 4 kills before their end."""
    runs, moments = configs(table), random.Random(0)
    for kill in range(KILLS):
        process = start(tmp_path, runs, moments.randint(1, 10), kill % 2 == 1)
        process.join()
        assert process.exitcode == -signal.SIGKILL
    assert Store(tmp_path).missing(runs)
    finish(tmp_path, runs)
    assert results(tmp_path) == undisturbed
    # Whole files only, and a record of every start.
    assert not list(tmp_path.rglob('checkpoint.pt'))
    assert not list(tmp_path.rglob('.*.tmp'))
    assert starts(tmp_path) >= len(runs) + KILLS / 2


def test_two_workers_share(tmp_path, table, undisturbed):
    runs = configs(table)
    both = [start(tmp_path, runs) for _ in range(2)]
    for process in both:
        process.join()
        assert process.exitcode == 0
    assert results(tmp_path) == undisturbed
    assert starts(tmp_path) == len(runs)
