import pytest
import torch
from oracles import seeded

from torch_geometric_gsl.ops.cell_sum import sum_cell
from torch_geometric_gsl.ops.clusters import k_means
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.scores import Identity, unit_rows
from torch_geometric_gsl.ops.source_ranking import Messages

N, TAU = 400, 0.25


def make_cell(excludes=False, scale=5.0):
    """Messages, a cell of near targets, and its sums by their definition."""
    centre = unit_rows(torch.randn(8, 6, generator=seeded(), dtype=torch.double))
    noise = torch.randn(N, 6, generator=seeded(1), dtype=torch.double)
    x = unit_rows(centre[torch.arange(N) % 8] + 0.02 * noise)
    h = 1 + torch.randn(N, 3, generator=seeded(2), dtype=torch.double)
    every = torch.arange(N)
    pairs = PairScores(
        x, x, Identity(), 'dot', scale, excluded=every if excludes else None
    )
    near = every[every % 8 == 3]
    score = scale * x[near] @ x.t()
    if excludes:
        score[torch.arange(near.numel()), near] = -torch.inf
    expected = (score / TAU).softmax(dim=1) @ h
    return Messages.of(h, pairs, k_means(x, 8)), pairs.take(near), expected


@pytest.mark.parametrize('excludes', [False, True])
@pytest.mark.parametrize('scale', [0.2, 5.0])
@pytest.mark.parametrize('tolerance', [1e-2, 1e-3, 1e-6])
def test_sums_within_the_tolerance(tolerance, scale, excludes):
    messages, cell, expected = make_cell(excludes, scale)
    out, count = sum_cell(messages, cell, TAU, tolerance, 2**25)
    error = torch.linalg.vector_norm(out - expected, dim=1)
    assert (error <= tolerance * torch.linalg.vector_norm(expected, dim=1)).all()
    assert 0 <= count <= cell.dst.size(0) * N
    # Sharp scores leave few sources that matter.
    assert scale < 1 or count < 0.4 * cell.dst.size(0) * N


def test_a_tolerance_beyond_the_bounds_sums_every_pair():
    messages, cell, expected = make_cell()
    out, count = sum_cell(messages, cell, TAU, 1e-15, 2**25)
    assert count == cell.dst.size(0) * N
    assert torch.allclose(out, expected, rtol=1e-12)


def test_sums_do_not_depend_on_the_budget():
    messages, cell, _ = make_cell()
    out, count = sum_cell(messages, cell, TAU, 1e-3, 2**25)
    other, same = sum_cell(messages, cell, TAU, 1e-3, 2**12)
    assert count == same
    assert torch.allclose(out, other, rtol=1e-12)
