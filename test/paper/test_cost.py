import functools
from types import SimpleNamespace

import pytest
import torch
from torch_geometric.data import Data

from reproduction import cost, training
from reproduction.files import read_json
from torch_geometric_gsl.datasets import paper_split


@pytest.mark.parametrize('method', cost.ROWS)
def test_an_epoch_trains_every_row(method, data):
    losses = []
    step = cost.epoch(method, paper_split(data, seed=0), losses.append)
    step()
    step()
    assert losses[0] != losses[1]


def test_optimizer_of_the_setting(data, monkeypatch):
    calls = []

    def adamw(*args, **kwargs):
        calls.append(kwargs)
        return torch.optim.AdamW(*args, **kwargs)

    monkeypatch.setitem(training.OPTIMIZERS, 'adamw', adamw)
    cost.epoch('linkx_knn', paper_split(data, seed=0))()
    assert calls == [{'lr': 0.01, 'weight_decay': 1e-3, 'fused': True}]


def test_memory_counts_what_training_holds():
    y = torch.arange(48) % 3
    data = Data(x=torch.rand(48, 20_000), y=y)
    parameters = 4 * 32 * 20_000 / 1e6
    found = cost.peak('mlp', paper_split(data, seed=0))
    # The parameters, their gradients, and two moments.
    assert 4 * parameters <= found <= 5 * parameters


def test_memory_is_that_of_a_later_epoch(data, monkeypatch):
    """What lives on counts, and what the epoch itself takes, but not the first one."""

    def epoch(method, data):
        held, is_first = [torch.ones(8_000)], True

        def step():
            nonlocal is_first
            if is_first:
                held.append(torch.ones(4_000))
                torch.ones(400_000).sum()
            is_first = False
            torch.ones(2_000).sum()

        return step

    monkeypatch.setattr(cost, 'epoch', epoch)
    # A number has four bytes, and a sum is one.
    expected = 4 * (8_000 + 4_000 + 2_000 + 1) / 1e6
    assert cost.peak('mlp', data) == pytest.approx(expected, abs=1e-4)


def test_rounds(monkeypatch):
    calls = []
    # A clock that goes on by what is called.
    clock = SimpleNamespace(perf_counter=lambda: len(calls) ** 2)
    monkeypatch.setattr(cost, 'time', clock)
    steps = {name: functools.partial(calls.append, name) for name in 'abc'}
    found = cost.interleave(steps, 3)
    # Each starts one step later, and the first does not count.
    assert ''.join(calls) == 'abcbcacababc'
    assert list(found.values()) == [[11, 15, 19], [7, 17, 21], [9, 13, 23]]


def test_measure_and_table(tmp_path, monkeypatch, call, data):
    monkeypatch.setattr(cost, 'ROWS', ('neural_gau_sim', 'mlp'))
    monkeypatch.setattr(cost.time, 'perf_counter', iter(range(99)).__next__)
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
