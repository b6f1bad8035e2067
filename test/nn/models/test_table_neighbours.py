"""Sums over neighbours against their definition; others stand with the table net."""

import pytest
import torch
from oracles import seeded

from torch_geometric_gsl.nn.models.table_neighbours import TableNeighbours


def softmax_sum(z, message, scale, k):
    """The sum over the nearest of each row, which is none itself."""
    rows = []
    for i in range(len(z)):
        distance = {j: float((z[i] - z[j]).square().sum()) for j in range(len(z))}
        nearest = sorted(set(distance) - {i}, key=distance.get)[:k]
        weight = torch.tensor([-scale * distance[j] for j in nearest]).softmax(0)
        rows.append(weight.to(message.dtype) @ message[nearest])
    return torch.stack(rows)


@pytest.mark.parametrize('offset', [0.0, 1e4])
@pytest.mark.parametrize('k', [1, 5, 100])
def test_evaluation_goes_over_the_nearest(k, offset):
    z = torch.randn(20, 3, generator=seeded())
    message = torch.randn(20, 2, generator=seeded(1))
    neighbours = TableNeighbours(3, eval_k=k, initial_scale=0.5).eval()
    out, graph = neighbours(z + offset, message)
    assert graph is None
    expected = softmax_sum(z + offset, message, 0.5, k)
    torch.testing.assert_close(out, expected, atol=1e-4, rtol=1e-4)


def test_prepared_sources_change_no_answer():
    z, new = torch.randn(50, 3), torch.randn(4, 3)
    message = torch.randn(50, 2)
    neighbours = TableNeighbours(3, eval_k=5).eval()
    expected = neighbours((z, new), message)[0]
    neighbours.prepare(z)
    assert torch.equal(neighbours((z, new), message)[0], expected)
    # Other sources are none of these.
    other = TableNeighbours(3, eval_k=5).eval()
    pair = z[:20].clone(), new
    assert torch.equal(neighbours(pair, message[:20])[0], other(pair, message[:20])[0])
    neighbours.prepare(None)
    assert torch.equal(neighbours((z, new), message)[0], expected)


@pytest.mark.parametrize('draws', [None, 2])
def test_no_sources(draws):
    neighbours = TableNeighbours(3, draws=draws)
    for training in (True, False):
        neighbours.train(training)
        pair = torch.randn(0, 3), torch.randn(4, 3)
        out, graph = neighbours(pair, torch.randn(0, 2), return_graph=True)
        assert not bool(out.any())
        assert out.shape == (4, 2)
        assert graph.edge_index.shape == (2, 0)


def test_repr():
    expected = 'TableNeighbours(DistanceSimilarity(3), eval_k=96)'
    assert str(TableNeighbours(3)) == expected
