import math

import pytest
import torch
from oracles import seeded, to_matrix
from torch.nn import functional as F

from torch_geometric_gsl.baselines.sublime import SUBLIME
from torch_geometric_gsl.ops.masking import hide_channels
from torch_geometric_gsl.typing import is_sorted_by_target

N, IN, HIDDEN, OUT, K, T = 9, 6, 4, 3, 3, 0.2
SMALL = {'encoder_channels': 5, 'embedding_channels': 4, 'projected_channels': 4}
GENERATORS = pytest.mark.parametrize('graph_generator', ['mlp_d', 'mlp'])
LAYOUTS = pytest.mark.parametrize('layout', ['dense', 'sparse'])


def features(n=N, seed=0):
    """Words of positive weight, some of which are absent; no two rows are alike."""
    generator = seeded(seed)
    x = torch.rand(n, IN, generator=generator, dtype=torch.float64) + 0.1
    return x * (torch.rand(n, IN, generator=generator) < 0.8)


def as_layout(x, layout):
    return x if layout == 'dense' else x.to_sparse_csr()


def build(randomize=True, **options):
    """A small model with parameters that are no longer those of its beginning."""
    torch.manual_seed(7)
    model = SUBLIME(IN, HIDDEN, 2, OUT, **{'k': K, **SMALL, **options}).double().eval()
    if randomize:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += torch.randn_like(parameter) / 3
    return model


# The anchor.


def test_the_anchor_moves_in_training_only():
    model, x = build(tau=0.9), features()
    expected = torch.eye(N, dtype=torch.float64)
    for step in range(3):
        model.train(step > 0)
        (learned,) = model.graphs(x)
        model.contrastive_loss(x)
        if step > 0:
            expected = 0.9 * expected + 0.1 * to_matrix(*learned, N, N).detach()
        found = model.anchor.graph(N, x)
        torch.testing.assert_close(to_matrix(*found, N, N), expected)
    assert not found.edge_weight.requires_grad
    model(x)
    torch.testing.assert_close(model.anchor.graph(N, x), found)
    model.reset_parameters()
    assert model.anchor.edge_weight.numel() == 0


def test_with_tau_one_the_anchor_remains():
    model = build(tau=1.0).train()
    model.loss(features(), torch.arange(N) % OUT, torch.arange(N))
    assert model.anchor.edge_weight.numel() == 0


def test_the_state_holds_the_anchor():
    model, x = build(tau=0.5).train(), features()
    model.contrastive_loss(x)
    other = build(tau=0.5)
    before = other.contrastive_loss(x, generator=seeded())
    other.load_state_dict(model.state_dict())
    expected = model.eval().contrastive_loss(x, generator=seeded())
    assert torch.equal(other.contrastive_loss(x, generator=seeded()), expected)
    assert not torch.equal(before, expected)
    build(tau=0.5).load_state_dict(build().state_dict())
    model.load_state_dict(build().state_dict())
    assert torch.equal(model.contrastive_loss(x, generator=seeded()), before)


def test_the_anchor_is_that_of_its_nodes():
    model = build().train()
    model.contrastive_loss(features())
    match = r"'x' must hold the 9 nodes of the anchor graph, .* \(got 8 nodes\)"
    with pytest.raises(ValueError, match=match):
        model.contrastive_loss(features(8))
    assert model(features(8)).shape == (8, OUT)


# The method written out for whole matrices.


def adjacency(model, x):
    state = model.graph_generator.state_dict()
    if 'weight' in state:
        z = torch.tanh(x * state['weight'][0]) * state['weight'][1]
    else:
        h = torch.tanh(x @ state['first.weight'].t() + state['first.bias'])
        z = h @ state['second.weight'].t() + state['second.bias']
    z = F.normalize(z, dim=1)
    cosine = z @ z.t()
    nearest = cosine.topk(K + 1, dim=1).indices
    kept = torch.zeros_like(cosine).scatter(1, nearest, cosine.gather(1, nearest))
    both = (kept.relu() + kept.relu().t()) / 2
    scale = both.sum(dim=1).rsqrt()
    return scale.unsqueeze(1) * both * scale


def gcn(layers, a, h):
    for number, layer in enumerate(layers):
        h = a @ (h.relu() if number else h) @ layer.lin.weight.t() + layer.bias
    return h


def contrast(first, second):
    score = F.normalize(first, dim=1) @ F.normalize(second, dim=1).t() / T
    own = torch.arange(len(score))
    return (F.cross_entropy(score, own) + F.cross_entropy(score.t(), own)) / 2


@LAYOUTS
@GENERATORS
@torch.no_grad()
def test_everything_against_matrices(layout, graph_generator):
    model, x = build(graph_generator=graph_generator), features()
    a = adjacency(model, x)
    (graph,) = model.graphs(as_layout(x, layout))
    assert is_sorted_by_target(graph.edge_index)
    torch.testing.assert_close(to_matrix(*graph, N, N), a)
    out = model(as_layout(x, layout))
    torch.testing.assert_close(out, gcn(model.classifier, a, x))
    # The anchor's features are hidden first.
    generator, projected = seeded(3), []
    for matrix, rate in ((torch.eye(N).double(), 0.7), (a, 0.8)):
        hidden = hide_channels(x, rate, generator)
        encoder = model.encoder
        h = gcn([encoder.first, encoder.last], matrix, hidden)
        projected.append(encoder.project_last(encoder.project_first(h).relu()))
    found = model.contrastive_loss(as_layout(x, layout), generator=seeded(3))
    torch.testing.assert_close(found, contrast(*projected))


@LAYOUTS
@GENERATORS
def test_the_graph_keeps_k_and_what_symmetry_adds(layout, graph_generator):
    model, x = build(graph_generator=graph_generator), features(30)
    (graph,) = model.graphs(as_layout(x, layout))
    found = to_matrix(*graph, 30, 30) > 0
    assert torch.equal(found, found.t())
    assert int(found.sum(dim=1).min()) >= K + 1
    similarities = model.graph_generator.similarities(as_layout(x, layout), K + 1, None)
    kept = to_matrix(*similarities, 30, 30) > 0
    assert bool((kept.sum(dim=1) == K + 1).all())
    assert bool(kept.diagonal().all())
    assert torch.equal(found, kept | kept.t())


@LAYOUTS
@GENERATORS
def test_loss_is_the_sum_of_both(layout, graph_generator):
    model = build(graph_generator=graph_generator, contrastive_weight=3.5)
    x, y = as_layout(features(), layout), torch.arange(N) % OUT
    mask = torch.tensor([0, 3, 4])
    loss = model.loss(x, y, mask, generator=seeded())
    expected = F.cross_entropy(model(x)[mask], y[mask])
    expected = expected + 3.5 * model.contrastive_loss(x, generator=seeded())
    torch.testing.assert_close(loss, expected)


@LAYOUTS
@GENERATORS
def test_gradient_of_the_contrastive_loss(layout, graph_generator):
    model, x = build(graph_generator=graph_generator), as_layout(features(), layout)
    classifier = set(model.classifier.parameters())
    leaves = [value for value in model.parameters() if value not in classifier]

    def loss(*_):
        return model.contrastive_loss(x, generator=seeded())

    # The numeric gradient moves the parameters themselves.
    assert torch.autograd.gradcheck(loss, tuple(leaves), fast_mode=True)


@GENERATORS
def test_labels_train_the_classifier_alone(graph_generator):
    model, x = build(graph_generator=graph_generator), features()
    model(x).sum().backward()
    for name, value in model.named_parameters():
        assert (value.grad is not None) == name.startswith('classifier.'), name
    grads = []
    for mask in (torch.arange(3), torch.arange(3, 8)):
        model.zero_grad()
        model.loss(x, torch.arange(N) % OUT, mask, generator=seeded()).backward()
        grads.append({name: value.grad for name, value in model.named_parameters()})
    for name, value in grads[0].items():
        is_equal = torch.equal(value, grads[1][name])
        assert is_equal != name.startswith('classifier.'), name


@LAYOUTS
@GENERATORS
def test_permuted_nodes(layout, graph_generator):
    model, x = build(graph_generator=graph_generator), features()
    order = torch.randperm(N, generator=seeded())
    permuted = as_layout(x[order], layout)
    torch.testing.assert_close(model(permuted), model(as_layout(x, layout))[order])
    # Without groups the contrast knows no order either.
    losses = [model.contrastive_loss(z, generator=seeded()) for z in (x, permuted)]
    torch.testing.assert_close(*losses)


def test_seeds():
    losses = []
    for seed in (1, 1, 2):
        model = build(dropout=0.0).train()
        y = torch.arange(N) % OUT
        losses.append(model.loss(features(), y, y, generator=seeded(seed)).detach())
    assert torch.equal(losses[0], losses[1])
    assert not torch.equal(losses[0], losses[2])


def blobs():
    """Two blobs in the plane, of which each has two labelled nodes."""
    y = torch.arange(40) % 2
    centre = torch.tensor([[2.0, 0.5], [0.5, 2.0]])
    return centre[y] + 0.2 * torch.randn(40, 2, generator=seeded(1)), y


def train(contrastive_weight=1.0):
    x, y = blobs()
    torch.manual_seed(3)
    options = {'mask_rate': 0.0, 'dropout': 0.0, 'tau': 0.9, **SMALL}
    options['contrastive_weight'] = contrastive_weight
    model = SUBLIME(2, 8, 2, 2, k=4, **options).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    contrasts = []
    for _ in range(60):
        optimizer.zero_grad()
        model.loss(x, y, torch.arange(4)).backward()
        optimizer.step()
        contrasts.append(model.eval().contrastive_loss(x).item())
        model.train()
    return model.eval()(x).detach(), contrasts


def test_two_blobs():
    out, contrasts = train()
    assert torch.equal(out.argmax(dim=1), blobs()[1])
    assert contrasts[-1] < contrasts[0] - 0.3
    assert torch.equal(train()[0], out)
    # Without its weight the contrast does not train.
    assert train(contrastive_weight=0.0)[1][-1] > contrasts[-1] + 0.3


@LAYOUTS
def test_nan(layout):
    x = features()
    x[3, 1] = math.nan
    for call in (build(), build().contrastive_loss, build().graphs):
        with pytest.raises(ValueError, match=r"'x' contains NaN .* \(got 1 of \d+\)"):
            call(as_layout(x, layout))
