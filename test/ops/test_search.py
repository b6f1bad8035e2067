"""Rankings against exact fractions, scikit-learn and distances of centred rows."""

from fractions import Fraction

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from oracles import matrix_pairs, seeded
from responses import OF_USERS, RESPONSES, comparison_of, random_response
from sklearn.neighbors import NearestNeighbors
from torch_geometric.data import Data

from torch_geometric_gsl import DistanceSimilarity, GumbelKNNSampler
from torch_geometric_gsl.ops import cells
from torch_geometric_gsl.ops import search as module
from torch_geometric_gsl.ops.clusters import group, k_means
from torch_geometric_gsl.ops.pair_scores import PairScores, Sources
from torch_geometric_gsl.ops.scores import Identity, unit_rows
from torch_geometric_gsl.ops.search import (
    best_sources,
    clusters_pay,
    nearest_by_bounds,
)
from torch_geometric_gsl.ops.sparse_rows import SparseRows
from torch_geometric_gsl.transforms import SimilarityKNNGraph

DOUBLE = {'dtype': torch.double}


def make(x, src, formula, **options):
    response = random_response(formula, x.size(0), seeded(), dtype=x.dtype)
    return PairScores(x, src, response, comparison_of(formula), **options)


def exact_ranks(pairs, formula):
    """Return what ranks all pairs, as fractions."""
    rows, columns = (
        [[Fraction(v) for v in row] for row in ends.tolist()]
        for ends in (pairs.dst, pairs.src)
    )

    def products(u):
        return [sum(a * b for a, b in zip(u, v, strict=True)) for v in columns]

    def squares(u):
        return [sum((a - b) ** 2 for a, b in zip(u, v, strict=True)) for v in columns]

    ranks = []
    for i, u in enumerate(rows):
        match formula:
            case 'identity':
                ranks.append(products(u))
            case 'difference':
                ranks.append([-dot for dot in products(u)])
            case 'gaussian':
                b = Fraction(float(pairs.response.params[0][i]))
                ranks.append([-abs(dot - b) for dot in products(u)])
            case _:
                ranks.append([-square for square in squares(u)])
    return ranks


@given(
    st.integers(1, 12),
    st.integers(1, 30),
    st.integers(0, 2**32),
    # Fractions have no exponential, which a mixture is ranked by.
    st.sampled_from([name for name in RESPONSES if name != 'mixture']),
    st.sampled_from([0.0, 3e3]),
    st.sampled_from([1e-25, 1.0, 1e25]),
    st.booleans(),
)
@example(9, 20, 0, 'gaussian', 0.0, 1.0, True)  # Not monotonic.
def test_against_fractions(n, num_sources, seed, formula, offset, unit, is_probed):
    generator = seeded(seed)
    x, src = (
        unit * (offset + torch.randn(size, 2, generator=generator, **DOUBLE))
        for size in (n, num_sources)
    )
    if formula == 'gaussian' and unit != 1:
        return  # Bells are those of cosines.
    pairs = make(x, src, formula)
    k = min(4, num_sources)
    with pytest.MonkeyPatch.context() as patch:
        if is_probed:
            patch.setattr(module, '_FEW', 0)
        nearest = best_sources(pairs, k)
    for row, sources in zip(exact_ranks(pairs, formula), nearest.tolist(), strict=True):
        best = sorted(row, reverse=True)[:k]
        assert len(set(sources)) == k
        largest = max(map(abs, row))
        for i, source in enumerate(sources):
            # Double precision of what is left once rows are centred.
            slack = abs(best[i]) * Fraction(1, 10**9)
            if formula == 'gaussian':
                slack = largest * Fraction(1, 10**13) + Fraction(1, 10**8)
            elif comparison_of(formula) == 'dot':
                slack = largest * Fraction(1, 10**13)
            assert row[source] >= best[i] - slack


@pytest.mark.parametrize(
    'formula', ['identity', 'difference', 'heat_kernel', 'negative']
)
@pytest.mark.parametrize('offset', [0.0, 1e5])
def test_far_rows_of_few_columns(formula, offset, monkeypatch):
    monkeypatch.setattr(module, '_FEW', 0)
    x = offset + torch.randn(1500, 3, generator=seeded(), **DOUBLE)
    x = unit_rows(x) if comparison_of(formula) == 'dot' else x
    apart = torch.cdist(x, x, compute_mode='donot_use_mm_for_euclid_dist')
    apart = -apart if formula == 'difference' else apart
    apart.fill_diagonal_(torch.inf)
    pairs = make(x, x, formula, excluded=torch.arange(1500))
    distance = apart.gather(1, best_sources(pairs, 5))
    expected = apart.topk(5, largest=False).values
    torch.testing.assert_close(distance, expected, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize('offset', [0.0, 1e5])
@pytest.mark.parametrize('formula', ['identity', 'heat_kernel'])
def test_single_precision_serves_centred_rows(formula, offset, spy):
    n, scored = 1000, spy(PairScores, 'rows', lambda out, *_: (out.dtype, out.numel()))
    x = offset + torch.randn(n, 8, generator=seeded(), **DOUBLE)
    pairs = make(unit_rows(x) if formula == 'identity' else x, x, formula)
    best_sources(pairs._replace(src=pairs.dst), 5)
    single = sum(count for dtype, count in scored if dtype == torch.float32)
    assert n * n <= single < 1.5 * n * n
    assert sum(count for _, count in scored) - single < 0.02 * n * n


@pytest.mark.parametrize('loop', [True, False])
def test_sparse_rows_against_scikit_learn(loop, monkeypatch):
    monkeypatch.setattr(module, '_FEW', 0)
    x = torch.randn(50, 6, **DOUBLE, generator=seeded())
    x *= torch.rand(50, 6, generator=seeded()) < 0.7
    x[:, 0] += 0.1  # No row of zeros.
    rows = SparseRows.unit(x.to_sparse_csr())
    excluded = None if loop else torch.arange(50)
    source = best_sources(PairScores(rows, rows, Identity(), excluded=excluded), 4)
    search = NearestNeighbors(n_neighbors=5, metric='cosine').fit(x)
    expected = search.kneighbors(x)[1]
    assert source.tolist() == expected[:, slice(0, 4) if loop else slice(1, 5)].tolist()


@pytest.mark.parametrize('name', [*RESPONSES, *OF_USERS])
def test_rankings_have_the_order_of_the_responses(name):
    row = {**RESPONSES, **OF_USERS}[name]
    value = torch.linspace(0, 1, 50, **DOUBLE).unsqueeze(0)
    params = [torch.full((1,), p, **DOUBLE) for p in row.params]
    response = row.cls(*params)
    ranking = response.ranking
    columns = [param.unsqueeze(1) for param in ranking.params]
    score, rank = response.value(value, *params)[0], ranking.value(value, *columns)[0]
    order = score.argsort()
    assert bool((rank[order].diff() > -1e-12).all())
    # As steep as the compared value at the most, where that is promised.
    is_flat = (rank.diff().abs() <= value.diff().abs() * (1 + 1e-9)).all()
    assert bool(is_flat) or not ranking.is_lipschitz
    assert ranking.is_lipschitz or name in ('a wave', 'mixture')


@pytest.mark.parametrize('name', [*RESPONSES, *OF_USERS])
@pytest.mark.parametrize('is_ranking', [False, True])
def test_intervals_hold_the_scores_between_their_ends(name, is_ranking):
    row = {**RESPONSES, **OF_USERS}[name]
    response = row.cls(*(torch.full((1, 1), p, **DOUBLE) for p in row.params))
    response = response.ranking if is_ranking else response
    ends = torch.rand(2, 1, 40, generator=seeded(), **DOUBLE).sort(dim=0).values
    assert response.has_interval
    low, high = response.interval(*ends, *response.params)
    for share in torch.linspace(0, 1, 9):
        score = response.value(torch.lerp(*ends, share), *response.params)
        assert bool((low <= score + 1e-12).all() & (score - 1e-12 <= high).all())


@given(st.integers(0, 9), st.integers(1, 9), st.integers(0, 2**32), st.integers(1, 400))
def test_against_sorting(num_rows, num_columns, seed, budget):
    score = torch.randn(num_rows, num_columns, generator=seeded(seed))
    for k in (1, num_columns):
        source = matrix_pairs(score)._replace(memory=budget).best(k)[1]
        assert source.tolist() == [
            sorted(range(num_columns), key=lambda j: -row[j])[:k]
            for row in score.tolist()
        ]


def check_nearest(pairs, k, clusters):
    source = nearest_by_bounds(pairs, k, clusters)
    assert source.shape == (pairs.dst.size(0), k)
    # Distinct sources of the best scores in their order: the same up to ties.
    assert all(len(set(row)) == k for row in source.tolist())
    score = pairs.rows()
    best = score.sort(dim=1, descending=True).values[:, :k]
    torch.testing.assert_close(score.gather(1, source), best, atol=1e-6, rtol=1e-5)


@given(
    st.integers(1, 60),
    st.integers(3, 60),
    st.integers(0, 2**32),
    st.sampled_from(list(RESPONSES)),
    st.sampled_from([0.1, 40.0]),
)
def test_nearest_by_bounds_of_two_sets(n, num_sources, seed, formula, scale):
    generator = seeded(seed)
    x = torch.randn(n, 3, generator=generator, dtype=torch.float64)
    src = torch.randn(num_sources, 3, generator=generator, dtype=torch.float64)
    # The clusters are any partition, as if found for other embeddings.
    clusters = group(torch.randint(5, (num_sources,), generator=generator))
    pairs = make(x, src, formula, scale=scale)._replace(memory=5000)
    for k in (1, 3, num_sources):
        check_nearest(pairs, k, clusters)


@pytest.mark.parametrize(
    'excluded', [None, torch.arange(90)], ids=['loops', 'no loops']
)
@pytest.mark.parametrize('formula', RESPONSES)
@pytest.mark.parametrize('num_clusters', [1, 9, 90])
def test_nearest_by_bounds_of_odd_sets(num_clusters, formula, excluded, monkeypatch):
    for name, value in {'_FIRST': 1, '_MEAN_ROWS': 8, '_MIN_ROWS': 1}.items():
        monkeypatch.setattr(cells, name, value)
    x = torch.randn(30, 5)
    for rows in (
        torch.ones(90, 5),
        unit_rows(torch.cat([x, -x, x])),
        torch.cat([x, 1e3 + x, torch.zeros(30, 5)]),
    ):
        pairs = make(rows, rows, formula, scale=10.0, excluded=excluded)
        check_nearest(pairs, 4, k_means(rows, num_clusters))


class NearAHalf(Identity):
    """A user's response, which takes all but the formula of one of the package."""

    @staticmethod
    def value(t):
        return -(t + 0.5).square()

    @staticmethod
    def interval(low, high):
        ends = NearAHalf.value(low), NearAHalf.value(high)
        half = torch.full_like(low, -0.5)
        nearest = torch.minimum(torch.maximum(half, low), high)
        return torch.minimum(*ends), NearAHalf.value(nearest)


def test_nearest_by_bounds_of_a_formula_of_users(monkeypatch):
    for name, value in (('_MEAN_ROWS', 8), ('_MIN_ROWS', 1)):
        monkeypatch.setattr(cells, name, value)
    monkeypatch.setattr(module, '_MAX_SHARE', 1.0)  # Bounds are not given up.
    x = unit_rows(torch.randn(200, 3, generator=seeded(), **DOUBLE))
    check_nearest(PairScores(x, x, NearAHalf()), 4, k_means(x, 20))


def draw_clustered(n, num_clusters, noise=0.1, channels=16):
    centre = torch.randn(num_clusters, channels, generator=seeded(), **DOUBLE)
    x = torch.randn(n, channels, generator=seeded(1), **DOUBLE)
    return centre[torch.arange(n) % num_clusters] + noise * x


LAYOUTS = {
    'random': lambda n: torch.randn(n, 5, generator=seeded(), **DOUBLE),
    'clustered': lambda n: draw_clustered(n, 12),
    'duplicates': lambda n: torch.randn(n // 20, 4, generator=seeded()).repeat(20, 1),
    'one point': lambda n: torch.ones(n, 3, **DOUBLE),
    'zeros': lambda n: torch.zeros(n, 3, **DOUBLE),
    'one column': lambda n: torch.linspace(0, 1, n, **DOUBLE).square().unsqueeze(1),
    'far': lambda n: 1e6 + draw_clustered(n, 12),
    'of all sizes': lambda n: (
        torch.logspace(-6, 3, n, **DOUBLE).unsqueeze(1)
        * torch.randn(n, 3, generator=seeded(), **DOUBLE)
    ),
}


@pytest.mark.parametrize('dtype', [torch.float64, torch.float32])
@pytest.mark.parametrize('is_pair', [True, False])
@pytest.mark.parametrize('formula', ['negative', 'identity', 'difference', 'gaussian'])
@pytest.mark.parametrize('layout', LAYOUTS)
def test_bounds_find_the_best_in_double_precision(
    layout, formula, is_pair, dtype, monkeypatch
):
    for name, value in (('_MEAN_ROWS', 20), ('_MIN_ROWS', 2), ('_FIRST', 2)):
        monkeypatch.setattr(cells, name, value)
    monkeypatch.setattr(module, '_MAX_SHARE', 1.0)  # Bounds are not given up.
    src = LAYOUTS[layout](400).to(dtype)
    dst = src.flip(0)[:150] * 1.01 if is_pair else src
    excluded = None if is_pair else torch.arange(400)
    pairs = make(dst, src, formula, scale=3.0, excluded=excluded).ranking
    double = pairs._replace(
        dst=dst.double(),
        src=src.double(),
        response=pairs.response.map(torch.Tensor.double),
    )
    score = double.rows()
    for k in (1, 7):
        source = nearest_by_bounds(pairs, k, k_means(src.float(), 12))
        assert all(len(set(row)) == k for row in source.tolist())
        best = score.sort(dim=1, descending=True).values[:, :k]
        # The order of what is nearer than the last has its precision.
        slack = 1e-9 * best[:, -1:].abs() + 1e-15 * score[score.isfinite()].abs().max()
        assert bool(((score.gather(1, source) - best).abs() <= slack).all())


@pytest.mark.parametrize('memory', [1, 2**25])
@pytest.mark.parametrize('dtype', [torch.float64, torch.float32])
@pytest.mark.parametrize('is_pair', [True, False])
@pytest.mark.parametrize('layout', LAYOUTS)
def test_prepared_sources_give_the_nearest(layout, is_pair, dtype, memory, monkeypatch):
    monkeypatch.setattr(module, '_FEW', 0)
    src = LAYOUTS[layout](400).to(dtype)
    dst = src.flip(0)[:50] * 1.01 if is_pair else src
    excluded = None if is_pair else torch.arange(400)
    pairs = make(dst, src, 'negative', excluded=excluded, memory=memory)
    source = best_sources(pairs, 7, Sources.of(src).single())
    assert all(len(set(row)) == 7 for row in source.tolist())
    near = torch.cdist(
        dst.double(), src.double(), compute_mode='donot_use_mm_for_euclid_dist'
    )
    near = near if is_pair else near.fill_diagonal_(torch.inf)
    expected = near.topk(7, largest=False).values
    error = 1e-5 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(near.gather(1, source), expected, rtol=error, atol=0)


@pytest.mark.parametrize('formula', ['identity', 'negative', 'gaussian'])
def test_nearest_by_bounds_scores_few_pairs(formula, monkeypatch, spy):
    def count(_, pairs, members):
        return members.source.numel() * pairs.dst.size(0)

    seen = spy(PairScores, 'rows', lambda score, *_: score.numel())
    bounded = spy(cells, 'score_range', count)
    monkeypatch.setattr(cells, '_MEAN_ROWS', 32)
    shares = []
    for n in (1500, 6000):
        seen.clear()
        bounded.clear()
        x = unit_rows(draw_clustered(n, n // 50))
        pairs = make(x, x, formula).ranking
        if formula == 'gaussian':  # Its best sources are those of this product.
            pairs = pairs._replace(
                response=type(pairs.response)(torch.ones(n, **DOUBLE))
            )
        nearest_by_bounds(pairs, 5, k_means(x, n // 50))
        shares.append(sum(seen) / n**2)
        # The bounds of single sources are not found in clusters that are skipped.
        assert formula == 'gaussian' or sum(bounded) < 0.06 * n**2
    assert shares[1] < 0.7 * shares[0] < 0.2


def recall(source, rows):
    """Return the share of the nearest of all rows but the last that lists hold."""
    near = torch.cdist(rows, rows, compute_mode='donot_use_mm_for_euclid_dist')
    near = near.nan_to_num(torch.inf).fill_diagonal_(torch.inf)[:-1, :-1]
    expected = near.topk(source.size(1), largest=False).indices
    hits = (source[:-1].unsqueeze(2) == expected.unsqueeze(1)).any(dim=2)
    return float(hits.double().mean())


OUTLIERS = [1e8, 1e14, 1e16, 1e18, 1e25, 1e200, -torch.inf]


@pytest.mark.parametrize('is_bounded', [False, True])
@pytest.mark.parametrize('is_single', [False, True])
@pytest.mark.parametrize('outlier', OUTLIERS)
def test_an_outlier_leaves_the_lists_of_the_others(
    outlier, is_single, is_bounded, monkeypatch
):
    if is_single:
        monkeypatch.setattr(module, '_FEW', 0)
    if is_bounded:
        monkeypatch.setattr(module, '_BOUNDED', 0)
        monkeypatch.setattr(module, '_MAX_SHARE', 1.0)  # Bounds are not given up.
    x = draw_clustered(600, 12, channels=5)
    x[-1] = outlier
    pairs = make(x, x, 'negative', excluded=torch.arange(600))
    assert recall(best_sources(pairs._replace(dst=x, src=x), 5), x) == 1


@pytest.mark.parametrize('share', [1, 150, 350])  # Of 600 rows.
@pytest.mark.parametrize('is_single', [False, True])
def test_rows_without_numbers_leave_the_order_of_the_others(
    is_single, share, monkeypatch
):
    if is_single:
        monkeypatch.setattr(module, '_FEW', 0)
    x = draw_clustered(600, 12, channels=5)
    x[-share:] = torch.nan
    source = best_sources(make(x, x, 'negative', excluded=torch.arange(600)), 599)
    # Sources at no known distance come first, as they do where all pairs are compared.
    source = source[: 600 - share, share:]
    near = torch.cdist(x, x, compute_mode='donot_use_mm_for_euclid_dist')
    assert bool((near[: 600 - share].gather(1, source).diff(dim=1) >= 0).all())


@pytest.mark.parametrize('large', [1e6, 1e10, 1e18])
def test_two_groups_of_very_different_size(large):
    x = torch.randn(300, 3, generator=seeded(), **DOUBLE)
    x[::3] *= 1e-6
    x[1::3, 0], x[2::3, 0] = large, large + 0.1 * x[2::3, 0]
    near = torch.cdist(x, x, compute_mode='donot_use_mm_for_euclid_dist')
    near.fill_diagonal_(torch.inf)
    source = best_sources(make(x, x, 'negative', excluded=torch.arange(300)), 5)
    expected = near.topk(5, largest=False).values
    torch.testing.assert_close(near.gather(1, source), expected, rtol=1e-9, atol=0)


@pytest.mark.parametrize('fill', [1e14, 1e16, 1e18])
def test_a_fill_value_leaves_the_graph_of_the_others(fill):
    x = torch.randn(500, 5, generator=seeded())
    x[-1, 0] = fill
    sampler = GumbelKNNSampler.paper(
        DistanceSimilarity(5), k=5, loop=False, eval_k=5
    ).eval()
    graphs = SimilarityKNNGraph(5, 'distance')(Data(x=x)), sampler(x)
    for graph in graphs:
        source, target = graph.edge_index
        assert target.bincount().tolist() == [5] * 500
        nearest = source[target.argsort(stable=True)].view(500, 5)
        assert recall(nearest, x.double()) == 1


@pytest.mark.parametrize(
    ('bounded', 'dtype'), [(0, torch.float32), (0, torch.double), (1e9, torch.double)]
)
def test_near_ties_are_listed_best_first(bounded, dtype, monkeypatch):
    for searched, name, value in (
        (module, '_BOUNDED', bounded),
        (module, '_MAX_SHARE', 1.0),  # Bounds are not given up.
        (cells, '_MIN_ROWS', 1),
    ):
        monkeypatch.setattr(searched, name, value)
    # Distances between the points of a grid differ by about a rounding error.
    x = torch.cartesian_prod(*3 * [torch.arange(10.0, **DOUBLE)]) / 10
    x = (x * (1 + 1e-13 * torch.randn(1000, 3, generator=seeded(), **DOUBLE))).to(dtype)
    pairs = make(x, x, 'negative', excluded=torch.arange(1000))
    source = best_sources(pairs._replace(dst=x, src=x), 9)
    near = (x.double().unsqueeze(1) - x.double()[source]).square().sum(dim=2)
    # The least error that sums of three squares may have.
    assert bool((near.diff(dim=1) >= -1e-15 * near[:, 1:]).all())


def test_few_targets_do_not_pay_for_clusters(monkeypatch):
    monkeypatch.setattr(module, '_BOUNDED', 0)
    x = torch.randn(400, 3, generator=seeded())
    for num_targets, pays in ((100, False), (300, True)):
        assert clusters_pay(make(x[:num_targets], x, 'negative')) is pays


@pytest.mark.parametrize('repeats', [3, 20])
@pytest.mark.parametrize('formula', ['negative', 'identity', 'gaussian'])
@pytest.mark.parametrize('path', ['few', 'single', 'bounds'])
def test_of_equally_good_sources_the_first_are_returned(
    path, formula, repeats, monkeypatch
):
    for searched, name, value in (
        (module, '_FEW', 2**18 if path == 'few' else 0),
        (module, '_BOUNDED', 0 if path == 'bounds' else 2**27),
        (module, '_MAX_SHARE', 1.0),  # Bounds are not given up.
    ):
        monkeypatch.setattr(searched, name, value)
    base = unit_rows(torch.randn(20, 6, generator=seeded(), **DOUBLE))
    x = base.repeat(repeats, 1)
    num_rows = x.size(0)
    pairs = make(x, x, formula, excluded=torch.arange(num_rows))
    pairs = pairs._replace(
        dst=x, src=x, response=pairs.response.map(lambda p: p.new_full(p.shape, 0.2))
    )
    # Equal rows have equal ranks, unlike those of products of matrices.
    rank = pairs.ranking.take(torch.arange(20))._replace(src=base, excluded=None).rows()
    rank = rank.repeat(repeats, repeats).fill_diagonal_(-torch.inf)
    expected = rank.sort(dim=1, descending=True, stable=True).indices
    for k in (4, 25):
        source = best_sources(pairs, k)
        assert torch.equal(source.sort().values, expected[:, :k].sort().values)
        some = pairs.take(slice(7, 12))
        assert torch.equal(best_sources(some, k), source[7:12])
