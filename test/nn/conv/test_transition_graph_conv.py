from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from torch_geometric_gsl.nn.conv.transition_graph_conv import TransitionGraphConv

N, S, IN, OUT, K, TAU, SCALE = 7, 6, 11, 4, 3, 0.4, 1.5
Matrix = list[list[float]]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def features(seed: int = 3) -> Tensor:
    return torch.randn(N, IN, generator=seeded(seed), dtype=torch.double)


def make(**kwargs: Any) -> TransitionGraphConv:
    torch.manual_seed(5)
    kwargs = {'k': K, 'tau': TAU, 'scale': SCALE, 'num_arrivals': S, **kwargs}
    conv = TransitionGraphConv(IN, OUT, N, S, **kwargs).double()
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


def inner(u: list[float], v: list[float]) -> float:
    return sum(a * b for a, b in zip(u, v, strict=True))


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def weights(conv: TransitionGraphConv, x: Tensor, seed: int | None) -> Matrix:
    """A_t, number by number; a seed replays the noise of training."""
    z = [unit(row) for row in product(x.tolist(), conv.lin.weight.t().tolist())]
    r = [unit(row) for row in product(conv.w_t.tolist(), z)]
    similarity = conv.sampler.similarity
    (w_b,), (w_c,) = similarity.w_b.tolist(), similarity.w_c.tolist()
    size = (N, K if seed is not None else 1, S)
    noise = torch.rand(size, generator=seeded(seed or 0), dtype=torch.double).tolist()
    matrix = [[0.0] * S for _ in range(N)]
    for i in range(N):
        b, c = sigmoid(inner(z[i], w_b)), 0.1 * sigmoid(inner(z[i], w_c))
        for draw in noise[i]:
            power = []
            for j, u in enumerate(draw):
                value = SCALE * math.exp(-((inner(z[i], r[j]) - b) ** 2) / c)
                if seed is not None:
                    value -= math.log(-math.log(u))
                power.append(math.exp(value / TAU))
            for j in range(S):
                matrix[i][j] += power[j] / sum(power) / len(noise[i])
    return matrix


def oracle(conv: TransitionGraphConv, x: Tensor, seed: int | None) -> Tensor:
    h = product(x.tolist(), conv.lin.weight.t().tolist())
    messages = product(conv.w_e.tolist(), h)
    summed = product(weights(conv, x, seed), messages)
    out = torch.tensor(summed, dtype=torch.double)
    if conv.add_self_loops:
        out = 0.5 * out + 0.5 * torch.tensor(h, dtype=torch.double)
    if conv.lin_root is not None:
        root = product(x.tolist(), conv.lin_root.weight.t().tolist())
        out += torch.tensor(root, dtype=torch.double)
    return out if conv.bias is None else out + conv.bias.detach()


def test_repr() -> None:
    assert str(TransitionGraphConv(16, 32, num_nodes=100)) == (
        'TransitionGraphConv(16, 32, num_nodes=100, num_transition_nodes=500, '
        'similarity=NeuralGaussianSimilarity(32, c_scale=0.1), k=5, tau=0.25)'
    )
    assert str(TransitionGraphConv(-1, 8, 9, 3, 'linear', k=2, tau=1.0)) == (
        'TransitionGraphConv(-1, 8, num_nodes=9, num_transition_nodes=3, '
        'similarity=LinearSimilarity(8), k=2, tau=1.0)'
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
    generator = None if seed is None else seeded(seed)
    out = conv(features(), generator=generator)
    assert out.shape == (N, OUT)
    expected = oracle(conv, features(), seed)
    torch.testing.assert_close(out.detach(), expected, rtol=1e-9, atol=1e-12)


def test_parameters_are_scaled_projections() -> None:
    conv = make()
    assert conv.w_t.shape == conv.w_e.shape == (S, N)
    torch.testing.assert_close(conv.theta_t, N * conv.w_t)
    torch.testing.assert_close(conv.theta_e, N * conv.w_e)
    bound = math.sqrt(6 / (S + N))  # The projections themselves start as Glorot's.
    for weight in (conv.w_t, conv.w_e):
        assert 0.8 * bound < float(weight.detach().abs().max()) <= bound


def test_transition_nodes_are_unit_rows() -> None:
    conv, x = make(), features()
    received: list[tuple[Tensor, Tensor]] = []
    conv.sampler.register_forward_pre_hook(lambda _, args: received.append(args[0]))
    conv.graph(x)
    h = product(x.tolist(), conv.lin.weight.t().tolist())
    z = [unit(row) for row in h]
    r = [unit(row) for row in product(conv.w_t.tolist(), z)]
    expected = tuple(torch.tensor(rows, dtype=torch.double) for rows in (r, h))
    torch.testing.assert_close(tuple(part.detach() for part in received[0]), expected)


class Shapes(TorchDispatchMode):
    """Records the shapes of all tensors that any operation returns."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[tuple[int, ...]] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        for value in out if isinstance(out, tuple | list) else [out]:
            if isinstance(value, Tensor):
                self.seen.add(tuple(value.shape))
        return out


@pytest.mark.parametrize('sparse', [True, False])
@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('method', ['dense', 'stream'])
def test_wide_matrix_is_never_formed(method: str, training: bool, sparse: bool) -> None:
    conv = make(method=method).train(training)
    x = features().to_sparse_csr() if sparse else features().requires_grad_()
    wide = {(S, IN), (IN, S)}
    with Shapes() as shapes:
        conv(x).square().sum().backward()
    assert (S, OUT) in shapes.seen
    assert (OUT, IN) in shapes.seen or (IN, OUT) in shapes.seen  # A gradient.
    assert not shapes.seen & wide
    if not sparse:  # The other order of brackets would be seen.
        with Shapes() as shapes:
            conv.lin(conv.w_e @ x)
        assert shapes.seen & wide


@pytest.mark.parametrize('options', [{}, {'hard': True}, {'replace': False}])
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


@pytest.mark.parametrize('how', ['half', 'autocast'])
def test_half_precision_of_many_nodes(how: str) -> None:
    """Shares of 1 / n would be subnormal numbers."""
    n = 20_000
    torch.manual_seed(5)
    conv = TransitionGraphConv(IN, 32, n, S).eval()
    x = torch.randn(n, IN).half().float()
    h = conv._project(x).detach()
    exact = conv._gather(conv.theta_e, h)
    if how == 'half':
        found = conv.half()._gather(conv.theta_e, h.half())
    else:
        with torch.autocast('cpu', dtype=torch.float16):
            found = conv._gather(conv.theta_e, h.half())
    error = (found.float() - exact).norm() / exact.norm()
    assert float(error.detach()) < 1e-3


def test_lazy_channels() -> None:
    conv = TransitionGraphConv(-1, OUT, N, S)
    assert conv(features().float()).shape == (N, OUT)
    assert conv.lin.weight.shape == (OUT, IN)


@pytest.mark.parametrize('training', [True, False])
def test_graph(training: bool) -> None:
    conv, x = make(k=S, replace=False).train(training), features()
    edge_index, weight = conv.graph(x, generator=seeded(2))
    source, target = edge_index
    assert int(source.max()) == S - 1
    assert int(target.max()) == N - 1
    found = torch.zeros(N, S).double()
    found[target, source] = weight.detach()
    torch.testing.assert_close(found.sum(1), torch.ones(N).double())
    if not training:
        expected = torch.tensor(weights(conv, x, None), dtype=torch.double)
        torch.testing.assert_close(found, expected)


def test_generator() -> None:
    conv, x = make(), features()
    state = torch.get_rng_state()
    out = conv(x, generator=seeded(1))
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(out, conv(x, generator=seeded(1)))
    assert not torch.equal(out, conv(x, generator=seeded(2)))
    torch.manual_seed(1)
    assert torch.equal(out, conv(x))


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


def test_other_number_of_nodes() -> None:
    with pytest.raises(
        ValueError, match=r"'x' must have num_nodes=7 rows \(got 5\); the transition"
    ):
        make()(features()[:5])
    with pytest.raises(ValueError, match=r"'x' must have num_nodes=7 rows \(got 5\)"):
        make().graph(features()[:5])


@pytest.mark.parametrize(
    ('error', 'args', 'match'),
    [
        (ValueError, (4, 4, 0), r"'num_nodes' must be at least 1 \(got 0\)"),
        (TypeError, (4, 4, None), r"'num_nodes' must be an integer \(got NoneType\)"),
        (ValueError, (4, 4, 5, 0), "'num_transition_nodes' must be at least 1"),
        (TypeError, (4, 4, 5, 0.5), "'num_transition_nodes' must be an integer"),
        (ValueError, (4, 4, 5, 3, 'bell'), r"'similarity' must be one of .* 'bell'"),
        (ValueError, (0, 4, 5), r"'in_channels' must be at least 1 \(got 0\)"),
    ],
)
def test_bad_arguments(error: type[Exception], args: Any, match: str) -> None:
    with pytest.raises(error, match=match):
        TransitionGraphConv(*args)


def test_too_few_transition_nodes() -> None:
    conv = TransitionGraphConv(IN, OUT, N, num_transition_nodes=2, k=3).double()
    with pytest.raises(ValueError, match=r'\(got k=3 for 2 candidates\)'):
        conv(features())


@pytest.mark.parametrize('name', ['edge_index', 'batch'])
def test_arguments_without_meaning(name: str) -> None:
    conv = TransitionGraphConv(3, 2, num_nodes=6, num_transition_nodes=5)
    value = torch.zeros(2, 6, dtype=torch.long)
    for call in (conv, conv.graph):
        with pytest.raises(
            ValueError, match=rf"'{name}' has no meaning with transition"
        ):
            call(torch.randn(6, 3), **{name: value})
