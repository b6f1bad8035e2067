"""Descriptions of graphs and models, and the tables that they print."""

import math
import warnings

import numpy as np
import pytest
import torch
from scipy.stats import entropy
from torch_geometric.utils import homophily

from torch_geometric_gsl.diagnostics import (
    GraphSummary,
    LayerSummary,
    ModelSummary,
    UniformSamplingWarning,
    describe_graph,
    describe_model,
)
from torch_geometric_gsl.nn import (
    GSLNet,
    GumbelKNNSampler,
    LatentGraphConv,
    LinearSimilarity,
    NeuralGaussianSimilarity,
    TransitionGraphConv,
)
from torch_geometric_gsl.typing import SampledGraph


@pytest.fixture
def fresh():
    UniformSamplingWarning.reset()
    yield
    UniformSamplingWarning.reset()


@pytest.fixture
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', UniformSamplingWarning)
        yield


def small_graph():
    edge_index = torch.tensor([[0, 1, 2, 3, 1, 0, 2], [0, 0, 0, 0, 1, 2, 2]])
    edge_weight = torch.tensor([0.25, 0.25, 0.25, 0.25, 2.0, 1.0, 0.0])
    return SampledGraph(edge_index, edge_weight)


def test_describe_graph_by_hand():
    summary = describe_graph(small_graph(), num_nodes=4)
    assert (summary.num_targets, summary.num_edges) == (4, 7)
    assert (summary.num_zero, summary.num_isolated) == (1, 1)
    assert summary.entropy.tolist() == pytest.approx([math.log(4), 0, 0, 0])
    assert summary.effective_neighbors.tolist() == pytest.approx([4, 1, 1, 0])
    assert summary.homophily is None
    # Without loops: 1 -> 0, 2 -> 0, 3 -> 0 (a quarter each) and 0 -> 2 (one).
    y = torch.tensor([0, 1, 0, 1])
    summary = describe_graph(small_graph(), y)
    assert summary.num_targets == 4
    assert summary.homophily == 0.5
    assert summary.weighted_homophily == pytest.approx(1.25 / 1.75)
    assert summary.chance == pytest.approx(1 / 3)
    assert describe_graph(small_graph(), y, threshold=0.5).homophily == 1


def test_describe_graph_against_pyg_and_scipy():
    x, y = torch.randn(30, 4), torch.randint(3, (30,))
    sampler = GumbelKNNSampler.paper(LinearSimilarity(4), loop=False, hard=True)
    graph = sampler(x.requires_grad_())
    summary = describe_graph(graph, y)
    # Straight-through graphs hold edges of weight zero, which do not count.
    assert summary.num_zero > 0
    pruned = graph.prune()
    assert summary.homophily == homophily(pruned.edge_index, y, method='edge')
    weight = torch.zeros(30, 30).index_put(tuple(graph.edge_index), graph.edge_weight)
    expected = entropy(weight.detach().double().numpy(), axis=0)
    assert np.allclose(summary.entropy, expected)
    assert not summary.entropy.requires_grad


def test_describe_graph_leaves_out_loops():
    edge_index = torch.tensor([[0, 1, 1, 0], [0, 1, 0, 1]])
    summary = describe_graph((edge_index, torch.ones(4)), torch.tensor([0, 1]))
    assert (summary.homophily, summary.weighted_homophily) == (0, 0)
    # A source and a target of one number are different nodes.
    labels = (torch.tensor([0, 1]), torch.tensor([0, 1]))
    summary = describe_graph((edge_index, torch.ones(4)), labels)
    shares = summary.homophily, summary.weighted_homophily, summary.chance
    assert shares == (0.5, 0.5, 0.5)


def test_describe_graph_without_edges():
    nothing = torch.empty(2, 0, dtype=torch.long), torch.empty(0)
    summary = describe_graph(nothing)
    assert summary.num_targets == 0
    assert 'nan' in str(summary)
    summary = describe_graph(nothing, torch.tensor([0, 1]))
    assert summary.num_isolated == 2
    assert math.isnan(summary.homophily)
    assert math.isnan(summary.weighted_homophily)


IDLE = torch.nn.Identity()
IDLE.sampler = GumbelKNNSampler.paper(LinearSimilarity(4))
INDEX, WEIGHT = torch.tensor([[0, 1], [1, 0]]), torch.ones(2)


@pytest.mark.parametrize(
    ('args', 'error', 'match'),
    [
        ((INDEX,), TypeError, r"'graph' must be a SampledGraph .* \(got Tensor\)"),
        (((INDEX, None),), TypeError, r"'edge_weight' must be .* \(got NoneType\)"),
        (((INDEX, WEIGHT[:1]),), ValueError, r'must have shape \[2\] \(got \[1\]\)'),
        (((INDEX, -WEIGHT),), ValueError, "'edge_weight' must not be negative"),
        (((INDEX, WEIGHT / 0),), ValueError, "'edge_weight' contains NaN"),
        (((-INDEX, WEIGHT),), ValueError, "'edge_index' must not be negative"),
        (((INDEX, WEIGHT), WEIGHT), TypeError, r"'y' .* \(got torch.float32\)"),
        (((INDEX, WEIGHT), (INDEX[0],) * 3), ValueError, r"'y' must be .* \(got 3 "),
        (((INDEX, WEIGHT), INDEX), ValueError, r"'y' must have .* \(got \[2, 2\]\)"),
        (((INDEX, WEIGHT), INDEX[0, :1]), ValueError, r"\(got 1, but 'graph' has sou"),
        (((INDEX, WEIGHT), None, 1), ValueError, r"'num_nodes' .* 2.* \(got 1\)"),
    ],
)
def test_describe_graph_errors(args, error, match):
    with pytest.raises(error, match=match):
        describe_graph(*args)


@pytest.mark.usefixtures('quiet')
@pytest.mark.parametrize('loop', [True, False])
def test_describe_model_against_the_definition(loop):
    x = torch.randn(20, 6)
    model = GSLNet.paper(6, 8, num_layers=2, out_channels=3, scale=2.0, loop=loop)
    summary = describe_model(model, x)
    names = [layer.name for layer in summary.layers]
    assert names == ['convs.0.sampler', 'convs.1.sampler']
    model.eval()
    inputs = [x, torch.nn.functional.elu(model.convs[0](x))]
    for layer, conv, features in zip(summary.layers, model.convs, inputs, strict=True):
        h = conv.lin(features).detach()
        similarity = conv.sampler.similarity
        shown = layer.candidates, layer.entropy, layer.effective_candidates
        torch.testing.assert_close(shown, tuple(conv.sampler.distribution(h)[:3]))
        score = 2 * similarity(h).detach()
        if not loop:
            score.fill_diagonal_(-math.inf)
        weight = score.softmax(dim=1).double().numpy()
        share = np.exp(entropy(weight, axis=1)).mean() / (20 if loop else 19)
        assert layer.share == pytest.approx(share, rel=1e-5)
        assert str(layer).startswith(f'{layer.name}: {conv.sampler}')
        z = h / h.norm(dim=1, keepdim=True)
        b = torch.sigmoid(z @ similarity.w_b.detach()[0])
        c = 0.1 * torch.sigmoid(z @ similarity.w_c.detach()[0])
        assert torch.allclose(layer.b, b, atol=1e-6)
        assert torch.allclose(layer.c, c, atol=1e-6)
        assert not layer.b.requires_grad


@pytest.mark.usefixtures('quiet')
def test_describe_model_counts_the_candidates_given():
    x, batch = torch.randn(6, 4), torch.tensor([0, 0, 0, 0, 2, 2])
    conv = LatentGraphConv(4, 4, similarity='linear', k=1, scale=3.0, loop=True)
    (layer,) = describe_model(conv, x, batch=batch).layers
    assert layer.candidates.tolist() == [4, 4, 4, 4, 2, 2]
    # Targets with one candidate have no choice; others without any have none.
    edge_index = torch.tensor([[0, 1, 2], [0, 0, 1]])
    (layer,) = describe_model(conv, x, edge_index).layers
    assert layer.candidates.tolist() == [2, 1, 0, 0, 0, 0]
    assert layer.effective_candidates[1:].tolist() == [1, 0, 0, 0, 0]
    assert layer.share == pytest.approx(float(layer.effective_candidates[0]) / 2)
    (layer,) = describe_model(conv.sampler, x[:1]).layers  # Nobody has a choice.
    assert (layer.name, math.isnan(layer.share)) == ('sampler', True)


@pytest.mark.usefixtures('quiet')
def test_describe_model_reports_each_call():
    model = GSLNet.paper(4, 4, 3, 4, similarity=NeuralGaussianSimilarity(4), k=2)
    transition = TransitionGraphConv(4, 8, num_nodes=9, num_transition_nodes=5)
    twice = torch.nn.Sequential(*model.convs, model.convs[0], transition)
    layers = describe_model(twice, torch.randn(9, 4)).layers
    names = [f'{i}.sampler' for i in (0, 1, 2, 0, 4)]
    names[3] += ' (call 2)'
    assert [layer.name for layer in layers] == names
    assert layers[-1].candidates.tolist() == [5] * 9
    assert layers[-1].b.shape == (9,)


@pytest.mark.usefixtures('quiet')
def test_describe_model_reports_gradients():
    x = torch.randn(20, 4)
    model = GSLNet.paper(4, 8, num_layers=2, out_channels=3)
    norms = [layer.grad_norms for layer in describe_model(model, x).layers]
    assert norms == [{'w_b': None, 'w_c': None}] * 2
    model(x).square().sum().backward()
    model.convs[1].sampler.similarity.w_c.grad = None
    model.convs[0].sampler.similarity.w_b.grad.fill_(0.5)
    before = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    hidden, last = describe_model(model, x).layers
    assert hidden.grad_norms['w_b'] == pytest.approx(0.5 * 8**0.5)
    assert last.grad_norms['w_c'] is None
    assert 'w_c none' in str(last)
    for parameter, grad in zip(model.parameters(), before, strict=True):
        assert (parameter.grad is None) == (grad is None)
        assert grad is None or torch.equal(parameter.grad, grad)


@pytest.mark.usefixtures('quiet')
def test_describe_model_leaves_the_model_as_it_was():
    model = GSLNet(4, 8, 2, 3, dropout=0.9)
    model.train()
    model.convs[1].eval()
    modes = [module.training for module in model.modules()]

    def traces():
        return [
            (set(vars(m)), {k: len(v) for k, v in vars(m).items() if 'hooks' in k})
            for m in model.modules()
        ]

    before, state = traces(), torch.get_rng_state()
    x = torch.randn(9, 4, generator=torch.Generator())
    value, again = (describe_model(model, x).layers[1].entropy for _ in range(2))
    assert torch.equal(value, again)
    assert torch.equal(torch.get_rng_state(), state)
    with pytest.raises(ValueError, match="'x' must have 4 channels"):
        describe_model(model, torch.randn(9, 5))
    assert [module.training for module in model.modules()] == modes
    assert traces() == before


@pytest.mark.parametrize(
    ('model', 'error', 'match'),
    [
        ('net', TypeError, r"'model' must be a torch.nn.Module \(got str\)"),
        (torch.nn.Linear(4, 4), ValueError, r'contain a GumbelKNN.* \(got Linear\)'),
        (GSLNet(-1, 8, 2, 3), ValueError, 'run a forward pass first'),
        (IDLE, ValueError, r"Identity, which called none of \['sampler'"),
    ],
)
def test_describe_model_errors(model, error, match):
    with pytest.raises(error, match=match):
        describe_model(model, torch.randn(5, 4))


@pytest.mark.usefixtures('fresh')
def test_uniform_sampling_warns_once():
    x = torch.randn(30, 4)
    flat = LatentGraphConv.paper(4, 4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        (layer,) = describe_model(flat, x).layers
        describe_model(flat, x)
    assert len(caught) == 1
    assert caught[0].category is UniformSamplingWarning
    assert caught[0].filename == __file__
    text = f'the effective candidates are {100 * layer.share:.1f} % (sampler) of'
    assert text in str(caught[0].message)
    assert "larger 'scale'" in str(caught[0].message)
    UniformSamplingWarning.reset()
    with pytest.warns(UniformSamplingWarning, match='almost uniformly'):
        describe_model(flat, x)


@pytest.mark.usefixtures('fresh')
@pytest.mark.parametrize(('scale', 'warns'), [(1.63, False), (1.52, True)])
def test_uniform_sampling_warns_above_the_threshold(scale, warns):
    # Node 0 sees itself at `scale` and 29 orthogonal nodes at 0; so do all others.
    share = float(np.exp(entropy(np.exp(scale * np.eye(30)[0])))) / 30
    assert 0.89 < share < 0.91
    sampler = GumbelKNNSampler.paper(LinearSimilarity(30), scale=scale)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        (layer,) = describe_model(sampler, torch.eye(30)).layers
    assert layer.share == pytest.approx(share, abs=1e-3)
    assert bool(caught) == warns == (share > 0.9)


# The tables


def numbers(text, name):
    """The numbers of the only row of that name."""
    (row,) = [line for line in text.splitlines() if line.strip().startswith(name)]
    return [float(value) for value in row.replace(name, '').split()]


def test_graph_summary():
    entropy = torch.tensor([0.0, 0.5, 1.0])
    text = str(GraphSummary(3, 7, 2, 1, entropy, entropy.exp()))
    assert text.startswith('7 edges (2 of weight zero) to 3 targets (1 without')
    # Minimum, quartiles, maximum, mean.
    assert numbers(text, 'entropy (nats)') == [0, 0.25, 0.5, 0.75, 1, 0.5]
    assert 'homophily' not in text
    text = str(GraphSummary(3, 7, 2, 1, entropy, entropy.exp(), 0.5, 0.25, 0.125))
    assert numbers(text, 'edge homophily') == [0.5]
    assert numbers(text, 'weighted homophily') == [0.25]
    assert numbers(text, 'homophily by chance') == [0.125]


def test_layer_summary():
    values = torch.tensor([1.0, 3.0])
    layer = LayerSummary('conv', 'S()', values, values, values, 0.25, None, None, {})
    text = str(layer)
    assert text.startswith('conv: S()\n')
    assert numbers(text, 'effective candidates') == [1, 1.5, 2, 2.5, 3, 2]
    assert numbers(text, 'share') == [0.25]
    assert text.endswith('gradient norms: the similarity has no parameters')
    assert str(ModelSummary((layer, layer))).count(text) == 2
    norms = {'w_b': 2.0, 'w_c': None}
    args = 'conv', 'S()', values, values, values, 0.25, values / 4, values, norms
    text = str(LayerSummary(*args))
    assert numbers(text, 'b ') == [0.25, 0.375, 0.5, 0.625, 0.75, 0.5]
    assert numbers(text, 'c ') == [1, 1.5, 2, 2.5, 3, 2]
    assert text.endswith('gradient norms: w_b 2, w_c none')
