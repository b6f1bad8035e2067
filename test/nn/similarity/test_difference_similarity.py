import pytest
import torch

from torch_geometric_gsl.nn.similarity import DifferenceSimilarity


def test_repr_and_parameters(shapes):
    assert str(DifferenceSimilarity(16)) == 'DifferenceSimilarity(16)'
    assert str(DifferenceSimilarity(16, 8)) == 'DifferenceSimilarity(16, 8)'
    assert shapes(DifferenceSimilarity(16)) == {}
    assert shapes(DifferenceSimilarity(16, 8)) == {'lin.weight': (8, 16)}


def test_by_hand(triangle):
    x, cosine = triangle
    torch.testing.assert_close(DifferenceSimilarity(2)(x), 1 - cosine)
    edges = torch.tensor([[1, 2, 3], [0, 1, 0]])
    expected = torch.tensor([0.4, 1.8, 1.0]).double()
    found = DifferenceSimilarity(2)(x, edges)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)


def test_it_is_largest_for_opposite_nodes(triangle):
    x, _ = triangle
    low, high = DifferenceSimilarity.bounds
    found = DifferenceSimilarity(2)((x[:1], torch.cat([x[:1], -x[:1]])))
    assert found.flatten().tolist() == [low, high] == [0, 2]


@pytest.mark.parametrize(
    ('args', 'error', 'text'),
    [
        ((-1,), ValueError, r"'in_channels' must be at least 1 \(got -1\)"),
        ((3, 0), ValueError, r"'out_channels' must be at least 1 \(got 0\)"),
        ((True,), TypeError, "'in_channels' must be an integer"),
    ],
)
def test_wrong_arguments(args, error, text):
    with pytest.raises(error, match=text):
        DifferenceSimilarity(*args)
