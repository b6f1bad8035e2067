import math
from itertools import product

import pytest
import torch
from oracles import matrix_pairs, replay, seeded, to_matrix, truncated
from scipy.integrate import quad

from torch_geometric_gsl.ops.aggregate import drawn_graph
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.relax import DrawOptions
from torch_geometric_gsl.ops.scores import Response, identity
from torch_geometric_gsl.ops.stream import stream_arrivals
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


@pytest.mark.parametrize('kept', [1, 16, 40])
@pytest.mark.parametrize('scale', [1.0, 50.0, 1000.0])
def test_arrivals_are_the_largest_perturbed_scores(kept, scale):
    score = scale * torch.rand(5, 40, **DOUBLE)
    noise = replay(5, 5, 3, 40)
    found = stream_arrivals(matrix_pairs(score), 3, kept, generator=seeded())
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


@pytest.mark.parametrize('loop', [False, True])
def test_a_tail_of_all_sources_against_quadrature(loop):
    score, tau, noise = torch.randn(4, 4, **DOUBLE), 0.5, replay(5, 4, 2, 4)
    found = to_matrix(*sample(score, DrawOptions(2, tau, 2, 4), loop), 4, 4)
    expected = torch.zeros(4, 4, **DOUBLE)
    for i, k in product(range(4), range(2)):
        rate = {j: math.exp(score[i, j]) for j in range(4) if loop or i != j}
        time = {j: math.exp(-score[i, j] - noise[i, k, j]) for j in rate}
        first = sorted(rate, key=lambda j: time[j])[:2]
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
    score = 1e3 * torch.rand(6, 30, **DOUBLE)
    graph = sample(score, DrawOptions(8, 0.25, 8, hard=hard, replace=False))
    ranking = truncated(score, replay(5, 6, 1, 30), 1e3, 8)
    present = to_matrix(graph.edge_index, torch.ones(48), 6, 30)
    assert torch.equal(present.bool(), ranking.bool())
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
    n, k, kept, sizes, arrivals = 64, 4, 3, [], []
    # Whole numbers: products are exact, however many rows are multiplied at once.
    dst, src = torch.randint(-9, 9, (2, n, 2)).float()
    pairs = PairScores(dst, src, Response(identity))
    # Two temporaries of k draws and of the scores, for two rows in float32.
    for budget in (2 * 2 * (k + 1) * n * 4, 2**25):
        with meter() as found:
            args = {'generator': seeded(), 'memory_budget': budget}
            arrivals.append(stream_arrivals(pairs, k, kept, **args))
        sizes.append(found.largest)
    assert all(map(torch.equal, *(found[:3] for found in arrivals)))
    assert heights == [2] * 32 + [64]
    # The arrivals are the largest thing left: nothing has n * n entries.
    assert sizes == [n * k * kept, n * k * n]
