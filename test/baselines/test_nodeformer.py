import copy
import math
from contextlib import ExitStack
from unittest import mock

import pytest
import torch
from oracles import seeded
from scipy import stats
from torch.nn import functional as F

from torch_geometric_gsl.baselines.nodeformer import nodeformer
from torch_geometric_gsl.baselines.nodeformer.attention import kernel_attention
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
    """One layer, by the attention that is tested by itself; the noise is Gumbel's."""
    lins = layer.query, layer.key, layer.value
    heads = [x @ lin.weight.t() + lin.bias for lin in lins]
    query, key, value = (h.view(len(x), layer.heads, -1) for h in heads)
    root = math.sqrt(math.sqrt(x.size(1)) * layer.tau)
    out = kernel_attention(
        query / root, key / root, value, directions, noise / layer.tau
    )
    return out.flatten(1) @ layer.out.weight.t() + layer.out.bias


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
@pytest.mark.parametrize('training', [True, False])
def test_against_plain_layers(training):
    model, x = make(dropout=0.0, tau=0.4).train(training), features(5)
    for norm in model.norms:
        torch.nn.init.normal_(norm.weight)
        torch.nn.init.normal_(norm.bias)
    drawn = {'orthogonal_directions': [], 'arrival_times': []}
    with ExitStack() as stack:
        for name, found in drawn.items():
            own = getattr(nodeformer, name)

            def call(*args, own=own, found=found, **kwargs):
                found.append(own(*args, **kwargs))
                return found[-1].clone()

            stack.enter_context(mock.patch.object(nodeformer, name, call))
        out = model(x)
    directions, times = drawn.values()
    noises = [-time.log() for time in times]
    if training:
        assert [part.shape for part in times] == [(5, 2, 3)] * 2
    else:
        assert not directions
        directions = [layer.directions for layer in model.layers]
        noises = [torch.zeros(5, 2, 1, dtype=torch.float64)] * 2
    assert [part.shape for part in directions] == [(6, HIDDEN)] * 2
    torch.testing.assert_close(out, plain_model(model, x, directions, noises))


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
