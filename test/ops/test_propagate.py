from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from torch_geometric_gsl.ops.candidates import candidate_graph
from torch_geometric_gsl.ops.dense import dense_graph, relaxed_weights
from torch_geometric_gsl.ops.propagate import (
    noise_free_sum,
    weighted_sum,
)
from torch_geometric_gsl.ops.scorer import Law, matrix_scorer
from torch_geometric_gsl.ops.scores import unit_rows
from torch_geometric_gsl.ops.stream import stream_graph
from torch_geometric_gsl.typing import SampledGraph


def naive_sum(h: Tensor, edges: Tensor, weight: Tensor, num_targets: int) -> Tensor:
    result = [[0.0] * h.size(1) for _ in range(num_targets)]
    for (source, target), w in zip(edges.t().tolist(), weight.tolist(), strict=True):
        for channel, value in enumerate(h[source].tolist()):
            result[target][channel] += w * value
    return torch.tensor(result, dtype=torch.float64).view(num_targets, h.size(1))


def random_edges(seed: int, num_sources: int, num_targets: int, size: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    source = torch.randint(num_sources, (size,), generator=generator)
    target = torch.randint(num_targets, (size,), generator=generator)
    return torch.stack([source, target.sort().values])


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 20), st.integers(0, 2**32))
def test_weighted_sum(num_sources: int, num_targets: int, size: int, seed: int) -> None:
    # Repeated edges, targets without any edge, no edges at all.
    edges = random_edges(seed, num_sources, num_targets, size)
    generator = torch.Generator().manual_seed(seed)
    h = torch.randn(num_sources, 3, dtype=torch.float64, generator=generator)
    weight = torch.randn(size, dtype=torch.float64, generator=generator)
    out = weighted_sum(h, edges, weight, num_targets)
    torch.testing.assert_close(out, naive_sum(h, edges, weight, num_targets))


def test_weighted_sum_gradient() -> None:
    edges = random_edges(0, 4, 3, 9)
    h = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(9, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda h, weight: weighted_sum(h, edges, weight, 3), (h, weight)
    )


def test_weighted_sum_takes_the_type_of_the_messages() -> None:
    edges = random_edges(0, 4, 3, 9)
    h, weight = torch.randn(4, 2, dtype=torch.float64), torch.rand(9)
    out = weighted_sum(h, edges, weight, 3)
    assert out.dtype == torch.float64
    torch.testing.assert_close(out, naive_sum(h, edges, weight, 3))


def test_weighted_sum_of_non_contiguous_messages() -> None:
    edges = random_edges(0, 4, 3, 9)
    h, weight = torch.randn(2, 4, dtype=torch.float64).t(), torch.rand(9).double()
    assert not h.is_contiguous()
    torch.testing.assert_close(
        weighted_sum(h, edges, weight, 3), naive_sum(h, edges, weight, 3)
    )


@pytest.mark.parametrize('size', [(3, 5), (1, 1), (0, 2)])
@pytest.mark.parametrize('budget', [1, 400, 2**25])
def test_noise_free_sum(
    softmax: Callable[..., list[float]], size: tuple[int, int], budget: int
) -> None:
    score, tau = torch.randn(size, dtype=torch.float64), 0.3
    h = torch.randn(size[1], 2, dtype=torch.float64)
    expected = []
    for row in score.tolist():
        weights = softmax([value / tau for value in row])
        expected.append(
            [
                sum(w * float(h[j, c]) for j, w in enumerate(weights))
                for c in range(h.size(1))
            ]
        )
    out = noise_free_sum(h, matrix_scorer(score), tau, memory_budget=budget)
    torch.testing.assert_close(
        out, torch.tensor(expected, dtype=torch.float64).view(size[0], 2)
    )


def test_noise_free_sum_leaves_excluded_sources_out() -> None:
    h = torch.tensor([[1e6], [1.0], [1.0]])
    score = torch.randn(3, 3).fill_diagonal_(50)
    out = noise_free_sum(h, matrix_scorer(score, loop=False), 1.0)
    assert float(out[0]) == pytest.approx(1)


def test_noise_free_sum_gradient() -> None:
    score = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    h = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)

    def sums(h: Tensor, score: Tensor) -> Tensor:
        return noise_free_sum(h, matrix_scorer(score), 0.5, memory_budget=256)

    assert torch.autograd.gradcheck(sums, (h, score))


def test_noise_free_sum_reads_small_blocks() -> None:
    score, seen = torch.randn(7, 4), []

    def rows(block: slice) -> Tensor:
        seen.append(block.stop - block.start)
        return score[block]

    scorer = matrix_scorer(score)._replace(rows=rows)
    # 4 temporaries * 4 sources * 4 bytes a row.
    noise_free_sum(torch.randn(4, 2), scorer, 1.0, memory_budget=128)
    assert seen == [2, 2, 2, 1]


def test_noise_free_sum_computes_weights_again() -> None:
    n, saved = 32, []
    score = torch.randn(n, n, requires_grad=True)
    h = torch.randn(n, 2, requires_grad=True)
    scorer, grads = matrix_scorer(score), []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor.numel())
        return tensor

    for budget in (2 * 4 * n * 4, 2**25):  # Two rows, or all at once.
        hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
        with hooks:
            out = noise_free_sum(h, scorer, 0.5, memory_budget=budget)
        grads.append(torch.autograd.grad(out.square().sum(), (score, h)))
        if budget < 2**25:
            assert max(saved, default=0) < n * n
    assert max(saved) == n * n
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision_messages(dtype: torch.dtype) -> None:
    edges = random_edges(0, 4, 3, 9)
    h, weight = torch.randn(4, 2).to(dtype).requires_grad_(), torch.rand(9)
    out = weighted_sum(h, edges, weight, 3)
    assert out.dtype == dtype
    # Summed in single precision and rounded once.
    expected = naive_sum(h.detach(), edges, weight, 3)
    atol = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=atol)
    out.sum().backward()
    assert h.grad is not None
    assert h.grad.dtype == dtype


def streamed(score: Tensor, law: Law, generator: torch.Generator) -> SampledGraph:
    return stream_graph(matrix_scorer(score), law, generator=generator)


def dense(score: Tensor, law: Law, generator: torch.Generator) -> SampledGraph:
    weight = relaxed_weights(score, law.k, law.tau, hard=law.hard, generator=generator)
    return dense_graph(weight)


def listed(score: Tensor, law: Law, generator: torch.Generator) -> SampledGraph:
    # Each target has itself and about half of the others as candidates.
    keep = torch.rand(score.shape, generator=generator) < 0.5
    target, source = keep.fill_diagonal_(True).nonzero(as_tuple=True)
    edges = torch.stack([source, target])
    return candidate_graph(
        score[target, source], edges, score.size(0), law, generator=generator
    )


@pytest.mark.parametrize('sample', [streamed, dense, listed])
@given(
    st.integers(1, 8),
    st.integers(1, 4),
    st.sampled_from([0.01, 0.3, 2.0]),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_theorem_1(
    sample: Callable[[Tensor, Law, torch.Generator], SampledGraph],
    num_nodes: int,
    k: int,
    spread: float,
    hard: bool,
    seed: int,
) -> None:
    # Unit rows: if |h_i - h_j| <= eps for all j then |sum_j a_ij h_j - h_i| <= eps.
    generator = torch.Generator().manual_seed(seed)
    centre = torch.randn(1, 3, dtype=torch.float64, generator=generator)
    noise = torch.randn(num_nodes, 3, dtype=torch.float64, generator=generator)
    h = unit_rows(centre + spread * noise)
    law = Law(k, tau=0.5, hard=hard, num_arrivals=4)
    graph = sample(3 * h @ h.t(), law, generator).prune()
    out = weighted_sum(h, *graph, num_targets=num_nodes)
    for i in range(num_nodes):
        sampled = graph.edge_index[0, graph.edge_index[1] == i].tolist()
        assert sampled
        eps = max(math.dist(h[i].tolist(), h[j].tolist()) for j in sampled)
        assert math.dist(out[i].tolist(), h[i].tolist()) <= eps + 1e-12
