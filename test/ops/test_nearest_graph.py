from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from torch_geometric_gsl.ops.scorer import matrix_scorer
from torch_geometric_gsl.ops.stream import nearest_graph

Oracle = Callable[..., Tensor]
DOUBLE = {'dtype': torch.float64}


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize('budget', [1, 2**25])
@pytest.mark.parametrize('k', [1, 3, 20])
def test_nearest_graph(
    softmax: Callable[..., list[float]], to_matrix: Oracle, k: int, budget: int
) -> None:
    score, tau = torch.randn(4, 7, **DOUBLE), 0.4
    expected = torch.zeros(4, 7, **DOUBLE)
    for i, row in enumerate(score.tolist()):
        best = sorted(range(7), key=lambda j: -row[j])[:k]
        weight = softmax([row[j] / tau for j in best])
        expected[i, best] = torch.tensor(weight, **DOUBLE)
    graph = nearest_graph(matrix_scorer(score), k, tau, memory_budget=budget)
    torch.testing.assert_close(to_matrix(*graph, 4, 7), expected)
    assert graph.edge_weight.numel() == 4 * min(k, 7)


def test_nearest_graph_gradient() -> None:
    score = torch.randn(4, 7, **DOUBLE, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda score: nearest_graph(matrix_scorer(score), 3, 0.5).edge_weight, score
    )


@given(st.permutations(range(6)), st.booleans())
def test_nearest_graph_of_permuted_nodes(
    to_matrix: Oracle, order: list[int], loop: bool
) -> None:
    score, index = torch.randn(6, 6, generator=seeded(1)), torch.tensor(order)

    def weights(score: Tensor) -> Tensor:
        scorer = matrix_scorer(score, loop=loop)
        return to_matrix(*nearest_graph(scorer, 3, 0.5), 6, 6)

    moved = weights(score[index][:, index])
    torch.testing.assert_close(moved, weights(score)[index][:, index])
