from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from torch_geometric_gsl.ops import candidates as module
from torch_geometric_gsl.ops import relaxed as relaxed_module
from torch_geometric_gsl.ops.candidates import (
    candidate_graph,
    nearest_candidates,
)
from torch_geometric_gsl.ops.dense import relaxed_weights
from torch_geometric_gsl.ops.scorer import Law, matrix_scorer
from torch_geometric_gsl.ops.stream import nearest_graph, stream_graph
from torch_geometric_gsl.typing import SampledGraph

Oracle = Callable[..., Tensor]
DOUBLE = {'dtype': torch.float64}
# Of six targets 1 and 5 have no candidates, 3 has a single one.
RAGGED = torch.tensor([[0, 2, 4, 1, 2, 3, 5, 0, 1, 4], [0, 0, 0, 2, 2, 2, 2, 3, 4, 4]])


def generator(seed: int = 5) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def all_pairs(num_targets: int, num_sources: int) -> Tensor:
    target = torch.arange(num_targets).repeat_interleave(num_sources)
    return torch.stack([torch.arange(num_sources).repeat(num_targets), target])


def sample(score: Tensor, law: Law, **kwargs: Any) -> SampledGraph:
    return candidate_graph(score, RAGGED, 6, law, generator=generator(), **kwargs)


@pytest.mark.parametrize('k', [1, 3])
@pytest.mark.parametrize('hard', [False, True])
def test_ragged_candidates_against_loops(
    relaxed: Oracle,
    to_matrix: Oracle,
    replay: Oracle,
    k: int,
    hard: bool,
) -> None:
    # Listed candidates are few: all are drawn, whatever the law keeps elsewhere.
    score, tau = torch.randn(10, **DOUBLE), 0.5
    law = Law(k, tau, hard, num_arrivals=2)
    out = to_matrix(*sample(score, law), 6, 6)
    noise, expected, start = replay(5, 10 * k), torch.zeros(6, 6, **DOUBLE), 0
    for i in range(6):
        own = (RAGGED[1] == i).nonzero().view(-1)
        if not own.numel():
            continue
        block = noise[start : start + k * own.numel()].view(1, k, -1)
        start += k * own.numel()
        row = relaxed(score[own].view(1, -1), block, tau, hard)
        expected[i, RAGGED[0, own]] = row
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize(
    'law',
    [
        Law(3, 0.5, num_arrivals=9),
        Law(3, 0.5, hard=True, num_arrivals=9),
        Law(3, 0.5, replace=False),
        Law(3, 0.5, hard=True, replace=False),
    ],
    ids=str,
)
@pytest.mark.parametrize('num_sources', [3, 7, 9])
def test_all_candidates_give_the_streamed_graph(law: Law, num_sources: int) -> None:
    score = torch.randn(7, num_sources, **DOUBLE)
    edges = all_pairs(7, num_sources)
    listed = candidate_graph(
        score[edges[1], edges[0]], edges, 7, law, generator=generator()
    )
    streamed = stream_graph(matrix_scorer(score), law, generator=generator())
    assert torch.equal(listed.edge_index, streamed.edge_index)
    torch.testing.assert_close(listed.edge_weight, streamed.edge_weight)


@pytest.mark.parametrize('hard', [False, True])
def test_distinct_draws_against_loops(
    truncated: Oracle, to_matrix: Oracle, replay: Oracle, hard: bool
) -> None:
    score, edges = torch.randn(4, 7, **DOUBLE), all_pairs(4, 7)
    law = Law(3, 0.5, hard, replace=False, num_arrivals=1)
    graph = candidate_graph(score.flatten(), edges, 4, law, generator=generator())
    expected = truncated(score, replay(5, 4, 1, 7), 0.5, 3)
    if hard:
        expected = (expected > 0).double() / 3
    torch.testing.assert_close(to_matrix(*graph, 4, 7), expected)


@pytest.mark.parametrize('hard', [False, True])
@pytest.mark.parametrize('more', ['', 'target', 'excluded'])
def test_all_pairs_give_the_dense_weights(
    to_matrix: Oracle, more: str, hard: bool
) -> None:
    """Also those of a matrix that others follow, which are then drawn one by one."""
    leaf = torch.randn(4, 6, **DOUBLE, requires_grad=True)
    edges, grad = all_pairs(4, 6), torch.randn(4, 6, **DOUBLE)
    score = leaf[edges[1], edges[0]]
    if more:
        own = torch.arange(2 if more == 'target' else 6)
        edges = torch.cat([edges, torch.stack([own, torch.full_like(own, 4)])], dim=1)
        excluded = own.double().log() if more == 'excluded' else own.double()
        score = torch.cat([score, excluded])
    graph = candidate_graph(
        score,
        edges,
        5 if more else 4,
        Law(3, 0.5, hard),
        generator=generator(),
    )
    listed = to_matrix(*graph, 5, 6)[:4]
    dense = relaxed_weights(leaf, 3, 0.5, hard=hard, generator=generator())
    torch.testing.assert_close(listed, dense)
    torch.testing.assert_close(
        torch.autograd.grad(listed, leaf, grad)[0],
        torch.autograd.grad(dense, leaf, grad)[0],
    )


@pytest.mark.parametrize('replace', [False, True])
def test_gradient(replace: bool) -> None:
    score = torch.randn(10, **DOUBLE, requires_grad=True)
    law = Law(3, 0.5, replace=replace, num_arrivals=2)

    def weights(score: Tensor) -> Tensor:
        return sample(score, law).edge_weight

    assert torch.autograd.gradcheck(weights, score)


@pytest.mark.parametrize('replace', [True, False])
def test_straight_through_gradient_is_the_soft_one(replace: bool) -> None:
    score, grads = torch.randn(10, requires_grad=True), []
    for hard in (False, True):
        weight = sample(score, Law(3, 0.5, hard, replace)).edge_weight
        factor = torch.linspace(-1, 1, weight.numel())
        first, second = (
            torch.autograd.grad(weight, score, factor, retain_graph=True)[0]
            for _ in range(2)
        )
        assert torch.equal(first, second)
        grads.append(first)
    assert torch.equal(*grads)
    assert float(grads[0].abs().max()) > 0.01


def test_a_batch_gives_the_graphs_of_its_members() -> None:
    score, law = torch.randn(10), Law(3, 0.5, num_arrivals=2)
    whole, one_by_one = sample(score, law), generator()
    parts = []
    for i in range(6):
        own = RAGGED[1] == i
        edges = torch.stack([RAGGED[0, own], torch.zeros_like(RAGGED[0, own])])
        parts.append(candidate_graph(score[own], edges, 1, law, generator=one_by_one))
    source = torch.cat([part.edge_index[0] for part in parts])
    assert torch.equal(source, whole.edge_index[0])
    weight = torch.cat([part.edge_weight for part in parts])
    torch.testing.assert_close(weight, whole.edge_weight)


@pytest.mark.parametrize('replace', [False, True])
@pytest.mark.parametrize('hard', [False, True])
def test_no_candidates_at_all(replace: bool, hard: bool) -> None:
    law = Law(2, 0.5, hard, replace)
    graph = candidate_graph(torch.empty(0), RAGGED[:, :0], 3, law)
    assert graph.edge_index.shape == (2, 0)
    assert graph.edge_weight.shape == (0,)


@pytest.mark.parametrize('hard', [False, True])
def test_excluded_candidates(to_matrix: Oracle, hard: bool) -> None:
    # Of the targets 0, 2 and 3 one, two and all candidates are excluded.
    score = torch.randn(10)
    score[[1, 3, 6, 7]] = -torch.inf
    score.requires_grad_()
    law = Law(3, 0.5, hard, num_arrivals=4)
    for graph in (
        sample(score, law),
        nearest_candidates(score, RAGGED, 6, 9, 0.5),
    ):
        assert torch.equal(graph.edge_index, RAGGED[:, [0, 2, 4, 5, 8, 9]])
        total = to_matrix(*graph, 6, 6).sum(dim=1)
        torch.testing.assert_close(total, torch.tensor([1.0, 0, 1, 0, 1, 0]))
        (grad,) = torch.autograd.grad(graph.edge_weight.square().sum(), score)
        assert bool(grad.isfinite().all())
        assert not grad[[1, 3, 6, 7]].any()


@pytest.mark.parametrize('hard', [False, True])
def test_large_scores_stay_finite(hard: bool) -> None:
    score = (1e3 * torch.randn(10)).requires_grad_()
    weight = sample(score, Law(3, 0.05, hard)).edge_weight
    weight.square().sum().backward()
    assert score.grad is not None
    assert bool(weight.isfinite().all())
    assert bool(score.grad.isfinite().all())


def test_small_temperatures_approach_hard_draws(to_matrix: Oracle) -> None:
    score = torch.randn(10, **DOUBLE)
    soft, hard = (
        to_matrix(*sample(score, Law(3, 1e-5, hard)), 6, 6) for hard in (False, True)
    )
    torch.testing.assert_close(soft, hard)


@given(st.permutations(range(5)), st.booleans(), st.booleans())
def test_permuting_the_nodes_and_their_noise(
    to_matrix: Oracle, order: list[int], hard: bool, replace: bool
) -> None:
    score = torch.randn(5, 5, **DOUBLE, generator=generator(1))
    time = torch.rand(5, 2 if replace else 1, 5, **DOUBLE, generator=generator(2))
    law, index = Law(2, 0.5, hard, replace, 3), torch.tensor(order)
    edges = all_pairs(5, 5)

    def weights(score: Tensor, time: Tensor) -> Tensor:
        with pytest.MonkeyPatch.context() as patch:
            for place in (module, relaxed_module):
                patch.setattr(
                    place, 'arrival_times', lambda size, **_: time.reshape(size).clone()
                )
            return to_matrix(*candidate_graph(score.flatten(), edges, 5, law), 5, 5)

    plain = weights(score, time)
    moved = weights(score[index][:, index], time[index][:, :, index])
    torch.testing.assert_close(moved, plain[index][:, index])


@pytest.mark.parametrize('k', [1, 2, 9, None])
def test_nearest_candidates(softmax: Callable[..., list[float]], k: int | None) -> None:
    score, tau = torch.randn(10, **DOUBLE), 0.4
    edges, weights = [], []
    for i in range(6):
        own = [e for e in range(10) if RAGGED[1, e] == i]
        best = sorted(sorted(own, key=lambda e: -float(score[e]))[:k])
        if best:
            weights += softmax([float(score[e]) / tau for e in best])
        edges += [[int(RAGGED[0, e]), i] for e in best]
    graph = nearest_candidates(score, RAGGED, 6, k, tau)
    assert graph.edge_index.t().tolist() == edges
    torch.testing.assert_close(graph.edge_weight, torch.tensor(weights, **DOUBLE))


@pytest.mark.parametrize('k', [2, None])
def test_nearest_candidates_gradient(k: int | None) -> None:
    score = torch.randn(10, **DOUBLE, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda score: nearest_candidates(score, RAGGED, 6, k, 0.5).edge_weight, score
    )


def test_nearest_candidates_equal_the_nearest_graph() -> None:
    score, edges = torch.randn(5, 7), all_pairs(5, 7)
    listed = nearest_candidates(score.flatten(), edges, 5, 3, 0.5)
    found = nearest_graph(matrix_scorer(score), 3, 0.5)
    assert torch.equal(listed.edge_index, found.edge_index)
    torch.testing.assert_close(listed.edge_weight, found.edge_weight)
