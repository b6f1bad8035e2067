import math

import pytest
import torch
from oracles import seeded, to_matrix
from torch.nn import functional as F

from torch_geometric_gsl.baselines.hesgsl import HESGSL
from torch_geometric_gsl.baselines.slaps import SLAPS

N, IN, HIDDEN, OUT, K = 9, 5, 4, 3, 3
GENERATORS = pytest.mark.parametrize('graph_generator', ['mlp', 'mlp_d'])
LAYOUTS = pytest.mark.parametrize('layout', ['dense', 'sparse'])
HOPS = pytest.mark.parametrize('num_hops', [1, 2, 10])
MASK = torch.tensor([0, 3, 4])


def words(n=N, seed=0):
    """Words of positive weight, and a node without any."""
    generator = seeded(seed)
    x = torch.rand(n, IN, generator=generator, dtype=torch.float64) + 0.1
    x = x * (torch.rand(n, IN, generator=generator) < 0.6)
    x[:, 0] += 0.1
    x[2] = 0
    return x


def labels(n=N):
    """Labels of a few nodes; those of the others are not to be read."""
    y = torch.full((n,), -1)
    y[MASK] = torch.tensor([2, 0, 2])
    return y


def as_layout(x, layout):
    return x if layout == 'dense' else x.to_sparse_csr()


def build(kind=HESGSL, randomize=True, out_channels=OUT, **options):
    """A small model with parameters that are no longer those of its beginning."""
    settings = {'k': K, 'denoising_channels': 6, 'mask_ratio': 2.0, **options}
    torch.manual_seed(7)
    model = kind(IN, HIDDEN, 2, out_channels, **settings).double().eval()
    if randomize:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += torch.randn_like(parameter) / 2
    return model


def matrix(graph, n=N):
    """Row i holds the weights of the sources of node i."""
    return to_matrix(*graph, n, n)


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
    model = build(graph_generator=graph_generator, num_hops=num_hops)
    x, y = words(), labels()
    label = pseudo_labels(model, x, y, MASK.tolist())
    predicted = model(x).argmax(dim=1)
    assert predicted[MASK].tolist() != y[MASK].tolist()  # Labels overrule predictions.
    assert len({*label}) > 1
    a = matrix(model.graphs(x)[0]).tolist()
    loss = model.homophily_loss(as_layout(x, layout), y, MASK)
    assert loss.item() == pytest.approx(homophily(a, label, num_hops), abs=1e-12)


def test_homophily_loss_of_a_graph_of_two_classes():
    """Two groups of equal nodes, whose weights of a target sum to 1."""
    x = torch.eye(IN, dtype=torch.float64)[[0, 0, 1, 1]]
    model, y = build(randomize=False, k=1), torch.tensor([0, 0, 1, 1])
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
    models = [
        build(kind, graph_generator=graph_generator, graph_act='relu', negative_ratio=1)
        for kind in (HESGSL, SLAPS)
    ]
    own, other = (model._hide(x, seeded(3)) for model in models)
    assert own.x is x
    assert not torch.equal(other.x.to_dense(), x.to_dense())
    for name in ('row', 'column', 'target'):
        assert torch.equal(getattr(own, name), getattr(other, name))
    assert own.target.unique().tolist() == [0, 1]
    out = autoencode(models[0], words(), matrix(models[0].graphs(x)[0]))
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


@LAYOUTS
@GENERATORS
def test_loss_is_the_sum_of_three(layout, graph_generator):
    model = build(
        graph_generator=graph_generator,
        denoising_weight=3.5,
        homophily_weight=0.7,
        num_hops=2,
    )
    x, y = as_layout(words(), layout), labels()
    expected = F.cross_entropy(model(x)[MASK], y[MASK])
    expected = expected + 3.5 * model.denoising_loss(x, generator=seeded())
    known = model.loss(x, y, MASK, generator=seeded())
    expected_all = expected + 0.7 * model.homophily_loss(x, y, MASK)
    torch.testing.assert_close(known, expected_all)
    # The second phase of the schedule.
    model.homophily_weight = 0.0
    torch.testing.assert_close(model.loss(x, y, MASK, generator=seeded()), expected)


@LAYOUTS
@GENERATORS
@pytest.mark.parametrize('binary', [True, False])
def test_gradient_of_the_loss(layout, graph_generator, binary):
    model = build(graph_generator=graph_generator, binary=binary, num_hops=2)
    x, y = as_layout(words(), layout), labels()

    def loss(*_):
        return model.loss(x, y, MASK, generator=seeded())

    # The numeric gradient moves the parameters themselves.
    assert torch.autograd.gradcheck(loss, tuple(model.parameters()), fast_mode=True)


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
    model = build(graph_generator=graph_generator, dropout=0.0).train()
    x, y = as_layout(words(), layout), labels()
    graph, rest = {'graph_generator'}, {'classifier', 'denoiser'}
    assert reached(model, model.homophily_loss(x, y, MASK)) == graph
    assert reached(model, model.denoising_loss(x)) == graph | {'denoiser'}
    assert reached(model, model.loss(x, y, MASK)) == graph | rest


@LAYOUTS
def test_homophily_loss_has_no_noise(layout):
    """Neither pseudo-labels nor the graph know of dropout."""
    model = build(dropout=0.9, adjacency_dropout=0.9, num_hops=2)
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


@LAYOUTS
@GENERATORS
def test_permutation_of_nodes(layout, graph_generator):
    model = build(graph_generator=graph_generator, num_hops=2)
    x, y, order = words(), torch.arange(N) % OUT, torch.randperm(N, generator=seeded())
    mask = torch.zeros(N, dtype=torch.bool)
    mask[MASK] = True
    one, two = as_layout(x, layout), as_layout(x[order], layout)
    torch.testing.assert_close(model(two), model(one)[order])
    graphs = [matrix(model.graphs(features)[0]) for features in (one, two)]
    torch.testing.assert_close(graphs[1], graphs[0][order][:, order])
    torch.testing.assert_close(
        model.homophily_loss(two, y[order], mask[order]),
        model.homophily_loss(one, y, mask),
    )


@LAYOUTS
def test_masks_of_both_kinds(layout):
    model, x, y = build(), as_layout(words(), layout), labels()
    mask = torch.zeros(N, dtype=torch.bool)
    mask[MASK] = True
    found = model.homophily_loss(x, y, mask)
    assert torch.equal(found, model.homophily_loss(x, y, MASK))
    assert torch.equal(y, labels())  # They are read, not written.


@HOPS
def test_all_nodes_are_labelled(num_hops):
    model, x, y = build(num_hops=num_hops), words(), torch.arange(N) % OUT
    a = matrix(model.graphs(x)[0]).tolist()
    found = model.homophily_loss(x, y, torch.ones(N, dtype=torch.bool))
    assert found.item() == pytest.approx(homophily(a, y.tolist(), num_hops), abs=1e-12)


def test_one_class():
    model, x = build(out_channels=1), words()
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
    model, x = build(num_hops=2), words(sum(sizes), seed=2)
    batch = torch.arange(2).repeat_interleave(torch.tensor(sizes))
    y, every = torch.arange(11) % OUT, torch.arange(11)
    found = model.homophily_loss(as_layout(x, layout), y, every, batch=batch)
    parts = [
        model.homophily_loss(as_layout(part, layout), label, torch.arange(len(label)))
        for part, label in zip(x.split(sizes), y.split(sizes), strict=True)
    ]
    expected = (4 * parts[0] + 7 * parts[1]) / 11
    torch.testing.assert_close(found, expected)


def test_a_seed_decides():
    model, x = build(dropout=0.0, adjacency_dropout=0.5).train(), words(30)
    y, mask = torch.arange(30) % OUT, torch.arange(10)

    def loss(seed):
        return model.loss(x, y, mask, generator=seeded(seed))

    state = torch.get_rng_state()
    assert torch.equal(loss(1), loss(1))
    assert not torch.equal(loss(1), loss(2))
    assert torch.equal(torch.get_rng_state(), state)


def test_reset():
    model = build(randomize=False)
    fresh = {name: value.clone() for name, value in model.state_dict().items()}
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model.loss(words(), labels(), MASK).backward()
    optimizer.step()
    for name, value in model.named_parameters():
        assert not torch.equal(value, fresh[name]), name
    torch.manual_seed(7)
    model.float().reset_parameters()
    first = model.graph_generator.first
    assert torch.equal(first.weight, torch.eye(IN))
    assert not bool(first.bias.any())
    assert not bool(model.classifier[0].bias.any())
    assert model.num_hops == 1
    assert model.homophily_weight == 1.0


@pytest.mark.parametrize(
    ('given', 'error', 'match'),
    [
        ({'y': labels()[:4]}, ValueError, "'y' must have one entry per node"),
        ({'y': labels() + 3}, ValueError, r"'y' has labels outside 0\.\.2 where"),
        ({'y': words()}, TypeError, "'y' must have dtype torch.int64"),
        ({'mask': [0, 1]}, TypeError, r"'mask' must be a torch\.Tensor \(got list"),
        ({'mask': MASK[:0]}, ValueError, "'mask' must choose at least one node"),
        ({'mask': MASK + 9}, ValueError, r"'mask' has indices outside 0\.\.8"),
        ({'edge_index': MASK}, TypeError, "unexpected keyword argument 'edge_index'"),
        ({'generator': 3}, TypeError, r"'generator' must be a torch\.Generator"),
    ],
)
def test_bad_arguments_of_the_losses(given, error, match):
    model, known = build(), {'x': words(), 'y': labels(), 'mask': MASK}
    for call in (model.homophily_loss, model.loss):
        with pytest.raises(error, match=match):
            call(**{**known, **given})
