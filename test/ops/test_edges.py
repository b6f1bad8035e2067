"""Graphs that are ordered once, and edges that are dropped."""

import pytest
import torch
from oracles import seeded

from torch_geometric_gsl.ops.edges import Edges, drop_edges, list_by_row, list_sources
from torch_geometric_gsl.ops.neighbours import Neighbours


@pytest.mark.parametrize('dtype', [torch.double, torch.bfloat16])
def test_sums_along_a_graph(dtype):
    # Node 1 hears nobody; half precision is summed in full.
    edge_index = torch.tensor([[0, 2, 1, 0, 3], [0, 0, 2, 3, 3]])
    weight = torch.tensor([0.5, 0.25, 1.0, 2.0, 0.125], dtype=dtype)
    h = torch.randn(4, 3, generator=seeded(), dtype=torch.double).to(dtype)
    matrix = torch.zeros(4, 4, dtype=torch.double)
    matrix[edge_index[1], edge_index[0]] = weight.double()
    found = Edges(list_sources(edge_index, 4), weight).sum(h)
    assert found.dtype == dtype
    rtol = 2 * torch.finfo(dtype).eps
    torch.testing.assert_close(found.double(), matrix @ h.double(), rtol=rtol, atol=0)


def test_columns_of_rows():
    found = list_by_row(torch.tensor([0, 0, 2]), torch.tensor([4, 1, 0]), (4, 5))
    assert found.offsets.tolist() == [0, 2, 2, 3, 3]
    assert found.source.tolist() == [4, 1, 0]
    assert found.num_sources == 5


def test_dropout_of_edges():
    stats = pytest.importorskip('scipy.stats')
    count = 20_000
    neighbours = Neighbours(torch.zeros(1, count, dtype=torch.long), num_sources=1)
    edges = Edges(neighbours, torch.linspace(1, 2, count))
    for probability in (0.25, 0.5):
        dropped = drop_edges(edges, probability, seeded()).weight
        zeros = dropped == 0
        # A two-sided test that errs once in 100,000.
        assert stats.binomtest(int(zeros.sum()), count, probability).pvalue > 1e-5
        expected = edges.weight[~zeros] / (1 - probability)
        torch.testing.assert_close(dropped[~zeros], expected)
    assert drop_edges(edges, 0.0, None) is edges
