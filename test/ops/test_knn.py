import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import matrix_pairs, seeded
from responses import RESPONSES, comparison_of, random_response

from torch_geometric_gsl.ops import cells
from torch_geometric_gsl.ops import knn as module
from torch_geometric_gsl.ops.clusters import group, k_means
from torch_geometric_gsl.ops.knn import nearest_by_bounds, top_k
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.scores import Identity, unit_rows


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 2**32), st.integers(1, 400))
def test_against_sorting(num_rows, num_columns, seed, budget):
    score = torch.randn(num_rows, num_columns, generator=seeded(seed))
    for k in (1, num_columns):
        found = top_k(matrix_pairs(score), k, memory_budget=budget)
        assert found.tolist() == [
            sorted(range(num_columns), key=lambda j: -row[j])[:k]
            for row in score.tolist()
        ]


def test_reads_small_blocks_and_no_gradient(monkeypatch):
    pairs = matrix_pairs(torch.randn(10, 4, requires_grad=True))
    seen, plain = [], PairScores.rows

    def rows(self, block):
        seen.append((block.start, block.stop))
        assert not torch.is_grad_enabled()
        return plain(self, block)

    monkeypatch.setattr(PairScores, 'rows', rows)
    # 3 temporaries * 4 columns * 4 bytes a row: three rows fit.
    found = top_k(pairs, 2, memory_budget=150)
    assert seen == [(0, 3), (3, 6), (6, 9), (9, 10)]
    assert not found.requires_grad
    assert found.dtype == torch.long


@pytest.mark.parametrize('size', [(0, 4), (1, 1)])
def test_smallest_inputs(size):
    assert top_k(matrix_pairs(torch.zeros(size)), 1).tolist() == [[0]] * size[0]


def make(x, src, formula, scale=1.0, loop=True):
    """Scores of a known response, whose parameters differ by target."""
    comparison = comparison_of(formula)
    own = None if loop else torch.arange(x.size(0))
    response = random_response(formula, x.size(0), seeded(), dtype=x.dtype)
    return PairScores(x, src, response, comparison, scale, excluded=own)


def check_nearest(pairs, k, clusters, **options):
    found = nearest_by_bounds(pairs, k, clusters, **options)
    assert found.shape == (pairs.dst.size(0), k)
    # Distinct sources of the best scores in their order: the same up to ties.
    assert all(len(set(row)) == k for row in found.tolist())
    score = pairs.rows()
    best = score.sort(dim=1, descending=True).values[:, :k]
    torch.testing.assert_close(score.gather(1, found), best, atol=1e-6, rtol=1e-5)


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
    pairs = make(x, src, formula, scale)
    for k in (1, 3, num_sources):
        check_nearest(pairs, k, clusters, memory_budget=5000)


@pytest.mark.parametrize('loop', [True, False])
@pytest.mark.parametrize('formula', RESPONSES)
@pytest.mark.parametrize('num_clusters', [1, 9, 90])
def test_nearest_by_bounds_of_odd_sets(num_clusters, formula, loop, monkeypatch):
    monkeypatch.setattr(module, '_FIRST', 0)
    monkeypatch.setattr(cells, '_MEAN_ROWS', 8)
    monkeypatch.setattr(cells, '_MIN_ROWS', 1)
    x = torch.randn(30, 5)
    for rows in (
        torch.ones(90, 5),
        unit_rows(torch.cat([x, -x, x])),
        torch.cat([x, 1e3 + x, torch.zeros(30, 5)]),
    ):
        pairs = make(rows, rows, formula, 10.0, loop)
        check_nearest(pairs, 4, k_means(rows, num_clusters))


def test_nearest_by_bounds_scores_few_pairs(monkeypatch):
    seen, plain = [], module.compare_all

    def compare_all(comparison, dst, src):
        seen.append(dst.size(0) * src.size(0))
        return plain(comparison, dst, src)

    monkeypatch.setattr(module, 'compare_all', compare_all)
    monkeypatch.setattr(cells, '_MEAN_ROWS', 32)
    shares = []
    for n in (1500, 6000):
        seen.clear()
        centre = torch.randn(n // 50, 16, generator=seeded())
        x = unit_rows(centre.repeat(50, 1) + 0.1 * torch.randn(n, 16))
        pairs = PairScores(x, x, Identity())
        check_nearest(pairs, 5, k_means(x, n // 50))
        shares.append(sum(seen) / n**2)
    assert shares[1] < 0.6 * shares[0] < 0.2
