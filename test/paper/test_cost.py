from __future__ import annotations

import json
import sys
from pathlib import Path

import cost
import pytest
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
    assert f'| GauSim | 0.042<br>paper: {seconds} | 24<br>paper: {megabytes} |' in text
    assert '2 CPU threads' in text
