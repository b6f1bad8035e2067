import copy
import math
from unittest import mock

import pytest
import torch
from oracles import seeded
from scipy import stats
from torch.nn import functional as F

from torch_geometric_gsl.baselines.nodeformer import nodeformer
from torch_geometric_gsl.baselines.nodeformer.nodeformer import (
    NodeFormer,
    NodeFormerLayer,
)

N, IN, HIDDEN, OUT = 12, 5, 4, 3
ERROR_RATE = 1e-4


def features(n=N):
    return torch.randn(n, IN, generator=seeded(0), dtype=torch.float64)


def make(**kwargs):
    torch.manual_seed(1)
    kwargs = {'heads': 2, 'k': 3, 'num_features': 6, **kwargs}
    return NodeFormer(kwargs.pop('in_channels', IN), HIDDEN, 2, OUT, **kwargs).double()


def plain_layer(layer, x, directions, noise):
    """One layer by a kernel of all pairs; the noise is that of Gumbel."""
    n, d = x.shape
    heads = []
    for head in range(layer.heads):
        own = slice(head * d, (head + 1) * d)
        query, key, value = (
            x @ lin.weight[own].t() + lin.bias[own]
            for lin in (layer.query, layer.key, layer.value)
        )
        out = torch.zeros_like(value)
        for i in range(n):
            for draw in range(noise.size(2)):
                weight = []
                for j in range(n):
                    kernel = 0.0
                    q, k = (
                        part / (math.sqrt(layer.tau) * d**0.25)
                        for part in (query[i], key[j])
                    )
                    for w in directions:
                        kernel += math.exp(w @ q - q @ q / 2 + w @ k - k @ k / 2)
                    kernel *= math.exp(float(noise[j, head, draw]) / layer.tau)
                    weight.append(kernel)
                share = torch.tensor(weight, dtype=x.dtype) / sum(weight)
                out[i] += share @ value / noise.size(2)
        heads.append(out)
    return torch.cat(heads, dim=1) @ layer.out.weight.t() + layer.out.bias


def plain_model(model, x, directions, noises):
    def norm(number, h):
        part = model.norms[number]
        centred = h - h.mean(dim=1, keepdim=True)
        size = (centred.square().mean(dim=1, keepdim=True) + part.eps).sqrt()
        return centred / size * part.weight + part.bias

    h = F.elu(norm(0, x @ model.lin_in.weight.t() + model.lin_in.bias))
    for number, layer in enumerate(model.layers):
        out = plain_layer(layer, h, directions[number], noises[number])
        h = norm(number + 1, out + h)
    return h @ model.lin_out.weight.t() + model.lin_out.bias


@torch.no_grad()
def test_evaluation_against_plain_loops():
    model, x = make(tau=0.4).eval(), features(5)
    for norm in model.norms:
        torch.nn.init.normal_(norm.weight)
        torch.nn.init.normal_(norm.bias)
    directions = [layer.directions for layer in model.layers]
    noises = [torch.zeros(5, 2, 1, dtype=torch.float64)] * 2
    expected = plain_model(model, x, directions, noises)
    torch.testing.assert_close(model(x), expected)


@torch.no_grad()
def test_training_against_plain_loops():
    model, x = make(dropout=0.0, tau=0.4), features(5)
    drawn = {'directions': [], 'time': []}

    def keep(name, own):
        def call(*args, **kwargs):
            out = own(*args, **kwargs)
            drawn[name].append(out.clone())
            return out

        return call

    with (
        mock.patch.object(
            nodeformer,
            'orthogonal_directions',
            keep('directions', nodeformer.orthogonal_directions),
        ),
        mock.patch.object(
            nodeformer, 'arrival_times', keep('time', nodeformer.arrival_times)
        ),
    ):
        out = model(x)
    assert [part.shape for part in drawn['directions']] == [(6, HIDDEN)] * 2
    assert [part.shape for part in drawn['time']] == [(5, 2, 3)] * 2
    noises = [-time.log() for time in drawn['time']]
    expected = plain_model(model, x, drawn['directions'], noises)
    torch.testing.assert_close(out, expected)


def test_law_of_the_noise():
    layer = NodeFormerLayer(4, heads=2, k=50, tau=0.5, num_features=3)
    noise = layer._draw_noise(torch.zeros(100, 2, 4, dtype=torch.float64), seeded())
    assert noise.shape == (100, 2, 50)
    assert stats.kstest(0.5 * noise.flatten(), 'gumbel_r').pvalue > ERROR_RATE
    # No two keys, heads or draws share their noise.
    assert noise.unique().numel() == noise.numel()


def test_randomness():
    model, x = make(dropout=0.0), features()
    before = copy.deepcopy(model.state_dict())
    out = model(x, generator=seeded(1))
    assert torch.equal(out, model(x, generator=seeded(1)))
    assert not torch.equal(out, model(x, generator=seeded(2)))
    torch.manual_seed(1)
    assert torch.equal(out, model(x))
    torch.testing.assert_close(dict(model.state_dict()), dict(before), rtol=0, atol=0)
    model.eval()
    state = torch.get_rng_state()
    out = model(x, generator=seeded(1))
    assert torch.equal(out, model(x))
    assert torch.equal(state, torch.get_rng_state())
    model.reset_parameters()
    fresh = model.state_dict()['layers.0.directions']
    assert not torch.equal(fresh, before['layers.0.directions'])


def test_batch():
    model, x = make(dropout=0.0), features().requires_grad_()
    # A lone node, and names of graphs with a gap.
    batch = torch.tensor([0] * 5 + [2] + [3] * 6)
    model.eval()
    parts = [model(x[:5]), model(x[5:6]), model(x[6:])]
    torch.testing.assert_close(model(x, batch=batch), torch.cat(parts))
    model.train()
    (grad,) = torch.autograd.grad(model(x, batch=batch)[:5].square().sum(), x)
    assert float(grad[:5].abs().min()) > 0
    assert float(grad[5:].abs().max()) == 0


def test_dropout():
    model, x = make(dropout=0.25, act='relu'), features(500)
    inputs = []
    model.lin_out.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    for layer in model.layers:
        layer.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    model(x)
    assert len(inputs) == 3
    shares = [float((h == 0).double().mean()) for h in inputs]
    # The first are half zeros before dropout, from the activation.
    assert shares == pytest.approx([0.5 + 0.5 * 0.25, 0.25, 0.25], abs=0.05)


def test_autocast():
    model, x = make(dropout=0.0).float(), features().float()
    exact = model(x, generator=seeded(1))
    with torch.autocast('cpu', dtype=torch.bfloat16):
        out = model(x, generator=seeded(1))
    assert not torch.equal(out.float(), exact)
    torch.testing.assert_close(out.float(), exact, rtol=0.1, atol=0.1)
