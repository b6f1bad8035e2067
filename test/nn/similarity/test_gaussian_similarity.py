import math

import pytest
import torch

from torch_geometric_gsl.nn.similarity.gaussian_similarity import GaussianSimilarity


def test_repr():
    assert str(GaussianSimilarity(16)) == 'GaussianSimilarity(16, b=0.5, c=0.05437)'
    module = GaussianSimilarity(16, 8, b=-1, c=0.25)
    assert str(module) == 'GaussianSimilarity(16, 8, b=-1, c=0.25)'


def test_defaults_are_those_of_the_paper():
    module = GaussianSimilarity(2)
    assert (module.b, module.c) == (0.5, 0.02 * math.e)


def test_by_hand():
    # At a cosine of b the bell is one; one root of c away it is 1 / e.
    x = torch.tensor([[2.0, 0.0], [3.0, 4.0], [0.0, 1.0]])
    e = math.exp(-1)
    expected = [[e, 1, math.exp(-2.25)], [1, e, math.exp(-0.25)]]
    out = GaussianSimilarity(2, b=0.6, c=0.16)(x)
    torch.testing.assert_close(out[:2], torch.tensor(expected))


def test_prefers_a_middle_distance():
    angle = torch.linspace(0, math.pi, 181)
    x = torch.stack([angle.cos(), angle.sin()], dim=1)
    phi = GaussianSimilarity(2)(x)[0]
    assert int(phi.argmax()) == 60
    assert bool((phi[1:61] > phi[:60]).all())
    assert bool((phi[61:130] < phi[60:129]).all())


@pytest.mark.parametrize(
    ('kwargs', 'error', 'text'),
    [
        ({'c': 0}, ValueError, r"'c' must be positive and finite \(got 0\)"),
        ({'c': -0.5}, ValueError, r"'c' must be positive and finite \(got -0.5\)"),
        ({'c': math.inf}, ValueError, r"'c' must be positive and finite \(got inf\)"),
        ({'c': True}, TypeError, r"'c' must be a positive number \(got bool\)"),
        ({'b': math.nan}, ValueError, r"'b' must be finite \(got nan\)"),
        ({'b': 'x'}, TypeError, r"'b' must be a number \(got str\)"),
    ],
)
def test_wrong_arguments(kwargs, error, text):
    with pytest.raises(error, match=text):
        GaussianSimilarity(3, **kwargs)
