import math

import pytest
import torch
from oracles import seeded, to_matrix
from torch.nn import functional as F

from torch_geometric_gsl.baselines import _neighbour_model
from torch_geometric_gsl.baselines.idgl import nodes as idgl_nodes
from torch_geometric_gsl.baselines.idgl import pairs as idgl_pairs
from torch_geometric_gsl.baselines.idgl.idgl import IDGL
from torch_geometric_gsl.baselines.idgl.idgl_anchor import IDGLAnchor

N, IN, HIDDEN, OUT, K = 9, 5, 4, 3, 2
KINDS = pytest.mark.parametrize('kind', [IDGL, IDGLAnchor])


def problem(num_nodes=N):
    """Classes around centres, not all features of one sign."""
    y = torch.arange(num_nodes) % OUT
    x = 0.7 * torch.randn(num_nodes, IN, generator=seeded(3), dtype=torch.double)
    x[torch.arange(num_nodes), y] += 1.5
    return x, y


def make(kind=IDGL, **kwargs):
    """A model without noise that iterates three times."""
    torch.manual_seed(5)
    defaults = {'k': K, 'dropout': 0.0, 'delta': 0.0, 'max_iterations': 3}
    if kind is IDGLAnchor:
        defaults |= {'num_anchors': 4, 'smoothness': 0.4, 'sparsity': 0.2}
    sizes = {'num_layers': 2, **defaults, **kwargs}
    return kind(IN, HIDDEN, out_channels=OUT, **sizes).double()


def in_strips(rows, monkeypatch, num_sources=N):
    """Divides graphs into strips of some rows of double precision."""
    size = 8 * rows * num_sources // torch.get_num_threads()
    monkeypatch.setattr(idgl_nodes, 'STRIP', size)


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
    {'epsilon': 0.4, 'update_weight': 0.9, 'num_heads': 2},
    {'skip_weight': 0.0, 'update_weight': 1.0, 'degree': 0.3},
    {'skip_weight': 0.9, 'update_weight': 0.0, 'smoothness': 0.0, 'max_iterations': 1},
    {'smoothness': 3.0, 'degree': 0.0, 'sparsity': 0.0},
    {'smoothness': 0.0, 'degree': 0.7, 'sparsity': 0.0, 'num_heads': 2},
    {'smoothness': 0.0, 'degree': 0.0, 'sparsity': 1.5},
]


@KINDS
@pytest.mark.parametrize('form', ['dense', 'positive', 'sparse'])
@pytest.mark.parametrize('case', CASES, ids=str)
def test_every_equation(kind, case, form, monkeypatch):
    in_strips(4, monkeypatch)
    if kind is IDGLAnchor:
        case = {'num_anchors': 6, **case}
    model = make(kind, **case)
    x, y = problem()
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
    with torch.set_grad_enabled(form != 'dense'):  # Without, by strips.
        learned = model.graphs(given, generator=seeded(1))
    for (edge_index, weight), a in zip(learned, graphs, strict=True):
        expected = torch.zeros(N, N, dtype=torch.double)
        expected[:, sources] = shares(a)
        assert edge_index.size(1) == int((expected > 0).sum())
        dense = to_matrix(edge_index, weight.detach(), N, N)
        torch.testing.assert_close(dense, expected)


@KINDS
@pytest.mark.parametrize('is_sparse', [False, True])
def test_gradient_of_the_loss(kind, is_sparse, monkeypatch):
    in_strips(4, monkeypatch)
    model = make(kind, num_heads=2, degree=0.3)
    x, y = problem(6)
    x = x.relu().to_sparse_csr() if is_sparse else x.requires_grad_()
    # The numeric gradient moves the parameters themselves.
    inputs = (*model.parameters(), *(() if is_sparse else (x,)))

    def loss(*_):
        return model.loss(x, y, torch.arange(5), generator=seeded(2))

    assert torch.autograd.gradcheck(loss, inputs, fast_mode=True)


def gradients(model, x, **kwargs):
    """Return the loss and its gradients by all parameters and by dense features."""
    y, inputs = problem(x.size(0))[1], list(model.parameters())
    if x.requires_grad:
        inputs.append(x)
    loss = model.loss(x, y, y < 2, generator=seeded(1), **kwargs)
    return [loss.detach(), *torch.autograd.grad(loss, inputs)]


@KINDS
@pytest.mark.parametrize('form', ['dense', 'positive', 'zeros', 'sparse'])
def test_strips(kind, form, monkeypatch):
    model = make(kind, degree=0.3, num_layers=3, epsilon=0.1)
    x = problem(12)[0]
    x = x if form == 'dense' else x.relu()
    x = x.to_sparse_csr() if form == 'sparse' else x
    # By zeros of features the gradient is that of the threshold.
    x = x.requires_grad_() if form in ('dense', 'zeros') else x
    # Graphs of a batch are not divided into factors.
    one = torch.zeros(12, dtype=torch.long)
    for model.epsilon in (0.1, 0.0):
        expected = gradients(model, x)
        for rows in (1, 5, 12):
            in_strips(rows, monkeypatch, 12)
            torch.testing.assert_close(gradients(model, x, batch=one), expected)
    # What is wide is computed once.
    monkeypatch.setattr(idgl_pairs, 'WIDE', 0)
    torch.testing.assert_close(gradients(model, x, batch=one), expected)


@pytest.mark.parametrize('anchors', [None, torch.tensor([0, 3, 4])])
@pytest.mark.parametrize('epsilon', [0.1, 0.0])
@torch.no_grad()
def test_change_counts_mirror_images(anchors, epsilon, monkeypatch):
    in_strips(4, monkeypatch)
    model, x = make(), problem()[0]
    options = {'epsilon': epsilon, 'is_smooth': False, 'cached': False}
    nodes = idgl_nodes.Nodes(x, None, anchors, **options)
    first = nodes.learn(model.metrics[0], x, [2])
    for seed in (1, 2):
        hidden = torch.rand(N, HIDDEN, generator=seeded(seed)).double()
        learned = nodes.learn(model.metrics[1], hidden, [2])
        own, old = (torch.cat([*graph.weights()]) for graph in (learned, first))
        expected = (own - old).square().sum()
        torch.testing.assert_close(learned.change(first), expected)
        first = learned  # Products of thin matrices, where the threshold is zero.


@pytest.mark.parametrize('case', ['size', 'h weight', 'weight h', 'weight weight'])
def test_second_derivatives_of_the_parts_raise(case):
    """Also where the gradient that comes in is constant."""
    model, x = make(), problem()[0]
    nodes = idgl_nodes.Nodes(x, None, None, 0.1, is_smooth=False, cached=False)
    graph = nodes.learn(model.metrics[0], x, [2])
    h = torch.randn(N, 2).double()
    inputs = {'h': h.requires_grad_(), 'weight': model.metrics[0].weight}
    first, second = ('weight', 'weight') if case == 'size' else case.split()
    value = graph.size if case == 'size' else graph._send(h).sum()
    (grad,) = torch.autograd.grad(value, inputs[first], create_graph=True)
    with pytest.raises(RuntimeError, match='second derivatives are not implemented'):
        torch.autograd.grad(grad.sum(), inputs[second])


@KINDS
def test_gradients_that_are_asked_for(kind):
    model, (x, y) = make(kind, degree=0.3), problem()
    loss = model.loss(x.requires_grad_(), y, y < 2)
    inputs = [*model.parameters(), x]
    expected = torch.autograd.grad(loss, inputs, retain_graph=True)
    for value, grad in zip(inputs, expected, strict=True):
        # What the others leave does not count.
        (found,) = torch.autograd.grad(loss, value, retain_graph=True)
        torch.testing.assert_close(found, grad)
    found = torch.autograd.grad(loss, inputs)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize('epsilon', [0.0, 0.2])
@pytest.mark.parametrize(('is_sparse', 'stored'), [(False, 0), (True, 2)])
def test_stored_weights(is_sparse, stored, epsilon, monkeypatch):
    in_strips(20, monkeypatch, 400)
    num_nodes = 400
    x, y = problem(num_nodes)
    x = x.relu().to_sparse_csr() if is_sparse else x
    model = make(max_iterations=10, skip_weight=0.0, epsilon=epsilon)
    sizes = {}

    def note(value):
        sizes[value.data_ptr()] = value.numel()
        return value

    with torch.autograd.graph.saved_tensors_hooks(note, lambda value: value):
        model.loss(x, y, y < 2)
    # Halves of the first graph, and of the products of features.
    half = stored / 2
    assert half * num_nodes**2 <= sum(sizes.values()) < (half + 1.5) * num_nodes**2


def test_linear_memory(meter):
    num_nodes = 2000
    x, y = problem(num_nodes)
    model = make(degree=0.1)
    loop = torch.arange(num_nodes).expand(2, -1)
    with meter() as measured:
        model.loss(x.relu(), y, y < 2, edge_index=loop).backward()
    assert measured.largest < 20 * num_nodes


@pytest.mark.parametrize('is_sparse', [False, True])
def test_cached_products(is_sparse, monkeypatch):
    monkeypatch.setattr(idgl_pairs, 'WIDE', 0)
    known = len(idgl_nodes._PRODUCTS)
    kwargs = {'edge_index': torch.zeros(2, 1, dtype=torch.long)}
    model, cached = make(), make(cached=True)
    x = problem()[0]
    features = [x, 2 * x]
    if is_sparse:
        features = [x.relu().to_sparse_csr() for x in features]
    expected = [gradients(model, x, **kwargs) for x in features]
    assert len(idgl_nodes._PRODUCTS) == known
    for _ in range(2):
        found = [gradients(cached, x, **kwargs) for x in features]
        torch.testing.assert_close(found, expected)
        assert len(idgl_nodes._PRODUCTS) == known + 2
    in_strips(4, monkeypatch)
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
    assert len(idgl_nodes._PRODUCTS) == known


def count(model, x, **kwargs):
    return len(model.graphs(x, generator=seeded(1), **kwargs))


def test_rule_that_ends_the_iteration():
    x, y = problem()
    model = make(max_iterations=8)
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
def test_order_of_nodes(kind, monkeypatch):
    model, (x, y), order = make(kind, degree=0.1), problem(), torch.randperm(N)
    anchors = torch.tensor([1, 4, 6])
    if kind is IDGLAnchor:
        monkeypatch.setattr(model, '_anchors', lambda x, generator: anchors)
    out, loss = model(x), model.loss(x, y, y < 2)
    anchors = order.argsort()[anchors]
    torch.testing.assert_close(model(x[order]), out[order])
    torch.testing.assert_close(model.loss(x[order], y[order], y[order] < 2), loss)


@KINDS
def test_graph_to_start_from(kind):
    model, x = make(kind).eval(), problem()[0]
    edge_index, _ = _neighbour_model.nearest_neighbours(x, K)
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
def test_dropout(kind):
    x = problem()[0]
    inputs = []
    model = make(kind, dropout=0.5, iteration_dropout=0.0)
    model.lins[1].register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    model(x.repeat(20, 1) + torch.randn(20 * N, IN, dtype=torch.double))
    zeros = [float((h == 0).double().mean()) for h in inputs]
    assert zeros[0] > 0.4
    assert max(zeros[1:]) < zeros[0] - 0.2
    inputs.clear()
    model.iteration_dropout = 0.75
    model(x.repeat(20, 1) + torch.randn(20 * N, IN, dtype=torch.double))
    assert min(float((h == 0).double().mean()) for h in inputs[1:]) > 0.7
    model.eval()
    assert torch.equal(model(x), model(x))


@KINDS
def test_rows_of_zeros(kind):
    x, y = problem()
    x[2] = 0
    for given in (x, x.to_sparse_csr()):
        model = make(kind, degree=0.1, skip_weight=0.0)
        loss = model.loss(given, y, torch.arange(N), generator=seeded(1))
        loss.backward()
        assert bool(loss.isfinite())
        for parameter in model.parameters():
            assert parameter.grad is not None
            assert bool(parameter.grad.isfinite().all())
        assert not bool((model.graphs(given)[0].edge_index[1] == 2).any())


@KINDS
@pytest.mark.parametrize('factor', [1e-30, 1e30])
def test_length_of_features(kind, factor):
    x = problem()[0].float().relu()
    model = make(kind, max_iterations=1).float().eval()
    expected = model.graphs(x)[0].edge_weight
    for given in (factor * x, (factor * x).to_sparse_csr()):
        torch.testing.assert_close(model.graphs(given)[0].edge_weight, expected)


@KINDS
def test_one_node(kind):
    x = problem()[0][:1]
    assert make(kind, skip_weight=0.0)(x).shape == (1, OUT)
    loop = torch.zeros(2, 1, dtype=torch.long)
    assert make(kind)(x, loop).shape == (1, OUT)


@KINDS
def test_autocast(kind):
    """What is added to the cross-entropy is computed in full precision."""
    model, (x, y) = make(kind, max_iterations=1).float(), problem()
    added = []
    for enabled in (False, True):
        with torch.autocast('cpu', dtype=torch.bfloat16, enabled=enabled):
            out = model(x.float(), generator=seeded(1))
            loss = model.loss(x.float(), y, torch.arange(N), generator=seeded(1))
            added.append(loss - F.cross_entropy(out, y))
    torch.testing.assert_close(*added, rtol=1e-5, atol=1e-6)


@KINDS
@pytest.mark.parametrize('epsilon', [0.0, 0.3])
def test_graphs_inside_of_autocast(kind, epsilon):
    """They are those of full precision, where no hidden features are compared."""
    model, x = make(kind, epsilon=epsilon, max_iterations=1).float(), problem()[0]
    (expected,) = model.graphs(x.float(), generator=seeded(1))
    with torch.autocast('cpu', dtype=torch.bfloat16):
        (found,) = model.graphs(x.float(), generator=seeded(1))
    assert torch.equal(found.edge_index, expected.edge_index)
    torch.testing.assert_close(found.edge_weight, expected.edge_weight)
