import math

import pytest
import torch

from torch_geometric_gsl.nn.similarity.heat_kernel_similarity import (
    HeatKernelSimilarity,
)
from torch_geometric_gsl.nn.similarity.linear_similarity import LinearSimilarity


def test_repr():
    module = HeatKernelSimilarity(16)
    assert str(module) == 'HeatKernelSimilarity(16, t=2, normalize=True)'
    module = HeatKernelSimilarity(16, 8, t=0.5, normalize=False)
    assert str(module) == 'HeatKernelSimilarity(16, 8, t=0.5, normalize=False)'


def test_by_hand():
    x = torch.tensor([[1.0, 0.0], [4.0, 4.0]])
    raw = HeatKernelSimilarity(2, t=5.0, normalize=False)(x)
    e = math.exp(-5)
    torch.testing.assert_close(raw, torch.tensor([[1, e], [e, 1]]))


def test_unit_rows_tie_it_to_the_cosine():
    # |z_i - z_j|^2 = 2 - 2 z_i z_j for unit rows.
    x = torch.randn(5, 3)
    expected = torch.exp(LinearSimilarity(3)(x) - 1)
    torch.testing.assert_close(HeatKernelSimilarity(3)(x), expected)


@pytest.mark.parametrize('normalize', [True, False])
def test_is_symmetric_with_a_unit_diagonal(normalize):
    out = HeatKernelSimilarity(3, normalize=normalize)(torch.randn(9, 3))
    torch.testing.assert_close(out, out.t())
    torch.testing.assert_close(out.diagonal(), torch.ones(9))


@pytest.mark.parametrize('t', [0, -1.0, math.nan, math.inf])
def test_wrong_width(t):
    with pytest.raises(ValueError, match="'t' must be positive and finite"):
        HeatKernelSimilarity(3, t=t)
