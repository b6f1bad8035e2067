import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import matrix_pairs, seeded
from sklearn.neighbors import NearestNeighbors

from torch_geometric_gsl.ops.knn import cosine_top_k, top_k
from torch_geometric_gsl.ops.pair_scores import PairScores


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


@pytest.mark.parametrize('rows', [slice(None), slice(10, 35)])
@pytest.mark.parametrize('loop', [True, False])
def test_cosine_against_scikit_learn(rows, loop):
    x = torch.randn(50, 6, dtype=torch.float64) * (torch.rand(50, 6) < 0.7)
    x[:, 0] += 0.1  # No row of zeros.
    found = cosine_top_k(x.to_sparse_csr(), 4, rows, loop=loop, memory_budget=3000)
    part = x[rows]
    search = NearestNeighbors(n_neighbors=5, metric='cosine').fit(part)
    distance, expected = search.kneighbors(part)
    own = slice(0, 4) if loop else slice(1, 5)
    assert found.source.tolist() == expected[:, own].tolist()
    torch.testing.assert_close(found.cosine, 1 - torch.tensor(distance[:, own]))


def test_cosine_stores_nothing_of_the_size_of_all_pairs(meter):
    n = 3000
    x = torch.eye(n)[:, :40].to_sparse_csr()

    with meter() as seen:
        cosine_top_k(x, 2, memory_budget=2**20)
    # A block of rows has a third of the budget.
    assert n * 20 < seen.largest <= 2**20 // 4
