import math

import numpy as np
import pytest
import torch
from oracles import matrix_pairs
from scipy.stats import entropy

from torch_geometric_gsl.ops.graph_stats import (
    candidate_spread,
    chance_share,
    distribution,
    same_label_share,
    score_spread,
    weight_spread,
)


def test_distribution():
    found = distribution(torch.tensor([3.0, 0.0, 1.0, 2.0]))
    assert found == [0.0, 0.75, 1.5, 2.25, 3.0, 1.5]
    assert all(math.isnan(value) for value in distribution(torch.empty(0)))


def test_weight_spread_against_scipy():
    target = torch.randint(7, (60,))
    weight = torch.rand(60) * (torch.rand(60) > 0.2) * 1e-30
    spread = weight_spread(target, weight, num_targets=7)
    for i in range(7):
        expected = entropy(weight[target == i].double().numpy())
        assert float(spread.entropy[i]) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize('memory', [1, 700, 2**25])
@pytest.mark.parametrize('loop', [True, False])
def test_score_spread_against_scipy(memory, loop):
    score = 3 * torch.randn(9, 9)
    pairs = matrix_pairs(score, loop=loop)
    spread = score_spread(pairs._replace(memory=memory))
    weight = score.double().exp().numpy()
    if not loop:
        np.fill_diagonal(weight, 0)
    expected = entropy(weight, axis=1)
    assert np.allclose(spread.entropy, expected, atol=1e-5)
    assert np.allclose(spread.effective, np.exp(expected), rtol=1e-5)


def test_score_spread_stays_within_its_rows(heights):
    # A row takes four temporaries of four numbers of four bytes.
    score_spread(matrix_pairs(torch.zeros(10, 4))._replace(memory=3 * 64))
    assert heights == [3, 3, 3, 1]
    assert score_spread(matrix_pairs(torch.zeros(0, 4))).entropy.shape == (0,)


def test_candidate_spread_against_scipy():
    score, target = torch.randn(20), torch.arange(20) % 3
    spread = candidate_spread(score, target, num_targets=4)
    expected = [entropy(score[target == i].double().exp().numpy()) for i in range(3)]
    assert spread.entropy.tolist() == pytest.approx([*expected, 0])
    assert spread.effective.tolist() == pytest.approx([*np.exp(expected), 0])


def test_same_label_share():
    y_src, y_dst = torch.tensor([0, 1]), torch.tensor([1, 1, 0])
    edge_index = torch.tensor([[0, 1, 1], [0, 1, 2]])
    weight = torch.tensor([0.5, 0.25, 0.25])
    assert same_label_share(edge_index, weight, y_src, y_dst) == 0.25
    assert math.isnan(same_label_share(edge_index[:, :0], weight[:0], y_src, y_dst))


def test_chance_share_against_a_loop():
    y_src, y_dst = torch.randint(-1, 3, (11,)), torch.randint(-1, 4, (7,))
    pairs = [y_src[j] == y_dst[i] for i in range(7) for j in range(11)]
    assert chance_share(y_src, y_dst) == pytest.approx(float(np.mean(pairs)))
    pairs = [y_src[j] == y_src[i] for i in range(11) for j in range(11) if i != j]
    assert chance_share(y_src) == pytest.approx(float(np.mean(pairs)))
    assert math.isnan(chance_share(y_src[:1]))
