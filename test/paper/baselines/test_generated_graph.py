"""SLAPS, SUBLIME and HESGSL: the graph, the classifier, and the losses of the graph."""

import math

import pytest
import torch
from oracles import as_layout, seeded, to_matrix
from small_baselines import contrast
from torch.nn import functional as F

from reproduction.baselines import HESGSL, SLAPS, SUBLIME
from reproduction.baselines._generated_graph import sparse_pair_dots
from reproduction.self_supervision.functional import hide_channels, mask_features
from reproduction.self_supervision.networks import Denoiser
from torch_geometric_gsl.ops.neighbours import Neighbours, pair_dots
from torch_geometric_gsl.transforms.feature_graphs import nearest_neighbours
from torch_geometric_gsl.typing import is_sorted_by_target

N, IN, OUT, K = 9, 5, 3, 3
MASK = torch.tensor([0, 3, 4])
EVERY = torch.arange(N)
MODELS = {
    SLAPS: {'denoising_channels': 6, 'mask_ratio': 2.0},
    HESGSL: {'denoising_channels': 6, 'mask_ratio': 2.0, 'num_hops': 2},
    SUBLIME: {'encoder_channels': 5, 'embedding_channels': 4, 'projected_channels': 4},
}
MODEL_CLASSES = pytest.mark.parametrize('model_class', MODELS)
GENERATORS = pytest.mark.parametrize('graph_generator', ['mlp', 'mlp_d'])
LAYOUTS = pytest.mark.parametrize('layout', ['dense', 'sparse'])
BINARY = pytest.mark.parametrize('binary', [True, False])


def words(n=N, seed=0):
    """Words of positive weight, and a node without any."""
    generator = seeded(seed)
    x = torch.rand(n, IN, generator=generator, dtype=torch.float64) + 0.1
    x = x * (torch.rand(n, IN, generator=generator) < 0.6)
    x[:, 0] += 0.1
    x[2] = 0
    return x


def labels():
    """Labels of a few nodes; those of the others are not to be read."""
    return torch.full((N,), -1).index_put((MASK,), torch.tensor([2, 0, 2]))


def build(model_class, randomize=True, out_channels=OUT, **options):
    """A small model with parameters that are no longer those of its beginning."""
    torch.manual_seed(7)
    options = {'k': K, **MODELS[model_class], **options}
    model = model_class(IN, 4, 2, out_channels, **options).double().eval()
    if randomize:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += torch.randn_like(parameter) / 2
    return model


def graph_matrix(model, x):
    """Row i holds the weights of the sources of node i."""
    return to_matrix(*model.graphs(x)[0], len(x), len(x))


# The graph and the classifier, for whole matrices.


def normalised(cosine):
    both = (cosine.relu() + cosine.relu().t()) / 2
    degree = both.sum(dim=1)
    scale = degree.where(degree > 0, 1).rsqrt()
    return scale.unsqueeze(1) * both * scale


def adjacency(model, x, act, k=K):
    """Embed nodes, keep the nearest of each, and normalise both directions."""
    squash = {'tanh': torch.tanh, 'relu': torch.relu}[act]
    state = model.graph_generator.state_dict()
    if 'weight' in state:
        z = squash(x * state['weight'][0]) * state['weight'][1]
    else:
        h = squash(x @ state['first.weight'].t() + state['first.bias'])
        z = h @ state['second.weight'].t() + state['second.bias']
    z = F.normalize(z, dim=1)
    cosine = z @ z.t()
    nearest = cosine.argsort(dim=1, descending=True, stable=True)[:, : k + 1]
    nearest_cosine = torch.zeros_like(cosine).scatter(
        1, nearest, cosine.gather(1, nearest)
    )
    return normalised(nearest_cosine)


def classified(model, a, h):
    for index, layer in enumerate(model.classifier):
        h = a @ (h.relu() if index else h) @ layer.lin.weight.t() + layer.bias
    return h


@LAYOUTS
@GENERATORS
@MODEL_CLASSES
@pytest.mark.parametrize('act', ['tanh', 'relu'])
@torch.no_grad()
def test_graph_and_output_against_matrices(layout, graph_generator, model_class, act):
    model = build(model_class, graph_generator=graph_generator, graph_act=act)
    x = words()
    expected = adjacency(model, x, act)
    (graph,) = model.graphs(as_layout(x, layout))
    assert is_sorted_by_target(graph.edge_index)
    assert torch.unique(graph.edge_index, dim=1).shape == graph.edge_index.shape
    torch.testing.assert_close(to_matrix(*graph, N, N), expected)
    out = classified(model, expected, x)
    torch.testing.assert_close(model(as_layout(x, layout)), out)
    # With fewer others than that, a node keeps all of them.
    model = build(model_class, graph_generator=graph_generator, graph_act=act, k=N)
    matrix = graph_matrix(model, as_layout(x, layout))
    torch.testing.assert_close(matrix, adjacency(model, x, act, N - 1))


@GENERATORS
def test_it_begins_as_the_nearest_neighbours(graph_generator):
    # Identity, and relu on what is not negative: embeddings are the features.
    model = build(SLAPS, False, graph_generator=graph_generator, graph_act='relu')
    nearest = to_matrix(*nearest_neighbours(words(), K + 1, loop=True), N, N)
    torch.testing.assert_close(graph_matrix(model, words()), normalised(nearest))


@LAYOUTS
@GENERATORS
def test_equal_nodes_and_nodes_without_features(layout, graph_generator):
    x, single = torch.ones(6, IN).double(), torch.zeros(N, IN).double()
    single[0, 0] = 1
    model = build(SLAPS, False, graph_generator=graph_generator)
    assert bool(model(as_layout(x, layout)).isfinite().all())
    loss = model.loss(as_layout(single, layout), EVERY % OUT)
    loss.backward()
    assert bool(loss.isfinite())
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    assert all(bool(grad.isfinite().all()) for grad in grads)


@pytest.mark.parametrize('act', ['tanh', 'relu'])
def test_gradient_of_a_sparse_row_that_becomes_zero(act):
    x, gradients = words().float(), []
    x[2] = torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0])
    for layout in ('dense', 'sparse'):
        model = build(SLAPS, False, graph_generator='mlp_d', graph_act=act).float()
        with torch.no_grad():  # The only entry of row 2 vanishes.
            model.graph_generator.weight[0, 1] = -1 if act == 'relu' else 0
        loss = model.loss(as_layout(x, layout), EVERY % OUT, generator=seeded())
        loss.backward()
        gradients.append(model.graph_generator.weight.grad)
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize('memory', [1, 200, 2**25])
def test_products_of_sparse_rows(memory):
    x = torch.randn(N, 6, generator=seeded(), dtype=torch.float64)
    x = x * (torch.rand(N, 6, generator=seeded(1)) < 0.5)
    x[2], x[4] = 0, x[3]
    # Lists of different lengths, one of them empty, with a row twice in one list.
    sizes = torch.tensor([0, 3, 0, 2, 4, 1, 2, 2, 3, 1])
    source = torch.arange(18).mul(5).remainder(N).index_fill(0, torch.tensor([1]), 0)
    neighbours = Neighbours(source, N, sizes.cumsum(0))
    csr = x.to_sparse_csr()
    places = Neighbours(csr.col_indices(), 6, csr.crow_indices())
    value, dense = csr.values().clone().requires_grad_(), x.clone().requires_grad_()
    dots = sparse_pair_dots(value, places, neighbours, memory=memory)
    expected = pair_dots(dense, dense, neighbours)
    torch.testing.assert_close(dots, expected)
    weight = torch.randn(18, dtype=torch.float64)
    for out in (dots, expected):
        (out * weight).sum().backward()
    torch.testing.assert_close(value.grad, dense.grad[x != 0])


# The losses of the graph.


def reference(network, x, graph, generator, anchor=None):
    """Compute a loss from whole matrices, with the random numbers of the network."""

    def adjacency(graph):
        edge_index, weight = graph
        if network.training and (dropout := network.adjacency_dropout) > 0:
            keep = torch.empty(weight.numel())
            keep = keep.bernoulli_(1 - dropout, generator=generator)
            weight = weight * keep / (1 - dropout)
        return to_matrix(edge_index, weight, len(x), len(x))

    def two_layers(a, h):
        h = (a @ h @ network.first.lin.weight.t() + network.first.bias).relu()
        return a @ h @ network.last.lin.weight.t() + network.last.bias

    if isinstance(network, Denoiser):
        ratio = network.negative_ratio if network.binary else None
        masked = mask_features(x, network.mask_ratio, ratio, generator=generator)
        assert 5 < masked.target.numel() < x.numel()
        position = masked.row, masked.column
        hidden = x if network.sees_hidden else x.index_put(position, x.new_zeros(()))
        out = two_layers(adjacency(graph), hidden)[position]
        if network.binary:
            return (-torch.where(x[position] > 0, out, -out)).exp().log1p().mean()
        return (out - x[position]).square().mean()
    views = []
    for edges, rate in zip((anchor, graph), network.mask_rate, strict=True):
        hidden = hide_channels(x, rate, generator)
        h = two_layers(adjacency(edges), hidden)
        h = h @ network.project_first.weight.t() + network.project_first.bias
        views.append(network.project_last(h.relu()))
    return x.new_tensor(contrast(*views, network.temperature))


@LAYOUTS
@GENERATORS
@MODEL_CLASSES
@BINARY
@pytest.mark.parametrize('training', [True, False])
@torch.no_grad()
def test_losses_against_matrices(
    layout, graph_generator, model_class, binary, training
):
    options = {'adjacency_dropout': 0.3, 'dropout': 0.0}
    options |= (
        {} if model_class is SUBLIME else {'binary': binary, 'negative_ratio': 1.0}
    )
    model = build(model_class, graph_generator=graph_generator, **options).train(
        training
    )
    x = words()
    (graph,) = model.graphs(x)
    if model_class is SUBLIME:
        anchor = EVERY.repeat(2, 1), torch.ones(N).double()
        loss = model.contrastive_loss(as_layout(x, layout), generator=seeded(3))
        expected = reference(model.encoder, x, graph, seeded(3), anchor)
    else:
        loss = model.denoising_loss(as_layout(x, layout), generator=seeded(3))
        expected = reference(model.denoiser, x, graph, seeded(3))
        assert model.denoiser.sees_hidden == (model_class is HESGSL and binary)
    torch.testing.assert_close(loss, expected)


def homophily(a, labels, num_hops, num_classes=OUT):
    """The formula of HESGSL, a node and a class at a time."""
    n, classes = len(labels), range(num_classes)
    value = [[float(c == label) for c in classes] for label in labels]
    for _ in range(num_hops):
        value = [
            [math.fsum(a[i][j] * value[j][c] for j in range(n)) for c in classes]
            for i in range(n)
        ]
    total = 0.0
    for row, label in zip(value, labels, strict=True):
        total += math.log(math.fsum(map(math.exp, row))) - row[label]
    return total / (n * num_classes)


@LAYOUTS
@GENERATORS
@pytest.mark.parametrize('num_hops', [1, 2, 10])
def test_homophily_loss_against_loops(layout, graph_generator, num_hops):
    model = build(HESGSL, graph_generator=graph_generator, num_hops=num_hops)
    x, y = words(), labels()
    label = model(x).argmax(dim=1)
    assert label[MASK].tolist() != y[MASK].tolist()  # Labels overrule predictions.
    label[MASK] = y[MASK]
    a = graph_matrix(model, x).tolist()
    for target, mask in ((y, MASK), (EVERY % OUT, EVERY < N)):
        expected_labels = label if mask is MASK else target
        loss = model.homophily_loss(as_layout(x, layout), target, mask)
        expected = homophily(a, expected_labels.tolist(), num_hops)
        assert loss.item() == pytest.approx(expected, abs=1e-12)


def test_homophily_loss_has_no_noise():
    """Neither pseudo-labels nor the graph know of dropout."""
    model = build(HESGSL, dropout=0.9, adjacency_dropout=0.9)
    x, y = words(), labels()
    quiet, state = model.homophily_loss(x, y, MASK), torch.get_rng_state()
    assert torch.equal(model.train().homophily_loss(x, y, MASK), quiet)
    assert torch.equal(torch.get_rng_state(), state)
    # What is random in the loss is then what is random without this one.
    losses = []
    for model.homophily_weight in (1.0, 0.0):
        losses.append(model.train().loss(x, y, MASK, generator=seeded(3)))
    torch.testing.assert_close(losses[0] - losses[1], quiet)


def graph_losses(model, x, y):
    """The losses of the graph beside the names of their weights."""
    losses = {}
    if isinstance(model, SUBLIME):
        losses['contrastive_weight'] = model.contrastive_loss(x, generator=seeded())
    else:
        losses['denoising_weight'] = model.denoising_loss(x, generator=seeded())
    if isinstance(model, HESGSL):
        losses['homophily_weight'] = model.homophily_loss(x, y, MASK)
    return losses


@pytest.mark.parametrize(
    ('layout', 'graph_generator'), [('dense', 'mlp'), ('sparse', 'mlp_d')]
)
@MODEL_CLASSES
@BINARY
def test_gradient_of_the_loss(layout, graph_generator, model_class, binary):
    options = {} if model_class is SUBLIME else {'binary': binary}
    model = build(model_class, graph_generator=graph_generator, **options)
    x, y = as_layout(words(), layout), labels()
    leaves = list(model.parameters())
    if model_class is SUBLIME:  # To its labels the graph is a constant.
        leaves = [*model.graph_generator.parameters(), *model.encoder.parameters()]

    def loss(*_):
        if model_class is SUBLIME:
            return model.contrastive_loss(x, generator=seeded())
        return model.loss(x, y, MASK, generator=seeded())

    # The numeric gradient moves the parameters themselves.
    assert torch.autograd.gradcheck(loss, tuple(leaves), fast_mode=True)


TRAINED = {
    'denoising_weight': {'graph_generator', 'denoiser'},
    'homophily_weight': {'graph_generator'},
    'contrastive_weight': {'graph_generator', 'encoder'},
}


@LAYOUTS
@GENERATORS
@MODEL_CLASSES
def test_the_loss_and_what_each_part_trains(layout, graph_generator, model_class):
    model = build(model_class, graph_generator=graph_generator, dropout=0.0)
    x, y = as_layout(words(), layout), labels()
    losses = graph_losses(model, x, y)
    cases = [(TRAINED[name], value) for name, value in losses.items()]
    of_labels = {'classifier'} | (
        set() if model_class is SUBLIME else {'graph_generator'}
    )
    cases += [(of_labels, F.cross_entropy(model(x)[MASK], y[MASK]))]
    for index, name in enumerate(losses):
        setattr(model, name, 3.5 + index)
    loss = model.loss(x, y, MASK, generator=seeded())
    expected = cases[-1][1]
    for index, value in enumerate(losses.values()):
        expected = expected + (3.5 + index) * value
    torch.testing.assert_close(loss, expected)
    cases += [(set().union(*(modules for modules, _ in cases)), loss)]
    for modules, loss in cases:
        model.zero_grad()
        loss.backward()
        for name, value in model.named_parameters():
            is_trained = name.split('.')[0] in modules
            assert (value.grad is not None) == is_trained, name
            assert not is_trained or bool(value.grad.isfinite().all()), name
            assert not is_trained or bool(value.grad.any()), name


@pytest.mark.parametrize('dropped', ['dropout', 'adjacency_dropout'])
@pytest.mark.parametrize('network', [0, 1])
def test_each_network_has_its_dropout(dropped, network):
    options = {'dropout': 0.0, 'adjacency_dropout': 0.0}
    options[dropped] = tuple(0.5 * (network == index) for index in (0, 1))
    model, x = build(SLAPS, mask_ratio=1.0, **options), words()
    quiet = model.denoising_loss(x), model(x)
    model.train()
    loud = model.denoising_loss(x), model(x)
    for index, (a, b) in enumerate(zip(quiet, loud, strict=True)):
        assert torch.equal(a, b) == (index != network)
