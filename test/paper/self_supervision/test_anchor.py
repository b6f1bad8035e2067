"""The anchor graph: a running mean of graphs, by whole matrices."""

import pytest
import torch
from oracles import seeded, to_matrix

from reproduction.self_supervision.anchor import Anchor
from reproduction.self_supervision.functional import list_sources
from torch_geometric_gsl.ops.edges import Edges
from torch_geometric_gsl.typing import is_sorted_by_target

N = 5
EYE = torch.eye(N).double()
# Node 3 has no edge, and node 1 has one twice.
EDGES = torch.tensor([[0, 2, 2, 1, 4, 0], [1, 1, 1, 0, 2, 4]])
GIVEN = torch.zeros(N, N).double()
GIVEN[1, 0], GIVEN[1, 2] = 1 / 3, 2 / 3
GIVEN[0, 1] = GIVEN[2, 4] = GIVEN[4, 0] = GIVEN[3, 3] = 1
FIRST = pytest.mark.parametrize(('first', 'start'), [(None, EYE), (EDGES, GIVEN)])


def make(*args):
    return Anchor(*args).double()


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


def test_given_edges():
    weight = torch.tensor([2.0, 3.0, 3.0, 0.0, 0.5, 4.0])
    expected = GIVEN.clone()
    expected[1, 0], expected[1, 2] = 0.25, 0.75
    expected[0, 1], expected[0, 0] = 0, 1  # An edge of no weight is none.
    torch.testing.assert_close(matrix(make(0.9, (EDGES, weight))), expected)
    for none in (torch.empty(2, 0, dtype=torch.long), (EDGES, 0 * weight)):
        torch.testing.assert_close(matrix(make(0.9, none)), EYE)


@FIRST
@pytest.mark.parametrize('tau', [0.9, 1.0])
def test_momentum(first, start, tau):
    anchor, expected = make(tau, first), start
    torch.testing.assert_close(matrix(anchor), expected)
    for step in range(1, 4):
        graph, weight = random_graph(step)
        anchor.update(graph, N)
        expected = tau * expected + (1 - tau) * weight
        torch.testing.assert_close(matrix(anchor), expected)
    # A graph that remains takes no memory.
    assert (anchor.edge_weight.numel() == 0) == (tau == 1)
    anchor.reset_parameters()
    torch.testing.assert_close(matrix(anchor), start)


def test_the_heaviest_edges_keep_what_all_weighed():
    anchor, expected = make(0.5, None, 2), EYE
    for step in range(1, 5):
        graph, weight = random_graph(step)
        anchor.update(graph, N)
        mean = (expected + weight) / 2
        threshold = mean.topk(2, dim=1).values[:, -1:]
        kept = mean * (mean >= threshold)
        expected = kept * (mean.sum(1) / kept.sum(1)).unsqueeze(1)
        torch.testing.assert_close(matrix(anchor), expected)
    assert int((expected > 0).sum(dim=1).max()) == 2


def test_state():
    anchor, fresh = make(0.9, EDGES), make(0.9)
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
    match = r"'anchor' must join nodes of 'x' \(got node 4 for 3 nodes\)"
    with pytest.raises(ValueError, match=match):
        make(0.5, EDGES).graph(3, torch.double)


@pytest.mark.parametrize(
    ('args', 'error', 'text'),
    [
        ((1.5,), ValueError, r"'tau' must lie in \[0, 1\] \(got 1.5\)"),
        ((-0.1,), ValueError, r"'tau' must lie in \[0, 1\] \(got -0.1\)"),
        (('0',), TypeError, r"'tau' must be .* \(got str\)"),
        ((0.5, 3), TypeError, r"'anchor' must be a .* of edges or .* \(got int\)"),
        ((0.5, (EDGES,) * 3), TypeError, r"'anchor' must be a .* \(got tuple\)"),
        ((0.5, EDGES[0]), ValueError, r"'edge_index' must have shape \[2, num_"),
        ((0.5, -EDGES), ValueError, r"'edge_index' must not be negative \(got -4"),
        ((0.5, (EDGES, -torch.ones(6))), ValueError, "'edge_weight' must not be n"),
        ((0.5, None, 0), ValueError, "'max_anchor_neighbours' must be at least 1"),
    ],
)
def test_wrong_arguments(args, error, text):
    with pytest.raises(error, match=text):
        Anchor(*args)
