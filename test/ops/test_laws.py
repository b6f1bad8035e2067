r"""Four methods draw neighbours; each must follow the exact distribution."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import combinations_with_replacement

import pytest
import torch
from torch import Tensor

from oracles import check_law, matrix_pairs, plackett_luce, seeded, to_matrix
from torch_geometric_gsl.ops.aggregate import drawn_graph
from torch_geometric_gsl.ops.dense import relaxed_weights
from torch_geometric_gsl.ops.listed import candidate_graph
from torch_geometric_gsl.ops.race import num_proposals, race_arrivals
from torch_geometric_gsl.ops.relax import DrawOptions
from torch_geometric_gsl.ops.stream import stream_arrivals

RUNS = 20_000
SCORE = torch.tensor([0.3, -1.0, 1.2, 0.0])
Draw = Callable[[DrawOptions], Tensor]


@pytest.fixture(autouse=True)
def _eager(monkeypatch):
    monkeypatch.setenv('TORCH_COMPILE_DISABLE', '1')  # It takes longer than the races.


def dense(options):
    k, tau, hard = options.k, options.tau, options.hard
    score = SCORE.expand(RUNS, 4)
    return relaxed_weights(score, k, tau, hard=hard, generator=seeded(0))


def stream(options):
    pairs = matrix_pairs(SCORE.expand(RUNS, 4))
    races, kept = options.num_races, options.num_arrivals
    arrivals = stream_arrivals(pairs, races, kept, generator=seeded(0))
    return to_matrix(*drawn_graph(pairs, arrivals, None, options), RUNS, 4)


def race(options):
    pairs = matrix_pairs(SCORE.expand(RUNS, 4))
    number = num_proposals(options.num_arrivals, 2.2, replace=options.replace)
    arrivals = race_arrivals(pairs, options, int(number), generator=seeded(0))
    return to_matrix(*drawn_graph(pairs, arrivals, None, options), RUNS, 4)


def listed(options):
    target = torch.arange(RUNS).repeat_interleave(4)
    edges = torch.stack([torch.arange(4).repeat(RUNS), target])
    score = SCORE.repeat(RUNS)
    graph = candidate_graph(score, edges, RUNS, options, generator=seeded(0))
    return to_matrix(*graph, RUNS, 4)


@pytest.mark.parametrize('kept', [2, 4])
@pytest.mark.parametrize('draw', [dense, stream, race, listed])
def test_hard_draws(draw, kept):
    # The joint law of two draws: the right probabilities, and independent.
    weight = draw(DrawOptions(2, 0.5, kept, hard=True))
    p = torch.softmax(SCORE.double(), 0).tolist()
    found = Counter(tuple(row) for row in (2 * weight).int().tolist())
    counts, law = [], []
    for i, j in combinations_with_replacement(range(4), 2):
        counts.append(found.pop(tuple((i == n) + (j == n) for n in range(4))))
        law.append(p[i] * p[j] * (1 if i == j else 2))
    assert not found
    check_law(counts, law)


@pytest.mark.parametrize('draw', [dense, stream, race, listed])
def test_soft_draws_have_the_right_winner(draw):
    winner = draw(DrawOptions(1, 0.5, 4)).argmax(dim=1)
    counts = torch.bincount(winner, minlength=4).tolist()
    check_law(counts, torch.softmax(SCORE.double(), 0).tolist())


@pytest.mark.parametrize('k', [1, 2, 3])
@pytest.mark.parametrize('draw', [stream, race, listed])
def test_distinct_draws(draw, k):
    # Soft weights fall in the order of the draws, so the order is tested, too.
    weight = draw(DrawOptions(k, 1.0, k, replace=False))
    assert (weight > 0).sum(dim=1).tolist() == [k] * RUNS
    order = weight.argsort(dim=1, descending=True)[:, :k]
    outcomes, law = plackett_luce(SCORE.tolist(), k)
    counts = Counter(tuple(row) for row in order.tolist())
    assert set(counts) == set(outcomes)
    check_law([counts[outcome] for outcome in outcomes], law)
