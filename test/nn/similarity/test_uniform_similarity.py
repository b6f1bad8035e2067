import pytest
import torch

from torch_geometric_gsl.nn.sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.similarity import UniformSimilarity


def test_repr_of_the_uniform_similarity():
    module = UniformSimilarity(16)
    assert str(module) == 'UniformSimilarity(16)'
    assert list(module.parameters()) == []
    assert module.embedding_channels == 1
    module.reset_parameters()


@pytest.mark.parametrize('dtype', [torch.float64, torch.float32, torch.bfloat16])
def test_uniform_scores_are_zero(dtype):
    module, x = UniformSimilarity(3), torch.randn(4, 3).to(dtype)
    for features in (x, x.to_sparse_csr(), x.t().contiguous().t()):
        assert torch.equal(module(features), torch.zeros(4, 4, dtype=dtype))
    assert torch.equal(module((x, x[:2])), torch.zeros(2, 4, dtype=dtype))
    edges = torch.tensor([[0, 3], [1, 1]])
    assert torch.equal(module(x, edges), torch.zeros(2, dtype=dtype))


def test_a_race_accepts_every_proposal():
    plan = GumbelKNNSampler(UniformSimilarity(3)).plan(torch.randn(80, 3))
    assert (plan.method, plan.num_proposals) == ('race', 8)


@pytest.mark.parametrize(
    ('args', 'error', 'text'),
    [
        ((0,), ValueError, r"'in_channels' must be at least 1 \(got 0\)"),
        ((3.0,), TypeError, "'in_channels' must be an integer"),
        ((3, 2), TypeError, 'takes 2 positional arguments but 3 were given'),
    ],
)
def test_wrong_arguments(args, error, text):
    with pytest.raises(error, match=text):
        UniformSimilarity(*args)
