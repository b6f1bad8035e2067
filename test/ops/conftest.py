r"""Oracles of the sampler: plain loops over lists of Python floats.

Noise is data here, ``noise[target][draw][source]``; what a function of the package
draws under a seed is replayed in that order.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from itertools import permutations

import pytest
import torch
from scipy.stats import chi2
from torch import Tensor

from torch_geometric_gsl.ops.noise import arrival_times

# Each statistical test rejects a true hypothesis with this probability, half of it
# for a fit that is too bad and half for one that is too good. Seeds are fixed.
ERROR_RATE = 1e-4


def _replay(seed: int, *size: int, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    time = arrival_times(
        size, dtype=dtype, device=torch.device('cpu'), generator=generator
    )
    return -time.log()


def _softmax(values: Sequence[float]) -> list[float]:
    largest = max(values)
    powers = [math.exp(value - largest) for value in values]
    return [power / sum(powers) for power in powers]


def _relaxed(score: Tensor, noise: Tensor, tau: float, hard: bool = False) -> Tensor:
    num_targets, draws, num_sources = noise.shape
    result = [[0.0] * num_sources for _ in range(num_targets)]
    for i in range(num_targets):
        for k in range(draws):
            values = [
                (float(score[i, j]) + float(noise[i, k, j])) / tau
                for j in range(num_sources)
            ]
            weights = _softmax(values)
            if hard:
                winner = values.index(max(values))
                weights = [float(j == winner) for j in range(num_sources)]
            for j in range(num_sources):
                result[i][j] += weights[j] / draws
    return torch.tensor(result, dtype=torch.float64).view(num_targets, num_sources)


def _truncated(score: Tensor, noise: Tensor, tau: float, kept: int) -> Tensor:
    num_targets, draws, num_sources = noise.shape
    result = torch.zeros(num_targets, num_sources, dtype=torch.float64)
    for i in range(num_targets):
        for k in range(draws):
            value = [float(score[i, j] + noise[i, k, j]) for j in range(num_sources)]
            order = sorted(range(num_sources), key=lambda j: -value[j])[:kept]
            weights = _softmax([value[j] / tau for j in order])
            for j, weight in zip(order, weights, strict=True):
                result[i, j] += weight / draws
    return result


def _check_law(counts: Sequence[float], probability: Sequence[float]) -> None:
    assert len(counts) == len(probability)
    assert math.isclose(sum(probability), 1, abs_tol=1e-9)
    total = sum(counts)
    assert min(probability) * total > 5
    statistic = sum(
        (count - total * p) ** 2 / (total * p)
        for count, p in zip(counts, probability, strict=True)
    )
    level = chi2.cdf(statistic, len(counts) - 1)
    assert ERROR_RATE / 2 < level < 1 - ERROR_RATE / 2, (statistic, level)


def _plackett_luce(
    score: Sequence[float], k: int
) -> tuple[list[tuple[int, ...]], list[float]]:
    outcomes = list(permutations(range(len(score)), k))
    law = []
    for outcome in outcomes:
        left, probability = set(range(len(score))), 1.0
        for j in outcome:
            probability *= math.exp(score[j]) / sum(math.exp(score[o]) for o in left)
            left.remove(j)
        law.append(probability)
    return outcomes, law


def _to_matrix(
    edge_index: Tensor, edge_weight: Tensor, num_targets: int, num_sources: int
) -> Tensor:
    matrix = edge_weight.new_zeros(num_targets, num_sources)
    return matrix.index_put((edge_index[1], edge_index[0]), edge_weight, True)


def _run_alone(*args: str, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, '-W', 'error::RuntimeWarning', *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, 'OMP_NUM_THREADS': '1', **environment},
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope='session')
def run_alone() -> Callable[..., None]:
    """Runs Python in a process of its own: Triton reads its variables once."""
    return _run_alone


@pytest.fixture(scope='session')
def replay() -> Callable[..., Tensor]:
    """The Gumbel noise that a seed gives in the order (target, draw, source)."""
    return _replay


@pytest.fixture(scope='session')
def softmax() -> Callable[..., list[float]]:
    return _softmax


@pytest.fixture(scope='session')
def relaxed() -> Callable[..., Tensor]:
    """The average of relaxed (or one-hot) draws under given noise."""
    return _relaxed


@pytest.fixture(scope='session')
def truncated() -> Callable[..., Tensor]:
    """As ``relaxed``, among the largest perturbed scores of each draw."""
    return _truncated


@pytest.fixture(scope='session')
def check_law() -> Callable[..., None]:
    """A two-sided chi-square test of counts against exact probabilities."""
    return _check_law


@pytest.fixture(scope='session')
def plackett_luce() -> Callable[..., tuple[list[tuple[int, ...]], list[float]]]:
    """All ordered draws without replacement and their probabilities."""
    return _plackett_luce


@pytest.fixture(scope='session')
def to_matrix() -> Callable[..., Tensor]:
    """The matrix [targets, sources] of a list of weighted edges."""
    return _to_matrix
