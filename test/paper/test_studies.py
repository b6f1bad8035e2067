"""Runs of our own experiments: noisy graphs, few labels, half labelled, hidden ones."""

import math

import pytest
import torch

from reproduction import half, hidden, labels, noisy, noisy_models
from reproduction.datasets import paper_split
from reproduction.encoders import encode, encode_drawn
from reproduction.files import read_json
from reproduction.half import HALF_METHODS
from reproduction.labels_models import METHODS as LABELS_METHODS
from reproduction.labels_models import SETTING as LABELS_SETTING
from reproduction.noisy import NOISE
from reproduction.noisy_models import Training, hide_test, train
from reproduction.relations import METHODS as HIDDEN_METHODS
from reproduction.relations import SETTING as HIDDEN_SETTING
from reproduction.relations import Graphs
from reproduction.studies import Results
from reproduction.training import HIDDEN_LABEL

SMALL = {'epochs': 4, 'eval_every': 1, 'hidden_channels': 8}
ENCODER = {'k': 5, 'channels': 8, 'epochs': 2, 'lr': 0.01}
NOISY = noisy_models.SETTING | SMALL | {'heads': 4}
HALF = half.HALF_SETTING | SMALL | {'num_nearest': 3}
LABELS = LABELS_SETTING | SMALL | {'trees': 5, 'encoder': ENCODER}
HIDDEN = HIDDEN_SETTING | {'steps': 2, 'graphs_per_step': 2, 'num_nodes': 14}
HIDDEN |= {'held_out_graphs': 3, 'k': 2, 'hidden_channels': 4}

#: By study: its module, a run, its setting, its methods, and a name of one run.
STUDIES = {
    'noisy': (noisy, lambda method: noisy.Run('CiteSeer', 100, method, 1),
              NOISY, noisy_models.METHODS, 'CiteSeer/+100/{}/1'),
    'labels': (labels, lambda method: labels.Run('wine', '3', method, 1),
               LABELS, LABELS_METHODS, 'wine/3/{}/1'),
    'half': (half, lambda method: half.Run('CiteSeer', method, 1),
             HALF, HALF_METHODS, 'CiteSeer/{}/1'),
    'hidden': (hidden, lambda method: hidden.Run(40, method, 1),
               HIDDEN, HIDDEN_METHODS, '40/{}/1'),
}  # fmt: skip


@pytest.fixture
def pairs():
    """Thirty of the pairs of 48 nodes, most of one class."""
    generator = torch.Generator().manual_seed(1)
    source = torch.randint(48, (60,), generator=generator)
    edges = noisy.sort_pairs(torch.stack([source, (source + 3) % 48]))
    return edges[:, :30]


@pytest.fixture
def loaded(data, pairs, monkeypatch):
    """One small data set in place of all."""
    monkeypatch.setattr(noisy, 'load', lambda dataset: (data, pairs))
    monkeypatch.setattr(labels, 'load', lambda dataset: data)
    monkeypatch.setattr(half, 'load_dataset', lambda name: data)
    for cached in (labels.load_encoded, half.load):
        cached.cache_clear()
    yield data
    for cached in (labels.load_encoded, half.load):
        cached.cache_clear()


# Half of the labels take methods of noisy graphs.
EVERY = [
    (study, method)
    for study in ('noisy', 'labels', 'hidden')
    for method in STUDIES[study][3]
]


@pytest.mark.parametrize(('study', 'method'), [*EVERY, ('half', 'ours')])
def test_every_method_runs(study, method, loaded):
    module, run, setting, _, name = STUDIES[study]
    run_name, result = module.execute(run(method), setting)
    assert run_name == name.format(method)
    for split in ('val', 'test'):
        assert 0 <= result[split] <= (math.inf if study == 'hidden' else 1)


@pytest.mark.parametrize(
    ('study', 'method'),
    [('noisy', 'ours'), ('labels', 'ours'), ('half', 'gcn_root'), ('hidden', 'bell')],
)
def test_a_run_is_the_same_again(study, method, loaded):
    module, run, setting, *_ = STUDIES[study]
    result = module.execute(run(method), setting)
    assert module.execute(run(method), setting) == result
    assert module.execute(run(method)._replace(seed=2), setting)[1] != result[1]


@pytest.mark.parametrize('study', ['noisy', 'labels', 'half'])
def test_all_methods_see_one_split_and_no_test_labels(study, loaded, monkeypatch):
    module, run, setting, methods, _ = STUDIES[study]
    seen = []

    def spy(name, data, *args):
        seen.append(data)
        yield Training(0.5, {'dropout': 0.5}, 0, torch.zeros_like(data.y))

    monkeypatch.setattr(labels if study == 'labels' else noisy, 'trainings', spy)
    for method in methods:
        module.execute(run(method), setting)
    assert len(seen) == len(methods)
    for data in seen:
        assert torch.equal(data.train_mask, seen[0].train_mask)
        assert (data.y[data.test_mask] == HIDDEN_LABEL).all()
        is_seen = ~data.test_mask
        assert torch.equal(data.y[is_seen], loaded.y[is_seen])


@pytest.mark.parametrize(
    ('study', 'choice'), [('noisy', 1), ('labels', 2)], ids=['by accuracy', 'by loss']
)
def test_validation_alone_chooses(study, choice, loaded, monkeypatch):
    """Of equal accuracies the first, or the one of the lowest loss."""
    module, run, setting, *_ = STUDIES[study]
    right = loaded.y
    wrong = (right + 1) % 3
    trainings = [
        Training(0.6, {'number': 0}, 3, right, 0.1),
        Training(0.8, {'number': 1}, 5, wrong, 0.9),
        Training(0.8, {'number': 2}, 7, wrong, 0.5),
    ]
    monkeypatch.setattr(module, 'trainings', lambda *args: iter(trainings))
    result = module.execute(run('mlp'), setting)[1]
    expected = {'val': 0.8, 'test': 0.0, 'choice': {'number': choice}}
    assert result == expected | {'epoch': trainings[choice].epoch}


def test_test_graphs_are_read_for_the_chosen_training_alone(monkeypatch):
    graphs, calls = Graphs.draw(40, 0, HIDDEN), []

    class Fixed(torch.nn.Module):
        def __init__(self, index):
            super().__init__()
            self.index = index

        def forward(self, data):
            calls.append((self.index, data.y.sum().item()))
            return data.y + (0.5, 0.1, 0.3)[self.index]

    models = [(Fixed(index), index) for index in range(3)]
    monkeypatch.setattr(hidden, 'trainings', lambda *args: iter(models))
    monkeypatch.setattr(hidden.Graphs, 'draw', lambda *args: graphs)
    result = hidden.execute(hidden.Run(40, 'bell', 0), HIDDEN)[1]
    assert result['choice'] == 1
    last = graphs.test.y.sum().item()
    assert [index for index, total in calls if total == last] == [1]


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
    split = hide_test(paper_split(data, seed=0))
    model = Scripted(split, [0.25, 0.5, 1.0, 0.5])
    training = train(
        model, split, None, {}, 0.0, NOISY | {'epochs': 100, 'patience': 6}
    )
    assert (training.val, training.epoch) == (1.0, 2)
    assert model.epoch == 8  # No better for six epochs.


def test_goes_on_where_it_was_ended(tmp_path, capsys, monkeypatch, loaded):
    words = ['--results', str(tmp_path), '--datasets', 'CiteSeer', '--changes', '0']
    words += ['-50', '--methods', 'mlp', '--seeds']
    noisy.main([*words, '1'], NOISY)
    path = tmp_path / NOISE
    runs, done, execute = read_json(path)['runs'], [], noisy.execute
    assert list(runs) == ['CiteSeer/+0/mlp/2', 'CiteSeer/-50/mlp/2']

    def spy(run, setting):
        done.append(str(run))
        if len(done) == 2:
            raise KeyboardInterrupt
        return execute(run, setting)

    monkeypatch.setattr(noisy, 'execute', spy)
    with pytest.raises(KeyboardInterrupt):
        noisy.main([*words, '2'], NOISY)
    noisy.main([*words, '2'], NOISY)
    assert done[2:] == ['CiteSeer/-50/mlp/3']
    assert capsys.readouterr().out.endswith('noise: 4 runs, 3 finished\n')
    former = read_json(path)['runs']
    assert {**former, **runs} == former
    # Results of another setting, or of a method with other options, are none of this.
    methods = noisy_models.METHODS
    assert Results(path, NOISY, methods).runs == former
    assert not Results(path, NOISY | {'k': 3}, methods).runs
    changed = methods | {'mlp': methods['mlp']._replace(axis='initial_scale')}
    assert not Results(path, NOISY, changed).runs
    # What a program does not know it neither reads nor takes out of the file.
    results = Results(path, NOISY, {'new': methods['mlp']})
    assert not results.runs
    results.add('CiteSeer/+0/new/2', {'val': 0.5, 'test': 0.5})
    assert Results(path, NOISY, methods).runs == former
    # Unless the setting is another.
    results = Results(path, NOISY | {'k': 3}, {'new': methods['mlp']})
    results.add('CiteSeer/+0/new/2', {'val': 0.5, 'test': 0.5})
    assert list(read_json(path)['runs']) == ['CiteSeer/+0/new/2']


@pytest.mark.parametrize(
    ('percent', 'count'), [(0, 30), (50, 45), (300, 120), (-25, 22), (-75, 8)]
)
def test_edges_that_are_added_or_removed(pairs, percent, count):
    def codes(edges):
        return {tuple(pair) for pair in edges.T.tolist()}

    changed = noisy.changed(pairs, 48, percent, 7)
    assert changed.size(1) == len(codes(changed)) == count
    assert (
        codes(pairs) <= codes(changed)
        if percent >= 0
        else codes(changed) < codes(pairs)
    )
    assert (changed[0] < changed[1]).all()
    assert changed.min() >= 0
    assert changed.max() < 48
    assert torch.equal(changed, noisy.changed(pairs, 48, percent, 7))
    other_seed = noisy.changed(pairs, 48, percent, 8)
    assert (percent == 0) == torch.equal(changed, other_seed)


@pytest.mark.parametrize(('num_labels', 'val'), [(1, 6), (4, 12), (10, 6)])
def test_splits_of_few_labels(data, num_labels, val):
    splits = labels.split(data, num_labels, 3)
    masks = [splits[f'{name}_mask'] for name in ('train', 'val', 'test')]
    assert (sum(mask.long() for mask in masks) == 1).all()
    assert splits.y[masks[0]].bincount().tolist() == [num_labels] * 3
    assert int(masks[1].sum()) == val
    assert torch.equal(labels.split(data, num_labels, 3).train_mask, masks[0])
    assert not torch.equal(labels.split(data, num_labels, 4).train_mask, masks[0])


@pytest.mark.parametrize('is_drawn', [False, True])
def test_an_encoder_sees_no_labels(data, is_drawn):
    def rows():
        scale = (10.0,) if is_drawn else ()
        return (encode_drawn if is_drawn else encode)(data, 1, ENCODER, *scale)

    embeddings = rows()
    torch.testing.assert_close(embeddings.norm(dim=1), torch.ones(48))
    data.y = torch.zeros_like(data.y)
    assert torch.equal(rows(), embeddings)
