from __future__ import annotations

import pytest
import torch

from torch_geometric_gsl.nn.similarity import (
    CosineSimilarity,
    LinearSimilarity,
    NeuralGaussianSimilarity,
)
from torch_geometric_gsl.nn.similarity.resolver import SIMILARITIES
from torch_geometric_gsl.transforms._similarity import (
    UNTRAINED,
    ChunkedSimilarity,
    check_similarity,
    evaluation,
)


def test_untrained_are_those_with_parameters():
    for name, kind in SIMILARITIES.items():
        assert (name in UNTRAINED) == bool(list(kind(3).parameters()))


@pytest.mark.parametrize('name', UNTRAINED)
def test_untrained_name(name):
    text = rf"untrained: pass a \(trained\) module, or 'linear', .*got '{name}'"
    with pytest.raises(ValueError, match=text):
        check_similarity(name)


def test_unknown_names_and_types():
    with pytest.raises(ValueError, match=r"'similarity' must be one of .*'euclid'"):
        check_similarity('euclid')
    with pytest.raises(TypeError, match=r'a name or a Similarity \(got Linear\)'):
        check_similarity(torch.nn.Linear(2, 2))


def test_evaluation_restores_every_part():
    similarity = NeuralGaussianSimilarity(3, 2)
    similarity.train()
    similarity.lin.eval()
    with evaluation(similarity):
        assert not similarity.training
        assert not torch.is_grad_enabled()
    assert similarity.training
    assert not similarity.lin.training
    assert torch.is_grad_enabled()
    with pytest.raises(ZeroDivisionError), evaluation(similarity):
        1 / 0  # noqa: B018
    assert similarity.training
    assert not similarity.lin.training


class Spy(LinearSimilarity):
    def score_pairs(self, pair, source, target):
        self.sizes = [*getattr(self, 'sizes', []), source.numel()]
        return super().score_pairs(pair, source, target)


def test_pairs_are_scored_within_the_budget():
    spy = Spy(4)
    # A pair of 4 channels takes 4 * 4 * 4 bytes.
    chunked = ChunkedSimilarity(spy, memory_budget=3 * 64)
    x = torch.randn(5, 4)
    edge_index = torch.randint(5, (2, 8))
    torch.testing.assert_close(chunked(x, edge_index), spy(x, edge_index))
    assert spy.sizes == [3, 3, 2, 8]


def test_chunked_is_the_similarity():
    similarity = CosineSimilarity(4, heads=3)
    chunked = ChunkedSimilarity(similarity, memory_budget=1)
    x = torch.randn(6, 4)
    assert torch.equal(chunked(x), similarity(x))
    pair = similarity.encode_pair(x)
    source, target = torch.arange(6), torch.arange(3).view(-1, 1)
    torch.testing.assert_close(
        chunked.score_pairs(pair, source, target), similarity(x)[:3]
    )
    assert torch.equal(chunked.response(x), x)
