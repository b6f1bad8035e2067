from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm
from torch import Tensor

from torch_geometric_gsl.ops.noise import (
    below,
    draw_seed,
    random_words,
    shift_right,
    states,
    uniform,
)

CPU = torch.device('cpu')
# Each statistical test rejects a true hypothesis with this probability.
ERROR_RATE = 1e-4
# What the published reference implementation gives from the seed 0.
PUBLISHED = [
    0xE220A8397B1DCDAF,
    0x6E789E6AA1B965F4,
    0x06C45D188009454F,
    0xF88BB8A8724C81EC,
]
words = st.integers(0, 2**64 - 1)


def split_mix(seed: int, place: int) -> int:
    """Number `place` (from 0) of the sequence, in Python's integers."""
    z = (seed + (place + 1) * 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)


def signed(word: int) -> Tensor:
    return torch.tensor(word - 2**64 if word >= 2**63 else word)


def table(seed: int, rows: slice, width: int) -> Tensor:
    row, column = states(torch.tensor(seed), rows, width)
    return random_words(row.unsqueeze(1) + column)


def test_published_values() -> None:
    assert [split_mix(0, place) for place in range(4)] == PUBLISHED
    found = table(0, slice(0, 1), 4)
    assert found.shape == (1, 4)
    assert [word % 2**64 for word in found[0].tolist()] == PUBLISHED
    # The table is filled row by row.
    assert torch.equal(table(0, slice(0, 2), 2).flatten(), found[0])


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 10**6), st.integers(1, 5))
def test_any_seed_and_any_rows(seed: int, start: int, width: int) -> None:
    found = table(seed, slice(start, start + 2), width).tolist()
    for row in range(2):
        for column in range(width):
            place = (start + row) * width + column
            assert found[row][column] % 2**64 == split_mix(seed, place)


@given(st.integers(0, 2**32), st.integers(0, 9), st.integers(0, 9))
def test_blocks_of_rows_are_those_of_the_whole(seed: int, a: int, b: int) -> None:
    first, last = sorted((a, b))
    whole = table(seed, slice(0, 9), 7)
    assert torch.equal(table(seed, slice(first, last), 7), whole[first:last])


@given(words, st.integers(1, 63))
def test_shift_right(word: int, bits: int) -> None:
    assert int(shift_right(signed(word), bits)) == word >> bits


@given(words, st.integers(1, 2**31))
def test_below(word: int, size: int) -> None:
    expected = ((word >> 32) * size) >> 32
    assert int(below(signed(word), size)) == expected
    assert 0 <= expected < size
    assert int(below(signed(word), torch.tensor(size))) == expected


def test_below_reaches_both_ends() -> None:
    ends = torch.stack([signed(0), signed(2**64 - 1)])
    for size in (1, 2, 1000, 2**31):
        assert below(ends, size).tolist() == [0, size - 1]
    sizes = torch.tensor([[1], [5]])
    assert below(ends.expand(2, 2), sizes).tolist() == [[0, 0], [0, 4]]


@given(words)
def test_uniform(word: int) -> None:
    for dtype, bits in ((torch.float32, 23), (torch.float64, 32)):
        value = uniform(signed(word), dtype)
        assert value.dtype == dtype
        # Exact: a dyadic number that the type holds without rounding.
        assert float(value) == (word % 2**bits + 0.5) / 2**bits


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_uniform_is_strictly_inside(dtype: torch.dtype) -> None:
    value = uniform(torch.tensor([0, -1, 2**32 - 1, 2**23 - 1, -(2**63)]), dtype)
    assert float(value.min()) > 0
    assert float(value.max()) < 1
    assert bool((value.log() < 0).all())
    assert bool(value.log().neg().log().isfinite().all())


@pytest.mark.parametrize('size', [2, 7, 100])
def test_below_is_uniform(check_law: Callable[..., None], size: int) -> None:
    found = below(table(12, slice(0, 400), 250), size).flatten()
    check_law(torch.bincount(found, minlength=size).tolist(), [1 / size] * size)


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_uniform_is_uniform(check_law: Callable[..., None], dtype: torch.dtype) -> None:
    found = uniform(table(34, slice(0, 400), 250), dtype).flatten()
    counts = torch.bincount((found * 50).long(), minlength=50)
    check_law(counts.tolist(), [1 / 50] * 50)


def test_candidate_and_level_of_one_word_are_independent(
    check_law: Callable[..., None],
) -> None:
    word = table(56, slice(0, 400), 250).flatten()
    cell = below(word, 6) * 8 + (uniform(word, torch.float32) * 8).long()
    check_law(torch.bincount(cell, minlength=48).tolist(), [1 / 48] * 48)


def test_no_correlation_of_rows_columns_and_seeds() -> None:
    value, other = (
        uniform(table(seed, slice(0, 300), 300), torch.float64) for seed in (7, 8)
    )
    pairs = {
        'rows': (value[1:], value[:-1]),
        'columns': (value[:, 1:], value[:, :-1]),
        'diagonals': (value[1:, 1:], value[:-1, :-1]),
        'halves': (value[:, 150:], value[:, :150]),
        'seeds': (value, other),
        'transposed': (value.triu(1), value.t().triu(1)),
    }
    # Bonferroni: all pairs together keep the error rate.
    limit = norm.isf(ERROR_RATE / 2 / len(pairs))
    for name, (a, b) in pairs.items():
        used = torch.ones_like(a, dtype=torch.bool) if name != 'transposed' else a > 0
        product = (a - 0.5)[used] * (b - 0.5)[used]
        # The product of two independent uniforms has the variance 1 / 144.
        z = float(product.mean()) * 12 * math.sqrt(product.numel())
        assert abs(z) < limit, (name, z)


def test_draw_seed() -> None:
    first = draw_seed(CPU, torch.Generator().manual_seed(3))
    assert first.shape == ()
    assert first.dtype == torch.int64
    again = torch.Generator().manual_seed(3)
    assert torch.equal(first, draw_seed(CPU, again))
    assert not torch.equal(first, draw_seed(CPU, again))
    torch.manual_seed(3)  # The global generator is one generator among others.
    assert torch.equal(first, draw_seed(CPU))
    assert not torch.equal(first, draw_seed(CPU))


def test_draw_seed_uses_a_given_generator_alone() -> None:
    state = torch.get_rng_state()
    draw_seed(CPU, torch.Generator())
    assert torch.equal(state, torch.get_rng_state())


def test_seeds_take_all_64_bits() -> None:
    generator = torch.Generator().manual_seed(0)
    seeds = [int(draw_seed(CPU, generator)) % 2**64 for _ in range(64)]
    for bit in range(64):
        # Each bit is set in some seeds only: fails by chance once in 2 ** 57.
        assert 0 < sum(seed >> bit & 1 for seed in seeds) < 64
