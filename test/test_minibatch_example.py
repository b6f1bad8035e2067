"""The loop over a table in a file: it resumes, and reads what was written."""

import importlib.util
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch

SCRIPT = Path(__file__).parents[1] / 'examples' / 'minibatch.py'
ROWS = 16 * 2048


def run(*args):
    """Run the script in the current folder, and return what it leaves behind."""
    spec = importlib.util.spec_from_file_location('minibatch', SCRIPT)
    module = importlib.util.module_from_spec(spec)
    with mock.patch.object(sys, 'argv', ['minibatch', *args]):
        spec.loader.exec_module(module)
    return module


def test_a_run_goes_on_from_its_checkpoint(tmp_path, monkeypatch, capsys):
    ends = {}
    for folder, epochs in {'straight': '2', 'resumed': '12'}.items():
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        for number in epochs:
            script = run('--rows', str(ROWS), '--epochs', number)
        assert not list(Path().rglob('*.part'))
        folder = script.table.parent
        ends[number, epochs] = [
            torch.load(folder / f'{name}.pt', weights_only=True)
            for name in ('free', 'anchors', 'mlp')
        ]
    for straight, resumed in zip(*ends.values(), strict=True):
        assert straight['done'] == resumed['done'] == 2 * (16 - 8)
        for name, value in straight['model'].items():
            assert torch.equal(value, resumed['model'][name]), name
    printed = capsys.readouterr().out
    assert printed.count('% of rows held back') == 9
    # A block is what lies at its place, and that the rows held back are not trained on.
    rows = np.load(script.table)
    x, y = script.read_blocks(script.table, 3)
    assert len(rows) == ROWS
    np.testing.assert_array_equal(x, rows['x'][3 * 2048 : 4 * 2048])
    np.testing.assert_array_equal(y, rows['y'][3 * 2048 : 4 * 2048])
    assert sorted(set(script.order.tolist())) == list(range(8))
    np.testing.assert_array_equal(script.x, rows['x'][8 * 2048 :])
    assert len(np.unique(rows['y'])) == 10


def test_too_few_rows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        run('--rows', '100')
    assert "'--rows' must be at least 32768 (got 100)" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
