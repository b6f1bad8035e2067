"""Both layers: their formula, number by number, and what they have in common."""

import math
from functools import partial

import pytest
import torch
from oracles import inner, noise_of, relaxed, seeded, sigmoid, softmax, to_matrix, unit
from sampling import limits, normal

from torch_geometric_gsl.nn.conv.latent_graph_conv import LatentGraphConv
from torch_geometric_gsl.nn.conv.transition_graph_conv import TransitionGraphConv
from torch_geometric_gsl.nn.sampler.options import PAPER

N, S, IN, OUT, K, TAU, SCALE = 7, 6, 11, 4, 3, 0.4, 1.5
# A graph of all nodes, or that of transition nodes in each of their forms.
FORMS = pytest.mark.parametrize('form', ['full', 'projected', 'free', 'anchors'])
features = partial(normal, N, IN)
TRAINING = pytest.mark.parametrize('training', [True, False])


def build(form, *args, in_channels=IN, **kwargs):
    if form == 'full':
        return LatentGraphConv(in_channels, OUT, *args, **kwargs)
    num_nodes = N if form == 'projected' else None
    size = in_channels, OUT, num_nodes, S
    conv = TransitionGraphConv(*size, *args, transition=form, **kwargs)
    return conv.choose_anchors(normal(S, IN, seed=9)) if form == 'anchors' else conv


def make(form, **kwargs):
    torch.manual_seed(5)
    kwargs = {**PAPER, 'k': K, 'tau': TAU, 'scale': SCALE, **kwargs}
    kwargs['budget'] = limits(kwargs.get('method'), kwargs, arrivals=N)
    conv = build(form, **kwargs).double()
    if conv.bias is not None:
        torch.nn.init.normal_(conv.bias)
    return conv


def product(a, b):
    columns = [list(column) for column in zip(*b, strict=True)]
    return [[inner(row, column) for column in columns] for row in a]


def weights(conv, x, seed):
    """Return the graph, number by number; a seed replays the noise of training."""
    z = [unit(row) for row in product(x.tolist(), conv.lin.weight.t().tolist())]
    similarity = conv.sampler.similarity
    (w_b,), (w_c,) = similarity.w_b.tolist(), similarity.w_c.tolist()
    sources = [unit(row) for row in nodes(conv, z)]
    score = []
    for row in z:
        b, c = sigmoid(inner(row, w_b)), 0.1 * sigmoid(inner(row, w_c))
        bells = [math.exp(-((inner(row, source) - b) ** 2) / c) for source in sources]
        score.append([SCALE * bell for bell in bells])
    if seed is not None:
        values = torch.tensor(score, dtype=torch.double)
        noise = noise_of(conv.sampler.method, seed, values, K, N)
        return relaxed(values, noise, TAU)
    rows = [softmax([value / TAU for value in row]) for row in score]
    return torch.tensor(rows, dtype=torch.double)


def nodes(conv, z):
    """Return the places of the sources."""
    form = getattr(conv, 'transition', 'full')
    if form == 'projected':
        return product(conv.w_t.tolist(), z)
    if form == 'anchors':
        return product(conv.anchors.tolist(), conv.lin.weight.t().tolist())
    return z if form == 'full' else conv.transition_nodes.tolist()


def messages_of(conv, h):
    """Return what the sources send."""
    form = getattr(conv, 'transition', 'full')
    if form == 'projected':
        return conv.w_e @ h
    if form == 'anchors':
        return conv.anchors @ conv.lin.weight.t()
    return h if form == 'full' else conv.messages


def oracle(conv, x, seed):
    h = x @ conv.lin.weight.t()
    messages = messages_of(conv, h)
    out = weights(conv, x, seed) @ messages
    if conv.lin_root is not None:
        out = out + x @ conv.lin_root.weight.t()
    return (out if conv.bias is None else out + conv.bias).detach()


@pytest.mark.parametrize('seed', [None, 7])
@pytest.mark.parametrize('method', ['dense', 'stream'])
@pytest.mark.parametrize('root_weight', [True, False])
@pytest.mark.parametrize('bias', [True, False])
@FORMS
def test_formula(form, root_weight, bias, method, seed):
    conv = make(form, root_weight=root_weight, bias=bias, method=method)
    conv.train(seed is not None)
    names = {name for name, _ in conv.named_parameters()}
    assert ('bias' in names) == bias
    assert ('lin_root.weight' in names) == root_weight
    generator = None if seed is None else seeded(seed)
    out = conv(features(), generator=generator)
    assert out.shape == (N, OUT)
    expected = oracle(conv, features(), seed)
    torch.testing.assert_close(out.detach(), expected, rtol=1e-9, atol=1e-12)


@TRAINING
@FORMS
def test_graph(form, training):
    conv, x = make(form, method='dense').train(training), features()
    graph = conv.graph(x, generator=seeded(2))
    size = N if form == 'full' else S
    matrix = to_matrix(*graph, N, size).detach()
    expected = weights(conv, x, 2 if training else None)
    torch.testing.assert_close(matrix, expected)


def test_widths_of_compared_rows():
    for in_channels, width, expected in (((6, 6), -1, 6), (-1, 3, 3), ((5, 6), 3, 3)):
        conv = LatentGraphConv(in_channels, OUT, z_channels=width)
        assert conv.z_channels == expected
