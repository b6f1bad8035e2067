import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import matrix_pairs, relaxed, replay, saved_tensors, seeded

from torch_geometric_gsl.ops.dense import (
    dense_graph,
    perturbed_arrivals,
    relaxed_weights,
)
from torch_geometric_gsl.ops.pair_scores import exclude


def gradient(score, grad, **kwargs):
    leaf = score.clone().requires_grad_()
    weight = relaxed_weights(leaf, generator=seeded(), **kwargs)
    return torch.autograd.grad(weight, leaf, grad)[0]


@pytest.mark.parametrize('size', [(4, 6), (6, 4), (1, 1), (3, 1)])
@pytest.mark.parametrize('k', [1, 4])
@pytest.mark.parametrize('tau', [0.1, 1.0])
@pytest.mark.parametrize('hard', [False, True])
def test_against_loops(size, k, tau, hard):
    score = torch.randn(size, dtype=torch.float64)
    noise = replay(5, size[0], k, size[1])
    out = relaxed_weights(score, k, tau, hard=hard, generator=seeded())
    torch.testing.assert_close(out, relaxed(score, noise, tau, hard))


@pytest.mark.parametrize('n', [4, 0])
@pytest.mark.parametrize('budget', [1, 700, 2**25])
def test_gradient(budget, n):
    score = torch.randn(n, 5, dtype=torch.float64, requires_grad=True)

    def weights(score):
        return relaxed_weights(score, 3, 0.5, generator=seeded(), memory_budget=budget)

    assert torch.autograd.gradcheck(weights, score)


def test_each_gradient_is_that_of_the_soft_weights():
    # Also a second one of the same graph, and whatever is drawn in between.
    score, grad, found = torch.randn(4, 5, requires_grad=True), torch.randn(4, 5), []
    for hard in (False, True):
        weight = relaxed_weights(score, 3, 0.4, hard=hard, generator=seeded())
        for _ in range(2):
            torch.rand(10)
            found += torch.autograd.grad(weight, score, grad, retain_graph=True)
    assert all(torch.equal(found[0], other) for other in found[1:])
    assert float(found[0].abs().max()) > 0.1


@given(st.integers(1, 3000), st.booleans())
def test_any_memory_budget_gives_the_same(budget, hard):
    score = torch.randn(7, 5, generator=seeded(1))
    grad = torch.randn(7, 5, generator=seeded(2))
    args = {'k': 3, 'tau': 0.3, 'hard': hard}
    expected = relaxed_weights(score, **args, generator=seeded())
    out = relaxed_weights(score, **args, generator=seeded(), memory_budget=budget)
    assert torch.equal(out, expected)
    assert torch.equal(
        gradient(score, grad, **args, memory_budget=budget),
        gradient(score, grad, **args),
    )


@pytest.mark.parametrize('hard', [False, True])
@pytest.mark.parametrize('tau', [0.01, 0.25])
def test_large_scores_and_excluded_loops_stay_finite(hard, tau):
    x = torch.randn(6, 6, requires_grad=True)
    score = exclude(1e3 * x, torch.arange(6))
    weight = relaxed_weights(score, 5, tau, hard=hard)
    torch.testing.assert_close(weight.sum(dim=1), torch.ones(6))
    assert not weight.diagonal().any()
    weight.square().sum().backward()
    assert bool(x.grad.isfinite().all())
    assert not x.grad.diagonal().any()


@pytest.mark.parametrize('hard', [False, True])
def test_no_tensor_of_all_draws_exists(meter, hard):
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


def test_only_the_scores_are_saved_for_backward():
    score = torch.randn(9, 9, requires_grad=True)
    with saved_tensors() as saved:
        relaxed_weights(score, 3, 0.5)
    assert [tensor.data_ptr() for tensor in saved] == [score.data_ptr()]


@pytest.mark.parametrize('size', [(3, 3), (2, 4), (4, 2), (1, 1), (0, 3)])
@pytest.mark.parametrize('loop', [True, False])
def test_dense_graph(size, loop):
    weight = torch.randn(size)
    last = size[1] - 1
    pairs = [
        (j, i)
        for i in range(size[0])
        for j in range(size[1])
        if loop or j != min(i, last)
    ]
    excluded = None if loop else torch.arange(size[0]).clamp(max=size[1] - 1)
    graph = dense_graph(weight, excluded)
    assert list(zip(*graph.edge_index.tolist(), strict=True)) == pairs
    assert graph.edge_weight.tolist() == [float(weight[i, j]) for j, i in pairs]


@pytest.mark.parametrize('kept', [1, 16, 40])
@pytest.mark.parametrize('scale', [1.0, 50.0, 1000.0])
@pytest.mark.parametrize('budget', [1, 2**25])
def test_arrivals_are_the_largest_perturbed_scores(kept, scale, budget):
    score = scale * torch.rand(5, 40, dtype=torch.float64)
    noise, pairs = replay(5, 5, 3, 40), matrix_pairs(score)
    found = perturbed_arrivals(pairs, 3, kept, generator=seeded(), memory_budget=budget)
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
