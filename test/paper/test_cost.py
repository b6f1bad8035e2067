from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cost
import pytest
import torch
import training
from files import read_json, write_json
from torch_geometric.data import Data

from torch_geometric_gsl.datasets import paper_split


@pytest.mark.parametrize('method', cost.ROWS)
def test_an_epoch_trains_every_row(method: str, data: Data) -> None:
    losses: list[float] = []
    step = cost.epoch(method, paper_split(data, seed=0), losses.append)
    step()
    step()
    assert losses[0] != losses[1]


def test_optimizer_of_the_setting(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def adamw(*args: Any, **kwargs: Any) -> torch.optim.Optimizer:
        calls.append(kwargs)
        return torch.optim.AdamW(*args, **kwargs)

    monkeypatch.setitem(training.OPTIMIZERS, 'adamw', adamw)
    cost.epoch('linkx_knn', paper_split(data, seed=0))()
    assert calls == [{'lr': 0.01, 'weight_decay': 1e-3, 'fused': True}]


needs_linux = pytest.mark.skipif(sys.platform != 'linux', reason='not measured')


@needs_linux
def test_memory_counts_what_training_holds() -> None:
    y = torch.arange(48) % 3
    data = Data(x=torch.rand(48, 60_000), y=y)
    parameters = 4 * 32 * 60_000 / 1e6
    found = cost.peak('mlp', paper_split(data, seed=0))
    # The parameters, their gradients, and two moments, of each 8 MB.
    assert found is not None
    assert 4 * parameters <= found <= 7 * parameters


@needs_linux
def test_memory_is_that_of_a_later_epoch(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    def epoch(method: str, data: Data) -> Callable[[], None]:
        held, is_first = [torch.ones(8_000_000)], True

        def step() -> None:
            nonlocal is_first
            if is_first:
                held.append(torch.ones(4_000_000))
                torch.ones(40_000_000).sum()
            is_first = False
            torch.ones(2_000_000).sum()

        return step

    monkeypatch.setattr(cost, 'epoch', epoch)
    # A number has four bytes.
    assert cost.peak('mlp', data) == pytest.approx(4 * (8 + 4 + 2), abs=4)


def test_measure_and_table(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    data: Data,
) -> None:
    monkeypatch.setattr(cost, 'ROWS', ('neural_gau_sim', 'mlp'))
    monkeypatch.setattr(cost, 'load', lambda: paper_split(data, seed=0))
    monkeypatch.setattr(cost, 'memory_of', {'neural_gau_sim': 12.4, 'mlp': None}.get)
    words = ['--repeats', '3', '--results', str(tmp_path)]
    monkeypatch.setattr(sys, 'argv', ['cost.py', *words])
    cost.main()
    rows = (read_json(tmp_path / 'cost.json') or {})['rows']
    assert rows.keys() == {'neural_gau_sim', 'mlp'}
    for row in rows.values():
        low, high = row['quartiles']
        assert 0 < low <= row['seconds'] <= high
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == '|  | seconds | MB |'
    assert printed[2].endswith(f'| 12<br>paper: {cost.COSTS["neural_gau_sim"][1]} |')
    assert printed[3].endswith('|  |')


def test_memory_is_that_of_a_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], data: Data
) -> None:
    monkeypatch.setattr(cost, 'load', lambda: paper_split(data, seed=0))
    monkeypatch.setattr(sys, 'argv', ['cost.py', '--memory', 'mlp'])
    cost.main()
    found = json.loads(capsys.readouterr().out)
    assert found is None or found >= 0


def test_table_of_what_was_measured_last(tmp_path: Path) -> None:
    row = {'seconds': 0.0421, 'quartiles': [0.04, 0.05], 'megabytes': 23.6}
    content = {'environment': {'threads': 2}, 'rows': {'gau_sim': row}}
    write_json(tmp_path / 'cost.json', content)
    text = cost.cost_grid(tmp_path).render('markdown')
    seconds, megabytes = cost.COSTS['gau_sim']
    ours = '0.042 (0.040 to 0.050)'
    assert f'| GauSim | {ours}<br>paper: {seconds} | 24<br>paper: {megabytes} |' in text
    assert 'CPU threads: 2,' in text
