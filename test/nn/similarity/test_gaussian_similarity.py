import math

import pytest
import torch

from torch_geometric_gsl.nn.similarity import GaussianSimilarity


@pytest.mark.parametrize(
    ('kwargs', 'text'),
    [({}, 'b=0.5, c=0.05437'), ({'b': -1, 'c': 0.25}, 'b=-1, c=0.25')],
)
def test_repr_and_parameters(kwargs, text, shapes):
    plain, projected = (GaussianSimilarity(16, *m, **kwargs) for m in ((), (8,)))
    assert str(plain) == f'GaussianSimilarity(16, {text})'
    assert str(projected) == f'GaussianSimilarity(16, 8, {text})'
    assert shapes(plain) == {}
    assert shapes(projected) == {'lin.weight': (8, 16)}


def test_by_hand(triangle):
    x, cosine = triangle
    # At a cosine of b the bell is one; one root of c away it is 1 / e.
    module = GaussianSimilarity(2, b=0.6, c=0.16)
    expected = torch.tensor([-1, 0, -2.25, -2.25]).double()
    torch.testing.assert_close(module(x)[0].log(), expected)
    torch.testing.assert_close(module(x), (-((cosine - 0.6) ** 2) / 0.16).exp())


def test_its_width_is_that_of_the_paper():
    assert GaussianSimilarity(2).b == 0.5
    assert GaussianSimilarity(2).c == 0.02 * math.e


@pytest.mark.parametrize(
    ('kwargs', 'error', 'text'),
    [
        ({'c': 0}, ValueError, r"'c' must be positive .*\(got 0\)"),
        ({'c': True}, TypeError, r"'c' must be .* \(got bool\)"),
        ({'b': math.nan}, ValueError, "'b' must be finite"),
    ],
)
def test_wrong_arguments(kwargs, error, text):
    with pytest.raises(error, match=text):
        GaussianSimilarity(3, **kwargs)
