import math
from itertools import product

import pytest
import torch
from oracles import matrix_pairs, seeded, to_matrix
from scipy.integrate import quad

from torch_geometric_gsl.ops.aggregate import drawn_graph
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.relax import DrawOptions
from torch_geometric_gsl.ops.scan import stream_arrivals
from torch_geometric_gsl.ops.scores import Identity
from torch_geometric_gsl.ops.tail import draw_tail

DOUBLE = {'dtype': torch.float64}


def sample(score, options, loop=True, **kwargs):
    """Draw the graph of the first arrivals, and of a tail if there is to be one."""
    pairs = matrix_pairs(score, loop=loop)
    kept = min(options.num_arrivals, pairs.available)
    races = options.num_races
    arrivals = stream_arrivals(pairs, races, kept, generator=seeded(), **kwargs)
    tail = draw_tail(pairs, options, generator=seeded(6))
    return drawn_graph(pairs, arrivals, tail, options)


@pytest.mark.parametrize('kept', [10, 20])
def test_one_seed_gives_the_first_of_the_same_arrivals(kept):
    # Of 40 candidates all have a time of their own: no other is proposed.
    pairs = matrix_pairs(torch.rand(5, 40, **DOUBLE))
    every = stream_arrivals(pairs, 3, 40, generator=seeded())
    assert every.source.shape == every.noise.shape == (5, 3, 40)
    value = (
        pairs.dst.unsqueeze(1).expand(5, 3, 40).gather(2, every.source) + every.noise
    )
    assert (value.diff(dim=-1) < 0).all()
    torch.testing.assert_close(every.horizon, -value[..., -1])
    found = stream_arrivals(pairs, 3, kept, generator=seeded())
    assert torch.equal(found.source, every.source[..., :kept])
    # All arrivals until the time of the last one are listed.
    torch.testing.assert_close(found.horizon, -value[..., kept - 1])


@pytest.mark.parametrize('loop', [False, True])
def test_a_tail_of_all_sources_against_quadrature(loop):
    score, tau = torch.randn(4, 4, **DOUBLE), 0.5
    drawn = stream_arrivals(matrix_pairs(score, loop=loop), 2, 2, generator=seeded())
    found = to_matrix(*sample(score, DrawOptions(2, tau, 2, 4), loop), 4, 4)
    expected = torch.zeros(4, 4, **DOUBLE)
    for i, k in product(range(4), range(2)):
        rate = {j: math.exp(score[i, j]) for j in range(4) if loop or i != j}
        first, noise = drawn.source[i, k].tolist(), drawn.noise[i, k].tolist()
        time = {
            j: math.exp(-score[i, j] - g) for j, g in zip(first, noise, strict=True)
        }
        horizon, weight = time[first[1]], dict.fromkeys(rate, 0.0)
        for j in first:
            weight[j] += time[j] ** (-1 / tau)
        for j in rate.keys() - first:  # What has arrived arrives no more.

            def density(t, r=rate[j], start=horizon):
                return t ** (-1 / tau) * r * math.exp(-r * (t - start))

            weight[j] += quad(density, horizon, math.inf)[0]
        for j, w in weight.items():
            expected[i, j] += w / sum(weight.values()) / 2
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('hard', [False, True])
def test_distinct_draws_at_a_large_scale(hard):
    # The k largest perturbed scores, however far they lie below the largest.
    score = 1e3 * torch.stack([torch.randperm(60) for _ in range(6)]).double()
    graph = sample(score, DrawOptions(8, 0.25, 8, hard=hard, replace=False))
    present = to_matrix(graph.edge_index, torch.ones(48), 6, 60)
    assert torch.equal(present.bool(), score >= 52e3)
    if hard:
        assert graph.edge_weight.tolist() == [1 / 8] * 48


@pytest.mark.parametrize('hard', [False, True])
@pytest.mark.parametrize('replace', [False, True])
def test_large_scores_stay_finite_and_loops_out(hard, replace):
    x = torch.randn(6, 6, requires_grad=True)
    score = 1e3 * x + 1e4 * torch.eye(6)
    graph = sample(score, DrawOptions(5, 0.25, 5, 0, hard, replace), loop=False)
    source, target = graph.edge_index
    assert not bool((source == target).any())
    # All five others arrive, and nothing else.
    assert torch.bincount(target).tolist() == [5] * 6
    total = torch.zeros(6).index_add(0, target, graph.edge_weight)
    torch.testing.assert_close(total, torch.ones(6))
    graph.edge_weight.square().sum().backward()
    assert bool(x.grad.isfinite().all())


def test_small_budgets_give_small_blocks(meter, heights):
    n, k, kept, sizes, arrivals = 512, 2, 1, [], []
    # Whole numbers: products are exact, however many rows are multiplied at once.
    dst, src = torch.randint(-9, 9, (2, n, 2)).float()
    pairs = PairScores(dst, src, Identity())
    # Scores and rates of two rows in float32, and ten proposals of each draw.
    for budget in (2 * 4 * (4 * n + 64 * k * 10), 2**25):
        with meter() as found:
            args = {'generator': seeded(), 'memory_budget': budget}
            arrivals.append(stream_arrivals(pairs, k, kept, **args))
        sizes.append(found.largest)
    assert all(map(torch.equal, *(found[:3] for found in arrivals)))
    assert heights == [2] * 256 + [512]
    # Two draws look into ten blocks of 32; nothing has n * n entries.
    assert sizes == [2 * k * 10 * 32, n * k * 10 * 32]
