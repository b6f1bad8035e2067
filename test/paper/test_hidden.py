"""Runs, tables and the figure of hidden relations."""

import math

import pytest
import torch

from reproduction import hidden
from reproduction.files import read_json
from reproduction.hidden import Results, Run, execute, main
from reproduction.relation_tables import (
    HIDDEN,
    hidden_grid,
    hidden_paired,
)
from reproduction.relations import (
    METHODS,
    SETTING,
    Graphs,
    LearnedGraph,
    mean_of_edges,
    relative_error,
    true_graph,
)
from reproduction.summary import holm

TINY = SETTING | {'steps': 2, 'graphs_per_step': 2, 'num_nodes': 14}
TINY |= {'held_out_graphs': 3, 'k': 2, 'hidden_channels': 4}
SMALL = SETTING | {'num_nodes': 150, 'held_out_graphs': 3, 'steps': 10}


def results(folder):
    return read_json(folder / HIDDEN)['runs']


@pytest.mark.parametrize('method', METHODS)
def test_every_method_runs(method):
    name, result = execute(Run(40, method, 1), TINY)
    assert name == f'40/{method}/1'
    assert 0 < result['val'] < math.inf
    assert 0 < result['test'] < math.inf
    has_graph = METHODS[method].similarity is not None
    assert ('precision' in result) == has_graph
    assert execute(Run(40, method, 1), TINY)[1] == result
    assert execute(Run(40, method, 2), TINY)[1] != result


def test_validation_chooses(monkeypatch):
    """The test graphs are read for the chosen training alone."""
    graphs = Graphs.draw(40, 0, TINY)
    outs = [graphs.val.y + shift for shift in (0.5, 0.1, 0.3)]
    asked = []

    class Fixed(torch.nn.Module):
        def __init__(self, number):
            super().__init__()
            self.number = number

        def forward(self, data):
            asked.append((self.number, data.y.sum().item()))
            return data.y + outs[self.number][0] - graphs.val.y[0]

    models = [(Fixed(number), number) for number in range(3)]
    monkeypatch.setattr(hidden, 'trainings', lambda *args: iter(models))
    monkeypatch.setattr(hidden.Graphs, 'draw', lambda *args: graphs)
    result = execute(Run(40, 'bell', 0), TINY)[1]
    assert result['choice'] == 1
    last = graphs.test.y.sum().item()
    assert [number for number, total in asked if total == last] == [1]


def test_true_edges_tell_the_targets():
    graphs = Graphs.draw(70, 0, SMALL)
    for data in graphs.val.to_data_list():
        data.num_graphs = 1
        mean = mean_of_edges(data, 10.0, 70.0)
        source, target = data.true_edge_index
        total = torch.zeros_like(data.x).index_add_(0, target, data.x[source])
        count = target.bincount(minlength=data.num_nodes).unsqueeze(1)
        torch.testing.assert_close(mean, total / count.clamp(min=1))
    assert true_graph(70, graphs, SMALL)['test'] < 0.15
    assert true_graph(20, graphs, SMALL)['test'] > 0.5


def test_recovery_of_a_graph_that_is_known():
    graphs = Graphs.draw(60, 0, SMALL)
    model = LearnedGraph(METHODS['biased'], SMALL)
    model.start(60)
    torch.nn.init.constant_(model.conv.sampler.log_scale, math.log(40))
    torch.nn.init.constant_(model.conv.sampler.similarity.bias_c, -6.0)
    found = model.recovery(graphs.test)
    assert found['precision'] > 0.9
    assert found['weight'] > 0.9
    model.start(20)
    found = model.recovery(graphs.test)
    assert found['precision'] == 0
    assert found['weight'] < 0.1


@pytest.mark.slow
def test_several_processes_find_the_same(tmp_path):
    words = ['--deltas', '40', '--seeds', '1', '--methods', 'mlp', 'true', '--results']
    for jobs in '12':
        main([*words, str(tmp_path / jobs), '--jobs', jobs], TINY)
    assert results(tmp_path / '1') == results(tmp_path / '2')


@pytest.fixture
def found(tmp_path):
    """Errors of three seeds: the bell's are ten times those of the others."""
    store = Results(tmp_path, TINY)
    for delta in (40, 80):
        for seed in range(3):
            for method in METHODS:
                factor = 10 if method == 'bell' else 1
                error = factor * 0.05 * (1 + 0.01 * seed * (method == 'bell'))
                result = {'val': 0.1, 'test': error, 'precision': 0.25 * (1 + seed)}
                store.add(f'{delta}/{method}/{seed}', result)
    store.add('40/mlp/3', {'val': None, 'test': None})
    return tmp_path


def test_tables(found):
    grid = hidden_grid(found)
    assert grid.head == ['', '40°', '80°']
    rows = dict(grid.rows)
    assert rows['bell'][0].ours == '0.505 ± 0.005'
    assert rows['bell'][0].paper == '50% true'
    assert 'of 3 runs' in grid.notes[0]
    rows = dict(hidden_paired(found).rows)
    assert rows['bell'][1].ours == '10.10*'
    assert rows['cosine'][0].ours == '1.00'  # Without any spread there is no test.


def test_holm():
    found = holm({'a': 0.01, 'b': 0.04, 'c': 0.03, 'd': math.nan})
    assert found == pytest.approx({'a': 0.03, 'c': 0.06, 'b': 0.06})
    assert holm({'a': 0.9, 'b': 0.8}) == {'b': 1.0, 'a': 1.0}


def test_relative_error():
    y = torch.tensor([[0.0], [2.0]])
    assert relative_error(torch.ones(2, 1), y) == 1
    assert relative_error(y, y) == 0
