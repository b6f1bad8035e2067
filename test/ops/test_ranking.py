"""Rankings against exact fractions, scikit-learn and distances of centred rows."""

from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import seeded
from responses import OF_USERS, RESPONSES, Tanh, comparison_of, random_response
from sklearn.neighbors import NearestNeighbors

from torch_geometric_gsl.ops import knn as module
from torch_geometric_gsl.ops.knn import best_sources
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.scores import HeatKernel, Identity, unit_rows
from torch_geometric_gsl.ops.sparse_rows import SparseRows

DOUBLE = {'dtype': torch.double}


def make(x, src, formula, **options):
    response = random_response(formula, x.size(0), seeded(), **DOUBLE)
    return PairScores(x, src, response, comparison_of(formula), **options)


def exact_ranks(pairs, formula):
    """Return what ranks all pairs, as fractions."""
    rows, columns = (
        [[Fraction(v) for v in row] for row in part.tolist()]
        for part in (pairs.dst, pairs.src)
    )

    def products(u):
        return [sum(a * b for a, b in zip(u, v, strict=True)) for v in columns]

    def squares(u):
        return [sum((a - b) ** 2 for a, b in zip(u, v, strict=True)) for v in columns]

    found = []
    for i, u in enumerate(rows):
        match formula:
            case 'identity':
                found.append(products(u))
            case 'difference':
                found.append([-dot for dot in products(u)])
            case 'gaussian':
                b = Fraction(float(pairs.response.params[0][i]))
                found.append([-abs(dot - b) for dot in products(u)])
            case _:
                found.append([-square for square in squares(u)])
    return found


@given(
    st.integers(1, 12),
    st.integers(1, 30),
    st.integers(0, 2**32),
    st.sampled_from(list(RESPONSES)),
    st.sampled_from([0.0, 3e3]),
    st.sampled_from([1e-25, 1.0, 1e25]),
    st.booleans(),
)
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
        found = best_sources(pairs, k)
    for row, sources in zip(exact_ranks(pairs, formula), found.tolist(), strict=True):
        best = sorted(row, reverse=True)[:k]
        assert len(set(sources)) == k
        largest = max(map(abs, row))
        for place, source in enumerate(sources):
            # Double precision of what is left once rows are centred.
            slack = abs(best[place]) * Fraction(1, 10**9)
            if formula == 'gaussian':
                slack = largest * Fraction(1, 10**13) + Fraction(1, 10**8)
            elif comparison_of(formula) == 'dot':
                slack = largest * Fraction(1, 10**13)
            assert row[source] >= best[place] - slack


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
    found = apart.gather(1, best_sources(pairs, 5))
    expected = apart.topk(5, largest=False).values
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-15)


def count_pairs(pairs, monkeypatch):
    """Return how many pairs a ranking compares in single and in double precision."""
    count = {torch.float32: 0, torch.float64: 0}
    plain = PairScores.rows

    def rows(self, block=slice(None)):
        out = plain(self, block)
        count[out.dtype] += out.numel()
        return out

    monkeypatch.setattr(PairScores, 'rows', rows)
    best_sources(pairs, 5)
    return count[torch.float32], count[torch.float64]


@pytest.mark.parametrize('offset', [0.0, 1e5])
@pytest.mark.parametrize('formula', ['identity', 'heat_kernel'])
def test_single_precision_serves_centred_rows(formula, offset, monkeypatch):
    n = 1000
    x = offset + torch.randn(n, 8, generator=seeded(), **DOUBLE)
    pairs = make(unit_rows(x) if formula == 'identity' else x, x, formula)
    pairs = pairs._replace(src=pairs.dst)
    single, double = count_pairs(pairs, monkeypatch)
    assert n * n <= single < 1.5 * n * n
    assert double < 0.02 * n * n


def test_duplicates_are_told_in_double_precision(monkeypatch):
    x = torch.randn(40, 4, generator=seeded(), **DOUBLE).repeat(25, 1)
    pairs = make(x, x, 'heat_kernel')
    found = best_sources(pairs, 25)
    assert torch.equal(
        found % 40, (torch.arange(1000) % 40).unsqueeze(1).expand(-1, 25)
    )
    single, double = count_pairs(pairs, monkeypatch)
    assert single < 0.5 * double  # Only targets that were probed.


@pytest.mark.parametrize('loop', [True, False])
def test_sparse_rows_against_scikit_learn(loop, monkeypatch):
    monkeypatch.setattr(module, '_FEW', 0)
    x = torch.randn(50, 6, **DOUBLE, generator=seeded())
    x *= torch.rand(50, 6, generator=seeded()) < 0.7
    x[:, 0] += 0.1  # No row of zeros.
    rows = SparseRows.unit(x.to_sparse_csr())
    own = None if loop else torch.arange(50)
    found = best_sources(PairScores(rows, rows, Identity(), excluded=own), 4)
    search = NearestNeighbors(n_neighbors=5, metric='cosine').fit(x)
    expected = search.kneighbors(x)[1]
    assert found.tolist() == expected[:, slice(0, 4) if loop else slice(1, 5)].tolist()


def test_a_response_of_a_user_ranks_as_it_is():
    x = torch.randn(30, 3, generator=seeded(), **DOUBLE)
    pairs = PairScores(x, x, Tanh())
    expected = (x @ x.t()).tanh().topk(4).indices
    assert torch.equal(best_sources(pairs, 4), expected)


def test_bounds_find_the_same(monkeypatch):
    x = torch.randn(300, 4, generator=seeded(), **DOUBLE)
    for formula in RESPONSES:
        pairs = make(x, x, formula)
        expected = best_sources(pairs, 3)
        with monkeypatch.context() as patch:
            patch.setattr(module, '_BOUNDED', 0)
            patch.setattr(module, '_FEW', 0)
            assert torch.equal(best_sources(pairs, 3), expected)


@pytest.mark.parametrize('name', [*RESPONSES, *OF_USERS])
def test_rankings_have_the_order_of_the_responses(name):
    row = {**RESPONSES, **OF_USERS}[name]
    value = torch.linspace(0, 1, 50, **DOUBLE).unsqueeze(0)
    params = [torch.full((1,), p, **DOUBLE) for p in row.params]
    response = row.cls(*params)
    ranking = response.ranking
    own = [param.unsqueeze(1) for param in ranking.params]
    score, rank = response.value(value, *params)[0], ranking.value(value, *own)[0]
    order = score.argsort()
    assert bool((rank[order].diff() > -1e-12).all())
    # As steep as the compared value at the most, where that is promised.
    is_flat = (rank.diff().abs() <= value.diff().abs() * (1 + 1e-9)).all()
    assert bool(is_flat) or not ranking.is_lipschitz
    assert ranking.is_lipschitz or name == 'a wave'


@pytest.mark.parametrize('name', [*RESPONSES, *OF_USERS])
@pytest.mark.parametrize('is_ranking', [False, True])
def test_intervals_hold_the_scores_between_their_ends(name, is_ranking):
    row = {**RESPONSES, **OF_USERS}[name]
    response = row.cls(*(torch.full((1, 1), p, **DOUBLE) for p in row.params))
    response = response.ranking if is_ranking else response
    ends = torch.rand(2, 1, 40, generator=seeded(), **DOUBLE).sort(dim=0).values
    assert response.has_interval
    least, most = response.interval(*ends, *response.params)
    for share in torch.linspace(0, 1, 9):
        score = response.value(torch.lerp(*ends, share), *response.params)
        assert bool((least <= score + 1e-12).all() & (score - 1e-12 <= most).all())


def test_a_kernel_that_underflows_is_ranked_by_the_distance():
    x = 1e6 * torch.rand(200, 2, generator=seeded(), **DOUBLE)
    response = HeatKernel(torch.ones(200, **DOUBLE))
    pairs = PairScores(x, x, response, 'squared_distance')
    expected = NearestNeighbors(n_neighbors=4).fit(x).kneighbors(x)[1]
    assert best_sources(pairs, 4).tolist() == expected.tolist()
