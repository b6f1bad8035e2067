"""The rates in C++ against their definition in PyTorch."""

from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import seeded
from responses import RESPONSES, bounded_pairs

from torch_geometric_gsl.ops import scores
from torch_geometric_gsl.ops._native import compiled
from torch_geometric_gsl.ops._native.compiled import find_compiler
from torch_geometric_gsl.ops.clusters import group
from torch_geometric_gsl.ops.envelope import bound_scores, make_envelope, proposal_rates

pytestmark = pytest.mark.skipif(find_compiler() is None, reason='needs a C++ compiler')
EVERY = slice(None)


def make(name, count=9, m=4, scale=5.0, seed=0, dtype=torch.float32, spread=0.0):
    """Return scores of 40 targets, each with its own bell, and bounds of clusters."""
    rows = torch.randn(70, m, generator=seeded(seed), dtype=dtype)
    rows = scores.unit_rows(rows) * (spread * rows[:, :1]).exp()
    params = (
        p * (0.5 + torch.rand(40, generator=seeded(2), dtype=dtype))
        for p in RESPONSES[name].params
    )
    pairs = bounded_pairs(name, rows[:40], rows[40:], scale, params)
    if spread:  # The bounds in the table are those of unit rows.
        pairs = pairs._replace(lower=-torch.inf, upper=torch.inf)
    clusters = group(torch.randint(count, (30,), generator=seeded(seed)))
    return pairs, make_envelope(pairs, clusters)


def both(pairs, envelope, rows=EVERY):
    """Return the rates in C++ and those of the definition."""
    with mock.patch.object(compiled, 'load', return_value=None):
        plain = proposal_rates(pairs, envelope, rows)
    return proposal_rates(pairs, envelope, rows), plain


@given(
    st.sampled_from(sorted(RESPONSES)),
    st.integers(1, 30),
    st.integers(1, 40),
    st.floats(0.1, 40.0),
    st.integers(0, 10**6),
    st.sampled_from([torch.float32, torch.float64]),
    st.sampled_from([0.0, 1.0]),
)
def test_equal_the_definition(name, count, m, scale, seed, dtype, spread):
    pairs, envelope = make(name, count, m, scale, seed, dtype, spread)
    rates, plain = both(pairs, envelope)
    eps = torch.finfo(dtype).eps
    size = pairs.scale + plain.bound.abs()
    assert ((rates.bound - plain.bound).abs() <= 200 * eps * size).all()
    assert torch.allclose(rates.total, plain.total, rtol=0, atol=2000 * eps * scale)
    share, expected = (x.lookup[0].long() for x in (rates, plain))
    # Both are sums of rounded rates.
    assert (share - expected).abs().amax() <= max(4, 2.0**32 * 4000 * eps * scale)


@given(
    st.sampled_from(sorted(RESPONSES)),
    st.integers(1, 12),
    st.floats(0.1, 40.0),
    st.integers(0, 10**6),
    st.sampled_from([0.0, 1.0]),
)
def test_no_score_exceeds_its_bound(name, m, scale, seed, spread):
    pairs, envelope = make(name, 9, m, scale, seed, spread=spread)
    rates = proposal_rates(pairs, envelope, EVERY)
    cluster = torch.empty(30, dtype=torch.long)
    cluster[envelope.clusters.source] = envelope.clusters.cluster
    assert (pairs.rows() <= rates.bound[:, cluster]).all()
    share = rates.lookup[0].long()
    assert (share.diff(dim=1) >= 0).all()
    assert (share[:, -1] == 2**31 - 1).all()


def test_they_run_in_cpp():
    pairs, envelope = make('gaussian')
    with mock.patch(f'{bound_scores.__module__}.bound_scores') as definition:
        proposal_rates(pairs, envelope, EVERY)
    definition.assert_not_called()


def test_some_targets_and_threads(monkeypatch):
    pairs, envelope = make('gaussian')
    every = proposal_rates(pairs, envelope, EVERY)
    monkeypatch.setattr(compiled, '_MIN_THREADED', 1)
    monkeypatch.setattr(torch, 'get_num_threads', lambda: 3)
    block = proposal_rates(pairs, envelope, slice(7, 31))
    for tensor, of_all in zip(block.lookup[:2], every.lookup[:2], strict=True):
        assert torch.equal(tensor, of_all[7:31])
    assert torch.equal(block.total, every.total[7:31])


def test_parameters_that_all_targets_share():
    pairs, envelope = make('gaussian')
    shared = pairs.response.map(lambda param: param[:1].expand(40))
    copied = shared.map(torch.clone)
    rates, rates_of_copies = (
        proposal_rates(pairs._replace(response=response), envelope, EVERY)
        for response in (shared, copied)
    )
    assert torch.equal(rates.bound, rates_of_copies.bound)


@pytest.mark.parametrize('value', [torch.nan, torch.inf])
def test_rows_that_are_not_finite_end(value):
    pairs, envelope = make('negative')
    dst = pairs.dst.clone()
    dst[3] = value
    rates, plain = both(pairs._replace(dst=dst), envelope)
    is_finite = torch.arange(40) != 3
    assert torch.allclose(rates.total[is_finite], plain.total[is_finite])
    assert bool(rates.total[3].isnan()) == bool(plain.total[3].isnan())


@pytest.mark.parametrize('name', ['gaussian', 'heat_kernel'])
def test_autocast_changes_nothing(name):
    pairs, envelope = make(name)
    plain = proposal_rates(pairs, envelope, EVERY)
    with torch.autocast('cpu', torch.bfloat16):
        rates = proposal_rates(pairs, envelope, EVERY)
    assert torch.equal(rates.bound, plain.bound)
    assert torch.equal(rates.total, plain.total)
