import pytest
import torch

from torch_geometric_gsl.baselines.slaps.sparse_pairs import sparse_pair_dots
from torch_geometric_gsl.ops.neighbours import Neighbours, pair_dots

BUDGETS = pytest.mark.parametrize('memory_budget', [1, 200, 2**25])


def rows(n=9, width=6, seed=0):
    """Rows of some zeros, the third of zeros alone, two of them equal."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, width, generator=generator, dtype=torch.float64)
    x = x * (torch.rand(n, width, generator=generator) < 0.5)
    x[2] = 0
    x[4] = x[3]
    return x


def places_of(x):
    csr = x.to_sparse_csr()
    return Neighbours(csr.col_indices(), x.size(1), csr.crow_indices())


def lists(n=9):
    """Lists of different lengths, one of them empty, with a row twice in one list."""
    sizes = torch.tensor([3, 0, 2, 4, 1, 2, 2, 3, 1])
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), sizes.cumsum(0)])
    source = torch.arange(int(sizes.sum())).mul(5).remainder(n)
    source[:2] = source[0]
    return Neighbours(source, n, offsets)


@BUDGETS
def test_against_a_plain_loop(memory_budget):
    x, neighbours = rows(), lists()
    value = x.to_sparse_csr().values()
    out = sparse_pair_dots(value, places_of(x), neighbours, memory_budget=memory_budget)
    pairs = zip(neighbours.target.tolist(), neighbours.source.tolist(), strict=True)
    expected = [
        sum(a * b for a, b in zip(x[i].tolist(), x[j].tolist(), strict=True))
        for i, j in pairs
    ]
    torch.testing.assert_close(out, torch.tensor(expected, dtype=torch.float64))


@BUDGETS
def test_gradient(memory_budget):
    x, neighbours, places = rows(), lists(), places_of(rows())
    value = x.to_sparse_csr().values().clone().requires_grad_()
    # That of the dense product, at the places of the entries.
    dense = x.clone().requires_grad_()
    weight = torch.randn(neighbours.source.numel(), dtype=torch.float64)
    (pair_dots(dense, dense, neighbours) * weight).sum().backward()
    out = sparse_pair_dots(value, places, neighbours, memory_budget=memory_budget)
    (out * weight).sum().backward()
    torch.testing.assert_close(value.grad, dense.grad[x != 0])


def test_entries_of_one_place_add_up():
    # Not coalesced: the first row holds 1 + 2 in its second column.
    places = Neighbours(
        torch.tensor([1, 1, 1]), num_sources=2, offsets=torch.tensor([0, 2, 3])
    )
    value = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)
    every = Neighbours(torch.tensor([[0, 1], [0, 1]]), num_sources=2)
    assert sparse_pair_dots(value, places, every).tolist() == [9, 12, 12, 16]


def test_smallest_inputs():
    empty = Neighbours(torch.empty(0, 2, dtype=torch.long), num_sources=0)
    places = Neighbours(
        torch.empty(0, dtype=torch.long), num_sources=3, offsets=torch.zeros(1).long()
    )
    assert sparse_pair_dots(torch.empty(0), places, empty).shape == (0,)
    x = torch.zeros(2, 3)
    one = Neighbours(torch.tensor([[1], [0]]), num_sources=2)
    assert sparse_pair_dots(torch.empty(0), places_of(x), one).tolist() == [0, 0]
