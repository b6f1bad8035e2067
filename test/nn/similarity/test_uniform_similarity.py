from __future__ import annotations

from typing import Any

import pytest
import torch
from oracles import check_law, seeded

from torch_geometric_gsl.nn.conv.latent_graph_conv import LatentGraphConv
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.similarity.uniform_similarity import UniformSimilarity

N = 80
METHODS = pytest.mark.parametrize('method', ['dense', 'stream', 'race'])


def test_repr_and_parameters() -> None:
    module = UniformSimilarity(16)
    assert str(module) == 'UniformSimilarity(16)'
    assert list(module.parameters()) == []
    assert module.embedding_channels == 1
    module.reset_parameters()


@pytest.mark.parametrize('dtype', [torch.float64, torch.float32, torch.bfloat16])
def test_scores_are_zero(dtype: torch.dtype) -> None:
    module, x = UniformSimilarity(3), torch.randn(4, 3).to(dtype)
    for features in (x, x.to_sparse_csr(), x.t().contiguous().t()):
        assert torch.equal(module(features), torch.zeros(4, 4, dtype=dtype))
    assert torch.equal(module((x, x[:2])), torch.zeros(2, 4, dtype=dtype))
    edges = torch.tensor([[0, 3], [1, 1]])
    assert torch.equal(module(x, edges), torch.zeros(2, dtype=dtype))


def test_a_race_accepts_every_proposal() -> None:
    plan = GumbelKNNSampler(UniformSimilarity(3)).plan(torch.randn(N, 3))
    assert (plan.method, plan.num_proposals) == ('race', 8)


@METHODS
@pytest.mark.parametrize('loop', [True, False])
def test_hard_draws_are_uniform(method: str, loop: bool) -> None:
    args: Any = {'k': 50, 'hard': True, 'method': method, 'loop': loop}
    sampler = GumbelKNNSampler(UniformSimilarity(3), **args)
    (source, target), weight = sampler(torch.randn(N, 3), generator=seeded(1))
    # A weight is the share of the 50 draws; which of the others was drawn?
    place = (source - target) % N
    count = torch.zeros(N).index_add(0, place, weight * 50).round()
    if not loop:
        assert float(count[0]) == 0
        count = count[1:]
    assert int(count.sum()) == 50 * N
    check_law(count.tolist(), [1 / len(count)] * len(count))


@METHODS
def test_evaluation_is_the_mean_of_all(method: str) -> None:
    conv = LatentGraphConv(3, 2, 'uniform', method=method).eval()
    torch.nn.init.normal_(conv.bias)
    x = torch.randn(N, 3, requires_grad=True)
    h = (x @ conv.lin.weight.t()).mean(dim=0)
    expected = h + x @ conv.lin_root.weight.t() + conv.bias
    torch.testing.assert_close(conv(x), expected)
    batch = (torch.arange(N) >= 30).long()
    parts = [conv(x[:30]), conv(x[30:])]
    torch.testing.assert_close(conv(x, batch=batch), torch.cat(parts))
