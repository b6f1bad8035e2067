"""Graphs at chance are told: by a warning of `loss`, and in `describe_model`."""

import warnings

import pytest
import torch
from oracles import seeded

from torch_geometric_gsl import (
    GSLNet,
    GumbelKNNSampler,
    LinearSimilarity,
    NeuralGaussianSimilarity,
)
from torch_geometric_gsl.diagnostics import HomophilyWarning, describe_model
from torch_geometric_gsl.nn.models import homophily
from torch_geometric_gsl.nn.models.homophily import label_homophily

X = torch.eye(4)[torch.arange(40) % 4] + 0.1 * torch.randn(40, 4, generator=seeded())
Y = torch.arange(40) % 4


def apart():
    """Return a similarity that prefers rows of other classes."""
    similarity = NeuralGaussianSimilarity(4, c_scale=0.1, bias=True, centre='tanh')
    similarity.begin_at(0.01)
    return similarity


def losses(net, count, **kwargs):
    """Return the messages of the warnings of some losses."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        for _ in range(count):
            net.loss(X, Y, **kwargs).backward()
    return [str(w.message) for w in caught if w.category is HomophilyWarning]


def test_label_share_is_that_of_the_definition():
    sampler = GumbelKNNSampler(LinearSimilarity(4), tau=0.5, scale=3.0, loop=True)
    y = Y.clone()
    y[::3] = -1
    labelled = y >= 0
    cosine = LinearSimilarity(4)(X).double()
    weight = (3.0 / 0.5 * cosine).fill_diagonal_(-torch.inf).softmax(dim=1)
    pairs = weight[labelled][:, labelled]
    same = y[labelled].unsqueeze(1) == y[labelled]
    share, chance = label_homophily(sampler, X, y)
    assert share == pytest.approx(float((pairs * same).sum() / pairs.sum()), rel=1e-5)
    count = int(labelled.sum())
    expected = (int(same.sum()) - count) / (count * (count - 1))
    assert chance == pytest.approx(expected)
    assert sampler.training
    assert sampler.loop


def test_loss_warns_once_if_the_graph_is_at_chance():
    net = GSLNet(4, 8, 2, 4, apart())
    messages = losses(net, 120)
    assert len(messages) == 1
    assert 'no more often than chance (0.0' in messages[0]
    assert 'by chance 0.23' in messages[0]


@pytest.mark.parametrize('mask', [None, torch.arange(20), torch.arange(40) < 20])
def test_loss_is_silent_with_a_graph_that_helps(mask):
    assert not losses(GSLNet(4, 8, 2, 4), 60, mask=mask)


def test_what_is_not_looked_at():
    everything = torch.stack([Y.new_zeros(40), torch.arange(40)])
    options = {'edge_index': everything}, {'batch': Y.new_zeros(40)}
    for kwargs in options:
        assert not losses(GSLNet(4, 8, 2, 4, apart()), 60, **kwargs)
    assert not losses(GSLNet(4, 8, 2, 4, apart()).eval(), 60)


def test_the_check_draws_nothing_and_changes_no_step():
    outputs = []
    for after in (3, 1000):
        torch.manual_seed(0)
        net = GSLNet(4, 8, 2, 4, apart())
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
            warnings.simplefilter('ignore')
            patch.setattr('torch_geometric_gsl.nn.models.base.WARMUP_LOSSES', after)
            outputs.append([float(net.loss(X, Y).detach()) for _ in range(5)])
        assert not net.convs[0].sampler._draw_hooks
    assert outputs[0] == outputs[1]
    assert homophily.WARMUP_LOSSES == 50


def test_describe_model_shows_homophily():
    net = GSLNet(4, 8, 2, 4, 'linear')
    layer = describe_model(net, X, labels=Y).layers[0]
    assert layer.homophily > 0.9
    assert layer.chance == pytest.approx(9 / 39)
    assert 'homophily by chance' in str(layer)
    assert 'homophily' not in str(describe_model(net, X))


def test_rows_that_are_sorted_by_class_are_not_at_chance(monkeypatch):
    monkeypatch.setattr(homophily, 'MAX_LABELLED', 10)
    order = Y.argsort(stable=True)
    net = GSLNet(4, 8, 2, 4)
    with warnings.catch_warnings():
        warnings.simplefilter('error', HomophilyWarning)
        for _ in range(60):
            net.loss(X[order], Y[order])
        net = GSLNet(4, 8, 2, 4)
        for _ in range(60):  # One class alone says nothing.
            net.loss(X[Y == 0], Y[Y == 0])


def test_losses_in_evaluation_mode_leave_the_net_as_it_was():
    net = GSLNet(4, 8, 2, 4).eval()
    before = set(vars(net))
    net.loss(X, Y)
    assert set(vars(net)) == before


@pytest.mark.parametrize(
    ('labels', 'error', 'text'),
    [
        (Y[:5], ValueError, r"'labels' must have one class for each .* \(got \[5\]"),
        (Y.float(), TypeError, "'labels'"),
        (Y.view(-1, 1), ValueError, "'labels'"),
    ],
)
def test_labels_that_do_not_fit(labels, error, text):
    with pytest.raises(error, match=text):
        describe_model(GSLNet(4, 8, 2, 4), X, labels=labels)


def test_no_warning_where_no_two_nodes_share_a_label():
    net = GSLNet(4, 8, 2, 4, apart())
    assert losses(net, 60, mask=torch.arange(40) < 4) == []


def test_no_warning_of_a_control_that_draws_uniformly(monkeypatch):
    # Rounding would decide, as its graph is at chance.
    monkeypatch.setattr(homophily, 'label_homophily', lambda *_: (0.2, 0.25))
    assert losses(GSLNet(4, 8, 2, 4, 'uniform'), 60) == []
    assert len(losses(GSLNet(4, 8, 2, 4, 'linear'), 60)) == 1


def test_labels_of_graphs_are_not_compared():
    net = GSLNet(4, 8, 2, 4, apart(), readout='mean')
    for _ in range(60):
        net.loss(X, Y[:1]).backward()
