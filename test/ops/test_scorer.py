from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torch_geometric_gsl.ops.neighbours import Neighbours
from torch_geometric_gsl.ops.scorer import Candidates, Law, exclude, matrix_scorer

INF = float('inf')


def test_law_defaults() -> None:
    assert Law(3, 0.5) == (3, 0.5, False, True, 16, None)
    assert Law._fields == ('k', 'tau', 'hard', 'replace', 'num_arrivals', 'num_tail')


def test_law_counts_races_and_arrivals() -> None:
    law = Law(3, 0.5, num_arrivals=7)
    assert (law.draws, law.kept) == (3, 7)
    # Without replacement one race names all neighbours.
    distinct = law._replace(replace=False)
    assert (distinct.draws, distinct.kept) == (1, 3)


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_matrix_scorer(dtype: torch.dtype) -> None:
    score = torch.randn(3, 5, dtype=dtype)
    scorer = matrix_scorer(score)
    assert torch.equal(scorer.rows(slice(1, 3)), score[1:])
    source = torch.tensor([[4, 0], [2, 2]])
    values = score.tolist()
    expected = [[values[1][4], values[1][0]], [values[2][2], values[2][2]]]
    assert scorer.pairs(slice(1, 3), Neighbours(source, 5)).tolist() == expected
    columns = scorer.select(torch.tensor([3, 3, 0])).rows(slice(0, 2))
    assert columns.tolist() == [[row[3], row[3], row[0]] for row in values[:2]]
    assert scorer.size == (3, 5)
    assert scorer.available == 5
    assert scorer.dtype == dtype
    assert scorer.device == score.device
    assert scorer.upper == max(map(max, values))
    assert scorer.excluded is None
    assert scorer.candidates is None


def test_matrix_scorer_without_loops() -> None:
    score = torch.zeros(3, 3, requires_grad=True)
    scorer = matrix_scorer(score, loop=False)
    assert scorer.available == 2
    assert scorer.excluded is not None
    assert scorer.excluded.tolist() == [0, 1, 2]
    rows = [[-INF, 0, 0], [0, -INF, 0], [0, 0, -INF]]
    assert scorer.rows(slice(0, 3)).tolist() == rows
    columns = scorer.select(torch.tensor([2, 1, 1])).rows(slice(1, 3))
    assert columns.tolist() == [[0, -INF, -INF], [-INF, 0, 0]]
    source = torch.tensor([[0], [1], [1]])
    scorer.pairs(slice(0, 3), Neighbours(source, 3)).sum().backward()
    assert score.grad is not None
    assert score.grad.nonzero().tolist() == [[2, 1]]


@pytest.mark.parametrize('loop', [True, False])
def test_split(loop: bool) -> None:
    score = torch.randn(5, 5, requires_grad=True)
    scorer, first = matrix_scorer(score, loop=loop), 0
    source = torch.randint(5, (5, 3))
    blocks = scorer.split([2, 1, 2])
    for block, size in zip(blocks, [2, 1, 2], strict=True):
        rows, own = slice(first, first + size), slice(0, size)
        assert block.size == (size, 5)
        assert torch.equal(block.rows(own), scorer.rows(rows))
        some = torch.tensor([4, 0, 0])
        found = block.select(some).rows(own)
        assert torch.equal(found, scorer.select(some).rows(rows))
        neighbours = Neighbours(source[rows], 5)
        expected = scorer.pairs(rows, neighbours)
        assert torch.equal(block.pairs(own, neighbours), expected)
        # What is compared may be computed for all targets at once.
        value = scorer.compare(slice(0, 5), Neighbours(source, 5))[rows]
        assert torch.equal(block.respond(own, value), expected)
        if loop:
            assert block.excluded is None
        else:
            assert block.excluded is not None
            assert block.excluded.tolist() == list(range(first, first + size))
        first += size
    assert len(blocks) == 3


@pytest.mark.parametrize('size', [(0, 4), (3, 0), (0, 0)])
def test_matrix_scorer_of_nothing(size: tuple[int, int]) -> None:
    scorer = matrix_scorer(torch.empty(size))
    assert scorer.upper == 0
    assert scorer.rows(slice(0, size[0])).shape == size


def test_the_bound_leaves_excluded_scores_out() -> None:
    score = torch.tensor([[9.0, 1.0], [2.0, 9.0]])
    assert matrix_scorer(score, loop=False).upper == 2


def test_exclude_a_block() -> None:
    # Rows 2 and 3 of a matrix with five sources, without a change in place.
    block = torch.ones(2, 5)
    excluded = exclude(block, torch.tensor([2, 3]))
    assert excluded.isinf().nonzero().tolist() == [[0, 2], [1, 3]]
    assert bool((excluded <= 1).all())
    assert torch.equal(block, torch.ones(2, 5))


def test_exclude_listed_columns() -> None:
    block, source = torch.ones(2, 3), torch.tensor([4, 3, 4])
    excluded = exclude(block, torch.tensor([4, 0]), source)
    assert excluded.isinf().nonzero().tolist() == [[0, 0], [0, 2]]


def test_exclude_beyond_the_sources_and_nothing() -> None:
    block = torch.ones(2, 3)
    assert not exclude(block, torch.tensor([3, 4])).isinf().any()
    assert exclude(block, None) is block


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4), min_size=1))
def test_candidates(rows: list[list[int]]) -> None:
    size = torch.tensor([len(row) for row in rows])
    start = size.cumsum(0) - size
    listed = torch.tensor([j for row in rows for j in row])
    place = torch.stack([torch.zeros_like(size), size - 1], dim=1)
    some = slice(len(rows) // 2, len(rows))
    own = Candidates(start, size, listed).at(some, place[some])
    assert own.tolist() == [[row[0], row[-1]] for row in rows[some]]
    # Without a list the candidates are a range.
    plain = Candidates(start, size).at(some, place[some])
    first = start.tolist()[some]
    expected = [[i, i + len(row) - 1] for i, row in zip(first, rows[some], strict=True)]
    assert plain.tolist() == expected
