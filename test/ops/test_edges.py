"""Lists of candidates, sums along edges, and labels that they join."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import seeded

from torch_geometric_gsl.ops.edges import (
    Candidates,
    Edges,
    chance_share,
    list_by_row,
    list_candidates,
    rank_in_group,
    sort_candidates,
)

N = 6


@pytest.mark.parametrize('dtype', [torch.double, torch.bfloat16])
def test_sums_along_a_graph(dtype):
    # Node 1 hears nobody; half precision is summed in full.
    edge_index = torch.tensor([[0, 2, 1, 0, 3], [0, 0, 2, 3, 3]])
    weight = torch.tensor([0.5, 0.25, 1.0, 2.0, 0.125], dtype=dtype)
    h = torch.randn(4, 3, generator=seeded(), dtype=torch.double).to(dtype)
    matrix = torch.zeros(4, 4, dtype=torch.double)
    matrix[edge_index[1], edge_index[0]] = weight.double()
    total = Edges(list_by_row(edge_index[1], edge_index[0], (4, 4)), weight).sum(h)
    assert total.dtype == dtype
    rtol = 2 * torch.finfo(dtype).eps
    torch.testing.assert_close(total.double(), matrix @ h.double(), rtol=rtol, atol=0)


pairs = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=20)


@given(pairs, st.booleans())
def test_sort_candidates(rows, loop):
    expected = sorted({(i, j) for j, i in rows if loop or i != j})
    edges = torch.tensor(rows, dtype=torch.long).view(-1, 2).t()
    out = sort_candidates(edges, loop=loop)
    assert out.dtype == torch.long
    assert [(i, j) for j, i in out.t().tolist()] == expected
    # What is sorted stays as it is.
    assert sort_candidates(out).data_ptr() == out.data_ptr()


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=5),
    st.integers(1, 40),
)
def test_list_candidates_of_a_batch(graphs, max_pairs):
    source = [g for g, (num, _) in enumerate(graphs) for _ in range(num)]
    target = [g for g, (_, num) in enumerate(graphs) for _ in range(num)]
    expected = [
        [j, i] for i, g in enumerate(target) for j, f in enumerate(source) if f == g
    ]
    start = [sum(f < g for f in source) for g in target]
    size = [source.count(g) for g in target]
    sets = Candidates(
        torch.tensor(start, dtype=torch.long), torch.tensor(size, dtype=torch.long)
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
def test_list_candidates_of_given_rows(rows):
    size = torch.tensor([len(row) for row in rows], dtype=torch.long)
    listed = torch.tensor([j for row in rows for j in row], dtype=torch.long)
    sets = Candidates(size.cumsum(0) - size, size, listed)
    for max_pairs in (1, 5, 100):
        blocks = list(list_candidates(sets, max_pairs))
        edges = [edge for block in blocks for edge in block.t().tolist()]
        assert edges == [[j, i] for i, row in enumerate(rows) for j in row]


def test_chance_share_against_a_loop():
    y_src, y_dst = torch.randint(-1, 3, (11,)), torch.randint(-1, 4, (7,))
    pairs = [y_src[j] == y_dst[i] for i in range(7) for j in range(11)]
    assert chance_share(y_src, y_dst) == pytest.approx(float(np.mean(pairs)))
    pairs = [y_src[j] == y_src[i] for i in range(11) for j in range(11) if i != j]
    assert chance_share(y_src) == pytest.approx(float(np.mean(pairs)))
    assert math.isnan(chance_share(y_src[:1]))


def test_equal_values_get_distinct_ranks():
    value = torch.tensor([1.0, 1, 1, -torch.inf, -torch.inf, 2])
    rank = rank_in_group(value, torch.tensor([0, 0, 0, 1, 1, 1]))
    assert sorted(rank[:3].tolist()) == [0, 1, 2]
    assert sorted(rank[3:].tolist()) == [0, 1, 2]
    assert rank[5] == 0
    assert rank_in_group(rank[:0], rank[:0]).shape == (0,)
