import math

import numpy as np
import pytest
import torch
from oracles import matrix_pairs

from torch_geometric_gsl.ops.graph_stats import chance_share, score_spread


def test_score_spread_stays_within_its_rows(heights):
    # A row takes four temporaries of four numbers of four bytes.
    score_spread(matrix_pairs(torch.zeros(10, 4))._replace(memory=3 * 64))
    assert heights == [3, 3, 3, 1]
    assert score_spread(matrix_pairs(torch.zeros(0, 4))).entropy.shape == (0,)


def test_chance_share_against_a_loop():
    y_src, y_dst = torch.randint(-1, 3, (11,)), torch.randint(-1, 4, (7,))
    pairs = [y_src[j] == y_dst[i] for i in range(7) for j in range(11)]
    assert chance_share(y_src, y_dst) == pytest.approx(float(np.mean(pairs)))
    pairs = [y_src[j] == y_src[i] for i in range(11) for j in range(11) if i != j]
    assert chance_share(y_src) == pytest.approx(float(np.mean(pairs)))
    assert math.isnan(chance_share(y_src[:1]))
