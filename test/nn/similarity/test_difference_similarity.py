import torch

from torch_geometric_gsl.nn.similarity.difference_similarity import DifferenceSimilarity
from torch_geometric_gsl.nn.similarity.linear_similarity import LinearSimilarity


def test_repr():
    assert str(DifferenceSimilarity(16)) == 'DifferenceSimilarity(16)'
    assert str(DifferenceSimilarity(16, 8)) == 'DifferenceSimilarity(16, 8)'


def test_by_hand():
    x = torch.tensor([[2.0, 0.0], [3.0, 4.0], [-1.0, 0.0]])
    expected = torch.tensor([[0, 0.4, 2], [0.4, 0, 1.6], [2, 1.6, 0]])
    torch.testing.assert_close(DifferenceSimilarity(2)(x), expected)


def test_complements_the_linear_similarity():
    x = torch.randn(5, 3)
    total = DifferenceSimilarity(3)(x) + LinearSimilarity(3)(x)
    torch.testing.assert_close(total, torch.ones(5, 5))
