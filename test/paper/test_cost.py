from types import SimpleNamespace

import pytest

from reproduction import cost
from reproduction.files import read_json
from torch_geometric_gsl.datasets import paper_split


@pytest.mark.parametrize('method', cost.ROWS)
def test_an_epoch_trains_every_row(method, data):
    losses = []
    step = cost.epoch(method, paper_split(data, seed=0), losses.append)
    step()
    step()
    assert losses[0] != losses[1]


def test_measure_and_table(tmp_path, monkeypatch, call, data):
    monkeypatch.setattr(cost, 'ROWS', ('neural_gau_sim', 'mlp'))
    monkeypatch.setattr(cost.time, 'perf_counter', iter(range(99)).__next__)
    monkeypatch.setattr(cost, 'gc', SimpleNamespace(collect=lambda: None))
    monkeypatch.setattr(cost, 'load', lambda: paper_split(data, seed=0))
    printed = call(cost.main, '--repeats', 3, '--results', tmp_path).splitlines()
    rows = (read_json(tmp_path / 'cost.json') or {})['rows']
    assert rows.keys() == {'neural_gau_sim', 'mlp'}
    for row in rows.values():
        assert (row['seconds'], row['quartiles']) == (1.0, [1.0, 1.0])
        assert row['megabytes'] > 0
    assert printed[0] == '|  | seconds | MB |'
    assert printed[2].endswith(f'| 0<br>paper: {cost.COSTS["neural_gau_sim"][1]} |')
    assert printed[3].endswith('| 0 |')
