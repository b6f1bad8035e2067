"""Runs, tables and the figure of noisy given graphs."""

import pytest
import torch
from torch_geometric.utils import coalesce

from reproduction import given_graphs, noisy, noisy_models
from reproduction.files import read_json
from reproduction.given_graphs import both_ways, changed
from reproduction.noisy import Run, execute, main
from reproduction.noisy_models import (
    METHODS,
    SETTING,
    Training,
    build,
    choices,
    hide_test,
    train,
)
from reproduction.noisy_tables import NOISE, OURS, noise_grid
from reproduction.own_runs import Results
from reproduction.training import HIDDEN_LABEL
from torch_geometric_gsl.datasets import paper_split
from torch_geometric_gsl.nn.nearest_neighbours import nearest_neighbours

TINY = SETTING | {'epochs': 4, 'eval_every': 1, 'hidden_channels': 8, 'heads': 4}


def codes(pairs):
    return {tuple(pair) for pair in pairs.T.tolist()}


@pytest.fixture
def pairs():
    """Thirty of the pairs of 48 nodes, most of one class."""
    generator = torch.Generator().manual_seed(1)
    source = torch.randint(48, (60,), generator=generator)
    found = given_graphs.sort_pairs(torch.stack([source, (source + 3) % 48]))
    return found[:, :30]


@pytest.fixture
def loaded(data, pairs, monkeypatch):
    monkeypatch.setattr(noisy, 'load', lambda dataset: (data, pairs))
    return data


def results(folder):
    return read_json(folder / NOISE)['runs']


@pytest.mark.parametrize('percent', [0, 50, 100, 300])
def test_edges_that_are_added(pairs, percent):
    found = changed(pairs, 48, percent, 7)
    assert found.size(1) == len(codes(found)) == 30 * (100 + percent) // 100
    assert codes(pairs) <= codes(found)
    assert (found[0] < found[1]).all()
    assert found.min() >= 0
    assert found.max() < 48
    assert torch.equal(found, changed(pairs, 48, percent, 7))
    assert (percent == 0) == torch.equal(found, changed(pairs, 48, percent, 8))


@pytest.mark.parametrize(('percent', 'left'), [(-25, 22), (-50, 15), (-75, 8)])
def test_edges_that_are_removed(pairs, percent, left):
    found = changed(pairs, 48, percent, 7)
    assert found.size(1) == len(codes(found)) == left
    assert codes(found) < codes(pairs)
    assert torch.equal(found, changed(pairs, 48, percent, 7))
    assert not torch.equal(found, changed(pairs, 48, percent, 8))


def test_added_edges_are_uniform():
    """Of 28 pairs of 8 nodes 7 are given; each other is as likely: chi-square, 1e-4."""
    given = torch.stack([torch.zeros(7, dtype=torch.long), torch.arange(1, 8)])
    counts = dict.fromkeys([(i, j) for i in range(1, 8) for j in range(i + 1, 8)], 0)
    draws = 500
    for seed in range(draws):
        for pair in codes(changed(given, 8, 100, seed)) - codes(given):
            counts[pair] += 1
    expected = draws * 7 / 21
    # Without replacement, cells vary by two thirds of what independent ones do.
    chi = sum((n - expected) ** 2 for n in counts.values()) / expected / (14 / 20)
    assert sum(counts.values()) == 7 * draws
    assert 4.0 < chi < 54.4


@pytest.mark.parametrize('method', METHODS)
def test_every_method_runs(loaded, method):
    name, result = execute(Run('CiteSeer', 100, method, 1), TINY)
    assert name == f'CiteSeer/+100/{method}/1'
    assert 0 <= result['val'] <= 1
    assert 0 <= result['test'] <= 1
    assert result['choice'] in choices(METHODS[method], TINY)
    assert execute(Run('CiteSeer', 100, method, 1), TINY)[1] == result


def test_all_methods_see_the_same_graphs_and_no_test_labels(loaded, monkeypatch):
    seen = []

    def spy(name, data, edge_index, seed, setting):
        seen.append((name, data, edge_index, seed))
        yield Training(0.5, {'dropout': 0.5}, 0, torch.zeros_like(data.y))

    monkeypatch.setattr(noisy, 'trainings', spy)
    for method in METHODS:
        execute(Run('CiteSeer', 50, method, 3), TINY)
    first = seen[0]
    for name, data, edge_index, seed in seen:
        assert seed == 3
        expected = first[2]
        if 'num_nearest' in name.options:
            nearest = nearest_neighbours(loaded.x, 5).edge_index
            expected = coalesce(torch.cat([expected, nearest], dim=1))
            assert expected.size(1) > first[2].size(1)
        assert torch.equal(edge_index, expected)
        assert torch.equal(data.train_mask, first[1].train_mask)
        assert (data.y[data.test_mask] == HIDDEN_LABEL).all()
        kept = ~data.test_mask
        assert torch.equal(data.y[kept], loaded.y[kept])
    assert len(seen) == len(METHODS)


def test_validation_chooses(loaded, monkeypatch):
    split = paper_split(loaded, seed=0)
    right = loaded.y
    wrong = torch.where(split.test_mask, (right + 1) % 3, right)
    found = [
        Training(0.6, {'number': 0}, 3, right),
        Training(0.8, {'number': 1}, 5, wrong),
        Training(0.8, {'number': 2}, 7, right),
    ]
    monkeypatch.setattr(noisy, 'trainings', lambda *args: iter(found))
    result = execute(Run('CiteSeer', 0, 'mlp', 0), TINY)[1]
    assert result == {'val': 0.8, 'test': 0.0, 'choice': {'number': 1}, 'epoch': 5}


class Scripted(torch.nn.Module):
    """A model whose predictions of validation nodes are right in given epochs."""

    def __init__(self, data, shares):
        super().__init__()
        self.data, self.shares, self.epoch = data, shares, -1
        self.weight = torch.nn.Parameter(torch.zeros(()))

    def forward(self, x, edge_index):
        y = self.data.y.clamp(min=0)
        self.epoch += int(self.training)
        share = self.shares[min(self.epoch, len(self.shares) - 1)]
        nodes = self.data.val_mask.nonzero().flatten()
        guess = y.clone()
        guess[nodes[int(share * len(nodes)) :]] += 1
        logits = torch.nn.functional.one_hot(guess % 3, 3).float()
        return logits + 0 * self.weight


def test_the_best_epoch_of_validation_is_kept(data):
    hidden = hide_test(paper_split(data, seed=0))
    model = Scripted(hidden, [0.25, 0.5, 1.0, 0.5])
    setting = TINY | {'epochs': 100, 'patience': 6}
    found = train(model, hidden, None, {}, 0.0, setting)
    assert (found.val, found.epoch) == (1.0, 2)
    assert model.epoch == 8  # No better for six epochs.


def test_trainings_that_diverge_have_no_score(loaded, monkeypatch):
    class Lost(torch.nn.Linear):
        def forward(self, x, edge_index):
            return super().forward(x) * float('nan')

    monkeypatch.setattr(noisy_models, 'build', lambda *args: Lost(6, 3))
    result = execute(Run('CiteSeer', 0, 'mlp', 0), TINY)[1]
    assert result == {'val': None, 'test': None}


def test_goes_on_where_it_was_ended(tmp_path, capsys, monkeypatch, loaded):
    words = ['--results', str(tmp_path), '--datasets', 'CiteSeer', '--changes', '0']
    words += ['-50', '--methods', 'mlp', '--seeds']
    main([*words, '1'], TINY)
    first = results(tmp_path)
    assert list(first) == ['CiteSeer/+0/mlp/2', 'CiteSeer/-50/mlp/2']
    done = []

    def spy(run, setting):
        done.append(str(run))
        if len(done) == 2:
            raise KeyboardInterrupt
        return execute(run, setting)

    monkeypatch.setattr(noisy, 'execute', spy)
    with pytest.raises(KeyboardInterrupt):
        main([*words, '2'], TINY)
    assert done == ['CiteSeer/+0/mlp/3', 'CiteSeer/-50/mlp/3']
    main([*words, '2'], TINY)
    assert done[2:] == ['CiteSeer/-50/mlp/3']
    assert capsys.readouterr().out.endswith('noise: 4 runs, 3 finished\n')
    assert {**results(tmp_path), **first} == results(tmp_path)
    # Results of another setting, or of a method with other options, are none of this.
    assert Results(tmp_path / NOISE, TINY, METHODS).runs
    assert not Results(tmp_path / NOISE, TINY | {'k': 3}, METHODS).runs
    others = METHODS | {'mlp': METHODS['mlp']._replace(axis='initial_scale')}
    assert not Results(tmp_path / NOISE, TINY, others).runs
    # A further method leaves those of all others as they are.
    others = METHODS | {'new': METHODS['mlp']}
    assert Results(tmp_path / NOISE, TINY, others).runs == results(tmp_path)
    # What a program does not know it neither reads nor takes out of the file.
    former = results(tmp_path)
    other = Results(tmp_path / NOISE, TINY, {'new': METHODS['mlp']})
    assert not other.runs
    other.add('CiteSeer/+0/new/2', {'val': 0.5, 'test': 0.5})
    assert set(other.runs) == {'CiteSeer/+0/new/2'}
    assert {**results(tmp_path), **former} == results(tmp_path)
    assert Results(tmp_path / NOISE, TINY, METHODS).runs == former
    # Unless the setting is another.
    other = Results(tmp_path / NOISE, TINY | {'k': 3}, {'new': METHODS['mlp']})
    other.add('CiteSeer/+0/new/2', {'val': 0.5, 'test': 0.5})
    assert list(results(tmp_path)) == ['CiteSeer/+0/new/2']


@pytest.fixture
def found(tmp_path):
    """Accuracies of three seeds on two graphs: ours are some points higher."""
    store = Results(tmp_path / NOISE, TINY, METHODS)
    gains = {OURS: 0.05, 'ours': 0.02}
    for change in (300, -25):
        for seed in range(3):
            for method in METHODS:
                gain = gains.get(method, 0.0) * (1 + 0.02 * seed)
                result = {'val': 0.9, 'test': 0.7 + 0.01 * seed + gain}
                store.add(f'CiteSeer/{change:+d}/{method}/{seed}', result)
    store.add('CiteSeer/-25/mlp/3', {'val': None, 'test': None})
    return tmp_path


def test_tables(found):
    grid = noise_grid('CiteSeer', found)
    assert grid.head == ['CiteSeer', '-25 %', '+300 %']
    rows = dict(grid.rows)
    ours = rows[METHODS[OURS].title]
    assert ours[0] == ('76.1 ± 1.1 (3)', '', True)
    assert rows['GCN'][1] == ('71.0 ± 1.0 (3)', 'ours +5.1*', False)
    assert rows[METHODS['ours'].title][1] == ('73.0 ± 1.0 (3)', 'ours +3.1*', False)
    assert 'all 20 tests' in grid.notes[0]


def test_mean_with_a_root_weight(data, pairs):
    """A layer is what SAGEConv computes, by a loop over the nodes."""
    model = build(METHODS['mean'], data, choices(METHODS['mean'], TINY)[0], TINY).eval()
    conv, root = model.convs[0], model.roots[0]
    edge_index = both_ways(pairs, 48)
    h = data.x @ conv.lin.weight.T + conv.lin.bias
    expected = torch.zeros_like(h)
    for node in range(48):
        sources = edge_index[0][edge_index[1] == node]
        if sources.numel():
            expected[node] = h[sources].mean(dim=0)
    torch.testing.assert_close(conv(data.x, edge_index), expected)
    assert root.weight.shape == conv.lin.weight.shape
