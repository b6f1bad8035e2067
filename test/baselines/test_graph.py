import pytest
import torch
from oracles import seeded, to_matrix

from torch_geometric_gsl.baselines.idgl.graph import (
    AnchorGraph,
    Factored,
    FactoredAnchors,
    Mixture,
    divided,
    normalized_prior,
)
from torch_geometric_gsl.baselines.idgl.nodes import Nodes
from torch_geometric_gsl.baselines.idgl.pairs import DensePairs
from torch_geometric_gsl.nn.similarity import CosineSimilarity
from torch_geometric_gsl.typing import SampledGraph

FACTORS = 0.7, 0.3, 0.2
ANCHORS = torch.tensor([1, 4])


def rand(*size, seed=0):
    return torch.rand(*size, generator=seeded(seed), dtype=torch.double)


def shares(a):
    total = a.sum(dim=1, keepdim=True)
    return a / total.where(total > 0, 1)


def penalty(a, x):
    """Smoothness, degrees and sparsity, a pair of nodes at a time."""
    n = len(x)
    square = (x.unsqueeze(1) - x).square().sum(dim=2)
    smooth, degree, sparse = FACTORS
    return (
        smooth / n**2 * (a * square).sum() / 2
        - degree / n * (a.sum(dim=1) + 1e-12).log().sum()
        + sparse / n**2 * a.square().sum()
    )


def test_sums_are_divided_where_there_are_weights():
    value = torch.tensor([[2.0, 4.0], [0.0, 0.0], [1.0, -1.0]])
    found = divided(value, torch.tensor([4.0, 0.0, 0.5]))
    assert found.tolist() == [[0.5, 1.0], [0.0, 0.0], [2.0, -2.0]]


def test_factors_stand_for_their_product():
    own, x, h = rand(7, 2), rand(7, 3, seed=1), rand(7, 2, seed=2)
    blocks = [slice(0, 3), slice(3, 6), slice(6, 7)]
    graph, a = Factored(own, own, DensePairs(x), blocks), own @ own.t()
    torch.testing.assert_close(torch.cat([*graph.weights()]), a)
    for rows, part in zip(blocks, graph.strips(), strict=True):
        torch.testing.assert_close(part, a[rows, rows.start :])
    torch.testing.assert_close(graph.total, a.sum(dim=1))
    torch.testing.assert_close(graph.size, a.square().sum())
    torch.testing.assert_close(graph.propagate(h), shares(a) @ h)
    found = graph.penalty(x.square().sum(dim=1), FACTORS)
    torch.testing.assert_close(found, penalty(a, x))


@pytest.mark.parametrize('is_factored', [False, True])
def test_messages_run_to_the_anchors_and_back(is_factored):
    own, x, h = rand(6, 2), rand(6, 3, seed=1), rand(6, 2, seed=2)
    sources, own_x = own[ANCHORS], x[ANCHORS]
    a, products = own @ sources.t(), own_x @ own_x.t()
    if is_factored:
        graph = FactoredAnchors(own, sources, products)
    else:
        a[2] = 0  # A node that hears of no anchor.
        graph = AnchorGraph(a, products)
    torch.testing.assert_close(graph.propagate(h), shares(a) @ shares(a.t()) @ h)
    steps = a.t() @ shares(a)
    found = graph.penalty(own_x.square().sum(dim=1), FACTORS)
    torch.testing.assert_close(found, penalty(steps, own_x))
    edge_index, weight = graph.edges(ANCHORS, torch.double)
    found = to_matrix(edge_index, weight, 6, 6)
    torch.testing.assert_close(found[:, ANCHORS], shares(a))
    assert set(edge_index[0].tolist()) == set(ANCHORS.tolist())


@pytest.mark.parametrize('anchors', [None, torch.tensor([0, 3, 4])])
@pytest.mark.parametrize('epsilon', [0.1, 0.0])
@torch.no_grad()
def test_change_counts_mirror_images(anchors, epsilon, in_strips, idgl_problem):
    in_strips(4)
    x = idgl_problem()[0]
    metrics = [CosineSimilarity(width, heads=1).double() for width in (5, 4)]
    options = {'epsilon': epsilon, 'is_smooth': False, 'cached': False}
    nodes = Nodes(x, None, anchors, **options)
    first = nodes.learn(metrics[0], x, [2])
    for seed in (1, 2):
        hidden = torch.rand(9, 4, generator=seeded(seed)).double()
        learned = nodes.learn(metrics[1], hidden, [2])
        own, old = (torch.cat([*graph.weights()]) for graph in (learned, first))
        expected = (own - old).square().sum()
        torch.testing.assert_close(learned.change(first), expected)
        first = learned  # Products of thin matrices, where the threshold is zero.


def prior(weight):
    """The graph 0 -> 1 -> 2, where node 1 has a loop, with these weights."""
    edge_index = torch.tensor([[0, 1, 1], [1, 1, 2]])
    return SampledGraph(edge_index, torch.tensor(weight, dtype=torch.double))


def test_prior_by_hand():
    """A loop keeps its weight, a missing one weighs 1."""
    edges = normalized_prior(prior([3.0, 1.0, 8.0]), 3)
    # Degrees 1, 4 and 9.
    expected = [[1, 0, 0], [3 / 2, 1 / 4, 0], [0, 8 / 6, 1 / 9]]
    expected = torch.tensor(expected, dtype=torch.double)
    found = edges.sum(torch.eye(3, dtype=torch.double))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize('has_prior', [False, True])
def test_messages_of_three_graphs_are_mixed(has_prior, monkeypatch):
    start, h = rand(3, 2), rand(3, 2, seed=1)
    a, b = rand(3, 3, seed=2), rand(3, 3, seed=3)
    own, other = shares(a), shares(b)
    first, present = (Factored(w, torch.eye(3).double(), None, []) for w in (a, b))
    edges = normalized_prior(prior([3.0, 1.0, 8.0]), 3) if has_prior else None
    mixture = Mixture(edges, first, start, skip_weight=0.4, update_weight=0.3)
    sent, plain = [], first.propagate
    monkeypatch.setattr(first, 'propagate', lambda h: sent.append(h) or plain(h))
    for given, graph in ((start, first), (h, present), (start, present), (h, first)):
        learned = own @ given
        if graph is present:
            learned = 0.7 * learned + 0.3 * other @ given
        expected = learned
        if has_prior:
            expected = 0.4 * edges.sum(given) + 0.6 * learned
        torch.testing.assert_close(mixture.propagate(given, graph), expected)
    # What the first layer sends runs along the first graph once.
    assert [h is start for h in sent] == [True, False, False]
