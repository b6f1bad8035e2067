import math
from typing import ClassVar

import pytest
import torch
from oracles import seeded

from torch_geometric_gsl import (
    GaussianSimilarity,
    GumbelKNNSampler,
    LinearSimilarity,
    Similarity,
)
from torch_geometric_gsl.ops.scores import HeatKernel, Identity, Response

DOUBLE = {'dtype': torch.float64}
# Scores are exact up to rounding, which a narrow bell magnifies about tenfold.
TOLERANCE = {
    torch.float64: {'rtol': 1e-10, 'atol': 1e-12},
    torch.float32: {'rtol': 1e-5, 'atol': 5e-6},
    # The score itself is rounded to half precision, and nothing before it.
    torch.float16: {'rtol': 1e-3, 'atol': 1e-5},
    torch.bfloat16: {'rtol': 1e-2, 'atol': 1e-5},
}


def all_pairs(num_targets, num_sources):
    target = torch.arange(num_targets).repeat_interleave(num_sources)
    return torch.stack([torch.arange(num_sources).repeat(num_targets), target])


def check(case, module, x_src, x_dst):
    """Holds all three ways to ask for scores against the formula."""
    expected = case.expect(module, x_dst, x_src)
    n, m = expected.shape
    matrix = module((x_src, x_dst))
    listed = module((x_src, x_dst), all_pairs(n, m)).view(n, m)
    for out in (matrix, listed, *([module(x_src)] if x_src is x_dst else [])):
        assert out.shape == (n, m)
        assert out.dtype == x_src.dtype
        torch.testing.assert_close(out.double(), expected, **TOLERANCE[x_src.dtype])


def test_repr_and_parameters(case):
    name, text = case.cls.__name__, f', {case.text}' if case.text else ''
    for args in ((16,), (16, 8)):
        module, m = case.build(*args), args[-1]
        assert str(module) == f'{name}({", ".join(map(str, args))}{text})'
        shapes = {key: (rows, m) if rows else (1,) for key, rows in case.rows.items()}
        lin = {'lin.weight': (8, 16)} if len(args) > 1 else {}
        sizes = {key: tuple(value.shape) for key, value in module.named_parameters()}
        assert sizes == {**shapes, **lin}


# A projection in half precision is rounded itself.
@pytest.mark.parametrize(
    ('dtype', 'width'),
    [*[(dtype, None) for dtype in TOLERANCE], (torch.float32, 3), (torch.float64, 3)],
)
@pytest.mark.parametrize('sizes', [(4, 4), (5, 3), (1, 1), (1, 4)])
def test_formula(case, dtype, width, sizes):
    module = case.build(out_channels=width).to(dtype)
    x_src = torch.randn(sizes[0], 5).to(dtype)
    x_dst = x_src if sizes[0] == sizes[1] else torch.randn(sizes[1], 5).to(dtype)
    check(case, module, x_src, x_dst)


def odd_rows(form):
    """Return zero, equal, opposite, huge, tiny, distant or strided rows."""
    x = torch.randn(6, 5)
    if form == 'equal':
        x[1], x[3], x[5] = 0, x[2], -x[4]
    elif form == 'strided':
        return torch.randn(6, 10)[:, ::2]
    else:
        x[0] *= float(form)
        x[3] = x[0]
    return x


@pytest.mark.parametrize('form', ['equal', '1e30', '1e-30', '1e4', 'strided'])
def test_odd_rows(case, form):
    x, module = odd_rows(form), case.build(out_channels=3)
    check(case, case.build(), x, x)
    x.requires_grad_()
    for edge_index in (None, all_pairs(6, 6)):
        for leaf in (x, *module.parameters()):
            leaf.grad = None
        module(x, edge_index).sum().backward()
        for leaf in (x, *module.parameters()):
            assert bool(leaf.grad.isfinite().all())
            assert leaf is x or bool(leaf.grad.any())


def test_gradient(case):
    module = case.build(out_channels=3).double()
    x_src = torch.randn(3, 5, **DOUBLE, requires_grad=True)
    x_dst = torch.randn(2, 5, **DOUBLE, requires_grad=True)
    names, values = zip(*module.named_parameters(), strict=True)
    edges = torch.tensor([[0, 2, 2], [1, 0, 0]])

    def forward(edge_index, x_src, x_dst, *values):
        state = dict(zip(names, values, strict=True))
        return torch.func.functional_call(module, state, ((x_src, x_dst), edge_index))

    for edge_index in (None, edges):
        inputs = (edge_index, x_src, x_dst, *values)
        assert torch.autograd.gradcheck(forward, inputs)


def test_bounds(case):
    # Opposite, equal, orthogonal and random rows.
    x = torch.cat([torch.eye(5), -torch.eye(5), torch.randn(200, 5)])
    module, rounding = case.build(), 1e-6
    low, high = module.bounds
    out = module(x)
    assert low - rounding <= float(out.min().detach())
    assert float(out.max().detach()) <= high + rounding
    width = min(high - low, 1.0)  # Some have no lower bound.
    assert float(out.max().detach()) > high - 0.1 * width


def test_sparse_features(case):
    module = case.build(out_channels=3).double()
    x = torch.randn(6, 5, **DOUBLE) * (torch.rand(6, 5) < 0.5)
    torch.testing.assert_close(module(x.to_sparse_csr()), module(x))
    edges = all_pairs(6, 6)
    torch.testing.assert_close(module(x.to_sparse_csr(), edges), module(x, edges))


def test_empty_inputs(case):
    module, nothing, x = case.build(), torch.empty(0, 5), torch.randn(3, 5)
    assert module(nothing).shape == (0, 0)
    assert module((nothing, x)).shape == (3, 0)
    assert module((x, nothing)).shape == (0, 3)
    assert module(x, torch.empty(2, 0, dtype=torch.long)).shape == (0,)


def test_autocast_leaves_the_scores_alone(case):
    module, x = case.build(), torch.randn(6, 5)
    with torch.autocast('cpu', dtype=torch.bfloat16):
        out, listed = module(x), module(x, all_pairs(6, 6))
    assert out.dtype == torch.float32
    torch.testing.assert_close(out, module(x))
    torch.testing.assert_close(listed, module(x, all_pairs(6, 6)))


def test_parameters_start_as_those_of_glorot(case):
    module = case.build(out_channels=3)
    module.reset_parameters()
    for name, parameter in module.named_parameters():
        bell = getattr(module, 'bell', module)
        is_moving = getattr(bell, 'bias_b', None) is not None
        name = name.removeprefix('bell.')
        if name == 'raw_share':
            continue
        if name.startswith('bias') or (name == 'w_b' and is_moving):
            assert not parameter.any(), f'{name} must start at zero'
            continue
        # Glorot: uniform within sqrt(6 / (fan_in + fan_out)).
        bound = (6 / sum(parameter.shape)) ** 0.5
        largest = float(parameter.detach().abs().max())
        assert 0.3 * bound < largest <= bound, f"{name} must start as 'inits.glorot'"


class BellResponse(Response):
    @staticmethod
    def value(cosine):
        return torch.exp(-((cosine - 0.5) ** 2) / 0.25)


class Bell(Similarity):
    """The very formula of a class of the package, as a user would write it."""

    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def response(self, z):
        return BellResponse()


@pytest.mark.parametrize(
    ('method', 'form'),
    [(method, form) for method in ('stream', 'pool') for form in ('all', 'batch')]
    + [(method, f) for method in ('race', 'dense') for f in ('all', 'batch', 'edges')],
)
def test_a_response_of_ones_own_is_sampled(method, form):
    x, n = torch.randn(130, 5, **DOUBLE, requires_grad=True), 130
    kwargs = {
        'all': {},
        'batch': {'batch': torch.zeros(n, dtype=torch.long)},
        'edges': {'edge_index': all_pairs(n, n)},
    }[form]
    assert Bell(5).pair_scores(x).response.kernel_formula is None
    results = []
    for module in (Bell(5), GaussianSimilarity(5, b=0.5, c=0.25)):
        sampler = GumbelKNNSampler.paper(module, k=2, method=method)
        assert sampler.plan(x, **kwargs).method == method
        for training in (True, False):
            sampler.train(training)
            torch.manual_seed(1)
            edge_index, weight = sampler(x, **kwargs)
            out = sampler.propagate(x, x, **kwargs)
            total = out.square().sum() + (weight * x[edge_index[0], 0]).sum()
            (gradient,) = torch.autograd.grad(total, x)
            results.append((edge_index, weight, out, gradient))
    for result, expected in zip(results[:2], results[2:], strict=True):
        torch.testing.assert_close(result, expected)


@pytest.mark.parametrize('declared', [(-1.0, 0.25), (-0.25, 1.0)])
def test_wrong_bounds_raise_in_a_race_alone(declared):
    class Wrong(LinearSimilarity):
        bounds: ClassVar[tuple[float, float]] = declared

    x = torch.randn(900, 5)
    text = r"'similarity' must lie between its 'bounds' \(got scores in \[-0.9"
    with pytest.raises(ValueError, match=text):
        GumbelKNNSampler.paper(Wrong(5), k=1, method='race')(x)
    for method in ('stream', 'dense', 'pool'):
        assert (
            GumbelKNNSampler.paper(Wrong(5), method=method)(x)
            .edge_weight.isfinite()
            .all()
        )


def test_unknown_comparison():
    text = r"'comparison' must be one of \['dot', 'squared_distance'\] \(got 'cosine'"
    with pytest.raises(ValueError, match=text):
        type('Own', (Similarity,), {'comparison': 'cosine'})


BAD = torch.tensor([[0.0] * 4 + [float('nan')], [float('inf')] * 5])
PAIR = torch.randn(4, 5), torch.randn(2, 5)


@pytest.mark.parametrize(
    ('args', 'error', 'text'),
    [
        ((torch.randn(3, 4),), ValueError, r"'x' must have 5 channels \(got 4\)"),
        ((BAD[:1],), ValueError, "'x' contains NaN or infinite"),
        (((BAD[1:], PAIR[1]),), ValueError, "'x_src' contains NaN or infinite"),
        (((PAIR[0], BAD),), ValueError, "'x_dst' contains NaN or infinite"),
        ((PAIR, torch.tensor([[4], [1]])), ValueError, r'has sources outside 0\.\.3'),
        ((PAIR, torch.tensor([[3], [2]])), ValueError, r'has targets outside 0\.\.1'),
        ((PAIR[0].double(),), TypeError, "'x' has torch.float64 but the parameters"),
        (
            (torch.eye(5).to_sparse_csr().requires_grad_(),),
            ValueError,
            "'x' (is sparse|must not require a gradient)",
        ),
        (
            ((torch.eye(5).to_sparse_csr(), torch.eye(5)),),
            ValueError,
            "('x' is sparse|'x_src' and 'x_dst' must be both)",
        ),
    ],
)
def test_wrong_input(case, args, error, text):
    module = case.build(**({'out_channels': 3} if error is TypeError else {}))
    assert module(PAIR, torch.tensor([[3], [1]])).shape == (1,)
    with pytest.raises(error, match=text):
        module(*args)


def test_wrong_arguments(case):
    for name in ('in_channels', 'out_channels'):
        for value, error in ((0, ValueError), (2.5, TypeError), (True, TypeError)):
            with pytest.raises(error, match=rf"'{name}' must be .* \(got "):
                case.cls(**{'in_channels': 5, **case.kwargs, name: value})
    for kwargs, error, text in case.bad:
        with pytest.raises(error, match=text):
            case.build(**kwargs)


def test_scores_of_ones_own_have_no_inherited_bounds():
    class Steep(LinearSimilarity):
        def response(self, z):
            return Identity()

    class Mixin:
        def encode(self, x):
            return x

    class Raw(Mixin, LinearSimilarity):
        pass

    class Named(LinearSimilarity):
        pass

    assert Steep.bounds == Raw.bounds == (-math.inf, math.inf)
    assert Named.bounds == (-1.0, 1.0)
    x = torch.randn(5000, 4)
    with pytest.raises(ValueError, match=r"no finite upper 'bounds'"):
        GumbelKNNSampler.paper(Steep(4), method='race')(x)


@pytest.mark.parametrize('method', ['dense', 'race', 'stream', 'pool'])
@pytest.mark.parametrize('shape', ['number', (), (1,)])
def test_a_parameter_may_be_one_number(method, shape):
    class Wide(LinearSimilarity):
        comparison = 'squared_distance'
        bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

        def response(self, z):
            return HeatKernel(self.t)

    x, module = torch.randn(900, 3), Wide(3)
    sampler = GumbelKNNSampler.paper(module, k=1, method=method)
    module.t = torch.full((900,), 2.0)
    expected = sampler(x, generator=seeded())
    module.t = 2.0 if shape == 'number' else torch.full(shape, 2.0)
    assert all(map(torch.equal, sampler(x, generator=seeded()), expected))
    module.t = torch.ones(3)
    text = r'a number, or one value per target, in each .*shape \[3\] for 900 targets'
    with pytest.raises(ValueError, match=text):
        sampler(x)


def test_a_response_is_a_response():
    class Plain(LinearSimilarity):
        def response(self, z):
            return z

    text = r"'response' of Plain must return a Response \(got Tensor\)"
    with pytest.raises(TypeError, match=text):
        Plain(4)(torch.randn(2, 4))
