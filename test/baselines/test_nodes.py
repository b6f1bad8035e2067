import pytest
import torch
from oracles import seeded, to_matrix

from torch_geometric_gsl.baselines.idgl import nodes, pairs
from torch_geometric_gsl.baselines.idgl.graph import (
    AnchorGraph,
    Factored,
    FactoredAnchors,
)
from torch_geometric_gsl.baselines.idgl.idgl import IDGL
from torch_geometric_gsl.baselines.idgl.idgl_anchor import IDGLAnchor
from torch_geometric_gsl.baselines.idgl.learned import LearnedGraph
from torch_geometric_gsl.baselines.idgl.nodes import Nodes
from torch_geometric_gsl.nn.similarity import CosineSimilarity

KINDS = pytest.mark.parametrize('kind', [IDGL, IDGLAnchor])
ANCHORS = torch.tensor([0, 3, 4])


def nodes_of(x, batch=None, anchors=None, epsilon=0.0, **options):
    return Nodes(
        x, batch, anchors, epsilon, **{'is_smooth': False, 'cached': False, **options}
    )


@pytest.mark.parametrize('anchors', [None, ANCHORS])
@pytest.mark.parametrize('case', ['positive', 'signs', 'leaf', 'threshold', 'batch'])
def test_products_of_thin_matrices_are_found(case, anchors):
    metric, x = CosineSimilarity(2, heads=1).double(), torch.rand(9, 2).double()
    if case == 'signs':
        x[5, 1] = -1
    found = nodes_of(
        x.requires_grad_(case == 'leaf'),
        torch.zeros(9, dtype=torch.long) if case == 'batch' else None,
        anchors,
        0.1 if case == 'threshold' else 0.0,
    ).learn(metric, x, [2])
    factors, weights = (
        (Factored, LearnedGraph) if anchors is None else (FactoredAnchors, AnchorGraph)
    )
    assert type(found) is (factors if case == 'positive' else weights)


@pytest.mark.parametrize('is_sparse', [False, True])
@pytest.mark.parametrize('anchors', [None, ANCHORS])
@pytest.mark.parametrize('epsilon', [0.0, 0.5])
@torch.no_grad()
def test_graphs_against_the_metric(is_sparse, anchors, epsilon, in_strips):
    in_strips(4)
    metric = CosineSimilarity(5, heads=2).double()
    x = torch.randn(9, 5, generator=seeded(), dtype=torch.double)
    x = x * (torch.rand(9, 5, generator=seeded(1)) < 0.7)
    batch = torch.arange(9) // 5
    expected = metric(x)
    expected = expected.where(expected > epsilon, 0)
    expected = expected.where(batch == batch.unsqueeze(1), 0)
    given = x.to_sparse_csr() if is_sparse else x
    graph = nodes_of(given, batch, anchors, epsilon).learn(metric, given, [2])
    if anchors is not None:
        expected = expected[:, anchors]
    torch.testing.assert_close(torch.cat([*graph.weights()]), expected)
    torch.testing.assert_close(graph.total, expected.sum(dim=1))
    torch.testing.assert_close(graph.size, expected.square().sum())
    # Edges lead to the nodes that the anchors are.
    every = torch.arange(9) if anchors is None else anchors
    edge_index, weight = graph.edges(anchors, x.dtype)
    found = to_matrix(edge_index, weight, 9, 9)[:, every]
    total = expected.sum(dim=1, keepdim=True)
    torch.testing.assert_close(found, expected / total.where(total > 0, 1))


@pytest.mark.parametrize('is_sparse', [False, True])
def test_squares_are_those_of_the_sources(is_sparse):
    x = torch.randn(9, 5, dtype=torch.double)
    given = x.to_sparse_csr() if is_sparse else x
    expected = x.square().sum(dim=1)
    torch.testing.assert_close(nodes_of(given).square, expected)
    found = nodes_of(given, anchors=ANCHORS).square
    torch.testing.assert_close(found, expected[ANCHORS])


def gradients(model, x, **kwargs):
    """Return the loss and its gradients by all parameters and by dense features."""
    y, inputs = torch.arange(x.size(0)) % 3, list(model.parameters())
    if x.requires_grad:
        inputs.append(x)
    loss = model.loss(x, y, y < 2, generator=seeded(1), **kwargs)
    return [loss.detach(), *torch.autograd.grad(loss, inputs)]


@KINDS
@pytest.mark.parametrize('form', ['dense', 'positive', 'zeros', 'sparse'])
def test_strips(kind, form, monkeypatch, in_strips, idgl_model, idgl_problem):
    model = idgl_model(kind, degree=0.3, num_layers=3, epsilon=0.1)
    x = idgl_problem(12)[0]
    x = x if form == 'dense' else x.relu()
    x = x.to_sparse_csr() if form == 'sparse' else x
    # By zeros of features the gradient is that of the threshold.
    x = x.requires_grad_() if form in ('dense', 'zeros') else x
    # Graphs of a batch are not divided into factors.
    one = torch.zeros(12, dtype=torch.long)
    for model.epsilon in (0.1, 0.0):
        expected = gradients(model, x)
        for rows in (1, 5, 12):
            in_strips(rows, 12)
            torch.testing.assert_close(gradients(model, x, batch=one), expected)
    # What is wide is computed once.
    monkeypatch.setattr(pairs, 'WIDE', 0)
    torch.testing.assert_close(gradients(model, x, batch=one), expected)


@pytest.mark.parametrize('is_sparse', [False, True])
def test_cached_products(is_sparse, monkeypatch, in_strips, idgl_model, idgl_problem):
    monkeypatch.setattr(pairs, 'WIDE', 0)
    known = len(nodes._PRODUCTS)
    kwargs = {'edge_index': torch.zeros(2, 1, dtype=torch.long)}
    model, cached = idgl_model(), idgl_model(cached=True)
    x = idgl_problem()[0]
    features = [x, 2 * x]
    if is_sparse:
        features = [x.relu().to_sparse_csr() for x in features]
    expected = [gradients(model, x, **kwargs) for x in features]
    assert len(nodes._PRODUCTS) == known
    for _ in range(2):
        found = [gradients(cached, x, **kwargs) for x in features]
        torch.testing.assert_close(found, expected)
        assert len(nodes._PRODUCTS) == known + 2
    in_strips(4)
    found = [gradients(cached, x, **kwargs) for x in features]
    torch.testing.assert_close(found, expected)
    # Features that change in place are others.
    cached.reset_parameters()
    model.load_state_dict(cached.state_dict())
    own = features[0].values() if is_sparse else features[0]
    own *= torch.linspace(0.5, 2, own.size(-1), dtype=own.dtype)
    expected = gradients(model, features[0], **kwargs)
    found = gradients(cached, features[0], **kwargs)
    torch.testing.assert_close(found, expected)
    del features, own, x
    assert len(nodes._PRODUCTS) == known
