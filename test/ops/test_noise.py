import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from oracles import ERROR_RATE, check_law
from scipy.stats import kstest

from torch_geometric_gsl.ops.noise import (
    below,
    draw_seed,
    log_arrival_times,
    table_words,
    uniform,
)

CPU = torch.device('cpu')
FLOATS = pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
# What the published reference implementation gives from the seed 0.
PUBLISHED = [
    0xE220A8397B1DCDAF,
    0x6E789E6AA1B965F4,
    0x06C45D188009454F,
    0xF88BB8A8724C81EC,
]
words = st.integers(0, 2**64 - 1)


def split_mix(seed, position):
    """Number `place` (from 0) of the sequence, in Python's integers."""
    z = (seed + (position + 1) * 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)


def signed(word):
    return torch.tensor(word - 2**64 if word >= 2**63 else word)


def table(seed, rows, width):
    return table_words(torch.tensor(seed), rows, width)


def test_published_values():
    assert [split_mix(0, position) for position in range(4)] == PUBLISHED
    drawn = table(0, slice(0, 1), 4)
    assert drawn.shape == (1, 4)
    assert [word % 2**64 for word in drawn[0].tolist()] == PUBLISHED
    # The table is filled row by row.
    assert torch.equal(table(0, slice(0, 2), 2).flatten(), drawn[0])


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 10**6), st.integers(1, 5))
def test_any_seed_and_any_rows(seed, start, width):
    drawn = table(seed, slice(start, start + 2), width).tolist()
    for row in range(2):
        for column in range(width):
            position = (start + row) * width + column
            assert drawn[row][column] % 2**64 == split_mix(seed, position)


@given(words, st.integers(1, 2**32))
@example(0, 1)
@example(2**64 - 1, 2**31)
@example(2**64 - 1, 3 * 2**30)
@example(2**64 - 1, 2**32)
def test_below(word, size):
    expected = ((word >> 32) * size) >> 32
    assert int(below(signed(word), size)) == expected
    assert 0 <= expected < size
    assert int(below(signed(word), torch.tensor(size))) == expected


@given(words)
def test_uniform(word):
    for dtype, bits in ((torch.float32, 23), (torch.float64, 32)):
        value = uniform(signed(word), dtype)
        assert value.dtype == dtype
        # Exact: a dyadic number that the type holds without rounding.
        assert float(value) == (word % 2**bits + 0.5) / 2**bits


def test_candidate_and_level_of_one_word_are_independent():
    word = table(56, slice(0, 400), 250).flatten()
    cell = below(word, 6) * 8 + (uniform(word, torch.float32) * 8).long()
    check_law(torch.bincount(cell, minlength=48).tolist(), [1 / 48] * 48)


def test_draw_seed():
    seed = draw_seed(CPU, torch.Generator().manual_seed(3))
    assert seed.shape == ()
    assert seed.dtype == torch.int64
    again = torch.Generator().manual_seed(3)
    assert torch.equal(seed, draw_seed(CPU, again))
    assert not torch.equal(seed, draw_seed(CPU, again))
    torch.manual_seed(3)  # The global generator is one generator among others.
    assert torch.equal(seed, draw_seed(CPU))
    assert not torch.equal(seed, draw_seed(CPU))


def draw(*size, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    like = torch.empty(0, dtype=dtype)
    return log_arrival_times(size, like, generator).exp()


@FLOATS
def test_arrival_times_are_exponential(dtype):
    time = draw(200_000, dtype=dtype)
    assert time.dtype == dtype
    p_value = kstest(time.double().numpy(), 'expon').pvalue
    assert ERROR_RATE / 2 < p_value < 1 - ERROR_RATE / 2


@given(st.lists(st.integers(0, 70), min_size=1, max_size=6), st.integers(0, 2**32))
def test_drawn_in_pieces_equals_drawn_at_once(sizes, seed):
    times = draw(sum(sizes), 3, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    pieces = [log_arrival_times([size, 3], times, generator).exp() for size in sizes]
    assert torch.equal(torch.cat(pieces), times)


@pytest.mark.parametrize(
    'dtype', [torch.float16, torch.bfloat16, torch.float32, torch.float64]
)
def test_times_are_positive_and_finite_at_the_extremes(monkeypatch, dtype):
    # torch.rand draws from [0, 1): its smallest and its largest value.
    largest = 1 - torch.finfo(dtype).eps / 2
    extremes = torch.tensor([0.0, largest], dtype=dtype)
    assert extremes[1] < 1

    def rand(size, **kwargs):
        return extremes.clone()

    monkeypatch.setattr(torch, 'rand', rand)
    time = log_arrival_times([2], extremes).exp()
    assert bool((time > 0).all())
    assert bool(time.isfinite().all())
    assert time[0] > 8
    assert time[1] < 0.01
