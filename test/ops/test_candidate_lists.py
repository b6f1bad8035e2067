from __future__ import annotations

from itertools import pairwise

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from torch_geometric_gsl.ops.candidates import (
    expand_draws,
    list_candidates,
    rank_in_group,
    sort_candidates,
)
from torch_geometric_gsl.ops.scorer import Candidates

pairs = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=20)
sizes = st.lists(st.integers(0, 4), max_size=6)


def as_edges(rows: list[tuple[int, int]]) -> Tensor:
    return torch.tensor(rows, dtype=torch.long).view(-1, 2).t()


@given(pairs, st.booleans())
def test_sort_candidates(rows: list[tuple[int, int]], loop: bool) -> None:
    expected = sorted({(i, j) for j, i in rows if loop or i != j})
    out = sort_candidates(as_edges(rows), loop=loop)
    assert out.dtype == torch.long
    assert [(i, j) for j, i in out.t().tolist()] == expected


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=5),
    st.integers(1, 40),
)
def test_list_candidates_of_a_batch(
    graphs: list[tuple[int, int]], max_pairs: int
) -> None:
    source = [g for g, (num, _) in enumerate(graphs) for _ in range(num)]
    target = [g for g, (_, num) in enumerate(graphs) for _ in range(num)]
    expected = [
        [j, i] for i, g in enumerate(target) for j, f in enumerate(source) if f == g
    ]
    first = [sum(f < g for f in source) for g in target]
    size = [source.count(g) for g in target]
    sets = Candidates(
        torch.tensor(first, dtype=torch.long), torch.tensor(size, dtype=torch.long)
    )
    blocks = [block.t().tolist() for block in list_candidates(sets, max_pairs)]
    assert [edge for block in blocks for edge in block] == expected
    for block in blocks:
        assert block
        # A block is cut between targets, and as late as its limit allows.
        targets = {i for _, i in block}
        assert len(block) <= max_pairs or len(targets) == 1
        assert len(block) == sum(size[i] for i in targets)
    for block, after in pairwise(blocks):
        assert len(block) + size[after[0][1]] > max_pairs


@given(st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=6))
def test_list_candidates_of_given_rows(rows: list[list[int]]) -> None:
    size = torch.tensor([len(row) for row in rows], dtype=torch.long)
    listed = torch.tensor([j for row in rows for j in row], dtype=torch.long)
    sets = Candidates(size.cumsum(0) - size, size, listed)
    for max_pairs in (1, 5, 100):
        blocks = list(list_candidates(sets, max_pairs))
        found = [edge for block in blocks for edge in block.t().tolist()]
        assert found == [[j, i] for i, row in enumerate(rows) for j in row]


@given(sizes, st.integers(1, 4))
def test_expand_draws(degrees: list[int], k: int) -> None:
    target = [i for i, degree in enumerate(degrees) for _ in range(degree)]
    expected = [
        (edge, i * k + draw)
        for i in range(len(degrees))
        for draw in range(k)
        for edge, t in enumerate(target)
        if t == i
    ]
    edge, draw = expand_draws(torch.tensor(target, dtype=torch.long), len(degrees), k)
    assert list(zip(edge.tolist(), draw.tolist(), strict=True)) == expected


@given(sizes, st.data())
def test_rank_in_group(degrees: list[int], data: st.DataObject) -> None:
    group = [i for i, degree in enumerate(degrees) for _ in range(degree)]
    value = data.draw(
        st.lists(
            st.floats(-1e6, 1e6, width=32),
            min_size=len(group),
            max_size=len(group),
            unique=True,
        )
    )
    expected = [
        sum(other > own for other, h in zip(value, group, strict=True) if h == g)
        for own, g in zip(value, group, strict=True)
    ]
    rank = rank_in_group(torch.tensor(value), torch.tensor(group, dtype=torch.long))
    assert rank.tolist() == expected


def test_equal_values_get_distinct_ranks() -> None:
    value = torch.tensor([1.0, 1, 1, -torch.inf, -torch.inf, 2])
    rank = rank_in_group(value, torch.tensor([0, 0, 0, 1, 1, 1]))
    assert sorted(rank[:3].tolist()) == [0, 1, 2]
    assert sorted(rank[3:].tolist()) == [0, 1, 2]
    assert rank[5] == 0
