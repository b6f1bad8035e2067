import math

import pytest
import torch
from generated import (
    GENERATORS,
    IN,
    LAYOUTS,
    MASK,
    OUT,
    N,
    as_layout,
    build,
    graph_matrix,
    labels,
    words,
)
from oracles import seeded

from torch_geometric_gsl.baselines import HESGSL, SLAPS

HOPS = pytest.mark.parametrize('num_hops', [1, 2, 10])


def make(**options):
    return build(HESGSL, **{'num_hops': 1, **options})


# The method written out in plain Python, and for whole matrices.


def pseudo_labels(model, x, y, chosen):
    predicted = model.eval()(x).argmax(dim=1).tolist()
    known = dict(zip(chosen, y[chosen].tolist(), strict=True))
    return [known.get(i, label) for i, label in enumerate(predicted)]


def homophily(a, label, num_hops, num_classes=OUT):
    """The formula, a node and a class at a time."""
    n, value = (
        len(label),
        [[float(c == own) for c in range(num_classes)] for own in label],
    )
    for _ in range(num_hops):
        value = [
            [
                math.fsum(a[i][j] * value[j][c] for j in range(n))
                for c in range(num_classes)
            ]
            for i in range(n)
        ]
    total = 0.0
    for row, own in zip(value, label, strict=True):
        total += math.log(math.fsum(map(math.exp, row))) - row[own]
    return total / (n * num_classes)


def autoencode(model, x, a):
    """The output of the autoencoder for all features, of which none is hidden."""
    for number, layer in enumerate((model.denoiser.first, model.denoiser.last)):
        x = a @ (x.relu() if number else x) @ layer.lin.weight.t() + layer.bias
    return x


@LAYOUTS
@GENERATORS
@HOPS
def test_homophily_loss_against_loops(layout, graph_generator, num_hops):
    model = make(graph_generator=graph_generator, num_hops=num_hops)
    x, y = words(), labels()
    label = pseudo_labels(model, x, y, MASK.tolist())
    predicted = model(x).argmax(dim=1)
    assert predicted[MASK].tolist() != y[MASK].tolist()  # Labels overrule predictions.
    assert len({*label}) > 1
    a = graph_matrix(model, x).tolist()
    loss = model.homophily_loss(as_layout(x, layout), y, MASK)
    assert loss.item() == pytest.approx(homophily(a, label, num_hops), abs=1e-12)


def test_homophily_loss_of_a_graph_of_two_classes():
    """Two groups of equal nodes, whose weights of a target sum to 1."""
    x = torch.eye(IN, dtype=torch.float64)[[0, 0, 1, 1]]
    model, y = make(randomize=False, k=1), torch.tensor([0, 0, 1, 1])
    expected = (math.log(math.e + OUT - 1) - 1) / OUT
    every = torch.arange(4)
    assert model.homophily_loss(x, y, every).item() == pytest.approx(expected)
    # Half of what arrives is of the wrong class, if neighbours differ.
    expected = (math.log(2 * math.exp(0.5) + OUT - 2) - 0.5) / OUT
    y = torch.tensor([0, 1, 0, 1])
    assert model.homophily_loss(x, y, every).item() == pytest.approx(expected)


@LAYOUTS
@GENERATORS
def test_denoising_loss_answers_where_slaps_would_hide(layout, graph_generator):
    x = as_layout(words(), layout)
    options = {'graph_generator': graph_generator, 'graph_act': 'relu'}
    models = [build(kind, negative_ratio=1, **options) for kind in (HESGSL, SLAPS)]
    own, other = (model._hide(x, seeded(3)) for model in models)
    assert own.x is x
    assert not torch.equal(other.x.to_dense(), x.to_dense())
    for name in ('row', 'column', 'target'):
        assert torch.equal(getattr(own, name), getattr(other, name))
    assert own.target.unique().tolist() == [0, 1]
    out = autoencode(models[0], words(), graph_matrix(models[0], x))
    out = out[own.row, own.column]
    expected = -torch.where(own.target > 0, out, -out).sigmoid().log().mean()
    found = models[0].denoising_loss(x, generator=seeded(3))
    torch.testing.assert_close(found, expected)


@LAYOUTS
def test_other_features_are_hidden_as_slaps_does(layout):
    x, losses = as_layout(words() - 0.3, layout), []
    for kind in (HESGSL, SLAPS):
        model = build(kind, binary=False, graph_act='tanh')
        losses.append(model.denoising_loss(x, generator=seeded(3)))
    assert torch.equal(*losses)


def reached(model, loss):
    """Return the parts of a model that a loss trains."""
    model.zero_grad()
    loss.backward()
    found = set()
    for name, part in model.named_children():
        grads = [parameter.grad for parameter in part.parameters()]
        if any(grad is not None and bool(grad.any()) for grad in grads):
            assert all(bool(grad.isfinite().all()) for grad in grads)
            found.add(name)
        else:
            assert all(grad is None for grad in grads)
    return found


@LAYOUTS
@GENERATORS
def test_what_each_loss_trains(layout, graph_generator):
    model = make(graph_generator=graph_generator, dropout=0.0).train()
    x, y = as_layout(words(), layout), labels()
    graph, rest = {'graph_generator'}, {'classifier', 'denoiser'}
    assert reached(model, model.homophily_loss(x, y, MASK)) == graph
    assert reached(model, model.denoising_loss(x)) == graph | {'denoiser'}
    assert reached(model, model.loss(x, y, MASK)) == graph | rest


@LAYOUTS
def test_homophily_loss_has_no_noise(layout):
    """Neither pseudo-labels nor the graph know of dropout."""
    model = make(dropout=0.9, adjacency_dropout=0.9, num_hops=2)
    x, y = as_layout(words(), layout), labels()
    quiet, state = model.homophily_loss(x, y, MASK), torch.get_rng_state()
    assert torch.equal(model.train().homophily_loss(x, y, MASK), quiet)
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(model(x), model.eval()(x))
    # What is random in the loss is then what is random without this one.
    losses = []
    for model.homophily_weight in (1.0, 0.0):
        torch.manual_seed(3)
        losses.append(model.train().loss(x, y, MASK))
    torch.testing.assert_close(losses[0] - losses[1], quiet)


@HOPS
def test_all_nodes_are_labelled(num_hops):
    model, x, y = make(num_hops=num_hops), words(), torch.arange(N) % OUT
    a = graph_matrix(model, x).tolist()
    found = model.homophily_loss(x, y, torch.ones(N, dtype=torch.bool))
    assert found.item() == pytest.approx(homophily(a, y.tolist(), num_hops), abs=1e-12)


def test_one_class():
    model, x = make(out_channels=1), words()
    y = torch.zeros(N, dtype=torch.long)
    loss = model.homophily_loss(x, y, MASK)
    assert loss.item() == 0
    loss.backward()
    assert not bool(model.graph_generator.first.weight.grad.any())
    assert bool(model.loss(x, y, MASK).isfinite())


@LAYOUTS
def test_batch(layout):
    """The loss of a batch is the mean of those of its graphs, weighted by size."""
    sizes = [4, 7]
    model, x = make(num_hops=2), words(sum(sizes), seed=2)
    batch = torch.arange(2).repeat_interleave(torch.tensor(sizes))
    y, every = torch.arange(11) % OUT, torch.arange(11)
    found = model.homophily_loss(as_layout(x, layout), y, every, batch=batch)
    parts = [
        model.homophily_loss(as_layout(part, layout), label, torch.arange(len(label)))
        for part, label in zip(x.split(sizes), y.split(sizes), strict=True)
    ]
    expected = (4 * parts[0] + 7 * parts[1]) / 11
    torch.testing.assert_close(found, expected)
