"""Noise-free sums within a certified error, against the definition."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import seeded
from responses import RESPONSES, Wave, known_pairs
from responses import noise_free as definition

from torch_geometric_gsl.ops import cells, source_ranking
from torch_geometric_gsl.ops import certified_sum as module
from torch_geometric_gsl.ops.certified_sum import certified_sum, tree_sum
from torch_geometric_gsl.ops.clusters import Clusters, group, k_means
from torch_geometric_gsl.ops.noise_free import noise_free_sum
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.scores import unit_rows

DOUBLE = {'dtype': torch.float64}
TOLERANCES = (1e-1, 1e-3, 1e-5)


def clustered(n, num_centres=5, noise=0.02, dim=6, **options):
    """Rows around some directions, and messages that follow them."""
    generator = seeded(7)
    centre = torch.randn(num_centres, dim, generator=generator, **options)
    number = torch.randint(num_centres, (n,), generator=generator)
    x = torch.randn(n, dim, generator=generator, **options)
    h = torch.randn(num_centres, 3, generator=generator, **options)[number]
    x = unit_rows(unit_rows(centre)[number] + noise * x)
    return x, h + 0.3 * torch.randn(n, 3, generator=generator, **options)


def make(x, formula='gaussian', scale=1.0, **options):
    return known_pairs(x, x, formula, scale, **options)


def error_of(out, expected):
    norm = torch.linalg.vector_norm
    missed = norm(out.double() - expected, dim=1)
    return float((missed / norm(expected, dim=1)).max())


@pytest.fixture
def summed(monkeypatch):
    """The numbers of pairs that are summed one by one in each cell."""
    seen, plain = [], module.sum_cell

    def sum_cell(*args, may_skip=True):
        found = plain(*args, may_skip=may_skip)
        if found[0] is not None and may_skip:  # Others are parts of these.
            seen.append(found[1])
        return found

    monkeypatch.setattr(module, 'sum_cell', sum_cell)
    return seen


@pytest.fixture
def stubborn(monkeypatch):
    """Bounds are used however little they bound, and for the smallest cells."""
    monkeypatch.setattr(module, '_TRIALS', {})
    monkeypatch.setattr(cells, '_MEAN_ROWS', 16)
    monkeypatch.setattr(cells, '_MIN_ROWS', 1)


@pytest.mark.usefixtures('stubborn')
@pytest.mark.parametrize('tolerance', TOLERANCES)
@pytest.mark.parametrize('has_loops', [True, False])
@pytest.mark.parametrize('formula', RESPONSES)
def test_against_the_definition(formula, has_loops, tolerance, summed):
    x, h = clustered(240, **DOUBLE)
    h = h + 1
    for scale, tau in ((0.1, 0.25), (5.0, 0.25), (40.0, 0.1)):
        pairs = make(x, formula=formula, scale=scale, spread=0.1, loop=has_loops)
        out = tree_sum(h, pairs, tau, tolerance, k_means(x, 12))
        assert error_of(out, definition(h, pairs, tau)) <= tolerance
    # Not all pairs are summed but for the smallest tolerance.
    assert tolerance < 1e-3 or sum(summed) < 0.75 * 3 * 240**2


def adversaries():
    one, other = torch.eye(6, **DOUBLE)[:2]
    yield 'all equal', one.repeat(90, 1)
    yield 'antipodal', torch.cat([one.repeat(45, 1), -one.repeat(45, 1)])
    yield 'one far cluster', torch.cat([one.repeat(85, 1), 1e3 * other.repeat(5, 1)])
    x = unit_rows(torch.randn(30, 6, generator=seeded(), **DOUBLE))
    yield 'duplicates', x.repeat(3, 1)
    yield 'rows of zeros', torch.cat([x, torch.zeros(60, 6, **DOUBLE)])
    yield 'isotropic', unit_rows(torch.randn(90, 6, generator=seeded(), **DOUBLE))
    yield 'lengths', x.repeat(3, 1) * torch.logspace(-6, 1, 90, **DOUBLE)[:, None]


@pytest.mark.slow
@pytest.mark.usefixtures('stubborn')
@pytest.mark.parametrize('tolerance', TOLERANCES)
@pytest.mark.parametrize('has_loops', [True, False])
@pytest.mark.parametrize('formula', RESPONSES)
@pytest.mark.parametrize(('name', 'x'), list(adversaries()))
def test_adversaries(name, x, formula, has_loops, tolerance):
    h = torch.randn(90, 3, **DOUBLE) + 0.5
    for scale, tau in ((0.1, 1.0), (40.0, 0.1)):
        pairs = make(x, formula=formula, scale=scale, loop=has_loops)
        expected = definition(h, pairs, tau)
        for num_clusters in (1, 7, 90):
            out = tree_sum(h, pairs, tau, tolerance, k_means(x, num_clusters))
            assert error_of(out, expected) <= tolerance


@pytest.mark.usefixtures('stubborn')
@given(
    st.integers(1, 60),
    st.integers(1, 60),
    st.integers(0, 2**32),
    st.sampled_from(list(RESPONSES)),
    st.floats(0.1, 40),
    st.sampled_from(TOLERANCES),
)
def test_two_sets_of_any_size(n, num_sources, seed, formula, scale, tolerance):
    generator = seeded(seed)
    x = torch.randn(n, 3, generator=generator, **DOUBLE)
    src = torch.randn(num_sources, 3, generator=generator, **DOUBLE)
    h = torch.randn(num_sources, 2, generator=generator, **DOUBLE)
    # The clusters are any partition, as if found for other embeddings.
    clusters = group(torch.randint(5, (num_sources,), generator=generator))
    pairs = known_pairs(x, src, formula, scale, spread=0.5)._replace(memory=2000)
    out = tree_sum(h, pairs, 0.5, tolerance, clusters)
    assert error_of(out, definition(h, pairs, 0.5)) <= tolerance


@pytest.mark.usefixtures('stubborn')
@pytest.mark.parametrize('spread', [0.0, 0.5])
def test_a_response_with_its_own_interval(spread, summed):
    x, h = clustered(200, **DOUBLE)
    shift = 0.3 + spread * torch.rand(200, **DOUBLE)
    pairs = PairScores(x, x, Wave(shift), scale=2.0)
    out = tree_sum(h, pairs, 0.25, 1e-1, k_means(x, 8))
    assert error_of(out, definition(h, pairs, 0.25)) <= 1e-1
    # Bounds are known for one set of parameters at a time.
    assert bool(summed) == (spread == 0)


@pytest.mark.usefixtures('stubborn')
@pytest.mark.parametrize('scale', [0.1, 5.0, 40.0])
def test_single_precision(scale):
    x, h = clustered(300)
    clusters, tau = k_means(x, 12), 0.1
    for pairs in (make(x, scale=scale), make(x, formula='heat_kernel', scale=scale)):
        # Bounds of the scores let tiles be compiled; the result is the same.
        for bounds in ({}, {'lower': 0.0, 'upper': scale}):
            out = tree_sum(h, pairs._replace(**bounds), tau, 1e-3, clusters)
            assert error_of(out, definition(h, pairs, tau)) <= 1e-3


@pytest.mark.usefixtures('stubborn')
def test_a_tolerance_beyond_the_bounds_sums_every_pair(summed):
    x, h = clustered(300, **DOUBLE)
    pairs, counts = make(x, formula='identity', scale=5.0), []
    for tolerance, budget in ((1e-15, 2**25), (1e-3, 2**25), (1e-3, 2**12)):
        summed.clear()
        args = pairs._replace(memory=budget), 0.25, tolerance, k_means(x, 8)
        out = tree_sum(h, *args)
        assert error_of(out, definition(h, pairs, 0.25)) <= max(tolerance, 1e-12)
        counts.append(sum(summed))
    # The scores of a cell of one target are known.
    assert counts[0] > 0.99 * 300**2 > 2 * counts[1]
    # Sums do not depend on the budget.
    assert counts[1] == counts[2]


@pytest.mark.usefixtures('stubborn')
def test_equal_messages_need_no_pairs(summed):
    x, h = clustered(300)
    h = torch.full_like(h, 3.0)
    out = tree_sum(h, make(x), 0.25, 1e-5, k_means(x, 12))
    assert torch.equal(out, h)
    assert sum(summed) == 0


@pytest.mark.usefixtures('stubborn')
def test_clustered_embeddings_need_ever_smaller_shares_of_the_pairs(summed):
    shares = []
    for n in (1500, 6000):
        summed.clear()
        x, h = clustered(n, num_centres=n // 100, noise=0.01, dim=16)
        pairs = make(x, formula='identity', scale=10.0)
        tree_sum(h, pairs, 0.1, 1e-3, k_means(x, n // 16))
        shares.append(sum(summed) / n**2)
    assert shares[1] < 0.6 * shares[0] < 0.2


@pytest.mark.usefixtures('stubborn')
@pytest.mark.parametrize('has_loops', [True, False])
@pytest.mark.parametrize('formula', RESPONSES)
@pytest.mark.parametrize('part', [0.1, 1e4])
def test_clusters_replaced_as_a_whole(part, formula, has_loops, monkeypatch):
    monkeypatch.setattr(source_ranking, '_FAR', part)
    plain, seen, tries = source_ranking._far_clusters, [], []

    def far_clusters(*args):
        found = plain(*args)
        seen.append(found is not None)
        return found

    def rank_sources(messages, pairs, tau, tolerance):
        tries.append(tolerance)
        return source_ranking.rank_sources(messages, pairs, tau, tolerance)

    monkeypatch.setattr(source_ranking, '_far_clusters', far_clusters)
    monkeypatch.setattr(module, 'rank_sources', rank_sources)
    x, h = clustered(300, num_centres=20, noise=0.02, dim=8, **DOUBLE)
    for tolerance in TOLERANCES:
        pairs = make(x, formula=formula, scale=20.0, spread=0.05, loop=has_loops)
        out = tree_sum(h, pairs, 0.25, tolerance, k_means(x, 20))
        assert error_of(out, definition(h, pairs, 0.25)) <= tolerance
    assert any(seen)
    # Where they leave too much open, all sources are ranked.
    assert (0.0 in tries) == (part > 1)


def test_bounds_that_bound_nothing_are_given_up(summed, monkeypatch):
    n, rows = 2500, []
    x = unit_rows(torch.randn(n, 24, generator=seeded()))
    h = torch.randn(n, 3, generator=seeded())
    plain = module.noise_free_sum

    def noise_free_sum(h, pairs, *args, **kwargs):
        rows.append(pairs.dst.size(0))
        return plain(h, pairs, *args, **kwargs)

    monkeypatch.setattr(module, 'noise_free_sum', noise_free_sum)
    out = tree_sum(h, make(x), 0.25, 1e-4, k_means(x, 40))
    torch.testing.assert_close(out, plain(h, make(x), 0.25), rtol=1e-3, atol=1e-5)
    assert len(summed) == min(module._TRIALS)
    assert rows[0] > n // 2


def test_whether_bounds_may_pay(monkeypatch):
    x, h = clustered(600, num_centres=30, noise=0.01, dim=16)
    noise = unit_rows(torch.randn(600, 16, generator=seeded()))
    sharp, flat = (make(x, formula='identity', scale=scale) for scale in (20.0, 1.0))
    other = make(noise, formula='identity', scale=5.0)
    taken = []
    monkeypatch.setattr(module, 'tree_sum', lambda *args, **kwargs: taken.append(1))

    def may_pay(pairs, tolerance=1e-3):
        taken.clear()
        with torch.no_grad():
            found = certified_sum(h, pairs, 0.25, tolerance)
        assert taken or torch.equal(found, noise_free_sum(h, pairs, 0.25))
        return bool(taken)

    assert not may_pay(sharp)  # So few are summed in no time.
    monkeypatch.setattr(module, '_FEW', 100)
    monkeypatch.setattr(module, '_TRIED_ROWS', 16)
    assert may_pay(sharp)
    assert not may_pay(flat)
    assert may_pay(flat, tolerance=0.5)
    assert not may_pay(other)
    monkeypatch.setattr(module, '_MANY', 500)
    assert may_pay(flat)
    # There are no bounds of all pairs with a null neighbour, nor gradients.
    assert not may_pay(flat._replace(null=torch.zeros(())))
    monkeypatch.undo()
    h.requires_grad_()
    certified_sum(h, sharp, 0.25, 1e-3).sum().backward()
    assert bool(h.grad.any())


def test_huge_distances_leave_no_bounds_and_right_sums():
    x, h = clustered(60, **DOUBLE)
    x[:20] *= 1e25
    pairs = make(x, formula='heat_kernel')
    out = tree_sum(
        h, pairs, 0.25, 1e-3, Clusters(torch.arange(60), torch.tensor([0, 60]))
    )
    assert error_of(out, definition(h, pairs, 0.25)) <= 1e-3
