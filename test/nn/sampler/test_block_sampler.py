from __future__ import annotations

import pytest
import torch
from torch import Tensor

from torch_geometric_gsl.nn.sampler._block_sampler import BlockSampler
from torch_geometric_gsl.nn.sampler._scorer import Request
from torch_geometric_gsl.nn.similarity.linear_similarity import LinearSimilarity
from torch_geometric_gsl.ops.scorer import Law, Scorer, matrix_scorer

METHODS = ['dense', 'stream', 'race']


def make(law: Law, method: str, is_noisy: bool, budget: int = 2**20) -> BlockSampler:
    args = LinearSimilarity(6), law, 1.0, False, method, budget, is_noisy
    return BlockSampler(Request(*args), torch.Generator().manual_seed(3))


def cosines(n: int) -> Scorer:
    x = torch.nn.functional.normalize(torch.randn(n, 3, dtype=torch.double))
    return matrix_scorer(x @ x.t(), loop=False)._replace(upper=1.0)


def as_matrix(edge_index: Tensor, weight: Tensor, n: int) -> Tensor:
    matrix = torch.zeros(n, n, dtype=torch.double)
    matrix[edge_index[1], edge_index[0]] = weight
    return matrix


@pytest.mark.parametrize('is_noisy', [True, False])
@pytest.mark.parametrize('method', ['dense', 'stream'])
def test_whole_graph_and_sum_agree(method: str, is_noisy: bool) -> None:
    scorer = cosines(6)
    h = torch.randn(6, 2, dtype=torch.double)
    # All five candidates are kept, so that both methods hold the whole law.
    law = Law(k=5, tau=0.5, num_arrivals=5)
    edge_index, weight = make(law, method, is_noisy).graph(scorer, method)
    assert edge_index.size(1) == 30
    matrix = as_matrix(edge_index, weight, 6)
    assert bool((matrix.diagonal() == 0).all())
    dense = make(law, 'dense', is_noisy).sum(scorer, 'dense', h)
    torch.testing.assert_close(dense, matrix @ h)


@pytest.mark.parametrize('num_tail', [0, 10, None])
@pytest.mark.parametrize('replace', [True, False])
@pytest.mark.parametrize('method', METHODS)
def test_graph_and_sum_agree(method: str, replace: bool, num_tail: int | None) -> None:
    scorer, h = cosines(40), torch.randn(40, 2, dtype=torch.double)
    law = Law(3, 0.75, replace=replace, num_arrivals=4, num_tail=num_tail)
    edge_index, weight = make(law, method, True).graph(scorer, method)
    matrix = as_matrix(edge_index, weight, 40)
    assert bool((matrix.diagonal() == 0).all())
    torch.testing.assert_close(matrix.sum(1), torch.ones(40, dtype=torch.double))
    for budget in (2**20, 1):
        out = make(law, method, True, budget).sum(scorer, method, h)
        torch.testing.assert_close(out, matrix @ h)


@pytest.mark.parametrize('asked', ['auto', 'race', 'stream'])
@pytest.mark.parametrize('method', METHODS)
def test_noise_free_graphs_are_the_nearest(method: str, asked: str) -> None:
    # Unless the definition was asked for: then all pairs are edges.
    scorer, law = cosines(9), Law(3, 0.5)
    graph = make(law, asked, False).graph(scorer, method)
    score = scorer.rows(slice(0, 9))
    best = score.topk(3).indices.sort(dim=1).values
    assert graph.edge_index[0].view(9, 3).tolist() == best.tolist()
    whole = make(law, 'dense', False).graph(scorer, 'dense')
    assert whole.edge_index.size(1) == 9 * 8
    sums = [
        make(law, asked, False).sum(scorer, method, torch.eye(9).double()),
        as_matrix(*whole, 9),
        torch.softmax(score / 0.5, dim=1),
    ]
    torch.testing.assert_close(sums[0], sums[1])
    torch.testing.assert_close(sums[1], sums[2])
