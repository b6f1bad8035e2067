"""Training on several processes equals that on one, and goes on when one dies."""

import importlib.util
import sys
from pathlib import Path
from unittest import mock

import pytest
import torch
from oracles import run_alone

from torch_geometric_gsl.distributed import RowShard

SCRIPT = Path(__file__).parents[1] / 'examples' / 'distributed.py'
SMALL = ('--nodes', '90', '--features', '6', '--epochs', '8', '--backend', 'gloo')


def run(*args):
    """Run the script as one process, and return its exit status."""
    spec = importlib.util.spec_from_file_location('distributed_example', SCRIPT)
    module = importlib.util.module_from_spec(spec)
    with mock.patch.object(sys, 'argv', ['distributed', *args]):
        try:
            spec.loader.exec_module(module)
        except SystemExit as error:
            return error.code


@pytest.fixture(autouse=True)
def _default_dtype():
    yield
    torch.set_default_dtype(torch.float)


def test_two_processes_of_which_one_dies(tmp_path):
    begin = ('-m', 'torch.distributed.run', '--standalone', '--nproc-per-node=2')
    options = ('--check', '--checkpoint', str(tmp_path), '--die-at', '6')
    printed, _ = run_alone(*begin, '--max-restarts=1', str(SCRIPT), *SMALL, *options)
    # Once by those who died, and once by those who went on.
    assert printed.count('tolerance 1e-09: passed') == 2
    assert printed.count('equal: True') == 4
    # 45 rows of 32 and 5 numbers to the other process, in double precision.
    assert 'rows: 13,320 bytes a step, expected 13,320' in printed
    for line in printed.splitlines():
        if ' bytes a step, expected ' in line:
            found, expected = line.split(': ')[1].split(' bytes a step, expected ')
            assert found == expected
    assert '2 processes, 90 nodes, steps 5..8, loss ' in printed


def test_one_process(capsys):
    assert run(*SMALL, '--check') == 0
    printed = capsys.readouterr().out
    assert 'tolerance 1e-09: passed' in printed
    assert '1 processes, 90 nodes, steps 0..8' in printed


def test_a_difference_is_an_error(capsys, monkeypatch):
    gather = RowShard.gather

    def disturbed(shard, x):
        out = gather(shard, x)
        return out * 1.001 if out.is_floating_point() else out

    monkeypatch.setattr(RowShard, 'gather', disturbed)
    assert run(*SMALL, '--check') == 1
    assert 'tolerance 1e-09: FAILED' in capsys.readouterr().out
