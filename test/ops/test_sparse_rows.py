"""Sparse rows are taken and compared as the rows of a dense tensor."""

import pytest
import torch
from oracles import seeded

from torch_geometric_gsl.ops import scores
from torch_geometric_gsl.ops.neighbours import Neighbours, pair_dots
from torch_geometric_gsl.ops.sparse_rows import SparseRows, dense_rows

BUDGETS = (1, 600, 2**25)


def make(n=9, seed=0):
    """Return unit rows, one of them empty, dense and sparse."""
    x = torch.randn(n, 7, generator=seeded(seed), dtype=torch.double)
    x[torch.rand(n, 7, generator=seeded(seed + 1)) < 0.6] = 0
    x[2] = 0
    return scores.unit_rows(x), SparseRows.unit(x.to_sparse_csr())


@pytest.mark.parametrize('index', [[8, 2, 2, 0], []])
def test_dense_copies_of_rows(index):
    x, index = make()[0], torch.tensor(index, dtype=torch.long)
    for matrix in (x, x.to_sparse_csr()):
        rows = dense_rows(matrix, index)
        assert torch.equal(rows, x[index])
        rows.fill_(3)
    assert float(x.max()) <= 1


@pytest.mark.parametrize('memory', BUDGETS)
def test_all_pairs(memory, monkeypatch):
    name = 'torch_geometric_gsl.ops.sparse_rows.MEMORY_BUDGET'
    monkeypatch.setattr(name, memory)
    (x, a), (y, b) = make(), make(6, seed=5)
    assert torch.allclose(a.dots(b), x @ y.t(), atol=1e-12)


@pytest.mark.parametrize('memory', BUDGETS)
@pytest.mark.parametrize('is_ragged', [False, True])
def test_listed_pairs(is_ragged, memory):
    (x, a), (y, b) = make(), make(6, seed=5)
    source = torch.randint(6, (9, 4), generator=seeded(7))
    offsets = None
    if is_ragged:  # The first and the last target list nothing.
        source = source.flatten()
        offsets = torch.tensor([0, 0, 10, 11, 11, 20, 30, 34, 36, 36])
    listed = Neighbours(source, 6, offsets, memory=memory)
    value = a.pair_dots(b, listed)
    assert value.shape == source.shape
    assert torch.allclose(value, pair_dots(x, y, listed), atol=1e-12)
