"""What SLAPS, SUBLIME and HESGSL share: the graph, the classifier, sums of losses."""

import math

import pytest
import torch
from generated import (
    GENERATORS,
    IN,
    LAYOUTS,
    MASK,
    MODEL_KINDS,
    OUT,
    K,
    N,
    adjacency,
    as_layout,
    build,
    gcn,
    graph_matrix,
    labels,
    words,
)
from oracles import seeded, to_matrix
from torch.nn import functional as F

from torch_geometric_gsl.baselines import HESGSL, SLAPS, SUBLIME
from torch_geometric_gsl.nn.nearest_neighbours import nearest_neighbours
from torch_geometric_gsl.typing import is_sorted_by_target


@LAYOUTS
@GENERATORS
@MODEL_KINDS
@pytest.mark.parametrize('act', ['tanh', 'relu'])
@torch.no_grad()
def test_graph_and_output_against_matrices(layout, graph_generator, kind, act):
    model = build(kind, graph_generator=graph_generator, graph_act=act)
    x = words()
    expected = adjacency(model, x, act)
    (graph,) = model.graphs(as_layout(x, layout))
    assert is_sorted_by_target(graph.edge_index)
    assert torch.unique(graph.edge_index, dim=1).shape == graph.edge_index.shape
    torch.testing.assert_close(to_matrix(*graph, N, N), expected)
    out = gcn(model.classifier, expected, x)
    torch.testing.assert_close(model(as_layout(x, layout)), out)


@GENERATORS
def test_it_begins_as_the_nearest_neighbours(graph_generator):
    # Identity, and relu on what is not negative: embeddings are the features.
    model = build(SLAPS, False, graph_generator=graph_generator, graph_act='relu')
    x = words()
    a = to_matrix(*nearest_neighbours(x, K + 1, loop=True), N, N)
    a = (a + a.t()) / 2
    scale = a.sum(dim=1).where(a.sum(dim=1) > 0, torch.ones(())).rsqrt()
    expected = scale.unsqueeze(1) * a * scale
    torch.testing.assert_close(graph_matrix(model, x), expected)


@LAYOUTS
@GENERATORS
def test_batch(layout, graph_generator):
    # The second graph has fewer nodes than neighbours, the third but one.
    sizes = [7, 3, 1, 8]
    model = build(SLAPS, graph_generator=graph_generator)
    x = words(sum(sizes), seed=2)
    batch = torch.arange(4).repeat_interleave(torch.tensor(sizes))
    out = model(as_layout(x, layout), batch=batch)
    (graph,) = model.graphs(as_layout(x, layout), batch=batch)
    assert torch.equal(batch[graph.edge_index[0]], batch[graph.edge_index[1]])
    for part, own, size in zip(x.split(sizes), out.split(sizes), sizes, strict=True):
        k = max(1, min(K, size - 1))
        small = build(SLAPS, graph_generator=graph_generator, k=k)
        if size > 1:
            torch.testing.assert_close(own, small(as_layout(part, layout)))


@LAYOUTS
@GENERATORS
@torch.no_grad()
def test_all_nodes_and_equal_nodes(layout, graph_generator):
    model = build(SLAPS, graph_generator=graph_generator, k=N - 1)
    found = graph_matrix(model, as_layout(words(), layout))
    torch.testing.assert_close(found, adjacency(model, words(), 'tanh', N - 1))
    x = torch.ones(6, IN, dtype=torch.float64)
    out = build(SLAPS, graph_generator=graph_generator)(as_layout(x, layout))
    assert bool(out.isfinite().all())


@LAYOUTS
@GENERATORS
def test_nodes_without_features(layout, graph_generator):
    model = build(SLAPS, False, graph_generator=graph_generator)
    x = torch.zeros(N, IN, dtype=torch.float64)
    x[0, 0] = 1
    loss = model.loss(as_layout(x, layout), torch.arange(N) % OUT, torch.arange(N))
    loss.backward()
    assert bool(loss.isfinite())
    for parameter in model.parameters():
        if parameter.grad is not None:
            assert bool(parameter.grad.isfinite().all())


@LAYOUTS
def test_autocast_finds_the_same_graph(layout):
    # Without a projection, nothing is rounded.
    model = build(SLAPS, graph_generator='mlp_d').float()
    x = as_layout(words(200).float(), layout)
    (expected,) = model.graphs(x)
    with torch.autocast('cpu', dtype=torch.bfloat16):
        (found,) = model.graphs(x)
    assert torch.equal(found.edge_index, expected.edge_index)
    torch.testing.assert_close(found.edge_weight, expected.edge_weight)


@pytest.mark.parametrize('act', ['tanh', 'relu'])
def test_gradient_of_a_sparse_row_that_becomes_zero(act):
    x = torch.rand(9, 5) * (torch.rand(9, 5) < 0.6)
    x[2] = torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0])
    y, gradients = torch.arange(9) % 3, []
    for features in (x, x.to_sparse_csr()):
        torch.manual_seed(0)
        model = SLAPS(5, 4, 2, 3, k=3, graph_generator='mlp_d', graph_act=act)
        with torch.no_grad():  # The only entry of row 2 vanishes.
            model.graph_generator.weight[0, 1] = -1 if act == 'relu' else 0
        model.loss(features, y, torch.arange(9)).backward()
        gradients.append(model.graph_generator.weight.grad)
    torch.testing.assert_close(*gradients)


@LAYOUTS
@GENERATORS
@MODEL_KINDS
def test_loss_is_the_weighted_sum(layout, graph_generator, kind):
    model = build(kind, graph_generator=graph_generator)
    x, y = as_layout(words(), layout), labels()
    expected = F.cross_entropy(model(x)[MASK], y[MASK])
    if kind is SUBLIME:
        model.contrastive_weight = 3.5
        expected = expected + 3.5 * model.contrastive_loss(x, generator=seeded())
    else:
        model.denoising_weight = 3.5
        expected = expected + 3.5 * model.denoising_loss(x, generator=seeded())
    if kind is HESGSL:
        model.homophily_weight = 0.0
        found = model.loss(x, y, MASK, generator=seeded())
        torch.testing.assert_close(found, expected)
        model.homophily_weight = 0.7
        expected = expected + 0.7 * model.homophily_loss(x, y, MASK)
    loss = model.loss(x, y, MASK, generator=seeded())
    torch.testing.assert_close(loss, expected)


@LAYOUTS
@GENERATORS
@pytest.mark.parametrize(
    ('kind', 'options'),
    [
        (SLAPS, {}),
        (SLAPS, {'binary': False}),
        (HESGSL, {}),
        (HESGSL, {'binary': False}),
        (SUBLIME, {}),
    ],
)
def test_gradient_of_the_loss(layout, graph_generator, kind, options):
    model = build(kind, graph_generator=graph_generator, **options)
    x, y = as_layout(words(), layout), labels()
    leaves = list(model.parameters())
    if kind is SUBLIME:  # To its labels the graph is a constant.
        leaves = [*model.graph_generator.parameters(), *model.encoder.parameters()]

    def loss(*_):
        if kind is SUBLIME:
            return model.contrastive_loss(x, generator=seeded())
        return model.loss(x, y, MASK, generator=seeded())

    # The numeric gradient moves the parameters themselves.
    assert torch.autograd.gradcheck(loss, tuple(leaves), fast_mode=True)
    loss().backward()
    for name, value in model.named_parameters():
        assert (value.grad is not None) == any(value is leaf for leaf in leaves), name
        assert value.grad is None or float(value.grad.abs().max()) > 0, name


@LAYOUTS
@GENERATORS
@MODEL_KINDS
def test_permutation_of_nodes(layout, graph_generator, kind):
    model = build(kind, graph_generator=graph_generator)
    x, y, order = words(), torch.arange(N) % OUT, torch.randperm(N, generator=seeded())
    one, two = as_layout(x, layout), as_layout(x[order], layout)
    torch.testing.assert_close(model(two), model(one)[order])
    expected = graph_matrix(model, one)[order][:, order]
    torch.testing.assert_close(graph_matrix(model, two), expected)
    if kind is SUBLIME:  # Without groups the contrast knows no order either.
        losses = [model.contrastive_loss(z, generator=seeded()) for z in (one, two)]
        torch.testing.assert_close(*losses)
    if kind is HESGSL:
        mask = torch.zeros(N, dtype=torch.bool)
        mask[MASK] = True
        found = model.homophily_loss(two, y[order], mask[order])
        torch.testing.assert_close(found, model.homophily_loss(one, y, mask))


@LAYOUTS
@MODEL_KINDS
def test_nan(layout, kind):
    x = words()
    x[3, 0] = math.nan
    model = build(kind)
    for call in (model, model.graphs):
        with pytest.raises(ValueError, match=r"'x' contains NaN .* \(got 1 of \d+\)"):
            call(as_layout(x, layout))
