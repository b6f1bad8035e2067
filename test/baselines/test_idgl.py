import math

import pytest
import torch
from oracles import seeded, to_matrix
from torch.nn import functional as F

from torch_geometric_gsl.baselines import IDGL, IDGLAnchor
from torch_geometric_gsl.nn.nearest_neighbours import nearest_neighbours

# Sizes of the problem and of its models.
N, IN, OUT, K = 9, 5, 3, 2
KINDS = pytest.mark.parametrize('kind', [IDGL, IDGLAnchor])


# The method written out for whole matrices.


def metric(h, sources, weight, epsilon):
    heads = [F.normalize(h * w, dim=1) for w in weight]
    scores = torch.stack([z @ z[sources].t() for z in heads]).mean(dim=0)
    return scores.where(scores > epsilon, 0)


def shares(a):
    total = a.sum(dim=1, keepdim=True)
    return a / total.where(total > 0, 1)


def along(a, h, is_anchor):
    return shares(a) @ (shares(a.t()) @ h if is_anchor else h)


def prior(x):
    """The nearest neighbours and the node itself, normalized."""
    z = F.normalize(x, dim=1)
    cosine = (z @ z.t()).fill_diagonal_(-2)
    nearest = cosine.argsort(dim=1, descending=True, stable=True)[:, :K]
    a = torch.eye(len(x), dtype=x.dtype).scatter(1, nearest, 1)
    degree = a.sum(dim=1)
    return a / (degree.unsqueeze(1) * degree).sqrt()


def penalty(model, x, sources, a):
    if isinstance(model, IDGLAnchor):  # The graph of the anchors.
        a = a.t() @ shares(a)
    size, own = len(sources), x[sources]
    square = (own.unsqueeze(1) - own).square().sum(dim=2)
    return (
        model.smoothness / size**2 * (a * square).sum() / 2
        - model.degree / size * (a.sum(dim=1) + 1e-12).log().sum()
        + model.sparsity / size**2 * a.square().sum()
    )


@torch.no_grad()
def reference(model, x, y, sources):
    """The logits and the learned graph of each iteration, and the loss."""
    start, eta, skip = prior(x), model.update_weight, model.skip_weight
    outputs = []
    graphs = []
    losses = []
    hidden = x
    for t in range(model.max_iterations):
        weight = model.metrics[min(t, 1)].weight
        graphs.append(metric(hidden, sources, weight, model.epsilon))
        h = x
        for number, lin in enumerate(model.lins):
            if number:
                h = hidden = h.relu()
            h = h @ lin.weight.t()
            ends = graphs[-1], graphs[0]
            now, first = (along(a, h, isinstance(model, IDGLAnchor)) for a in ends)
            h = skip * start @ h + (1 - skip) * (eta * now + (1 - eta) * first)
        outputs.append(h)
        losses.append(F.cross_entropy(h, y) + penalty(model, x, sources, graphs[-1]))
    later = losses[1:]
    loss = losses[0] + (sum(later) / len(later) if later else 0)
    return outputs, graphs, float(loss)


CASES = [
    {},
    {'num_layers': 3, 'num_heads': 3},
    {'epsilon': 0.8, 'update_weight': 0.9, 'num_heads': 2},
    {'skip_weight': 0.0, 'update_weight': 1.0, 'degree': 0.3},
    {'skip_weight': 0.9, 'update_weight': 0.0, 'smoothness': 0.0, 'max_iterations': 1},
    {'smoothness': 3.0, 'degree': 0.0, 'sparsity': 0.0},
    {'smoothness': 0.0, 'degree': 0.7, 'sparsity': 0.0, 'num_heads': 2},
    {'smoothness': 0.0, 'degree': 0.0, 'sparsity': 1.5},
]


@KINDS
@pytest.mark.parametrize('form', ['dense', 'positive', 'sparse'])
@pytest.mark.parametrize('case', CASES, ids=str)
def test_every_equation(kind, case, form, idgl_model, idgl_problem):
    if kind is IDGLAnchor:
        case = {'num_anchors': 6, **case}
    model = idgl_model(kind, **case)
    x, y = idgl_problem()
    x = x if form == 'dense' else x.relu()
    sources = list(range(N))
    if kind is IDGLAnchor:
        sources = sorted(torch.randperm(N, generator=seeded(1))[:6].tolist())
    outputs, graphs, loss = reference(model, x, y, sources)
    given = x.to_sparse_csr() if form == 'sparse' else x
    for number, output in enumerate(outputs):
        model.max_iterations = number + 1
        out = model(given, generator=seeded(1))
        torch.testing.assert_close(out, output)
    mask = torch.arange(N)
    found = model.loss(given, y, mask, generator=seeded(1))
    assert float(found.detach()) == pytest.approx(loss, rel=1e-9)
    learned = model.graphs(given, generator=seeded(1))
    for (edge_index, weight), a in zip(learned, graphs, strict=True):
        expected = torch.zeros(N, N, dtype=torch.double)
        expected[:, sources] = shares(a)
        assert edge_index.size(1) == int((expected > 0).sum())
        dense = to_matrix(edge_index, weight.detach(), N, N)
        torch.testing.assert_close(dense, expected)


@KINDS
@pytest.mark.parametrize('is_sparse', [False, True])
def test_gradient_of_the_loss(kind, is_sparse, idgl_model, idgl_problem):
    model = idgl_model(kind, num_heads=2, degree=0.3)
    x, y = idgl_problem(6)
    x = x.relu().to_sparse_csr() if is_sparse else x.requires_grad_()
    # The numeric gradient moves the parameters themselves.
    inputs = (*model.parameters(), *(() if is_sparse else (x,)))

    def loss(*_):
        return model.loss(x, y, torch.arange(5), generator=seeded(2))

    assert torch.autograd.gradcheck(loss, inputs, fast_mode=True)


def test_graphs_of_hidden_samples_are_never_formed(meter, idgl_model, idgl_problem):
    num_nodes = 2000
    x, model = idgl_problem(num_nodes)[0], idgl_model()
    with meter() as measured:
        graph = model._learn(x[:, :4].relu(), 1, None, None)
        graph.propagate(x).sum().backward()
        graph.change(graph)
    assert measured.largest < 20 * num_nodes


@pytest.mark.parametrize('is_sparse', [False, True])
def test_a_batch_of_one_graph(is_sparse, idgl_model, idgl_problem):
    """Products of thin matrices are what their entries are, one by one."""
    model, (x, _) = idgl_model(degree=0.3), idgl_problem()
    x = x.relu().to_sparse_csr() if is_sparse else x
    one = torch.zeros(N, dtype=torch.long)
    torch.testing.assert_close(model(x, batch=one), model(x))
    for found, graph in zip(model.graphs(x, batch=one), model.graphs(x), strict=True):
        assert torch.equal(found.edge_index, graph.edge_index)
        torch.testing.assert_close(found.edge_weight, graph.edge_weight)


def count(model, x, **kwargs):
    return len(model.graphs(x, generator=seeded(1), **kwargs))


def test_rule_that_ends_the_iteration(idgl_model, idgl_problem):
    x, y = idgl_problem()
    model = idgl_model(max_iterations=8)
    graphs = reference(model, x, y, list(range(N)))[1]
    change = [
        float((one - two).square().sum() / graphs[0].square().sum())
        for one, two in zip(graphs[1:], graphs, strict=False)
    ]
    for end, value in enumerate(change, start=2):
        if value < min(change[: end - 2], default=math.inf):
            model.delta = 1.001 * value
            assert count(model, x) == end
            model.delta = 0.999 * value
            assert count(model, x) > end or end == 8


@KINDS
def test_order_of_nodes(kind, monkeypatch, idgl_model, idgl_problem):
    model, (x, y), order = (
        idgl_model(kind, degree=0.1),
        idgl_problem(),
        torch.randperm(N),
    )
    anchors = torch.tensor([1, 4, 6])
    if kind is IDGLAnchor:
        monkeypatch.setattr(model, '_anchors', lambda x, generator: anchors)
    out, loss = model(x), model.loss(x, y, y < 2)
    anchors = order.argsort()[anchors]
    torch.testing.assert_close(model(x[order]), out[order])
    torch.testing.assert_close(model.loss(x[order], y[order], y[order] < 2), loss)


@KINDS
def test_graph_to_start_from(kind, idgl_model, idgl_problem):
    model, x = idgl_model(kind).eval(), idgl_problem()[0]
    edge_index, _ = nearest_neighbours(x, K)
    expected = model(x)
    torch.testing.assert_close(model(x, edge_index), expected)
    weight = torch.full((edge_index.size(1),), 2.0, dtype=torch.double)
    assert not torch.allclose(model(x, edge_index, edge_weight=weight), expected)
    torch.testing.assert_close(model(x, edge_index, edge_weight=weight / 2), expected)
    # It does not limit the learned graphs.
    few = edge_index[:, :1]
    assert model.graphs(x, few)[0].edge_index.size(1) > 1
    # Nor is it needed.
    model.skip_weight, model.k = 0.0, N
    assert model(x).shape == (N, OUT)


@KINDS
def test_dropout_of_the_first_iteration(kind, idgl_model, idgl_problem):
    x = idgl_problem()[0]
    inputs = []
    model = idgl_model(kind, dropout=0.5)
    model.lins[1].register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    model(x.repeat(20, 1) + torch.randn(20 * N, IN, dtype=torch.double))
    zeros = [float((h == 0).double().mean()) for h in inputs]
    assert zeros[0] > 0.4
    assert max(zeros[1:]) < zeros[0] - 0.2
    model.eval()
    assert torch.equal(model(x), model(x))


@KINDS
def test_rows_of_zeros(kind, idgl_model, idgl_problem):
    x, y = idgl_problem()
    x[2] = 0
    for given in (x, x.to_sparse_csr()):
        model = idgl_model(kind, degree=0.1, skip_weight=0.0)
        loss = model.loss(given, y, torch.arange(N), generator=seeded(1))
        loss.backward()
        assert bool(loss.isfinite())
        for parameter in model.parameters():
            assert parameter.grad is not None
            assert bool(parameter.grad.isfinite().all())
        assert not bool((model.graphs(given)[0].edge_index[1] == 2).any())


@KINDS
@pytest.mark.parametrize('factor', [1e-30, 1e30])
def test_length_of_features(kind, factor, idgl_model, idgl_problem):
    x = idgl_problem()[0].float().relu()
    model = idgl_model(kind, max_iterations=1).float().eval()
    expected = model.graphs(x)[0].edge_weight
    for given in (factor * x, (factor * x).to_sparse_csr()):
        torch.testing.assert_close(model.graphs(given)[0].edge_weight, expected)


@KINDS
def test_one_node(kind, idgl_model, idgl_problem):
    x = idgl_problem()[0][:1]
    assert idgl_model(kind, skip_weight=0.0)(x).shape == (1, OUT)
    loop = torch.zeros(2, 1, dtype=torch.long)
    assert idgl_model(kind)(x, loop).shape == (1, OUT)


@KINDS
def test_autocast(kind, idgl_model, idgl_problem):
    """What is added to the cross-entropy is computed in full precision."""
    model, (x, y) = idgl_model(kind, max_iterations=1).float(), idgl_problem()
    added = []
    for enabled in (False, True):
        with torch.autocast('cpu', dtype=torch.bfloat16, enabled=enabled):
            out = model(x.float(), generator=seeded(1))
            loss = model.loss(x.float(), y, torch.arange(N), generator=seeded(1))
            added.append(loss - F.cross_entropy(out, y))
    torch.testing.assert_close(*added, rtol=1e-5, atol=1e-6)


@KINDS
@pytest.mark.parametrize('epsilon', [0.0, 0.3])
def test_graphs_inside_of_autocast(kind, epsilon, idgl_model, idgl_problem):
    """They are those of full precision, where no hidden features are compared."""
    model, x = (
        idgl_model(kind, epsilon=epsilon, max_iterations=1).float(),
        idgl_problem()[0],
    )
    (expected,) = model.graphs(x.float(), generator=seeded(1))
    with torch.autocast('cpu', dtype=torch.bfloat16):
        (found,) = model.graphs(x.float(), generator=seeded(1))
    assert torch.equal(found.edge_index, expected.edge_index)
    torch.testing.assert_close(found.edge_weight, expected.edge_weight)
