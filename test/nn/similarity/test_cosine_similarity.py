import pytest
import torch

from torch_geometric_gsl.nn.similarity.cosine_similarity import CosineSimilarity
from torch_geometric_gsl.nn.similarity.linear_similarity import LinearSimilarity


def test_repr():
    assert str(CosineSimilarity(16)) == 'CosineSimilarity(16, heads=4)'
    assert str(CosineSimilarity(16, 8, heads=1)) == 'CosineSimilarity(16, 8, heads=1)'


@pytest.mark.parametrize('out_channels', [None, 8])
def test_parameters(out_channels):
    module = CosineSimilarity(16, out_channels, heads=3)
    assert module.weight.shape == (3, out_channels or 16)


def test_by_hand():
    # The first head sees one channel, the second weighs them to a right angle.
    module = CosineSimilarity(2, heads=2)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[1.0, 0.0], [2.0, 1.0]]))
    x = torch.tensor([[1.0, 2.0], [1.0, -2.0]])
    expected = torch.tensor([[1.0, 0.5], [0.5, 1.0]])
    torch.testing.assert_close(module(x), expected)


def test_equal_weights_give_the_cosine():
    module, x = CosineSimilarity(3, heads=2), torch.randn(5, 3)
    torch.nn.init.constant_(module.weight, -0.3)
    torch.testing.assert_close(module(x), LinearSimilarity(3)(x))


def test_heads_are_averaged():
    x, module = torch.randn(5, 3), CosineSimilarity(3, heads=3)
    single, total = CosineSimilarity(3, heads=1), torch.zeros(5, 5)
    for head in range(3):
        with torch.no_grad():
            single.weight.copy_(module.weight[head : head + 1])
            total += single(x) / 3
    torch.testing.assert_close(module(x), total)


def test_wrong_heads():
    with pytest.raises(ValueError, match=r"'heads' must be at least 1 \(got 0\)"):
        CosineSimilarity(3, heads=0)
    with pytest.raises(TypeError, match=r"'heads' must be an integer \(got float\)"):
        CosineSimilarity(3, heads=2.0)
