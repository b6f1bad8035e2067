import pytest
import torch
from oracles import seeded, to_matrix
from torch.nn import functional as F

from torch_geometric_gsl.baselines.slaps import SLAPS
from torch_geometric_gsl.nn.nearest_neighbours import nearest_neighbours
from torch_geometric_gsl.ops.masking import mask_features
from torch_geometric_gsl.typing import is_sorted_by_target

N, IN, HIDDEN, OUT, K = 9, 5, 4, 3, 3
GENERATORS = pytest.mark.parametrize('graph_generator', ['mlp', 'mlp_d'])
LAYOUTS = pytest.mark.parametrize('layout', ['dense', 'sparse'])


def words(n=N, width=IN, seed=0):
    """Words of positive weight, and a node without any."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(n, width, generator=generator, dtype=torch.float64) + 0.1
    x = x * (torch.rand(n, width, generator=generator) < 0.6)
    x[:, 0] += 0.1
    x[2] = 0
    return x


def as_layout(x, layout):
    return x if layout == 'dense' else x.to_sparse_csr()


def build(randomize=True, **options):
    """A small model with parameters that are no longer those of its beginning."""
    settings = {'k': K, 'denoising_channels': 6, **options}
    torch.manual_seed(7)
    model = SLAPS(IN, HIDDEN, 2, OUT, **settings).double().eval()
    if randomize:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += torch.randn_like(parameter) / 2
    return model


def matrix(graph):
    """Row i holds the weights of the sources of node i."""
    return to_matrix(*graph, N, N)


# The method written out for whole matrices.


def embed(model, x, act='tanh'):
    squash = torch.tanh if act == 'tanh' else torch.relu
    state = model.graph_generator.state_dict()
    if 'weight' in state:
        first, second = state['weight']
        return squash(x * first) * second
    h = squash(x @ state['first.weight'].t() + state['first.bias'])
    return h @ state['second.weight'].t() + state['second.bias']


def adjacency(z, k=K):
    z = F.normalize(z, dim=1, eps=0).nan_to_num()
    cosine = z @ z.t()
    nearest = cosine.argsort(dim=1, descending=True, stable=True)[:, : k + 1]
    kept = torch.zeros_like(cosine).scatter(1, nearest, cosine.gather(1, nearest))
    both = (kept.relu() + kept.relu().t()) / 2
    degree = both.sum(dim=1)
    scale = degree.where(degree > 0, 1).rsqrt()
    return scale.unsqueeze(1) * both * scale


@torch.no_grad()
def gcn(layers, a, h):
    for number, layer in enumerate(layers):
        h = a @ (h.relu() if number else h) @ layer.lin.weight.t() + layer.bias
    return h


@LAYOUTS
@GENERATORS
@pytest.mark.parametrize('act', ['tanh', 'relu'])
def test_graph_and_output_against_loops(layout, graph_generator, act):
    model = build(graph_generator=graph_generator, graph_act=act)
    x = words()
    expected = adjacency(embed(model, x, act))
    (graph,) = model.graphs(as_layout(x, layout))
    assert is_sorted_by_target(graph.edge_index)
    assert torch.unique(graph.edge_index, dim=1).shape == graph.edge_index.shape
    torch.testing.assert_close(matrix(graph), expected)
    out = gcn(model.classifier, expected, x)
    torch.testing.assert_close(model(as_layout(x, layout)), out)


@LAYOUTS
@GENERATORS
@pytest.mark.parametrize('binary', [True, False])
def test_denoising_loss_against_loops(layout, graph_generator, binary):
    model = build(
        graph_generator=graph_generator, binary=binary, mask_ratio=2, negative_ratio=1
    )
    x = words()
    loss = model.denoising_loss(as_layout(x, layout), generator=seeded(3))
    masked = mask_features(x, 2, 1 if binary else None, generator=seeded(3))
    a = adjacency(embed(model, x))
    layers = [model.denoiser.first, model.denoiser.last]
    place = masked.row, masked.column
    out, hidden = gcn(layers, a, masked.x.to_dense())[place], x[place]
    terms = (out - hidden).square()
    if binary:
        terms = -torch.where(hidden > 0, out, -out).sigmoid().log()
    assert terms.numel() > 5
    torch.testing.assert_close(loss, terms.mean())


@LAYOUTS
@GENERATORS
def test_loss_is_the_sum_of_both(layout, graph_generator):
    model = build(graph_generator=graph_generator, denoising_weight=3.5)
    x, y = as_layout(words(), layout), torch.arange(N) % OUT
    mask = torch.tensor([0, 3, 4])
    loss = model.loss(x, y, mask, generator=seeded())
    expected = F.cross_entropy(model(x)[mask], y[mask])
    expected = expected + 3.5 * model.denoising_loss(x, generator=seeded())
    torch.testing.assert_close(loss, expected)


@LAYOUTS
@GENERATORS
@pytest.mark.parametrize('binary', [True, False])
def test_gradient_of_the_loss(layout, graph_generator, binary):
    model = build(graph_generator=graph_generator, binary=binary, mask_ratio=2)
    x, y = as_layout(words(), layout), torch.arange(N) % OUT

    def loss(*_):
        return model.loss(x, y, torch.arange(4), generator=seeded())

    # The numeric gradient moves the parameters themselves.
    assert torch.autograd.gradcheck(loss, tuple(model.parameters()), fast_mode=True)
    loss().backward()
    for name, value in model.named_parameters():
        assert value.grad is not None, name
        assert float(value.grad.abs().max()) > 0, name


@GENERATORS
def test_it_begins_as_the_nearest_neighbours(graph_generator):
    # Identity, and relu on what is not negative: embeddings are the features.
    model = build(False, graph_generator=graph_generator, graph_act='relu')
    x = words()
    a = matrix(nearest_neighbours(x, K + 1, loop=True))
    a = (a + a.t()) / 2
    scale = a.sum(dim=1).where(a.sum(dim=1) > 0, torch.ones(())).rsqrt()
    expected = scale.unsqueeze(1) * a * scale
    torch.testing.assert_close(matrix(model.graphs(x)[0]), expected)


@LAYOUTS
@GENERATORS
def test_batch(layout, graph_generator):
    # The second graph has fewer nodes than neighbours, the third but one.
    sizes = [7, 3, 1, 8]
    model, x = build(graph_generator=graph_generator), words(sum(sizes), seed=2)
    batch = torch.arange(4).repeat_interleave(torch.tensor(sizes))
    out = model(as_layout(x, layout), batch=batch)
    (graph,) = model.graphs(as_layout(x, layout), batch=batch)
    assert torch.equal(batch[graph.edge_index[0]], batch[graph.edge_index[1]])
    start = 0
    for size in sizes:
        part = as_layout(x[start : start + size], layout)
        small = build(graph_generator=graph_generator, k=max(1, min(K, size - 1)))
        if size > 1:
            torch.testing.assert_close(out[start : start + size], small(part))
        start += size
    loss = model.loss(as_layout(x, layout), batch % OUT, batch == 0, batch=batch)
    assert bool(loss.isfinite())


@LAYOUTS
@GENERATORS
def test_all_nodes_and_equal_nodes(layout, graph_generator):
    model = build(graph_generator=graph_generator, k=N - 1)
    (graph,) = model.graphs(as_layout(words(), layout))
    assert torch.equal(matrix(graph) > 0, matrix(graph).t() > 0)
    torch.testing.assert_close(matrix(graph), adjacency(embed(model, words()), N - 1))
    x = torch.ones(6, IN, dtype=torch.float64)
    out = build(graph_generator=graph_generator)(as_layout(x, layout))
    assert bool(out.isfinite().all())


@LAYOUTS
@GENERATORS
def test_nodes_without_features(layout, graph_generator):
    model = build(False, graph_generator=graph_generator)
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
    model = build(graph_generator='mlp_d').float()
    x = as_layout(words(200).float(), layout)
    (expected,) = model.graphs(x)
    with torch.autocast('cpu', dtype=torch.bfloat16):
        (found,) = model.graphs(x)
    assert torch.equal(found.edge_index, expected.edge_index)
    torch.testing.assert_close(found.edge_weight, expected.edge_weight)


def test_a_generator_decides():
    model, x = build(dropout=0.0).train(), words(30)
    y, mask = torch.arange(30) % OUT, torch.arange(10)
    state = torch.get_rng_state()
    for call in (
        lambda seed: model(x, generator=seeded(seed)),
        lambda seed: model.denoising_loss(x, generator=seeded(seed)),
        lambda seed: model.loss(x, y, mask, generator=seeded(seed)),
    ):
        assert torch.equal(call(1), call(1))
        assert not torch.equal(call(1), call(2))
    assert torch.equal(torch.get_rng_state(), state)
    # Without one, the global generator does.
    losses = []
    for _ in range(2):
        torch.manual_seed(5)
        losses.append(model.loss(x, y, mask))
    assert torch.equal(losses[0], losses[1])


def test_each_network_has_its_dropout():
    x = words()
    for options, changes in (
        ({'adjacency_dropout': (0.5, 0.0), 'dropout': 0.0}, (True, False)),
        ({'adjacency_dropout': (0.0, 0.5), 'dropout': 0.0}, (False, True)),
        ({'adjacency_dropout': 0.0, 'dropout': (0.5, 0.0)}, (True, False)),
        ({'adjacency_dropout': 0.0, 'dropout': (0.0, 0.5)}, (False, True)),
        ({'adjacency_dropout': 0.0, 'dropout': 0.0}, (False, False)),
    ):
        model = build(mask_ratio=1.0, **options)
        quiet = (model.denoising_loss(x), model(x))
        model.train()
        loud = (model.denoising_loss(x), model(x))
        differ = tuple(not torch.equal(a, b) for a, b in zip(quiet, loud, strict=True))
        assert differ == changes


def test_nothing_hidden():
    loss = build(mask_ratio=1e9).denoising_loss(words())
    assert loss.item() == 0
    loss.backward()


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
