"""Runs and the table of half of the nodes labelled."""

import pytest
import torch

from reproduction import half, noisy
from reproduction.files import write_json
from reproduction.half import HALF_SETTING, Run, execute
from reproduction.half_tables import HALF, HALF_METHODS, half_grid, read_either
from reproduction.noisy_models import Training
from reproduction.summary import Cell
from reproduction.training import HIDDEN_LABEL

TINY = HALF_SETTING | {
    'epochs': 4,
    'eval_every': 1,
    'hidden_channels': 8,
    'num_nearest': 3,
}


@pytest.fixture
def loaded(data, monkeypatch):
    monkeypatch.setattr(half, 'load_dataset', lambda name: data)
    half.load.cache_clear()
    yield data
    half.load.cache_clear()


def test_all_methods_see_one_graph_and_no_test_labels(loaded, monkeypatch):
    seen = []

    def spy(method, data, edge_index, seed, setting):
        seen.append((data, edge_index, seed))
        yield Training(0.5, {'dropout': 0.5}, 0, torch.zeros_like(data.y))

    monkeypatch.setattr(noisy, 'trainings', spy)
    for method in HALF_METHODS:
        execute(Run('CiteSeer', method, 3), TINY)
    assert len(seen) == len(HALF_METHODS) == 8
    for data, edge_index, seed in seen:
        assert seed == 3
        assert torch.equal(edge_index, seen[0][1])
        assert torch.equal(data.train_mask, seen[0][0].train_mask)
        assert (data.y[data.test_mask] == HIDDEN_LABEL).all()


@pytest.mark.parametrize('method', ['mlp', 'gcn_root', 'ours'])
def test_a_run_is_the_same_again(loaded, method):
    run = Run('CiteSeer', method, 2)
    first, again = execute(run, TINY), execute(run, TINY)
    assert first == again
    assert first[0] == f'CiteSeer/{method}/2'
    assert 0 <= first[1]['test'] <= 1


def test_the_table(tmp_path):
    assert half_grid(tmp_path).is_empty
    tests = {'mlp': [0.70, 0.72, 0.71], 'ours': [0.80, 0.83, 0.81]}
    runs = {
        f'CS/{method}/{seed}': {'val': 0.5, 'test': test}
        for method, found in tests.items()
        for seed, test in enumerate(found, start=2)
    }
    write_json(tmp_path / HALF, {'digest': '', 'runs': runs})
    grid = half_grid(tmp_path)
    rows = dict(grid.rows)
    assert grid.head == ['', 'CS']
    assert rows['MLP'][0][:2] == ('71.0 ± 1.0 (3)', 'ours +10.3*')
    assert rows['cosine, null neighbour'][0].is_best
    assert list(rows) == ['MLP', 'cosine, null neighbour']
    assert 'all 1 tests' in grid.notes[0]


def test_validation_chooses_between_the_rows_of_ours(tmp_path):
    runs = {
        f'CS/{method}/{seed}': {'val': val, 'test': test}
        for method, found in {
            'ours': [(0.7, 0.60), (0.8, 0.61), (0.7, 0.62)],
            'ours_null': [(0.8, 0.50), (0.7, 0.52)],
        }.items()
        for seed, (val, test) in enumerate(found)
    }
    # The third split of this one has not run, and the fourth predicted nothing.
    runs |= {'CS/ours/3': {'val': 0.7, 'test': 0.6}}
    runs |= {'CS/ours_null/3': {'val': None, 'test': None}}
    write_json(tmp_path / HALF, {'digests': {}, 'runs': runs})
    assert read_either(tmp_path) == {('CS', 'either'): Cell({0: 50.0, 1: 61.0})}
    grid = half_grid(tmp_path)
    assert grid.rows[-1][1][0].ours == '55.5 ± 7.8 (2)'
    assert 'all 0 tests' in grid.notes[0]
