r"""Oracles of the tests: plain loops over lists of Python floats, and exact laws.

Noise is data here, ``noise[target][draw][source]``; what a function of the package
draws under a seed is replayed in that order.
"""

import math
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import permutations
from threading import Barrier

import torch
from scipy.stats import chi2

from torch_geometric_gsl.ops.noise import log_arrival_times
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.scan import stream_arrivals
from torch_geometric_gsl.ops.scores import Identity

# The increment of SplitMix64.
STEP = 0x9E3779B97F4A7C15
# Each statistical test rejects a true hypothesis with this probability, half of it
# for a fit that is too bad and half for one that is too good. Seeds are fixed.
ERROR_RATE = 1e-4


@contextmanager
def saved_tensors():
    """List the tensors that are saved inside for a backward pass."""
    saved = []
    keep = lambda tensor: saved.append(tensor) or tensor  # noqa: E731
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        yield saved


def seeded(seed=5):
    """Return a generator of its own."""
    return torch.Generator().manual_seed(seed)


def inner(u, v):
    """Return the inner product of two rows."""
    return math.fsum(a * b for a, b in zip(u, v, strict=True))


def unit(row):
    """Return a row of unit norm, or of zeros."""
    length = math.hypot(*row)
    return [value / length if length else 0.0 for value in row]


def sigmoid(value):
    """Return the logistic function of a number."""
    return 1 / (1 + math.exp(-value))


def replay(seed, *size, dtype=torch.float64):
    """Return the Gumbel noise that a seed gives in the order (target, draw, source)."""
    return -log_arrival_times(size, torch.empty(0, dtype=dtype), seeded(seed))


def matrix_pairs(score, *, loop=True):
    """Return given scores [targets, sources]: products with unit vectors, and exact."""
    num_targets, num_sources = score.shape
    excluded = None if loop else torch.arange(num_targets)
    shown = score.detach()
    if not loop:
        shown = shown[~torch.eye(num_targets, num_sources, dtype=torch.bool)]
    return PairScores(
        score,
        torch.eye(num_sources, dtype=score.dtype),
        Identity(),
        lower=float(shown.min()) if shown.numel() else 0.0,
        upper=float(shown.max()) if shown.numel() else 0.0,
        excluded=excluded,
    )


def noise_of(method, seed, score, races, num_arrivals):
    """Return the noise [n, races, N] that a seed gives, -inf for what comes too late.

    A negative infinity of a square matrix of scores excludes its diagonal.
    """
    num_targets, num_sources = score.shape
    if method == 'dense':
        return replay(seed, num_targets, races, num_sources)
    if method == 'pool':
        return keyed_noise(seed, num_targets, races, num_sources)
    is_without_loops = bool((score == -math.inf).any())
    pairs = matrix_pairs(score.clamp(min=-99), loop=not is_without_loops)
    num_arrivals = min(num_arrivals, pairs.available)
    arrivals = stream_arrivals(pairs, races, num_arrivals, generator=seeded(seed))
    noise = score.new_full((num_targets, races, num_sources), -math.inf)
    return noise.scatter_(2, arrivals.source, arrivals.noise)


def keyed_noise(seed, num_targets, races, num_sources):
    """Return the noise of a pool: one number for each seed, target, draw and source."""

    def mixed(word):  # SplitMix64.
        word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        word = (word ^ word >> 27) * 0x94D049BB133111EB % 2**64
        return word ^ word >> 31

    low, high = -(2**63), 2**63 - 1
    start = int(torch.randint(low, high, (), generator=seeded(seed)))
    noise = torch.empty(num_targets * races, num_sources, dtype=torch.float64)
    for race, source in torch.cartesian_prod(*map(torch.arange, noise.shape)).tolist():
        state = mixed((start + (race + 1) * STEP) % 2**64)
        word = mixed((state + (source + 1) * STEP) % 2**64)
        uniform = (word % 2**32 + 0.5) / 2**32
        noise[race, source] = -math.log(-math.log(uniform))
    return noise.view(num_targets, races, num_sources)


def softmax(values):
    """Return the softmax of some numbers."""
    largest = max(values)
    powers = [math.exp(value - largest) for value in values]
    return [power / sum(powers) for power in powers]


def relaxed(score, noise, tau, hard=False):
    """Average relaxed (or one-hot) draws under given noise."""
    return truncated(score, noise, tau, score.size(1), hard)


def truncated(score, noise, tau, num_arrivals, hard=False):
    """Average draws among the `num_arrivals` largest perturbed scores of each."""
    num_targets, draws, num_sources = noise.shape
    result = torch.zeros(num_targets, num_sources, dtype=torch.float64)
    for i in range(num_targets):
        for k in range(draws):
            value = [
                float(score[i, j]) + float(noise[i, k, j]) for j in range(num_sources)
            ]
            order = sorted(range(num_sources), key=lambda j: -value[j])[:num_arrivals]
            weights = softmax([value[j] / tau for j in order])
            if hard:
                weights = [float(rank == 0) for rank in range(len(order))]
            for j, weight in zip(order, weights, strict=True):
                result[i, j] += weight / draws
    return result


def law_statistic(counts, law):
    """Return the chi-square statistic of counts under a law, and its freedom.

    Rare outcomes count as one with the most frequent.
    """
    counts, law = (torch.as_tensor(x, dtype=torch.float64) for x in (counts, law))
    assert len(counts) == len(law)
    assert math.isclose(law.sum(), 1, abs_tol=1e-9)
    due = counts.sum() * law
    common = due > 8
    common[law.argmax()] = False
    observed, due = (
        torch.cat([x[common], x[~common].sum().view(1)]) for x in (counts, due)
    )
    return float(((observed - due) ** 2 / due).sum()), int(common.sum())


def check_law(counts, law):
    """Check counts against exact probabilities by a two-sided chi-square test."""
    level = chi2.cdf(*(statistic := law_statistic(counts, law)))
    assert ERROR_RATE / 2 < level < 1 - ERROR_RATE / 2, (statistic, level)


def at_once(function, threads=8, repeats=1):
    """Return what a function returns in threads that begin at the same moment."""
    barrier = Barrier(threads)

    def run(_):
        barrier.wait()
        return [function() for _ in range(repeats)]

    with ThreadPoolExecutor(threads) as pool:
        return [out for results in pool.map(run, range(threads)) for out in results]


def plackett_luce(score, k):
    """Return all ordered draws without replacement and their probabilities."""
    outcomes = list(permutations(range(len(score)), k))
    law = []
    for outcome in outcomes:
        left, probability = set(range(len(score))), 1.0
        for j in outcome:
            probability *= math.exp(score[j]) / sum(math.exp(score[o]) for o in left)
            left.remove(j)
        law.append(probability)
    return outcomes, law


def to_matrix(edge_index, edge_weight, num_targets, num_sources):
    """Return the matrix [targets, sources] of a list of weighted edges."""
    matrix = edge_weight.new_zeros(num_targets, num_sources)
    return matrix.index_put((edge_index[1], edge_index[0]), edge_weight, True)


def check_gradients(*modules):
    """Check that a gradient has reached every parameter."""
    for module in modules:
        for name, parameter in module.named_parameters():
            assert parameter.grad is not None, name
            assert bool(parameter.grad.isfinite().all()), name
            assert float(parameter.grad.abs().max()) > 0, name


def run_alone(*args, **environment):
    """Run Python in a process of its own, and return what it prints and warns."""
    done = subprocess.run(
        [sys.executable, '-W', 'error::RuntimeWarning', *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, 'OMP_NUM_THREADS': '1', **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def as_layout(x, layout):
    """Return dense or sparse features."""
    return x if layout == 'dense' else x.to_sparse_csr()
