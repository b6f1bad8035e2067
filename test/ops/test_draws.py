from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from torch_geometric_gsl.ops import draws as module
from torch_geometric_gsl.ops.draws import (
    draw_tail,
    drawn_graph,
    drawn_sum,
    neighbour_graph,
)
from torch_geometric_gsl.ops.relax import Arrivals, Tail, relax
from torch_geometric_gsl.ops.scorer import Candidates, Law, Scorer, matrix_scorer
from torch_geometric_gsl.ops.stream import first_arrivals
from torch_geometric_gsl.typing import SampledGraph

INF = float('inf')
DOUBLE = {'dtype': torch.float64}
ZEROS = torch.zeros(8, dtype=torch.long)


def seeded(seed: int = 5) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(autouse=True)
def group(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The targets that share a tail: of eight, two groups of three and one of two."""
    size: int = getattr(request, 'param', 3)
    monkeypatch.setattr(module, 'group_size', lambda tail, draws: size)
    return size


def drawn(scorer: Scorer, law: Law) -> tuple[Arrivals, Tail | None]:
    """Arrivals, of which one race misses its last, and a tail."""
    kept = min(law.kept, scorer.available)
    arrivals = first_arrivals(scorer, law.draws, kept, generator=seeded())
    arrivals.noise[1, 0, -1] = -INF
    return arrivals, draw_tail(scorer, law, generator=seeded(6))


def as_matrix(graph: SampledGraph, size: tuple[int, int]) -> Tensor:
    matrix = torch.zeros(size, **DOUBLE)
    return matrix.index_put((graph.edge_index[1], graph.edge_index[0]), graph[1])


LAWS = [
    Law(3, 0.5, num_arrivals=3, num_tail=0),
    Law(3, 1.0, num_arrivals=3, num_tail=4),
    Law(3, 1.0, num_arrivals=3, num_tail=8),
    Law(3, 1.0, hard=True, num_arrivals=3, num_tail=4),
    Law(3, 1.0, replace=False),
]


@pytest.mark.parametrize(
    ('group', 'sets'),
    [(1, None), (3, None), (16, None), (1, Candidates(ZEROS, ZEROS + 8))],
    indirect=['group'],
    ids=['single', 'groups', 'one group', 'own candidates'],
)
@pytest.mark.parametrize('loop', [False, True])
@pytest.mark.parametrize('law', LAWS, ids=str)
def test_drawn_graph_against_loops(
    law: Law, loop: bool, sets: Candidates | None, group: int
) -> None:
    score = torch.randn(8, 8, **DOUBLE)
    scorer = matrix_scorer(score, loop=loop)._replace(candidates=sets)
    arrivals, tail = drawn(scorer, law)
    expected: dict[tuple[int, int], float] = {}
    for i in range(8):
        own = Arrivals(*(part[i : i + 1] for part in arrivals))
        late, args = [], []
        if tail is not None:
            assert tail.group == group
            late = tail.source[i // group].tolist()
            values = [-INF if not loop and j == i else float(score[i, j]) for j in late]
            share = tail.log_share.expand(8, law.k, 1)[i : i + 1]
            args = [torch.tensor(values, **DOUBLE).view(1, law.k, -1), share]
        weight, rest = relax(score[i][own.source], own, law, *args)
        for source, noise, w in zip(
            own.source.flatten().tolist(),
            own.noise.flatten().tolist(),
            weight.flatten().tolist(),
            strict=True,
        ):
            if noise > -INF:
                expected[i, source] = expected.get((i, source), 0.0) + w
        for j, w in zip(late, rest.flatten().tolist(), strict=True):
            if loop or i != j:
                expected[i, j] = expected.get((i, j), 0.0) + w
    graph = drawn_graph(scorer, arrivals, tail, law)
    pairs = [(i, j) for j, i in graph.edge_index.t().tolist()]
    assert pairs == sorted(expected)
    weight = torch.tensor([expected[pair] for pair in pairs], **DOUBLE)
    torch.testing.assert_close(graph.edge_weight, weight)
    assert loop or all(i != j for i, j in pairs)


@pytest.mark.parametrize('group', [1, 3, 16], indirect=True)
@pytest.mark.parametrize('budget', [1, 5000, 2**25])
@pytest.mark.parametrize('loop', [False, True])
@pytest.mark.parametrize('law', LAWS, ids=str)
def test_drawn_sum_is_the_sum_over_the_drawn_graph(
    law: Law, loop: bool, budget: int
) -> None:
    score = torch.randn(8, 8, **DOUBLE, requires_grad=True)
    h = torch.randn(8, 2, **DOUBLE, requires_grad=True)
    scorer = matrix_scorer(score, loop=loop)
    arrivals, tail = drawn(scorer, law)
    graph = drawn_graph(scorer, arrivals, tail, law)
    factor, found = torch.randn(8, 2, **DOUBLE), []
    streamed = drawn_sum(h, scorer, arrivals, tail, law, budget)
    for out in (streamed, as_matrix(graph, (8, 8)) @ h):
        grads = torch.autograd.grad(out, (score, h), factor, retain_graph=True)
        found.append([out, *grads])
    torch.testing.assert_close(*found)


# Eight temporaries of 3 draws * (3 arrivals + 8 of the tail) * 8 bytes: 2112 a row.
@pytest.mark.parametrize(
    ('group', 'budget', 'sizes'),
    [
        (1, 1, [1] * 8),
        (1, 2112 * 3, [3, 3, 2]),
        (3, 1, [3, 3, 2]),  # At least one group, and whole ones.
        (3, 2112 * 6 - 1, [3, 3, 2]),
        (3, 2112 * 6, [6, 2]),
        (3, 2**25, []),
        (16, 1, []),
    ],
    indirect=['group'],
)
def test_blocks_are_checkpointed(
    group: int, budget: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    law, calls = Law(3, 1.0, num_arrivals=3, num_tail=8), []
    plain = module.checkpoint

    def spy(*args: Any, **kwargs: Any) -> Any:
        calls.append(args[1].size(0))
        return plain(*args, **kwargs)

    monkeypatch.setattr(module, 'checkpoint', spy)
    scorer = matrix_scorer(torch.randn(8, 8, **DOUBLE))
    arrivals, tail = drawn(scorer, law)
    h = torch.randn(8, 2, **DOUBLE)
    out = drawn_sum(h, scorer, arrivals, tail, law, budget)
    assert calls == sizes
    with torch.no_grad():  # There is no backward pass to save memory for.
        same = drawn_sum(h, scorer, arrivals, tail, law, budget)
    assert calls == sizes
    assert torch.equal(out, same)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize('num_tail', [0, 8])
def test_messages_keep_their_type(dtype: torch.dtype, num_tail: int) -> None:
    law = Law(3, 1.0, num_arrivals=3, num_tail=num_tail)
    scorer = matrix_scorer(torch.randn(8, 8, **DOUBLE))
    arrivals, tail = drawn(scorer, law)
    h = torch.randn(8, 2).to(dtype).requires_grad_()
    out = drawn_sum(h, scorer, arrivals, tail, law)
    assert out.dtype == dtype
    expected = drawn_sum(h.detach().double(), scorer, arrivals, tail, law)
    atol = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=atol)
    out.sum().backward()
    assert h.grad is not None
    assert h.grad.dtype == dtype


@pytest.mark.parametrize('num_tail', [0, 4])
def test_no_targets(num_tail: int) -> None:
    law = Law(3, 1.0, num_arrivals=3, num_tail=num_tail)
    scorer = matrix_scorer(torch.empty(0, 8))
    arrivals = first_arrivals(scorer, 3, 3)
    tail = draw_tail(scorer, law)
    graph = drawn_graph(scorer, arrivals, tail, law)
    assert graph.edge_index.shape == (2, 0)
    out = drawn_sum(torch.randn(8, 2), scorer, arrivals, tail, law)
    assert out.shape == (0, 2)


@given(
    st.lists(
        st.lists(
            st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=3, max_size=3
        ),
        max_size=5,
    ),
    st.booleans(),
)
def test_neighbour_graph(rows: list[list[tuple[int, int]]], is_masked: bool) -> None:
    source = torch.tensor([[j for j, _ in row] for row in rows]).long().view(-1, 3)
    weight = torch.tensor([[w for _, w in row] for row in rows]).float().view(-1, 3)
    listed = weight > 2 if is_masked else None
    expected: dict[tuple[int, int], float] = {}
    for i, row in enumerate(rows):
        for j, w in row:
            if not is_masked or w > 2:
                expected[i, j] = expected.get((i, j), 0) + w
    graph = neighbour_graph(source, weight, listed)
    assert graph.edge_index.dtype == torch.long
    assert [(i, j) for j, i in graph.edge_index.t().tolist()] == sorted(expected)
    assert graph.edge_weight.tolist() == [expected[p] for p in sorted(expected)]


def test_gradient_of_equal_edges() -> None:
    source = torch.tensor([[2, 0, 2], [1, 1, 1]])
    weight = torch.randn(2, 3, **DOUBLE, requires_grad=True)
    factor = torch.tensor([3.0, 5, 7], **DOUBLE)
    graph = neighbour_graph(source, weight)
    (grad,) = torch.autograd.grad(graph.edge_weight, weight, factor)
    assert grad.tolist() == [[5, 3, 5], [7, 7, 7]]
