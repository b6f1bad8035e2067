from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from torch_geometric_gsl.ops import relaxed as module
from torch_geometric_gsl.ops.dense import (
    dense_graph,
    noise_free_weights,
    relaxed_weights,
)
from torch_geometric_gsl.ops.scorer import exclude

Oracle = Callable[..., Tensor]


def generator(seed: int = 5) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def gradient(score: Tensor, grad: Tensor, **kwargs: Any) -> Tensor:
    leaf = score.clone().requires_grad_()
    weight = relaxed_weights(leaf, generator=generator(), **kwargs)
    return torch.autograd.grad(weight, leaf, grad)[0]


@pytest.mark.parametrize('size', [(4, 6), (6, 4), (1, 1), (3, 1)])
@pytest.mark.parametrize('k', [1, 4])
@pytest.mark.parametrize('tau', [0.1, 1.0])
@pytest.mark.parametrize('hard', [False, True])
def test_against_loops(
    relaxed: Oracle,
    replay: Oracle,
    size: tuple[int, int],
    k: int,
    tau: float,
    hard: bool,
) -> None:
    score = torch.randn(size, dtype=torch.float64)
    noise = replay(5, size[0], k, size[1])
    out = relaxed_weights(score, k, tau, hard=hard, generator=generator())
    torch.testing.assert_close(out, relaxed(score, noise, tau, hard))


@pytest.mark.parametrize('hard', [False, True])
def test_single_precision_and_strides(
    relaxed: Oracle, replay: Oracle, hard: bool
) -> None:
    score = torch.randn(6, 4).t()
    noise = replay(5, 4, 3, 6, dtype=torch.float32)
    out = relaxed_weights(score, 3, 0.3, hard=hard, generator=generator())
    assert out.dtype == torch.float32
    expected = relaxed(score, noise, 0.3, hard)
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('budget', [1, 700, 2**25])
def test_gradient(budget: int) -> None:
    score = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)

    def weights(score: Tensor) -> Tensor:
        return relaxed_weights(
            score, 3, 0.5, generator=generator(), memory_budget=budget
        )

    assert torch.autograd.gradcheck(weights, score)


def test_straight_through_gradient_is_the_soft_one() -> None:
    score, grad = torch.randn(4, 5), torch.randn(4, 5)
    soft = gradient(score, grad, k=3, tau=0.4, hard=False)
    assert torch.equal(gradient(score, grad, k=3, tau=0.4, hard=True), soft)
    assert float(soft.abs().max()) > 0.1


def test_backward_twice_is_the_same() -> None:
    score = torch.randn(4, 5, requires_grad=True)
    weight = relaxed_weights(score, 3, 0.5, generator=generator())
    grad = torch.randn(4, 5)
    (first,) = torch.autograd.grad(weight, score, grad, retain_graph=True)
    torch.rand(10)
    (second,) = torch.autograd.grad(weight, score, grad)
    assert torch.equal(first, second)
    assert float(first.abs().max()) > 0


def test_backward_draws_nothing_from_the_global_generator() -> None:
    score = torch.randn(4, 5, requires_grad=True)
    state = torch.get_rng_state()
    weight = relaxed_weights(score, 3, 0.5)
    after = torch.get_rng_state()
    assert not torch.equal(state, after)
    weight.square().sum().backward()
    assert torch.equal(torch.get_rng_state(), after)
    # Its backward pass meant the noise of this forward pass.
    torch.set_rng_state(state)
    twin = score.detach().requires_grad_()
    weight = relaxed_weights(twin, 3, 0.5)
    torch.rand(3)
    weight.square().sum().backward()
    assert torch.equal(score.grad, twin.grad)  # type: ignore[arg-type]


@given(st.integers(1, 3000), st.booleans())
def test_any_memory_budget_gives_the_same(budget: int, hard: bool) -> None:
    score = torch.randn(7, 5, generator=generator(1))
    grad = torch.randn(7, 5, generator=generator(2))
    args = {'k': 3, 'tau': 0.3, 'hard': hard}
    expected = relaxed_weights(score, **args, generator=generator())
    out = relaxed_weights(score, **args, generator=generator(), memory_budget=budget)
    assert torch.equal(out, expected)
    assert torch.equal(
        gradient(score, grad, **args, memory_budget=budget),
        gradient(score, grad, **args),
    )


def test_small_temperatures_approach_hard_draws() -> None:
    score = torch.randn(5, 6, dtype=torch.float64)
    hard = relaxed_weights(score, 4, 1e-5, hard=True, generator=generator())
    soft = relaxed_weights(score, 4, 1e-5, generator=generator())
    torch.testing.assert_close(soft, hard)
    assert not torch.allclose(
        relaxed_weights(score, 4, 1.0, generator=generator()), hard
    )


def test_large_temperatures_approach_uniform_weights() -> None:
    weight = relaxed_weights(torch.randn(3, 4), 2, 1e6)
    torch.testing.assert_close(weight, torch.full((3, 4), 0.25), rtol=1e-4, atol=0)


@pytest.mark.parametrize('hard', [False, True])
def test_one_candidate_gets_everything(hard: bool) -> None:
    score = torch.randn(3, 1, requires_grad=True)
    weight = relaxed_weights(score, 2, 0.1, hard=hard)
    assert weight.tolist() == [[1.0]] * 3
    weight.sum().backward()
    assert score.grad is not None
    assert not score.grad.any()


def test_no_targets() -> None:
    score = torch.empty(0, 3, requires_grad=True)
    weight = relaxed_weights(score, 2, 0.5)
    weight.sum().backward()
    assert weight.shape == (0, 3)


@pytest.mark.parametrize('hard', [False, True])
@pytest.mark.parametrize('tau', [0.01, 0.25])
def test_large_scores_and_excluded_loops_stay_finite(hard: bool, tau: float) -> None:
    x = torch.randn(6, 6, requires_grad=True)
    score = exclude(1e3 * x, torch.arange(6))
    weight = relaxed_weights(score, 5, tau, hard=hard)
    torch.testing.assert_close(weight.sum(dim=1), torch.ones(6))
    assert not weight.diagonal().any()
    weight.square().sum().backward()
    assert x.grad is not None
    assert bool(x.grad.isfinite().all())
    assert not x.grad.diagonal().any()


@given(st.permutations(range(5)), st.booleans())
def test_permuting_the_nodes_and_their_noise(order: list[int], hard: bool) -> None:
    score = torch.randn(5, 5, dtype=torch.float64, generator=generator(1))
    time = torch.rand(5, 2, 5, dtype=torch.float64, generator=generator(2))
    index = torch.tensor(order)

    def weights(score: Tensor, time: Tensor) -> Tensor:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, 'arrival_times', lambda *_, **__: time.clone())
            return relaxed_weights(score, 2, 0.5, hard=hard)

    plain = weights(score, time)
    moved = weights(score[index][:, index], time[index][:, :, index])
    torch.testing.assert_close(moved, plain[index][:, index])


@pytest.mark.parametrize('hard', [False, True])
def test_no_tensor_of_all_draws_exists(meter: Any, hard: bool) -> None:
    n, k = 32, 8
    score = torch.randn(n, n, requires_grad=True)
    sizes = {}
    # Four temporaries of four rows with k draws each, in float32; and all rows.
    for budget in (4 * 4 * k * n * 4, 2**25):
        with meter() as found:
            weight = relaxed_weights(score, k, 0.5, hard=hard, memory_budget=budget)
            forward, found.largest = found.largest, 0
            weight.sum().backward()
        sizes[budget] = (forward, found.largest)
    small, large = sizes.values()
    assert small == (n * n, n * n)
    assert large == (k * n * n, k * n * n)


def test_only_the_scores_are_saved_for_backward() -> None:
    score, saved = torch.randn(9, 9, requires_grad=True), []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor.data_ptr())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        relaxed_weights(score, 3, 0.5)
    assert saved == [score.data_ptr()]


def test_no_second_derivative_is_invented() -> None:
    score = torch.randn(3, 3, requires_grad=True)
    weight = relaxed_weights(score, 3, 0.5)
    (grad,) = torch.autograd.grad(weight.square().sum(), score, create_graph=True)
    with pytest.raises(RuntimeError, match='once_differentiable'):
        grad.sum().backward()


@pytest.mark.parametrize('tau', [0.05, 2.0])
def test_noise_free_weights(softmax: Callable[..., list[float]], tau: float) -> None:
    score = torch.randn(4, 3, dtype=torch.float64)
    score[1, 2] = -torch.inf
    expected = [softmax([value / tau for value in row]) for row in score.tolist()]
    torch.testing.assert_close(
        noise_free_weights(score, tau), torch.tensor(expected, dtype=torch.float64)
    )


@pytest.mark.parametrize('size', [(3, 3), (2, 4), (4, 2), (1, 1), (0, 3)])
@pytest.mark.parametrize('loop', [True, False])
def test_dense_graph(size: tuple[int, int], loop: bool) -> None:
    weight = torch.randn(size)
    pairs = [(j, i) for i in range(size[0]) for j in range(size[1]) if loop or i != j]
    graph = dense_graph(weight, loop=loop)
    assert list(zip(*graph.edge_index.tolist(), strict=True)) == pairs
    assert graph.edge_weight.tolist() == [float(weight[i, j]) for j, i in pairs]


def test_dense_graph_passes_the_gradient_on() -> None:
    weight = torch.randn(3, 3, requires_grad=True)
    factor = torch.arange(1.0, 7)
    (dense_graph(weight, loop=False).edge_weight * factor).sum().backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [[0, 1, 2], [3, 0, 4], [5, 6, 0]]
