"""Runs, tables and the figure of hidden relations."""

import json
import math

import pytest
import torch

from reproduction import hidden, relations
from reproduction import run as runner
from reproduction.figures import hidden as draw
from reproduction.files import read_json
from reproduction.hidden import DELTAS, Results, Run, execute, main
from reproduction.relation_tables import (
    HIDDEN,
    hidden_grid,
    hidden_paired,
    read_errors,
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
from reproduction.store import Store
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


def test_trainings_that_diverge_have_no_score(monkeypatch):
    class Lost(torch.nn.Module):
        def forward(self, data):
            return torch.full_like(data.y, math.nan)

    monkeypatch.setattr(hidden, 'trainings', lambda *args: iter([(Lost(), 1)]))
    assert execute(Run(40, 'bell', 0), TINY)[1] == {'val': None, 'test': None}


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


@pytest.mark.parametrize(('method', 'degrees'), [('biased', 40), ('tanh', 130)])
def test_where_centres_begin(method, degrees):
    model = LearnedGraph(METHODS[method], SMALL)
    model.start(degrees)
    b = model.conv.sampler.similarity.response(torch.randn(3, 2)).params[0]
    torch.testing.assert_close(
        b, torch.full_like(b, math.cos(math.radians(degrees))), atol=1e-6, rtol=0
    )


def test_goes_on_where_it_was_ended(tmp_path, capsys, monkeypatch):
    words = ['--results', str(tmp_path), '--deltas', '40', '--seeds']
    methods = ['--methods', 'true', 'mlp']
    main([*words, '1', *methods], TINY)
    first = results(tmp_path)
    assert list(first) == ['40/mlp/0', '40/true/0']
    done = []

    def spy(run, setting):
        done.append(str(run))
        if len(done) == 2:
            raise KeyboardInterrupt
        return execute(run, setting)

    monkeypatch.setattr(hidden, 'execute', spy)
    with pytest.raises(KeyboardInterrupt):
        main([*words, '3', *methods], TINY)
    assert done == ['40/true/1', '40/mlp/1']
    assert list(results(tmp_path)) == ['40/mlp/0', '40/true/0', '40/true/1']
    main([*words, '2', *methods], TINY)
    assert done[2:] == ['40/mlp/1']
    assert capsys.readouterr().out.endswith('hidden: 4 runs, 3 finished\n')
    assert {**results(tmp_path), **first} == results(tmp_path)
    # Results of another setting are no results of this one.
    assert not Results(tmp_path, TINY | {'k': 3}).runs


def test_several_processes_find_the_same(tmp_path):
    words = ['--deltas', '40', '--seeds', '1', '--methods', 'mlp', 'true', '--results']
    for jobs in '12':
        main([*words, str(tmp_path / jobs), '--jobs', jobs], TINY)
    assert results(tmp_path / '1') == results(tmp_path / '2')


@pytest.mark.parametrize(
    ('words', 'text'),
    [
        ('--deltas 41', 'invalid choice: 41'),
        ('--methods bells', "invalid choice: 'bells'"),
        ('--seeds 0', "--seeds: must be a positive integer (got '0')"),
    ],
)
def test_bad_words(words, text, monkeypatch, capsys):
    monkeypatch.setattr('sys.argv', ['run.py', 'hidden', *words.split()])
    with pytest.raises(SystemExit, match='2'):
        runner.main()
    assert text in capsys.readouterr().err


def test_a_damaged_file_is_told(tmp_path):
    (tmp_path / HIDDEN).write_text('{"runs": {')
    with pytest.raises(ValueError, match='is damaged or was edited'):
        Results(tmp_path, TINY)


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


def test_what_has_not_run_is_left_out(tmp_path):
    assert hidden_grid(tmp_path).is_empty
    assert hidden_paired(tmp_path).is_empty
    assert not draw(Store(tmp_path), None)
    assert not read_errors(tmp_path)['bell']


def test_figure(found):
    figure = draw(Store(found), None)['hidden']
    (ax,) = figure.axes
    lines = {line.get_label(): line.get_ydata() for line in ax.lines}
    assert set(lines) == {method.title for method in METHODS.values()}
    assert list(lines['bell']) == pytest.approx([0.505, 0.505])


def test_holm():
    found = holm({'a': 0.01, 'b': 0.04, 'c': 0.03, 'd': math.nan})
    assert found == pytest.approx({'a': 0.03, 'c': 0.06, 'b': 0.06})
    assert holm({'a': 0.9, 'b': 0.8}) == {'b': 1.0, 'a': 1.0}


def test_relative_error():
    y = torch.tensor([[0.0], [2.0]])
    assert relative_error(torch.ones(2, 1), y) == 1
    assert relative_error(y, y) == 0


def test_settings_are_stored(tmp_path):
    Results(tmp_path, TINY).add('40/mlp/0', {'val': 1.0, 'test': 1.0})
    content = json.loads((tmp_path / HIDDEN).read_text())
    assert content['setting'] == TINY
    assert content['environment']['torch'] == torch.__version__
    assert len(DELTAS) == 8
    assert set(relations.METHODS) == set(METHODS)
