import math

import pytest
import torch
from oracles import seeded, to_matrix
from torch.nn import functional as F

from reproduction.baselines import IDGL, IDGLAnchor
from torch_geometric_gsl.transforms.feature_graphs import nearest_neighbours

# Sizes of the problem and of its models.
N, IN, OUT, K = 9, 5, 3, 2
LABELLED = torch.tensor([0, 3, 4, 7])
MODEL_CLASSES = pytest.mark.parametrize('model_class', [IDGL, IDGLAnchor])


def problem(num_nodes=N):
    """Three classes around centres, not all features of one sign, and the labels."""
    y = torch.arange(num_nodes) % 3
    x = 0.7 * torch.randn(num_nodes, 5, generator=seeded(3), dtype=torch.double)
    x[torch.arange(num_nodes), y] += 1.5
    return x, y


def make(model_class=IDGL, **kwargs):
    """A model without noise that iterates three times."""
    torch.manual_seed(5)
    options = {'k': K, 'dropout': 0.0, 'delta': 0.0, 'max_iterations': 3}
    if model_class is IDGLAnchor:
        options |= {'num_anchors': 4, 'smoothness': 0.4, 'sparsity': 0.2}
    sizes = {'num_layers': 2, **options, **kwargs}
    return model_class(IN, 4, out_channels=OUT, **sizes).double()


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
    size, rows = len(sources), x[sources]
    square = (rows.unsqueeze(1) - rows).square().sum(dim=2)
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
        for index, lin in enumerate(model.lins):
            if index:
                h = hidden = h.relu()
            h = h @ lin.weight.t()
            ends = graphs[-1], graphs[0]
            now, initial = (along(a, h, isinstance(model, IDGLAnchor)) for a in ends)
            h = skip * start @ h + (1 - skip) * (eta * now + (1 - eta) * initial)
        outputs.append(h)
        of_labels = F.cross_entropy(h[LABELLED], y[LABELLED])
        losses.append(of_labels + penalty(model, x, sources, graphs[-1]))
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


@MODEL_CLASSES
@pytest.mark.parametrize('form', ['dense', 'positive', 'sparse'])
@pytest.mark.parametrize('case', CASES, ids=str)
def test_every_equation(model_class, case, form):
    if model_class is IDGLAnchor:
        case = {'num_anchors': 6, **case}
    model = make(model_class, **case)
    x, y = problem()
    x = x if form == 'dense' else x.relu()
    sources = list(range(N))
    if model_class is IDGLAnchor:
        sources = sorted(torch.randperm(N, generator=seeded(1))[:6].tolist())
    outputs, graphs, loss = reference(model, x, y, sources)
    laid_out = x.to_sparse_csr() if form == 'sparse' else x
    for index, output in enumerate(outputs):
        model.max_iterations = index + 1
        out = model(laid_out, generator=seeded(1))
        torch.testing.assert_close(out, output)
    value = model.loss(laid_out, y, LABELLED, generator=seeded(1))
    assert float(value.detach()) == pytest.approx(loss, rel=1e-9)
    learned = model.graphs(laid_out, generator=seeded(1))
    for (edge_index, weight), a in zip(learned, graphs, strict=True):
        expected = torch.zeros(N, N, dtype=torch.double)
        expected[:, sources] = shares(a)
        assert edge_index.size(1) == int((expected > 0).sum())
        dense = to_matrix(edge_index, weight.detach(), N, N)
        torch.testing.assert_close(dense, expected)


@MODEL_CLASSES
@pytest.mark.parametrize('is_sparse', [False, True])
def test_gradient_of_the_loss(model_class, is_sparse):
    model = make(model_class, num_heads=2, degree=0.3)
    x, y = problem(6)
    x = x.relu().to_sparse_csr() if is_sparse else x.requires_grad_()
    # The numeric gradient moves the parameters themselves.
    inputs = (*model.parameters(), *(() if is_sparse else (x,)))

    def loss(*_):
        return model.loss(x, y, torch.arange(5), generator=seeded(2))

    assert torch.autograd.gradcheck(loss, inputs, fast_mode=True)


def count(model, x, **kwargs):
    return len(model.graphs(x, generator=seeded(1), **kwargs))


def test_rule_that_ends_the_iteration():
    x, y = problem()
    model = make(max_iterations=8)
    graphs = reference(model, x, y, list(range(N)))[1]
    change = [
        float((graph - last).square().sum() / graphs[0].square().sum())
        for graph, last in zip(graphs[1:], graphs, strict=False)
    ]
    for end, value in enumerate(change, start=2):
        if value < min(change[: end - 2], default=math.inf):
            model.delta = 1.001 * value
            assert count(model, x) == end
            model.delta = 0.999 * value
            assert count(model, x) > end or end == 8


@MODEL_CLASSES
def test_graph_to_start_from(model_class):
    model, x = make(model_class).eval(), problem()[0]
    edge_index, _ = nearest_neighbours(x, K)
    expected = model(x)
    torch.testing.assert_close(model(x, edge_index), expected)
    # It does not limit the learned graphs.
    few = edge_index[:, :1]
    assert model.graphs(x, few)[0].edge_index.size(1) > 1


def test_dropout_of_the_first_iteration():
    x, inputs, model = problem()[0], [], make(dropout=0.5)
    model.lins[1].register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    model(x.repeat(20, 1) + torch.randn(20 * N, IN, dtype=torch.double))
    zeros = [float((h == 0).double().mean()) for h in inputs]
    assert zeros[0] > 0.4
    assert max(zeros[1:]) < zeros[0] - 0.2
    model.eval()
    assert torch.equal(model(x), model(x))


@MODEL_CLASSES
def test_rows_of_zeros(model_class):
    x, y = problem()
    x[2] = 0
    for laid_out in (x, x.to_sparse_csr()):
        model = make(model_class, degree=0.1, skip_weight=0.0)
        loss = model.loss(laid_out, y, torch.arange(N), generator=seeded(1))
        loss.backward()
        assert bool(loss.isfinite())
        for parameter in model.parameters():
            assert parameter.grad is not None
            assert bool(parameter.grad.isfinite().all())
        assert not bool((model.graphs(laid_out)[0].edge_index[1] == 2).any())


# Anchors alone.


def features(num_nodes=40):
    return torch.randn(num_nodes, IN, generator=seeded(3), dtype=torch.double)


def anchored(**kwargs):
    options = {'k': 3, 'num_anchors': 12, 'max_iterations': 2, **kwargs}
    return make(IDGLAnchor, **options)


def anchors(model, num_nodes=40, **kwargs):
    """The sources of the first graph; hidden rows of zeros are none of later ones."""
    initial, later = model.graphs(features(num_nodes), **kwargs)
    assert {*later.edge_index[0].tolist()} <= {*initial.edge_index[0].tolist()}
    return initial.edge_index[0].unique().tolist()


def test_training_draws_anchors():
    model = anchored(skip_weight=0.0)
    drawn = [anchors(model, generator=seeded(seed)) for seed in range(100)]
    assert all(len(draw) == 12 for draw in drawn)
    count = torch.bincount(torch.tensor(drawn).flatten(), minlength=40)
    # Binomial: mean 30, standard deviation 4.6.
    assert int(count.min()) > 8
    assert int(count.max()) < 52


def test_evaluation_does_not_draw():
    model, loaded, x = anchored().eval(), anchored().eval(), features()
    expected = model(x)
    assert torch.equal(model(x, generator=seeded(1)), expected)
    model.train()(x)
    assert torch.equal(model.eval()(x), expected)
    assert len(anchors(model)) == 12
    # Other nodes have other anchors, other models as well; the state tells which.
    assert max(anchors(model, num_nodes=100)) >= 40
    loaded.reset_parameters()
    assert anchors(loaded) != anchors(model)
    loaded.load_state_dict(model.state_dict())
    assert torch.equal(loaded(x), expected)


def test_kept_anchors():
    model = anchored().eval()
    nested = [set(anchors(model))]
    for num_kept in (9, 4, 1):
        model.keep_anchors(num_kept)
        nested.append(set(anchors(model)))
        assert len(nested[-1]) == num_kept
        assert nested[-1] < nested[-2]
    assert len(anchors(model.train())) == 12  # Training takes all of them.


def test_randomly_kept_anchors():
    model = anchored(skip_weight=0.0).eval()
    every = set(anchors(model))
    choices = []
    for seed in range(100):
        model.keep_anchors(7, seed=seed)
        choices.append(set(anchors(model)))
        assert len(choices[-1]) == 7
        assert choices[-1] < every
        model.keep_anchors(4, seed=seed)
        assert set(anchors(model)) < choices[-1]
    # Each anchor is kept as often as any other. Binomial: mean 58, standard deviation
    # 4.9; one of twelve is beyond five of them with a probability of 1e-5.
    counts = [sum(anchor in choice for choice in choices) for anchor in every]
    assert min(counts) > 58 - 5 * 4.9
    assert max(counts) < 58 + 5 * 4.9


@pytest.mark.parametrize(
    ('error', 'value', 'seed', 'match'),
    [
        (ValueError, 0, None, r"'num_kept' must be at least 1 \(got 0\)"),
        (ValueError, 13, None, r"'num_kept' must be at most 12 \(got 13\)"),
        (TypeError, 1.5, None, "'num_kept' must be an integer"),
        (ValueError, 5, -1, r"'seed' must be at least 0 \(got -1\)"),
    ],
)
def test_wrong_numbers_of_anchors(error, value, seed, match):
    with pytest.raises(error, match=match):
        anchored().keep_anchors(value, seed)


def test_more_anchors_than_nodes():
    every, limited = anchored(num_anchors=40), anchored(num_anchors=500)
    assert anchors(limited) == list(range(40))
    torch.testing.assert_close(limited(features()), every(features()))


def test_graphs_without_anchors():
    model, x = anchored(num_anchors=1).eval(), features()
    (anchor,) = anchors(model)
    batch = (torch.arange(40) >= 20).long()
    alone = batch != batch[anchor]
    (graph, *_) = model.graphs(x, batch=batch)
    assert not bool(alone[graph.edge_index[1]].any())
    out = model(x, batch=batch)
    # Their messages are those of the graph to start from alone.
    torch.nn.init.normal_(model.metrics[0].weight)
    changed = model(x, batch=batch)
    torch.testing.assert_close(changed[alone], out[alone])
    assert not torch.allclose(changed[~alone], out[~alone])
