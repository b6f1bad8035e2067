"""Sums over all sources where the scores are a formula: tile by tile."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from torch_geometric_gsl.ops import propagate as module
from torch_geometric_gsl.ops.fused import FusedScore
from torch_geometric_gsl.ops.propagate import noise_free_sum, sampled_noise_free_sum
from torch_geometric_gsl.ops.scorer import Scorer, exclude, matrix_scorer
from torch_geometric_gsl.ops.scores import unit_rows

BOUNDS = {
    'identity': (-1.0, 1.0),
    'difference': (0.0, 2.0),
    'gaussian': (0.0, 1.0),
    'heat_kernel': (0.0, 1.0),
}


def make(
    response: str,
    size: tuple[int, int] = (9, 13),
    scale: float = 1.0,
    excluded: Tensor | None = None,
    dtype: torch.dtype = torch.float64,
) -> Scorer:
    """Scores by a formula; its rows are the definition, entry by entry."""
    n, num_sources = size
    dst = unit_rows(torch.randn(n, 4, dtype=dtype))
    src = unit_rows(torch.randn(num_sources, 4, dtype=dtype))
    b = torch.rand(n, dtype=dtype) if response == 'gaussian' else None
    c = None
    if response in ('gaussian', 'heat_kernel'):
        c = torch.rand(n, dtype=dtype) + 0.1
    fused = FusedScore(dst, src, response, b, c, scale)
    every = torch.arange(num_sources).expand(n, -1)
    score = exclude(fused.score(slice(0, n), every), excluded)
    lower, upper = BOUNDS[response]
    return matrix_scorer(score)._replace(
        fused=fused, excluded=excluded, lower=scale * lower, upper=scale * upper
    )


def definition(h: Tensor, scorer: Scorer, tau: float) -> Tensor:
    score = scorer.rows(slice(0, scorer.size[0])).double()
    return torch.softmax(score / tau, dim=1) @ h.double()


@pytest.fixture(autouse=True)
def _any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, '_MIN_PAIRS', 0)


@pytest.fixture
def tiles(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Records the tiles; they have at most five sources."""
    seen: list[tuple[int, int]] = []
    original = FusedScore.weights

    def weights(
        self: FusedScore, rows: slice, columns: slice, tau: float, upper: float
    ) -> Tensor:
        weight = original(self, rows, columns, tau, upper)
        seen.append((weight.size(0), weight.size(1)))
        return weight

    monkeypatch.setattr(module, '_TILE', 5)
    monkeypatch.setattr(FusedScore, 'weights', weights)
    return seen


@pytest.mark.parametrize('scale', [1.0, 3.0])
@pytest.mark.parametrize('has_loops', [True, False])
@pytest.mark.parametrize('response', list(BOUNDS))
@torch.no_grad()
def test_equals_the_definition(
    response: str, has_loops: bool, scale: float, tiles: list[tuple[int, int]]
) -> None:
    # The excluded sources stand at the edges of tiles, too.
    excluded = None if has_loops else torch.tensor([0, 4, 5, 9, 10, 12, 3, 3, 7])
    scorer = make(response, scale=scale, excluded=excluded)
    h = torch.randn(13, 3, dtype=torch.float64)
    budget = 4 * 5 * 8 * 2  # Two rows of five sources.
    out = noise_free_sum(h, scorer, 0.25, memory_budget=budget)
    torch.testing.assert_close(out, definition(h, scorer, 0.25))
    assert tiles == 4 * [(2, 5), (2, 5), (2, 3)] + [(1, 5), (1, 5), (1, 3)]


@pytest.mark.parametrize('size', [(1, 1), (0, 3), (3, 1), (1, 40)])
@torch.no_grad()
def test_odd_sizes(size: tuple[int, int], tiles: list[tuple[int, int]]) -> None:
    scorer = make('gaussian', size)
    h = torch.randn(size[1], 2, dtype=torch.float64)
    out = noise_free_sum(h, scorer, 0.25)
    torch.testing.assert_close(out, definition(h, scorer, 0.25))
    assert bool(tiles) == (size[0] > 0)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float64])
@torch.no_grad()
def test_takes_the_type_of_the_messages(
    dtype: torch.dtype, tiles: list[tuple[int, int]]
) -> None:
    scorer = make('gaussian', dtype=torch.float32)
    h = torch.randn(13, 2).to(dtype)
    out = noise_free_sum(h, scorer, 0.25)
    assert out.dtype == dtype
    assert tiles
    expected, rtol = definition(h, scorer, 0.25), max(1e-5, 2 * torch.finfo(dtype).eps)
    torch.testing.assert_close(out.float(), expected.float(), rtol=rtol, atol=1e-6)


@torch.no_grad()
def test_keeps_its_precision_under_autocast() -> None:
    scorer, h = make('gaussian', dtype=torch.float32), torch.randn(13, 2)
    with torch.autocast('cpu', dtype=torch.bfloat16):
        out = noise_free_sum(h, scorer, 0.25)
    torch.testing.assert_close(out, definition(h, scorer, 0.25).float())


@torch.no_grad()
def test_a_wide_range_of_scores_neither_overflows_nor_vanishes(
    tiles: list[tuple[int, int]],
) -> None:
    h = 1e-15 * torch.randn(13, 2)  # Small messages, not to be rounded to zero.
    scorer = make('identity', scale=9.9, dtype=torch.float32)
    scorer = scorer._replace(lower=-9.9, upper=0.0)  # 39.6 of the range of 40.
    scorer.fused.src.copy_(-scorer.fused.dst[:1])  # type: ignore[union-attr]
    out = noise_free_sum(h, scorer, 0.25)
    assert tiles
    torch.testing.assert_close(out[0], h.mean(dim=0), rtol=1e-5, atol=0)
    tiles.clear()
    h, scorer = torch.randn(13, 2), make('identity', scale=1e3, dtype=torch.float32)
    out = noise_free_sum(h, scorer, 0.25)
    assert not tiles
    torch.testing.assert_close(out, definition(h, scorer, 0.25).float())


def test_leaves_the_gradient_to_the_definition(tiles: list[tuple[int, int]]) -> None:
    scorer = make('gaussian')
    h = torch.randn(13, 2, dtype=torch.float64, requires_grad=True)
    noise_free_sum(h, scorer, 0.25).sum().backward()
    assert not tiles
    assert h.grad is not None
    assert math.isfinite(float(h.grad.sum()))


@torch.no_grad()
def test_few_pairs_are_not_worth_a_compilation(
    tiles: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, '_MIN_PAIRS', 9 * 13 + 1)
    noise_free_sum(torch.randn(13, 2), make('gaussian', dtype=torch.float32), 0.25)
    assert not tiles
    monkeypatch.setattr(module, '_MIN_PAIRS', 9 * 13)
    noise_free_sum(torch.randn(13, 2), make('gaussian', dtype=torch.float32), 0.25)
    assert tiles


def test_unknown_bounds(tiles: list[tuple[int, int]]) -> None:
    scorer = make('gaussian')._replace(upper=math.inf, lower=-math.inf)
    h = torch.randn(13, 2, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(
            noise_free_sum(h, scorer, 0.25), definition(h, scorer, 0.25)
        )
    assert not tiles


@pytest.mark.parametrize('size', [100, 400])
@torch.no_grad()
def test_no_tensor_has_the_size_of_all_pairs(size: int, meter: Any) -> None:
    scorer = make('gaussian', (size, size))
    h = torch.randn(size, 2, dtype=torch.float64)
    with meter() as seen:
        noise_free_sum(h, scorer, 0.25, memory_budget=4 * size * 8 * 10)
    assert seen.largest == 10 * size


@pytest.mark.parametrize('response', list(BOUNDS))
@torch.no_grad()
def test_some_targets_tell_the_error_of_an_estimate(
    response: str, tiles: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, '_ERROR_TARGETS', 5)
    excluded = torch.arange(21) % 13
    scorer = make(response, size=(21, 13), excluded=excluded)
    h = torch.randn(13, 3, dtype=torch.float64)
    budget = 4 * 5 * 8 * 2  # Two rows of five sources.
    out, error = sampled_noise_free_sum(h, scorer, 0.25, 6, memory_budget=budget)
    # Every fourth target, two at a time, from tiles of all 13 sources.
    assert [rows for rows, _ in tiles] == 9 * [2]
    missed = (definition(h, scorer, 0.25) - out)[::4]
    assert missed.size(0) == 6
    torch.testing.assert_close(error, missed.square().mean().sqrt())
