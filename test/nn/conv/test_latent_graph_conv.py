from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from torch_geometric_gsl.nn.conv.latent_graph_conv import LatentGraphConv
from torch_geometric_gsl.nn.similarity.neural_gaussian_similarity import (
    NeuralGaussianSimilarity,
)

N, IN, OUT, K, TAU, SCALE = 7, 5, 4, 3, 0.4, 1.5
Matrix = list[list[float]]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def features(num_nodes: int = N, seed: int = 3) -> Tensor:
    return torch.randn(num_nodes, IN, generator=seeded(seed), dtype=torch.double)


def make(**kwargs: Any) -> LatentGraphConv:
    torch.manual_seed(5)
    kwargs = {'k': K, 'tau': TAU, 'scale': SCALE, 'num_arrivals': N, **kwargs}
    conv = LatentGraphConv(IN, OUT, **kwargs).double()
    if conv.bias is not None:
        torch.nn.init.normal_(conv.bias)
    return conv


def product(a: Matrix, b: Matrix) -> Matrix:
    columns = list(zip(*b, strict=True))
    return [
        [sum(x * y for x, y in zip(row, column, strict=True)) for column in columns]
        for row in a
    ]


def unit(row: list[float]) -> list[float]:
    norm = math.sqrt(sum(value * value for value in row))
    return [value / norm for value in row]


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def oracle(conv: LatentGraphConv, x: Tensor, seed: int | None = None) -> Tensor:
    """The layer number by number; a seed replays the noise of training."""
    h = product(x.tolist(), conv.lin.weight.t().tolist())
    z = [unit(row) for row in h]
    similarity = conv.sampler.similarity
    (w_b,), (w_c,) = similarity.w_b.tolist(), similarity.w_c.tolist()
    size = (N, K if seed is not None else 1, N)
    noise = torch.rand(size, generator=seeded(seed or 0), dtype=torch.double).tolist()
    out = []
    for i in range(N):
        b = sigmoid(sum(u * v for u, v in zip(z[i], w_b, strict=True)))
        c = 0.1 * sigmoid(sum(u * v for u, v in zip(z[i], w_c, strict=True)))
        row = [0.0] * OUT
        for draw in noise[i]:
            power = []
            for j, u in enumerate(draw):
                t = sum(p * q for p, q in zip(z[i], z[j], strict=True))
                value = SCALE * math.exp(-((t - b) ** 2) / c)
                if seed is not None:
                    value -= math.log(-math.log(u))
                power.append(math.exp(value / TAU))
            for j in range(N):
                for m in range(OUT):
                    row[m] += power[j] / sum(power) * h[j][m] / len(noise[i])
        out.append(row)
    result = torch.tensor(out, dtype=torch.double)
    if conv.add_self_loops:
        result = 0.5 * result + 0.5 * torch.tensor(h, dtype=torch.double)
    if conv.lin_root is not None:
        root = product(x.tolist(), conv.lin_root.weight.t().tolist())
        result += torch.tensor(root, dtype=torch.double)
    return result if conv.bias is None else result + conv.bias.detach()


def test_repr() -> None:
    assert str(LatentGraphConv(16, 32)) == (
        'LatentGraphConv(16, 32, similarity=NeuralGaussianSimilarity(32, '
        'c_scale=0.1), k=5, tau=0.25)'
    )
    assert str(LatentGraphConv(-1, 8, 'linear', k=2, tau=1.0)) == (
        'LatentGraphConv(-1, 8, similarity=LinearSimilarity(8), k=2, tau=1.0)'
    )


@pytest.mark.parametrize('seed', [None, 7])
@pytest.mark.parametrize('method', ['dense', 'stream'])
@pytest.mark.parametrize('root_weight', [True, False])
@pytest.mark.parametrize('add_self_loops', [True, False])
@pytest.mark.parametrize('bias', [True, False])
def test_formula(
    root_weight: bool, add_self_loops: bool, bias: bool, method: str, seed: int | None
) -> None:
    flags = {'root_weight': root_weight, 'add_self_loops': add_self_loops}
    conv = make(**flags, bias=bias, method=method)
    conv.train(seed is not None)
    names = {name for name, _ in conv.named_parameters()}
    assert ('bias' in names) == bias
    assert ('lin_root.weight' in names) == root_weight
    generator = None if seed is None else seeded(seed)
    out = conv(features(), generator=generator)
    assert out.shape == (N, OUT)
    expected = oracle(conv, features(), seed)
    torch.testing.assert_close(out.detach(), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    'options', [{}, {'hard': True}, {'loop': False}, {'replace': False}]
)
def test_dense_equals_stream(options: Any) -> None:
    found = []
    for method in ('dense', 'stream'):
        conv, x = make(method=method, **options), features().requires_grad_()
        out = conv(x, generator=seeded(2))
        out.square().sum().backward()
        found.append([out.detach(), x.grad, *(p.grad for p in conv.parameters())])
    torch.testing.assert_close(*found)


@pytest.mark.parametrize('training', [True, False])
def test_sparse_features(training: bool) -> None:
    x = features() * (features(seed=4) > 0)
    found = []
    for own in (x, x.to_sparse_csr()):
        conv = make().train(training)
        out = conv(own, generator=seeded(2))
        out.square().sum().backward()
        found.append([out.detach(), *(p.grad for p in conv.parameters())])
    torch.testing.assert_close(*found)
    graph, expected = (conv.graph(own, generator=seeded(2)) for own in (x, own))
    assert torch.equal(graph.edge_index, expected.edge_index)


@pytest.mark.parametrize('training', [True, False])
def test_lazy_channels(training: bool) -> None:
    conv = LatentGraphConv(-1, OUT).train(training)
    x = features().float()
    assert conv(x).shape == (N, OUT)
    assert conv.lin.weight.shape == conv.lin_root.weight.shape == (OUT, IN)
    conv.reset_parameters()
    assert conv(x).shape == (N, OUT)
    with pytest.raises(ValueError, match=r"'x' must have 5 channels \(got 3\)"):
        conv(x[:, :3])


@pytest.mark.parametrize('budget', [2**25, 1])
@pytest.mark.parametrize('training', [True, False])
def test_batch(training: bool, budget: int) -> None:
    conv = make(memory_budget=budget).train(training)
    x, batch = features(9), torch.tensor([0] * 4 + [2] * 5)
    out = conv(x, batch=batch, generator=seeded(2))
    generator = seeded(2)
    parts = [conv(part, generator=generator) for part in (x[:4], x[4:])]
    torch.testing.assert_close(out, torch.cat(parts))


def test_given_candidates() -> None:
    conv = make(k=2).eval()
    x = features()
    given = torch.tensor([[1, 2, 4, 4, 0], [0, 0, 0, 3, 3]])
    out = conv(x, given)
    h = conv.lin(x)
    score = SCALE * conv.sampler.similarity(h) / TAU
    expected = conv.lin_root(x) + conv.bias
    for target, sources in {0: [1, 2, 4], 3: [0, 4]}.items():
        weight = score[target, sources].softmax(0)
        expected[target] = expected[target] + weight @ h[sources]
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize('training', [True, False])
def test_graph(training: bool) -> None:
    conv, x = make().train(training), features()
    graph = conv.graph(x, generator=seeded(2))
    expected = conv.sampler(conv.lin(x), generator=seeded(2))
    assert torch.equal(graph.edge_index, expected.edge_index)
    assert torch.equal(graph.edge_weight, expected.edge_weight)
    if training:  # What the layer sums over is what it shows.
        out = (conv(x, generator=seeded(2)) - conv.lin_root(x) - conv.bias).detach()
        dense = torch.zeros(N, N).double()
        dense[graph.edge_index[1], graph.edge_index[0]] = graph.edge_weight.detach()
        torch.testing.assert_close(out, dense @ conv.lin(x).detach())


def test_generator() -> None:
    conv, x = make(), features()
    state = torch.get_rng_state()
    out = conv(x, generator=seeded(1))
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(out, conv(x, generator=seeded(1)))
    assert not torch.equal(out, conv(x, generator=seeded(2)))
    torch.manual_seed(1)
    assert torch.equal(out, conv(x))
    conv.eval()
    assert torch.equal(conv(x), conv(x, generator=seeded(1)))


def test_reset_parameters() -> None:
    conv = make()
    found = []
    for _ in range(2):
        torch.manual_seed(9)
        conv.reset_parameters()
        found.append([parameter.clone() for parameter in conv.parameters()])
        for parameter in conv.parameters():
            torch.nn.init.constant_(parameter, 7)
    torch.testing.assert_close(*found, rtol=0, atol=0)
    assert all(bool((parameter != 7).all()) for parameter in found[0])


def test_similarity_as_module() -> None:
    similarity = NeuralGaussianSimilarity(OUT, c_scale=0.2)
    assert LatentGraphConv(IN, OUT, similarity).sampler.similarity is similarity
    with pytest.raises(ValueError, match="'similarity' expects 4 channels but it rec"):
        LatentGraphConv(IN, OUT + 1, similarity)


@pytest.mark.parametrize('in_channels', [-1, IN])
@pytest.mark.parametrize('autocast', [False, True])
def test_double_precision_is_refused(in_channels: int, autocast: bool) -> None:
    conv = LatentGraphConv(in_channels, OUT)
    with (
        torch.autocast('cpu', dtype=torch.bfloat16, enabled=autocast),
        pytest.raises(TypeError, match=r"'x' has torch\.float64 but the par"),
    ):
        conv(features())


@pytest.mark.parametrize(
    ('error', 'args', 'kwargs', 'match'),
    [
        (ValueError, (0, 4), {}, r"'in_channels' must be at least 1 \(got 0\)"),
        (ValueError, (-2, 4), {}, r"'in_channels' must be at least 1 \(got -2\)"),
        (TypeError, (2.0, 4), {}, r"'in_channels' must be an integer \(got float\)"),
        (ValueError, (4, 0), {}, r"'out_channels' must be at least 1 \(got 0\)"),
        (ValueError, (4, 4, 'bell'), {}, r"'similarity' must be one of .* 'bell'"),
        (TypeError, (4, 4, 3), {}, r"'similarity' must be a name or a Sim.* \(got int"),
        (ValueError, (4, 4), {'tau': 0.0}, r"'tau' must be positive and finite"),
        (TypeError, (4, 4), {'add_self_loops': 1}, r"'add_self_loops' must be a bool"),
        (TypeError, (4, 4), {'heads': 2}, "unexpected keyword argument 'heads'"),
    ],
)
def test_bad_arguments(
    error: type[Exception], args: Any, kwargs: Any, match: str
) -> None:
    with pytest.raises(error, match=match):
        LatentGraphConv(*args, **kwargs)


@pytest.mark.parametrize(
    ('error', 'x', 'match'),
    [
        (TypeError, None, r"'x' must be a torch.Tensor \(got NoneType\)"),
        (ValueError, features()[:, 1:], r"'x' must have 5 channels \(got 4\)"),
        (TypeError, features().float(), "'x' has torch.float32 but the parameters hav"),
        (ValueError, features() / 0, "'x' contains NaN or infinite values"),
        (ValueError, features()[:2], r'candidates \(got k=3 for 2 candidates\)'),
        (ValueError, features()[0], r"'x' must have shape \[num_nodes, channels\]"),
    ],
)
def test_bad_input(error: type[Exception], x: Any, match: str) -> None:
    with pytest.raises(error, match=match):
        make()(x)
