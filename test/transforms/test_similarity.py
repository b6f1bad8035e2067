import pytest
import torch

from torch_geometric_gsl.nn.similarity import NeuralGaussianSimilarity
from torch_geometric_gsl.nn.similarity.resolver import SIMILARITIES
from torch_geometric_gsl.transforms._similarity import UNTRAINED, evaluation


def test_untrained_are_those_with_parameters():
    for name, kind in SIMILARITIES.items():
        assert (name in UNTRAINED) == bool(list(kind(3).parameters()))


def test_evaluation_restores_every_part():
    similarity = NeuralGaussianSimilarity(3, 2)
    similarity.lin.eval()
    with evaluation(similarity):
        assert not similarity.training
        assert not torch.is_grad_enabled()
    with pytest.raises(ZeroDivisionError), evaluation(similarity):
        1 / 0  # noqa: B018
    assert similarity.training
    assert not similarity.lin.training
    assert torch.is_grad_enabled()
