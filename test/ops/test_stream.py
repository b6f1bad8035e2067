from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from torch import Tensor

from torch_geometric_gsl.ops import stream as module
from torch_geometric_gsl.ops.dense import relaxed_weights
from torch_geometric_gsl.ops.scorer import Law, matrix_scorer
from torch_geometric_gsl.ops.stream import (
    first_arrivals,
    stream_graph,
)
from torch_geometric_gsl.typing import SampledGraph

Oracle = Callable[..., Tensor]
DOUBLE = {'dtype': torch.float64}


def generator(seed: int = 5) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def sample(score: Tensor, law: Law, loop: bool = True, **kwargs: Any) -> SampledGraph:
    scorer = matrix_scorer(score, loop=loop)
    return stream_graph(scorer, law, generator=generator(), **kwargs)


@pytest.mark.parametrize('kept', [1, 16, 40])
@pytest.mark.parametrize('scale', [1.0, 50.0, 1000.0])
def test_arrivals_are_the_largest_perturbed_scores(
    replay: Oracle, kept: int, scale: float
) -> None:
    score = scale * torch.rand(5, 40, **DOUBLE)
    noise = replay(5, 5, 3, 40)
    found = first_arrivals(matrix_scorer(score), 3, kept, generator=generator())
    assert found.source.shape == found.noise.shape == (5, 3, kept)
    for i in range(5):
        for k in range(3):
            value = (score[i] + noise[i, k]).tolist()
            order = sorted(range(40), key=lambda j: -value[j])[:kept]
            assert found.source[i, k].tolist() == order
            torch.testing.assert_close(found.noise[i, k], noise[i, k, order])
            # All arrivals until the time of the last one are listed.
            horizon = -value[order[-1]]
            assert float(found.horizon[i, k]) == pytest.approx(horizon)


def test_arrivals_carry_no_gradient() -> None:
    score = torch.randn(3, 4, requires_grad=True)
    found = first_arrivals(matrix_scorer(score), 2, 2)
    assert not found.noise.requires_grad
    assert not found.horizon.requires_grad
    assert found.source.dtype == torch.long


@pytest.mark.parametrize('k', [1, 3])
@pytest.mark.parametrize('kept', [1, 4, 16])
@pytest.mark.parametrize('tau', [0.1, 1.0])
def test_against_loops(
    truncated: Oracle,
    to_matrix: Oracle,
    replay: Oracle,
    k: int,
    kept: int,
    tau: float,
) -> None:
    score = torch.randn(4, 20, **DOUBLE)
    graph = sample(score, Law(k, tau, num_arrivals=kept, num_tail=0))
    expected = truncated(score, replay(5, 4, k, 20), tau, kept)
    torch.testing.assert_close(to_matrix(*graph, 4, 20), expected)
    # Sorted by target and then by source, each edge once.
    pairs = [(i, j) for j, i in graph.edge_index.t().tolist()]
    assert pairs == [tuple(pair) for pair in expected.nonzero().tolist()]


@pytest.mark.parametrize('loop', [False, True])
def test_a_tail_of_all_sources_against_quadrature(
    replay: Oracle, to_matrix: Oracle, loop: bool
) -> None:
    score, tau, noise = torch.randn(4, 4, **DOUBLE), 0.5, replay(5, 4, 2, 4)
    law = Law(2, tau, num_arrivals=2, num_tail=4)
    found = to_matrix(*sample(score, law, loop), 4, 4)
    expected = torch.zeros(4, 4, **DOUBLE)
    for i, k in product(range(4), range(2)):
        rate = {j: math.exp(score[i, j]) for j in range(4) if loop or i != j}
        time = {j: math.exp(-score[i, j] - noise[i, k, j]) for j in rate}
        first = sorted(rate, key=lambda j: time[j])[:2]
        horizon, weight = time[first[1]], dict.fromkeys(rate, 0.0)
        for j in first:
            weight[j] += time[j] ** (-1 / tau)
        for j, r in rate.items():

            def density(t: float, r: float = r) -> float:
                return t ** (-1 / tau) * r * math.exp(-r * t)

            weight[j] += quad(density, horizon, math.inf)[0]
        for j, w in weight.items():
            expected[i, j] += w / sum(weight.values()) / 2
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('hard', [False, True])
@pytest.mark.parametrize('loop', [False, True])
def test_all_arrivals_give_the_dense_graph(
    to_matrix: Oracle, hard: bool, loop: bool
) -> None:
    leaf = torch.randn(6, 6, **DOUBLE, requires_grad=True)
    grad = torch.randn(6, 6, **DOUBLE)
    law = Law(3, 0.5, hard=hard, num_arrivals=6)
    streamed = to_matrix(*sample(leaf, law, loop), 6, 6)
    score = matrix_scorer(leaf, loop=loop).rows(slice(0, 6))
    dense = relaxed_weights(score, 3, 0.5, hard=hard, generator=generator())
    torch.testing.assert_close(streamed, dense)
    torch.testing.assert_close(
        torch.autograd.grad(streamed, leaf, grad)[0],
        torch.autograd.grad(dense, leaf, grad)[0],
    )


@pytest.mark.parametrize(
    'law',
    [Law(3, 0.5), Law(2, 0.7, num_arrivals=3, num_tail=0), Law(3, 0.5, replace=False)],
    ids=str,
)
def test_gradient(law: Law) -> None:
    score = torch.randn(4, 6, **DOUBLE, requires_grad=True)
    edges = sample(score, law).edge_index

    def weights(score: Tensor) -> Tensor:
        graph = sample(score, law)
        assert torch.equal(graph.edge_index, edges)
        return graph.edge_weight

    assert torch.autograd.gradcheck(weights, score)


@pytest.mark.parametrize('replace', [True, False])
def test_straight_through_gradient_is_the_soft_one(replace: bool) -> None:
    score, grads = torch.randn(4, 6, requires_grad=True), []
    for hard in (False, True):
        graph = sample(score, Law(3, 0.5, hard, replace, num_arrivals=4))
        factor = torch.linspace(-1, 1, graph.edge_weight.numel())
        first, second = (
            torch.autograd.grad(graph.edge_weight, score, factor, retain_graph=True)[0]
            for _ in range(2)
        )
        assert torch.equal(first, second)
        grads.append(first)
    assert torch.equal(*grads)
    assert float(grads[0].abs().max()) > 0.01


@given(st.integers(1, 4000), st.booleans(), st.booleans())
def test_any_memory_budget_gives_the_same_graph(
    budget: int, hard: bool, replace: bool
) -> None:
    score = torch.randn(7, 9, generator=generator(1))
    law = Law(3, 0.5, hard, replace, num_arrivals=4)
    expected, graph = sample(score, law), sample(score, law, memory_budget=budget)
    assert torch.equal(graph.edge_index, expected.edge_index)
    assert torch.equal(graph.edge_weight, expected.edge_weight)


@pytest.mark.parametrize('hard', [False, True])
def test_distinct_draws_at_a_large_scale(
    truncated: Oracle, to_matrix: Oracle, replay: Oracle, hard: bool
) -> None:
    # The k largest perturbed scores, however far they lie below the largest.
    score = 1e3 * torch.rand(6, 30, **DOUBLE)
    graph = sample(score, Law(8, 0.25, hard=hard, replace=False))
    ranking = truncated(score, replay(5, 6, 1, 30), 1e3, 8)
    present = to_matrix(graph.edge_index, torch.ones(48), 6, 30)
    assert torch.equal(present.bool(), ranking.bool())


@pytest.mark.parametrize('hard', [False, True])
@pytest.mark.parametrize('replace', [False, True])
def test_large_scores_stay_finite_and_loops_out(hard: bool, replace: bool) -> None:
    x = torch.randn(6, 6, requires_grad=True)
    law = Law(5, 0.25, hard, replace, num_arrivals=6)
    graph = sample(1e3 * x, law, loop=False)
    source, target = graph.edge_index
    assert not bool((source == target).any())
    # All five others arrive, and nothing else.
    assert torch.bincount(target).tolist() == [5] * 6
    total = torch.zeros(6).index_add(0, target, graph.edge_weight)
    torch.testing.assert_close(total, torch.ones(6))
    graph.edge_weight.square().sum().backward()
    assert x.grad is not None
    assert bool(x.grad.isfinite().all())


@given(st.integers(2, 8), st.integers(1, 20), st.booleans(), st.integers(0, 2**32))
def test_no_loop_is_ever_sampled(n: int, kept: int, hard: bool, seed: int) -> None:
    score = torch.randn(n, n, generator=generator(seed)) + 1e4 * torch.eye(n)
    graph = sample(score, Law(3, 0.5, hard, num_arrivals=kept), loop=False)
    assert not bool((graph.edge_index[0] == graph.edge_index[1]).any())
    assert bool(graph.edge_weight.isfinite().all())


@pytest.mark.parametrize('loop', [True, False])
def test_all_neighbours(loop: bool) -> None:
    graph = sample(torch.randn(5, 5), Law(5 - (not loop), 0.5, replace=False), loop)
    expected = [(j, i) for i in range(5) for j in range(5) if loop or i != j]
    assert [tuple(edge) for edge in graph.edge_index.t().tolist()] == expected


@pytest.mark.parametrize('replace', [True, False])
def test_hard_weights(replace: bool) -> None:
    law = Law(4, 0.5, hard=True, replace=replace, num_arrivals=3)
    weight = sample(torch.randn(5, 9), law).edge_weight
    if replace:
        assert bool(((4 * weight) == (4 * weight).round()).all())
        assert 0 in weight.tolist()
    else:
        assert weight.tolist() == [0.25] * 20


def test_small_temperatures_approach_hard_draws(to_matrix: Oracle) -> None:
    score = torch.randn(5, 9, **DOUBLE)
    soft, hard = (
        to_matrix(*sample(score, Law(3, 1e-5, hard=hard)), 5, 9)
        for hard in (False, True)
    )
    torch.testing.assert_close(soft, hard)


@pytest.mark.parametrize('hard', [False, True])
@pytest.mark.parametrize('replace', [False, True])
def test_smallest_inputs(hard: bool, replace: bool) -> None:
    law = Law(1, 0.5, hard, replace)
    one = sample(torch.randn(3, 1), law)
    assert one.edge_index.tolist() == [[0, 0, 0], [0, 1, 2]]
    assert one.edge_weight.tolist() == [1.0, 1.0, 1.0]
    nothing = sample(torch.randn(0, 4), law)
    assert nothing.edge_index.shape == (2, 0)
    assert nothing.edge_weight.shape == (0,)
    assert nothing.edge_index.dtype == torch.long


def test_global_generator_is_the_default() -> None:
    scorer, law, graphs = matrix_scorer(torch.randn(5, 9)), Law(3, 0.5), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        graphs.append(stream_graph(scorer, law).edge_weight.sort().values[-5:])
    assert torch.equal(graphs[0], graphs[1])
    assert not torch.equal(graphs[0], graphs[2])


@given(st.permutations(range(6)), st.booleans(), st.booleans())
def test_permuting_the_nodes_and_their_noise(
    to_matrix: Oracle, order: list[int], hard: bool, replace: bool
) -> None:
    score = torch.randn(6, 6, **DOUBLE, generator=generator(1))
    time = torch.rand(6, 3 if replace else 1, 6, **DOUBLE, generator=generator(2))
    # A tail of all sources is the same set in any order.
    law, index = Law(3, 0.5, hard, replace, 4, num_tail=6), torch.tensor(order)

    def weights(score: Tensor, time: Tensor) -> Tensor:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, 'arrival_times', lambda *_, **__: time.clone())
            return to_matrix(*sample(score, law), 6, 6)

    plain = weights(score, time)
    moved = weights(score[index][:, index], time[index][:, :, index])
    torch.testing.assert_close(moved, plain[index][:, index])


def test_small_budgets_give_small_blocks(meter: Any) -> None:
    n, k, kept = 64, 4, 3
    score, seen = torch.randn(n, n), []

    def rows(block: slice) -> Tensor:
        seen.append(block.stop - block.start)
        return score[block]

    scorer = matrix_scorer(score)._replace(rows=rows)
    law, sizes = Law(k, 0.5, num_arrivals=kept, num_tail=0), []
    # Two temporaries of k draws and of the scores, for two rows in float32.
    for budget in (2 * 2 * (k + 1) * n * 4, 2**25):
        with meter() as found:
            stream_graph(scorer, law, memory_budget=budget)
        sizes.append(found.largest)
    assert seen == [2] * 32 + [64]
    # The edges in two rows are the largest thing left: nothing has n * n entries.
    assert sizes == [2 * n * k * kept, n * k * n]
