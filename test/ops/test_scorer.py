from __future__ import annotations

import pytest
import torch

from torch_geometric_gsl.ops.scorer import Law, exclude_loops, matrix_scorer


def test_law_defaults() -> None:
    assert Law(3, 0.5) == (3, 0.5, False, True, 16)
    assert Law._fields == ('k', 'tau', 'hard', 'replace', 'num_arrivals')


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_matrix_scorer(dtype: torch.dtype) -> None:
    score = torch.randn(3, 5, dtype=dtype)
    scorer = matrix_scorer(score)
    assert torch.equal(scorer.rows(slice(1, 3)), score[1:])
    source, target = torch.tensor([[4, 0], [2, 2]]), torch.tensor([[0, 1], [2, 0]])
    expected = [
        [score[0, 4], score[1, 0]],
        [score[2, 2], score[0, 2]],
    ]
    assert scorer.pairs(source, target).tolist() == [
        [float(value) for value in row] for row in expected
    ]
    assert scorer.size == (3, 5)
    assert scorer.available == 5
    assert scorer.dtype == dtype
    assert scorer.device == score.device


def test_matrix_scorer_without_loops() -> None:
    score = torch.zeros(3, 3, requires_grad=True)
    scorer = matrix_scorer(score, loop=False)
    inf = float('inf')
    assert scorer.available == 2
    assert scorer.rows(slice(0, 3)).tolist() == [
        [-inf, 0, 0],
        [0, -inf, 0],
        [0, 0, -inf],
    ]
    scorer.pairs(torch.tensor([0, 1]), torch.tensor([1, 1])).sum().backward()
    assert score.grad is not None
    assert score.grad.nonzero().tolist() == [[1, 0]]


def test_exclude_loops_of_a_block() -> None:
    # Rows 2 and 3 of a matrix with five sources, without a change in place.
    block = torch.ones(2, 5)
    excluded = exclude_loops(block, slice(2, 4))
    assert excluded.isinf().nonzero().tolist() == [[0, 2], [1, 3]]
    assert bool((excluded <= 1).all())
    assert torch.equal(block, torch.ones(2, 5))


def test_exclude_loops_beyond_the_sources() -> None:
    assert not exclude_loops(torch.ones(2, 3), slice(3, 5)).isinf().any()
