"""A similarity for which sources and targets have embeddings of their own."""

import pytest
import torch
from oracles import seeded
from sampling import normal

from torch_geometric_gsl.nn.sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.similarity import (
    CosineSimilarity,
    DirectedSimilarity,
    HeatKernelSimilarity,
    LinearSimilarity,
    NeuralGaussianSimilarity,
)


def test_repr_and_width():
    module = DirectedSimilarity(LinearSimilarity(3, 2))
    assert str(module) == 'DirectedSimilarity(LinearSimilarity(3, 2))'
    assert (module.in_channels, module.embedding_channels) == (6, 2)
    assert module.bounds == (-1.0, 1.0)
    heat = DirectedSimilarity(HeatKernelSimilarity(3))
    assert (heat.bounds, heat.comparison) == ((0.0, 1.0), 'squared_distance')
    assert DirectedSimilarity.comparison == 'dot'  # That of the class stays.


@pytest.mark.parametrize(
    'inner',
    [LinearSimilarity(3), CosineSimilarity(3), NeuralGaussianSimilarity(3, bias=True)],
)
def test_it_is_the_other_similarity_of_two_halves(inner):
    inner, x, new = inner.double(), normal(5, 6), normal(2, 6, seed=4)
    module = DirectedSimilarity(inner)
    expected = inner((x[:, :3], x[:, 3:]))
    torch.testing.assert_close(module(x), expected)
    torch.testing.assert_close(module((x, new)), inner((x[:, :3], new[:, 3:])))
    edges = torch.tensor([[0, 3], [1, 1]])
    torch.testing.assert_close(module(x, edges), expected[edges[1], edges[0]])


@pytest.mark.parametrize('method', ['dense', 'race', 'stream', 'pool'])
def test_no_node_is_drawn_by_itself(method):
    module = DirectedSimilarity(LinearSimilarity(3))
    # A node's halves are equal: it would be nearest to itself.
    x = normal(9, 3).repeat(1, 2)
    sampler = GumbelKNNSampler.paper(module, k=3, scale=4.0, loop=False, method=method)
    source, target = sampler(x, generator=seeded()).edge_index
    assert source.numel() >= 27
    assert bool((source != target).all())


def test_wrong_arguments():
    module = DirectedSimilarity(NeuralGaussianSimilarity(3))
    with pytest.raises(TypeError, match=r"'similarity' must be a Similarity \(got str"):
        DirectedSimilarity('linear')
    with pytest.raises(ValueError, match=r"'x' must have 6 channels \(got 3\)"):
        module(torch.randn(4, 3))
    with pytest.raises(ValueError, match="'similarity' must not be directed itself"):
        DirectedSimilarity(module)
    with pytest.raises(ValueError, match=r"'x' must be dense \(got torch.sparse_csr"):
        module(torch.randn(4, 6).to_sparse_csr())
