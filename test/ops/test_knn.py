import pytest
import torch
from sklearn.neighbors import NearestNeighbors

from torch_geometric_gsl.ops.knn import cosine_top_k


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
