r"""Three functions draw neighbours; each must follow the exact distribution."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import combinations_with_replacement
from typing import Any

import pytest
import torch
from torch import Tensor

from torch_geometric_gsl.ops.candidates import candidate_graph
from torch_geometric_gsl.ops.dense import relaxed_weights
from torch_geometric_gsl.ops.scorer import Law, matrix_scorer
from torch_geometric_gsl.ops.stream import stream_graph

RUNS = 20_000
SCORE = torch.tensor([0.3, -1.0, 1.2, 0.0])


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def from_relaxed(law: Law) -> Tensor:
    args = {'hard': law.hard, 'generator': generator()}
    return relaxed_weights(SCORE.expand(RUNS, 4), law.k, law.tau, **args)


def from_stream(law: Law) -> Tensor:
    scorer = matrix_scorer(SCORE.expand(RUNS, 4))
    return as_matrix(*stream_graph(scorer, law, generator=generator()))


def from_candidates(law: Law) -> Tensor:
    target = torch.arange(RUNS).repeat_interleave(4)
    edges = torch.stack([torch.arange(4).repeat(RUNS), target])
    args = (SCORE.repeat(RUNS), edges, RUNS, law)
    return as_matrix(*candidate_graph(*args, generator=generator()))


def as_matrix(edge_index: Tensor, edge_weight: Tensor) -> Tensor:
    matrix = torch.zeros(RUNS, 4)
    return matrix.index_put((edge_index[1], edge_index[0]), edge_weight)


@pytest.mark.parametrize('kept', [2, 4])
@pytest.mark.parametrize('draw', [from_relaxed, from_stream, from_candidates])
def test_hard_draws(
    check_law: Callable[..., None], draw: Callable[[Law], Tensor], kept: int
) -> None:
    # The joint law of two draws: the right probabilities, and independent.
    weight = draw(Law(2, 0.5, hard=True, num_arrivals=kept))
    p = torch.softmax(SCORE.double(), 0).tolist()
    found = Counter(tuple(row) for row in (2 * weight).int().tolist())
    counts, law = [], []
    for i, j in combinations_with_replacement(range(4), 2):
        counts.append(found.pop(tuple((i == n) + (j == n) for n in range(4))))
        law.append(p[i] * p[j] * (1 if i == j else 2))
    assert not found
    check_law(counts, law)


@pytest.mark.parametrize('draw', [from_relaxed, from_stream, from_candidates])
def test_soft_draws_have_the_right_winner(
    check_law: Callable[..., None], draw: Callable[[Law], Tensor]
) -> None:
    winner = draw(Law(1, 0.5)).argmax(dim=1)
    counts = torch.bincount(winner, minlength=4).tolist()
    check_law(counts, torch.softmax(SCORE.double(), 0).tolist())


@pytest.mark.parametrize('k', [1, 2, 3])
@pytest.mark.parametrize('draw', [from_stream, from_candidates])
def test_distinct_draws(
    check_law: Callable[..., None],
    plackett_luce: Callable[..., Any],
    draw: Callable[[Law], Tensor],
    k: int,
) -> None:
    # Soft weights fall in the order of the draws, so the order is tested, too.
    weight = draw(Law(k, 1.0, replace=False))
    assert (weight > 0).sum(dim=1).tolist() == [k] * RUNS
    order = weight.argsort(dim=1, descending=True)[:, :k]
    outcomes, law = plackett_luce(SCORE.tolist(), k)
    counts = Counter(tuple(row) for row in order.tolist())
    assert set(counts) == set(outcomes)
    check_law([counts[outcome] for outcome in outcomes], law)
    # The probability that a candidate is among the k.
    for j in range(4):
        inclusion = sum(p for o, p in zip(outcomes, law, strict=True) if j in o)
        included = int((weight[:, j] > 0).sum())
        check_law([included, RUNS - included], [inclusion, 1 - inclusion])
