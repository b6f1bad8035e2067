import pytest
import torch

from torch_geometric_gsl.nn.similarity import LinearSimilarity


def test_repr_and_parameters(shapes):
    assert str(LinearSimilarity(16)) == 'LinearSimilarity(16)'
    assert str(LinearSimilarity(16, 8)) == 'LinearSimilarity(16, 8)'
    assert shapes(LinearSimilarity(16)) == {}
    assert shapes(LinearSimilarity(16, 8)) == {'lin.weight': (8, 16)}


def test_by_hand(triangle):
    x, cosine = triangle
    torch.testing.assert_close(LinearSimilarity(2)(x), cosine)
    # A projection on the second channel leaves signs.
    module = LinearSimilarity(2, 1).double()
    with torch.no_grad():
        module.lin.weight.copy_(torch.tensor([[0.0, 2.0]]))
    sign = torch.tensor([0.0, 1, -1, 0]).double()
    torch.testing.assert_close(module(x), torch.outer(sign, sign))


def test_lengths_of_rows_do_not_matter(triangle):
    x, cosine = triangle
    factor = torch.tensor([1e-9, 3.0, 1e9, 5.0]).double().unsqueeze(1)
    torch.testing.assert_close(LinearSimilarity(2)((factor * x, x)), cosine)


@pytest.mark.parametrize(
    ('args', 'error', 'text'),
    [
        ((0,), ValueError, r"'in_channels' must be at least 1 \(got 0\)"),
        ((3, 0), ValueError, r"'out_channels' must be at least 1 \(got 0\)"),
        ((3, 2.0), TypeError, "'out_channels' must be an integer"),
    ],
)
def test_wrong_arguments(args, error, text):
    with pytest.raises(error, match=text):
        LinearSimilarity(*args)
