import math

import pytest
import torch

from torch_geometric_gsl.nn.similarity import DistanceSimilarity


def test_repr_and_parameters(shapes):
    plain, projected = (DistanceSimilarity(16, *m) for m in ((), (8,)))
    assert str(plain) == 'DistanceSimilarity(16)'
    assert str(projected) == 'DistanceSimilarity(16, 8)'
    assert shapes(plain) == {}
    assert shapes(projected) == {'lin.weight': (8, 16)}


def test_by_hand(triangle):
    x, _ = triangle
    expected = -torch.tensor([0.0, 17, 5, 4]).double()
    torch.testing.assert_close(DistanceSimilarity(2)(x)[0], expected)
    assert DistanceSimilarity.bounds == (-math.inf, 0.0)


@pytest.mark.parametrize('offset', [0.0, 1e6])
def test_only_differences_count(offset, triangle):
    x, _ = triangle
    torch.testing.assert_close(
        DistanceSimilarity(2)(x + offset), -(torch.cdist(x, x) ** 2)
    )
