import pytest
import torch

from torch_geometric_gsl.nn.similarity import CosineSimilarity


@pytest.mark.parametrize('heads', [4, 1])
def test_repr_and_parameters(heads, shapes):
    kwargs = {} if heads == 4 else {'heads': heads}
    plain, projected = (CosineSimilarity(16, *m, **kwargs) for m in ((), (8,)))
    assert str(plain) == f'CosineSimilarity(16, heads={heads})'
    assert str(projected) == f'CosineSimilarity(16, 8, heads={heads})'
    assert shapes(plain) == {'weight': (heads, 16)}
    assert shapes(projected) == {'weight': (heads, 8), 'lin.weight': (8, 16)}


def test_by_hand():
    # The first head sees one channel, the second weighs them to a right angle.
    module = CosineSimilarity(2, heads=2).double()
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[1.0, 0.0], [2.0, 1.0]]))
    found = module(torch.tensor([[1.0, 2.0], [1.0, -2.0]], dtype=torch.float64))
    expected = torch.tensor([[1.0, 0.5], [0.5, 1.0]]).double()
    torch.testing.assert_close(found, expected)


def test_one_head_of_ones_is_the_cosine(triangle):
    x, cosine = triangle
    module = CosineSimilarity(2, heads=1).double()
    for value in (1.0, -3.0):
        torch.nn.init.constant_(module.weight, value)
        torch.testing.assert_close(module(x), cosine)


@pytest.mark.parametrize(
    ('heads', 'error', 'text'),
    [
        (0, ValueError, r"'heads' must be at least 1 \(got 0\)"),
        (2.0, TypeError, "'heads' must be an integer"),
    ],
)
def test_wrong_arguments(heads, error, text):
    with pytest.raises(error, match=text):
        CosineSimilarity(3, heads=heads)
