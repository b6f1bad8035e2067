import pytest
import torch

from torch_geometric_gsl.nn.similarity import HeatKernelSimilarity


@pytest.mark.parametrize(
    ('kwargs', 'text'),
    [
        ({}, 't=2, normalize=True'),
        ({'t': 0.5, 'normalize': False}, 't=0.5, normalize=False'),
    ],
)
def test_repr_and_parameters(kwargs, text, shapes):
    plain, projected = (HeatKernelSimilarity(16, *m, **kwargs) for m in ((), (8,)))
    assert str(plain) == f'HeatKernelSimilarity(16, {text})'
    assert str(projected) == f'HeatKernelSimilarity(16, 8, {text})'
    assert shapes(plain) == {}
    assert shapes(projected) == {'lin.weight': (8, 16)}


def test_by_hand(triangle):
    x, _ = triangle
    squares = HeatKernelSimilarity(2, t=5.0, normalize=False)(x)[0].log() * -5
    expected = torch.tensor([0.0, 17, 5, 4]).double()
    torch.testing.assert_close(squares, expected)


def test_unit_rows_are_two_minus_two_cosines_apart(triangle):
    x, cosine = triangle
    found = HeatKernelSimilarity(2, t=0.5)(x)
    # Rows of zeros stay zero: one apart from all others, none from each other.
    square = 2 - 2 * cosine
    square[3], square[:, 3] = 1, 1
    square[3, 3] = 0
    torch.testing.assert_close(found, (-square / 0.5).exp())


@pytest.mark.parametrize(
    ('kwargs', 'error', 'text'),
    [
        ({'t': -1.0}, ValueError, r"'t' must be positive and fin.*\(got -1.0\)"),
        ({'t': '2'}, TypeError, r"'t' must be .* \(got str\)"),
        ({'normalize': 1}, TypeError, "'normalize' must be a bool"),
    ],
)
def test_wrong_arguments(kwargs, error, text):
    with pytest.raises(error, match=text):
        HeatKernelSimilarity(3, **kwargs)
