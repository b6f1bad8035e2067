"""The comparison passes for what is right, and sees each of some mistakes."""

import pytest
import torch
from agreement import check
from workloads import load

from reproduction.baselines import nodeformer
from torch_geometric_gsl.ops import race_block
from torch_geometric_gsl.ops.pair_scores import PairScores

TRAINING_NODES = 200


@pytest.fixture(scope='module')
def workload():
    """A prime number of documents."""
    return load('words-1009', seed=0)


def compare(implementation, variant, workload):
    return check(implementation, variant, workload, 0, TRAINING_NODES)


IMPLEMENTATIONS = ('race', 'stream', 'dense', 'nodeformer-1', 'nodeformer-4')


@pytest.mark.parametrize(
    ('implementation', 'variant'),
    [('race', 'T'), *((name, 'full') for name in IMPLEMENTATIONS)],
)
def test_agrees(implementation, variant, workload):
    agreement = compare(implementation, variant, workload)
    assert agreement.agrees, agreement.detail


def shifted(function):
    return lambda *args: function(*args) + 0.01


def larger(function):
    return lambda *args: 1.01 * function(*args)


def of_one_source(function):
    def propose(*args):
        source, level, gap = function(*args)
        return torch.zeros_like(source), level, gap

    return propose


def without_gradient(function):
    return lambda query, key, *args: function(query.detach(), key, *args)


@pytest.mark.parametrize(
    ('implementation', 'where', 'name', 'mistake'),
    [
        ('race', PairScores, 'weights', shifted),
        ('race', race_block, 'draw_uniform', of_one_source),
        ('nodeformer-1', nodeformer, 'kernel_attention', shifted),
        ('nodeformer-1', nodeformer, 'kernel_attention', without_gradient),
        ('nodeformer-1', nodeformer.NodeFormerLayer, '_draw_noise', larger),
    ],
    ids=['a tile', 'a race', 'attention', 'a gradient', 'noise'],
)
def test_sees_a_mistake(implementation, where, name, mistake, workload, monkeypatch):
    monkeypatch.setattr(where, name, mistake(getattr(where, name)))
    agreement = compare(implementation, 'full', workload)
    assert not agreement.agrees, agreement.detail
