"""The anchor graph: a running mean of graphs, by whole matrices."""

import pytest
import torch
from oracles import seeded, to_matrix

from reproduction.self_supervision.functional import list_sources
from reproduction.self_supervision.networks import Anchor
from torch_geometric_gsl.ops.edges import Edges
from torch_geometric_gsl.typing import is_sorted_by_target

N = 5
EYE = torch.eye(N).double()


def make(tau):
    return Anchor(tau).double()


def matrix(anchor):
    graph = anchor.graph(N, torch.double)
    assert is_sorted_by_target(graph.edge_index)
    assert torch.unique(graph.edge_index, dim=1).shape == graph.edge_index.shape
    assert not graph.edge_weight.requires_grad
    return to_matrix(*graph, N, N)


def random_graph(seed):
    """Edges sorted by target, and the matrix whose row i holds the sources of i."""
    generator = seeded(seed)
    weight = torch.rand(N, N, generator=generator, dtype=torch.double)
    weight = weight * (torch.rand(N, N, generator=generator) < 0.4)
    target, source = weight.nonzero().t()
    sources = list_sources(torch.stack([source, target]), N)
    return Edges(sources, weight[target, source].requires_grad_()), weight


@pytest.mark.parametrize('tau', [0.9, 1.0])
def test_momentum(tau):
    anchor, expected = make(tau), EYE
    torch.testing.assert_close(matrix(anchor), expected)
    for step in range(1, 4):
        graph, weight = random_graph(step)
        anchor.update(graph, N)
        expected = tau * expected + (1 - tau) * weight
        torch.testing.assert_close(matrix(anchor), expected)
    # A graph that remains takes no memory.
    assert (anchor.edge_weight.numel() == 0) == (tau == 1)
    anchor.reset_parameters()
    assert torch.equal(matrix(anchor), EYE)


def test_state():
    anchor, fresh = make(0.9), make(0.9)
    assert set(fresh.state_dict()) == {'edge_index', 'edge_weight'}
    anchor.update(random_graph(1)[0], N)
    fresh.load_state_dict(anchor.state_dict())
    assert torch.equal(matrix(fresh), matrix(anchor))
    fresh.load_state_dict(make(0.9).state_dict())
    assert torch.equal(matrix(fresh), EYE)


def test_it_is_one_of_its_nodes():
    anchor = make(0.5)
    anchor.update(random_graph(1)[0], N)
    match = r"'x' must hold the 5 nodes of the anchor graph, .* \(got 4 nodes\)"
    with pytest.raises(ValueError, match=match):
        anchor.graph(4, torch.double)


@pytest.mark.parametrize(
    ('tau', 'error', 'text'),
    [
        (1.5, ValueError, r"'tau' must lie in \[0, 1\] \(got 1.5\)"),
        (-0.1, ValueError, r"'tau' must lie in \[0, 1\] \(got -0.1\)"),
        ('0', TypeError, r"'tau' must be .* \(got str\)"),
    ],
)
def test_wrong_arguments(tau, error, text):
    with pytest.raises(error, match=text):
        Anchor(tau)
