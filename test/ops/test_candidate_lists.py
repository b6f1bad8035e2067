from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from torch_geometric_gsl.ops.candidates import (
    batch_candidates,
    expand_draws,
    rank_in_group,
    sort_candidates,
)

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


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=5))
def test_batch_candidates(graphs: list[tuple[int, int]]) -> None:
    source = [g for g, (num, _) in enumerate(graphs) for _ in range(num)]
    target = [g for g, (_, num) in enumerate(graphs) for _ in range(num)]
    expected = [
        [j, i] for i, g in enumerate(target) for j, f in enumerate(source) if f == g
    ]
    out = batch_candidates(
        torch.tensor(source, dtype=torch.long),
        torch.tensor(target, dtype=torch.long),
        len(graphs),
    )
    assert out.shape[0] == 2
    assert out.t().tolist() == expected


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
