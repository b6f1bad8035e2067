"""The nearest sources, and sums over all of them: exact, by tiles, and estimated."""

import pytest
import torch
from oracles import matrix_pairs, saved_tensors, seeded
from responses import RESPONSES, bounded_pairs, random_response
from responses import noise_free as definition

from torch_geometric_gsl.ops import noise_free as module
from torch_geometric_gsl.ops.noise_free import (
    nearest_graph,
    noise_free_sum,
    sampled_noise_free_sum,
    score_spread,
)
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.scores import unit_rows

DOUBLE = {'dtype': torch.float64}


def test_the_nearest_are_others_and_carry_the_gradient():
    score = torch.randn(5, 5, **DOUBLE).fill_diagonal_(9).requires_grad_()
    source, target = nearest_graph(matrix_pairs(score, loop=False), 9, 0.5).edge_index
    assert source.numel() == 20
    assert not bool((source == target).any())
    assert nearest_graph(matrix_pairs(score[:0]), 3, 0.5).edge_weight.numel() == 0
    assert torch.autograd.gradcheck(
        lambda score: nearest_graph(matrix_pairs(score), 3, 0.5).edge_weight, score
    )


def test_noise_free_sum_gradient():
    score = torch.randn(5, 4, **DOUBLE, requires_grad=True)
    h = torch.randn(4, 2, **DOUBLE, requires_grad=True)

    def sums(h, score):
        return noise_free_sum(h, matrix_pairs(score)._replace(memory=256), 0.5)

    assert torch.autograd.gradcheck(sums, (h, score))


def test_noise_free_sum_computes_weights_again():
    n, grads = 32, []
    score = torch.randn(n, n, requires_grad=True)
    h = torch.randn(n, 2, requires_grad=True)
    pairs = matrix_pairs(score)
    # Not the scores as they are given, nor the unit vectors.
    inputs = {score.data_ptr(), pairs.src.data_ptr()}
    for budget in (2 * 4 * n * 4, 2**25):  # Two rows, or all at once.
        with saved_tensors() as saved:
            out = noise_free_sum(h, pairs._replace(memory=budget), 0.5)
        grads.append(torch.autograd.grad(out.square().sum(), (score, h)))
        sizes = [x.numel() for x in saved if x.data_ptr() not in inputs]
        assert (max(sizes, default=0) == n * n) == (budget == 2**25)
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize('budget', [1, 2**25])
@pytest.mark.parametrize('num_samples', [3, 5, 20])
def test_sampled_noise_free_sum(num_samples, budget):
    # Its gradient is that of the sum over the drawn sources; the others have none.
    score = torch.randn(20, 20, **DOUBLE, requires_grad=True)
    h = torch.randn(20, 2, **DOUBLE, requires_grad=True)
    pairs, state = matrix_pairs(score, loop=False), torch.get_rng_state()
    args = h, pairs._replace(memory=budget), 0.5, num_samples
    out, error = sampled_noise_free_sum(*args)
    assert torch.equal(state, torch.get_rng_state())
    source = torch.randperm(20, generator=seeded(0))[:num_samples]
    expected = (pairs.rows()[:, source] / 0.5).softmax(dim=1) @ h[source]
    torch.testing.assert_close(out, expected)
    factor = torch.randn(20, 2, **DOUBLE)
    torch.testing.assert_close(
        torch.autograd.grad(out, (score, h), factor),
        torch.autograd.grad(expected, (score, h), factor),
    )
    # All targets tell the error, without a gradient; of all sources there is none.
    missed = (definition(h, pairs, 0.5) - expected).detach()
    assert not error.requires_grad
    torch.testing.assert_close(
        error, missed.square().mean().sqrt(), atol=1e-12, rtol=1e-9
    )
    assert (float(error) < 1e-12) == (num_samples == 20)


@pytest.mark.parametrize(('scale', 'shift'), [(1.0, 0.0), (10.0, 0.0), (10.0, 1e4)])
def test_the_error_is_that_of_all_targets(scale, shift):
    # Where scores are sharp, a target has few heavy sources, and a sample lacks them;
    # where messages lie far from zero, their squares have lost what tells them apart.
    generator = seeded(0)
    x = torch.nn.functional.normalize(torch.randn(1500, 8, generator=generator))
    h = torch.randn(1500, 16, generator=generator) + shift
    pairs = matrix_pairs(scale * x @ x.t(), loop=False)
    out, error = sampled_noise_free_sum(h, pairs, 0.25, 300)
    exact = noise_free_sum(
        h.double(), matrix_pairs(scale * x.double() @ x.double().t(), loop=False), 0.25
    )
    expected = float((out - exact).square().mean().sqrt())
    # The targets looked at are a fifth of all.
    assert 0.85 < float(error) / expected < 1.15


def make(formula, scale=1.0, excluded=None, dtype=torch.float64):
    dst, src = (unit_rows(torch.randn(count, 4, dtype=dtype)) for count in (9, 13))
    params = random_response(formula, 9, least=0.1, dtype=dtype).params
    pairs = bounded_pairs(formula, dst, src, scale, params)
    # Not less than the squared distance of opposites.
    return pairs._replace(lower=max(pairs.lower, -4 * scale), excluded=excluded)


@pytest.fixture
def tiles(monkeypatch, spy):
    """The tiles of sums of any size; they have at most five sources."""
    monkeypatch.setattr(module, '_MIN_PAIRS', 0)
    monkeypatch.setattr(module, '_TILE', 5)
    return spy(PairScores, 'weights', lambda weight, *_: tuple(weight.shape[:2]))


@pytest.mark.parametrize('scale', [1.0, 3.0])
@pytest.mark.parametrize('has_loops', [True, False])
@pytest.mark.parametrize('formula', RESPONSES)
@torch.no_grad()
def test_equals_the_definition(formula, has_loops, scale, tiles):
    # The excluded sources stand at the edges of tiles, too.
    excluded = None if has_loops else torch.tensor([0, 4, 5, 9, 10, 12, 3, 3, 7])
    pairs = make(formula, scale=scale, excluded=excluded)
    h = torch.randn(13, 3, **DOUBLE)
    budget = 4 * 5 * 8 * 2  # Two rows of five sources.
    out = noise_free_sum(h, pairs._replace(memory=budget), 0.3)
    torch.testing.assert_close(out, definition(h, pairs, 0.3))
    assert tiles == 4 * [(2, 5), (2, 5), (2, 3)] + [(1, 5), (1, 5), (1, 3)]


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float64])
@torch.no_grad()
def test_takes_the_type_of_the_messages(dtype, tiles):
    pairs = make('gaussian', dtype=torch.float32)
    h = torch.randn(13, 2).to(dtype)
    out = noise_free_sum(h, pairs, 0.25)
    assert out.dtype == dtype
    assert tiles
    expected, rtol = definition(h, pairs, 0.25), max(1e-5, 2 * torch.finfo(dtype).eps)
    torch.testing.assert_close(out.float(), expected.float(), rtol=rtol, atol=1e-6)


@torch.no_grad()
def test_a_wide_range_of_scores_neither_overflows_nor_vanishes(tiles):
    h = 1e-15 * torch.randn(13, 2)  # Small messages, not to be rounded to zero.
    pairs = make('identity', scale=9.9, dtype=torch.float32)
    pairs = pairs._replace(lower=-9.9, upper=0.0)  # 39.6 of the range of 40.
    pairs.src.copy_(-pairs.dst[:1])
    out = noise_free_sum(h, pairs, 0.25)
    assert tiles
    torch.testing.assert_close(out[0], h.mean(dim=0), rtol=1e-5, atol=0)
    tiles.clear()
    h, pairs = torch.randn(13, 2), make('identity', scale=1e3, dtype=torch.float32)
    out = noise_free_sum(h, pairs, 0.25)
    assert not tiles
    torch.testing.assert_close(out, definition(h, pairs, 0.25).float())


def test_score_spread_stays_within_its_rows(heights):
    # A row takes four temporaries of four numbers of four bytes.
    score_spread(matrix_pairs(torch.zeros(10, 4))._replace(memory=3 * 64))
    assert heights == [3, 3, 3, 1]
    assert score_spread(matrix_pairs(torch.zeros(0, 4)))[0].entropy.shape == (0,)
