import math

import pytest
import torch
from oracles import seeded
from torch.nn import functional as F

from torch_geometric_gsl.ops.contrast import grouped_nt_xent, nt_xent

T = 0.2


def views(n=7, width=4, seed=0):
    shape = (2, n, width)
    return torch.randn(shape, generator=seeded(seed), dtype=torch.float64).unbind()


def dense_nt_xent(first, second, temperature=T):
    """The formula, a pair of nodes at a time."""
    n = len(first)
    score = [
        [float(F.cosine_similarity(a, b, dim=0).detach()) / temperature for b in second]
        for a in first
    ]
    total = 0.0
    for i in range(n):
        row = math.fsum(math.exp(score[i][j]) for j in range(n))
        column = math.fsum(math.exp(score[j][i]) for j in range(n))
        total += math.log(row) + math.log(column) - 2 * score[i][i]
    return total / (2 * n)


@pytest.mark.parametrize('n', [1, 2, 7])
def test_contrast_against_loops(n):
    found = nt_xent(*views(n), T)
    assert float(found) == pytest.approx(dense_nt_xent(*views(n)), abs=1e-12)
    assert (float(found) == pytest.approx(0, abs=1e-12)) == (n == 1)


def test_contrast_of_a_hand_computed_pair():
    eye = torch.eye(2, dtype=torch.float64)
    expected = math.log(1 + math.exp(-1 / T))
    assert float(nt_xent(eye, 3 * eye, T)) == pytest.approx(expected)


@pytest.mark.parametrize('memory_budget', [1, 3 * 7 * 8 * 2, 2**25])
def test_contrast_in_blocks_is_that_at_once(memory_budget):
    found = []
    for budget in (memory_budget, 2**40):
        leaves = [view.clone().requires_grad_() for view in views()]
        loss = nt_xent(*leaves, T, memory_budget=budget)
        found.append([loss.detach(), *torch.autograd.grad(loss, leaves)])
    torch.testing.assert_close(*found)


@pytest.mark.parametrize('memory_budget', [1, 2**25])
def test_gradient_of_the_contrast(memory_budget):
    leaves = [view.clone().requires_grad_() for view in views(5, 3)]
    assert torch.autograd.gradcheck(
        lambda *both: nt_xent(*both, T, memory_budget=memory_budget), leaves
    )


def test_contrast_in_groups():
    first, second = views()
    parts = [
        dense_nt_xent(first[rows], second[rows]) * (min(7, rows.stop) - rows.start) / 7
        for rows in (slice(0, 3), slice(3, 6), slice(6, 9))
    ]
    found = float(grouped_nt_xent(first, second, T, 3))
    assert found == pytest.approx(math.fsum(parts))
    assert found != pytest.approx(dense_nt_xent(first, second))
    at_once = float(grouped_nt_xent(first, second, T, 100))
    assert at_once == pytest.approx(dense_nt_xent(first, second))


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float32])
def test_contrast_of_sharp_scores(dtype):
    first, second = (view.to(dtype).requires_grad_() for view in views())
    loss = nt_xent(first, second, 0.001)
    loss.backward()
    assert loss.dtype == dtype
    assert bool(loss.isfinite() & first.grad.isfinite().all())


def test_what_is_left_over_is_a_group_of_its_own():
    first, second = views()
    # A group of one node has nothing to be told from.
    found = grouped_nt_xent(first, second, T, 6)
    expected = dense_nt_xent(first[:6], second[:6]) * 6 / 7
    assert float(found) == pytest.approx(expected)
    whole = grouped_nt_xent(first, second, T, None)
    assert float(whole) == pytest.approx(dense_nt_xent(first, second))


def test_contrast_of_no_nodes_is_zero():
    first, second = (view.requires_grad_() for view in views(0))
    for loss in (
        nt_xent(first, second, T),
        grouped_nt_xent(first, second, T, None),
    ):
        loss.backward()
        assert loss.item() == 0
        assert first.grad.shape == second.grad.shape == (0, 4)


def test_lengths_of_rows_do_not_matter():
    first, second = views()
    scaled = nt_xent(1e9 * first, 1e-9 * second, T)
    torch.testing.assert_close(scaled, nt_xent(first, second, T))


def test_blocks_bound_what_is_computed_at_once(meter):
    first, second = (view.requires_grad_() for view in views(600))
    for rows in (60, 200):
        with meter() as measured:
            nt_xent(first, second, T, memory_budget=3 * 600 * 8 * rows).backward()
        assert measured.largest == 600 * rows
