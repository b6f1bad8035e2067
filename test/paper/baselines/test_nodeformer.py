"""NodeFormer: attention against sums over all pairs, noise, layers, and new rows."""

import math
from contextlib import ExitStack
from unittest import mock

import pytest
import torch
from oracles import inner, seeded
from scipy import stats
from torch.nn import functional as F

from reproduction.baselines import nodeformer
from reproduction.baselines.nodeformer import (
    NodeFormer,
    NodeFormerLayer,
    feature_exponents,
    kernel_attention,
    orthogonal_directions,
)
from torch_geometric_gsl.nn.models.row_index import NewRowsWarning

N, IN, HIDDEN, OUT = 12, 5, 4, 3
# A two-sided test fails for a correct function once in ten thousand times.
ERROR_RATE = 1e-4


def normal(*size, seed=0):
    return torch.randn(*size, generator=seeded(seed), dtype=torch.float64)


def problem(n=4, num_keys=5, heads=2, draws=3, features=6):
    query, key = normal(n, heads, 3, seed=1), normal(num_keys, heads, 3, seed=2)
    value, noise = normal(num_keys, heads, 2, seed=3), normal(num_keys, heads, draws)
    return query, key, value, normal(features, 3, seed=4), noise


def quadratic(query, key, value, directions, noise):
    """The definition: a kernel of all pairs, written as loops."""
    out = torch.zeros(query.size(0), *value.shape[1:], dtype=torch.float64)
    rows, draws = directions.tolist(), noise.size(2)
    for i in range(query.size(0)):
        for head in range(query.size(1)):
            q, weights = query[i, head].tolist(), []
            for j in range(key.size(0)):
                k = key[j, head].tolist()
                weights.append(
                    math.fsum(
                        math.exp(inner(w, q) - inner(q, q) / 2)
                        * math.exp(inner(w, k) - inner(k, k) / 2)
                        for w in rows
                    )
                )
            for draw in range(draws):
                noisy = [
                    weight * math.exp(float(noise[j, head, draw]))
                    for j, weight in enumerate(weights)
                ]
                for j, weight in enumerate(noisy):
                    out[i, head] += weight / sum(noisy) * value[j, head] / draws
    return out


@pytest.mark.parametrize('size', [(4, 5, 2, 3, 6), (1, 1, 1, 1, 1), (3, 7, 1, 2, 2)])
def test_against_sums_over_all_pairs(size):
    *fixed, noise = args = problem(*size)
    expected = quadratic(*args)
    torch.testing.assert_close(kernel_attention(*args), expected)
    # Noise of a draw far beyond what exponentials can hold.
    shifted = noise + 900 * torch.arange(-1, noise.size(2) - 1)
    torch.testing.assert_close(kernel_attention(*fixed, shifted), expected)
    plain = kernel_attention(*fixed)
    expected = quadratic(*fixed, torch.zeros_like(noise[..., :1]))
    torch.testing.assert_close(plain, expected)
    *inputs, directions = (tensor.requires_grad_() for tensor in fixed)
    assert torch.autograd.gradcheck(
        lambda *tensors: kernel_attention(*tensors, directions, noise), inputs
    )


@pytest.mark.parametrize('size', [1.0, 30.0])
def test_nothing_overflows(size):
    # Few keys count for a query, and few of them have the noise that counts.
    tensors = [size * normal(300, 1, 8, seed=seed) for seed in (1, 2)]
    tensors.append(normal(300, 1, 2))
    time = torch.empty(300, 1, 10).double().exponential_(generator=seeded())
    fixed = orthogonal_directions(30, 8, generator=seeded()), -20 * time.log()
    outs = []
    for dtype in (torch.float64, torch.float32):
        inputs = [tensor.to(dtype).requires_grad_() for tensor in tensors]
        out = kernel_attention(*inputs, *(tensor.to(dtype) for tensor in fixed))
        outs.append(out.detach().double())
        for grad in torch.autograd.grad(out.square().sum(), inputs):
            assert bool(grad.isfinite().all())
    torch.testing.assert_close(*outs, rtol=0, atol=1e-5 * size)


@pytest.mark.parametrize('channels', [1, 3, 4])
def test_features_are_unbiased(channels):
    x, y = 0.6 * normal(channels, seed=5).abs(), 0.5 * normal(channels, seed=6).abs()
    blocks = 40_000
    w = orthogonal_directions(
        blocks * channels, channels, dtype=torch.float64, generator=seeded()
    )
    product = (feature_exponents(x, w) + feature_exponents(y, w)).exp()
    # Blocks alone are independent; their means are far from normal one by one.
    means = product.view(blocks, channels).mean(dim=1)
    expected = math.exp(inner(x.tolist(), y.tolist()))
    z = (float(means.mean()) - expected) / (float(means.std()) / math.sqrt(blocks))
    assert abs(z) < stats.norm.isf(ERROR_RATE / 2)


@pytest.mark.parametrize('channels', [1, 2, 5])
def test_law_of_the_directions(channels):
    # One of each block: they are independent.
    w = orthogonal_directions(
        5_000 * channels, channels, dtype=torch.float64, generator=seeded()
    ).view(5_000, channels, channels)
    rates = [
        stats.kstest(w[:, row, column], 'norm').pvalue
        for row in range(channels)
        for column in range(channels)
    ]
    length = w.norm(dim=-1)
    rates += [
        stats.kstest(lengths, 'chi', (channels,)).pvalue for lengths in length.t()
    ]
    assert min(rates) > ERROR_RATE / len(rates)
    gram = (w @ w.mT) / (length.unsqueeze(1) * length.unsqueeze(2))
    torch.testing.assert_close(
        gram, torch.eye(channels, dtype=torch.float64).expand_as(gram)
    )


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
    def norm(index, h):
        layer_norm = model.norms[index]
        centred = h - h.mean(dim=1, keepdim=True)
        size = (centred.square().mean(dim=1, keepdim=True) + layer_norm.eps).sqrt()
        return centred / size * layer_norm.weight + layer_norm.bias

    h = F.elu(norm(0, x @ model.lin_in.weight.t() + model.lin_in.bias))
    for index, layer in enumerate(model.layers):
        out = plain_layer(layer, h, directions[index], noises[index])
        h = norm(index + 1, out + h)
    return h @ model.lin_out.weight.t() + model.lin_out.bias


@torch.no_grad()
@pytest.mark.parametrize('training', [True, False])
def test_against_plain_layers(training):
    model, x = make(dropout=0.0, tau=0.4).train(training), features(5)
    for norm in model.norms:
        torch.nn.init.normal_(norm.weight)
        torch.nn.init.normal_(norm.bias)
    drawn = {'orthogonal_directions': [], 'log_arrival_times': []}
    with ExitStack() as stack:
        for name, results in drawn.items():
            function = getattr(nodeformer, name)

            def call(*args, function=function, results=results, **kwargs):
                results.append(function(*args, **kwargs))
                return results[-1].clone()

            stack.enter_context(mock.patch.object(nodeformer, name, call))
        out = model(x)
    directions, log_times = drawn.values()
    noises = [-log_time for log_time in log_times]
    if training:
        assert [log_time.shape for log_time in log_times] == [(5, 2, 3)] * 2
    else:
        assert not directions
        directions = [layer.directions for layer in model.layers]
        noises = [torch.zeros(5, 2, 1, dtype=torch.float64)] * 2
    assert [w.shape for w in directions] == [(6, HIDDEN)] * 2
    torch.testing.assert_close(out, plain_model(model, x, directions, noises))


def test_law_of_the_noise():
    layer = NodeFormerLayer(4, heads=2, k=50, tau=0.5, num_features=3)
    noise = layer._draw_noise(torch.zeros(100, 2, 4, dtype=torch.float64), seeded())
    assert noise.shape == (100, 2, 50)
    assert stats.kstest(0.5 * noise.flatten(), 'gumbel_r').pvalue > ERROR_RATE
    # No two keys, heads or draws share their noise.
    assert noise.unique().numel() == noise.numel()


def test_directions_of_evaluation_are_part_of_the_state():
    model, x = make(dropout=0.0), features()
    before = model.layers[0].directions.clone()
    model(x)
    assert torch.equal(model.layers[0].directions, before)
    assert torch.equal(model.eval()(x, generator=seeded(1)), model(x))
    model.reset_parameters()
    assert not torch.equal(model.layers[0].directions, before)


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


BATCH = torch.arange(40) // 20


@torch.no_grad()
@pytest.mark.parametrize('is_sparse', [False, True])
@pytest.mark.parametrize('is_batch', [False, True])
def test_attention_to_sources(is_sparse, is_batch):
    torch.manual_seed(0)
    net = NodeFormer(IN, HIDDEN, 3, OUT).double().eval()
    x, new = features(40).relu(), features(9).relu() + 0.1

    def call(pair, **options):
        pair = tuple(rows.to_sparse_csr() for rows in pair) if is_sparse else pair
        return net(pair, **options)

    ids = (torch.arange(9) // 4 % 2).sort().values
    pair = {'batch': (BATCH, ids)} if is_batch else {}
    of_sources = {'batch': BATCH} if is_batch else {}
    # A source gets what it got there.
    rows = torch.tensor([3, 3, 17])
    joined = {'batch': (BATCH, BATCH[rows])} if is_batch else {}
    torch.testing.assert_close(call((x, x[rows]), **joined), net(x, **of_sources)[rows])
    # What a row gets depends on no other row.
    together = call((x, new), **pair)
    for row in range(9):
        alone = {'batch': (BATCH, ids[row : row + 1])} if is_batch else {}
        out = call((x, new[row : row + 1]), **alone)
        torch.testing.assert_close(out[0], together[row])
    assert call((x, new[:0])).shape == (0, OUT)
    # The definition: keys and values are those of the sources' own call.
    layer, hidden = net.layers[0], torch.nn.functional.elu
    h, source = (hidden(net.norms[0](net.lin_in(rows))) for rows in (new, x))
    if not is_batch:
        query, key, value = (
            lin(rows).view(len(rows), layer.heads, HIDDEN)
            for lin, rows in (
                (layer.query, h),
                (layer.key, source),
                (layer.value, source),
            )
        )
        root = (HIDDEN**0.5 * layer.tau) ** 0.5
        out = kernel_attention(query / root, key / root, value, layer.directions)
        expected = layer.out(out.flatten(1))
        out = layer(h, source, [(len(new), len(x))])
        torch.testing.assert_close(out, expected)


def test_indexed_rows_are_attended_to(tmp_path):
    net, x, new = NodeFormer(IN, HIDDEN, 2, OUT).double(), features(40), features(9)
    net(x)
    net.eval()
    with pytest.warns(NewRowsWarning, match='has 9 rows after training on 40'):
        net(new)
    expected = net((x, new))
    torch.testing.assert_close(net.index(x)(new), expected)
    assert torch.equal(net.predict(new), expected.argmax(dim=1))
    net.save(tmp_path / 'net.pt')
    loaded = NodeFormer.load(tmp_path / 'net.pt')
    torch.testing.assert_close(loaded(new), expected)
    assert not torch.allclose(net.clear_index()((new, new)), expected)


def test_attention_needs_rows():
    net, x = NodeFormer(IN, HIDDEN, 2, OUT).double(), features(3)
    with pytest.raises(ValueError, match="'x_src' must have at least one row "):
        net((x[:0], x))
    ids = torch.tensor([0, 0, 1])
    match = "'x_src' must have at least one row in each graph of its targets"
    with pytest.raises(ValueError, match=match):
        net((x, x), batch=(ids, ids + 1))
    # Graphs of the sources may have no new rows.
    out = net.eval()((x, x[:2]), batch=(ids, ids[:2]))
    torch.testing.assert_close(out, net((x[:2], x[:2])))
    with pytest.raises(TypeError, match="'batch' must be a pair like 'x'"):
        net((x, x), batch=ids)
    with pytest.raises(ValueError, match="'batch' must be sorted"):
        net((x, x), batch=(ids, ids.flip(0)))
    net.train().loss((features(40), x), ids).backward()
    assert all(p.grad.isfinite().all() for p in net.parameters())
