from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from torch_geometric_gsl.nn.similarity.base import EncodedPair, Similarity
from torch_geometric_gsl.nn.similarity.linear_similarity import LinearSimilarity

DOUBLE = {'dtype': torch.float64}
# Scores are exact up to rounding, which a narrow bell magnifies about tenfold.
TOLERANCE = {
    torch.float64: {'rtol': 1e-10, 'atol': 1e-12},
    torch.float32: {'rtol': 1e-5, 'atol': 5e-6},
    # The score itself is rounded to half precision, and nothing before it.
    torch.float16: {'rtol': 1e-3, 'atol': 1e-5},
    torch.bfloat16: {'rtol': 1e-2, 'atol': 1e-5},
}


def all_pairs(num_targets: int, num_sources: int) -> Tensor:
    target = torch.arange(num_targets).repeat_interleave(num_sources)
    return torch.stack([torch.arange(num_sources).repeat(num_targets), target])


def check(case: Any, module: Similarity, x_src: Tensor, x_dst: Tensor) -> None:
    """Holds all three ways to ask for scores against the formula."""
    expected = case.expect(module, x_dst, x_src)
    n, m = expected.shape
    matrix = module((x_src, x_dst))
    listed = module((x_src, x_dst), all_pairs(n, m)).view(n, m)
    for out in (matrix, listed, *([module(x_src)] if x_src is x_dst else [])):
        assert out.shape == (n, m)
        assert out.dtype == x_src.dtype
        torch.testing.assert_close(out.double(), expected, **TOLERANCE[x_src.dtype])
    tolerance = TOLERANCE[x_src.dtype]
    torch.testing.assert_close(listed, matrix, **tolerance)


@pytest.mark.parametrize('dtype', TOLERANCE, ids=str)
@pytest.mark.parametrize('sizes', [(4, 4), (5, 3), (1, 1), (1, 4)])
def test_formula(case: Any, dtype: torch.dtype, sizes: tuple[int, int]) -> None:
    module = case.build().to(dtype)
    x_src = torch.randn(sizes[0], 5).to(dtype)
    x_dst = x_src if sizes[0] == sizes[1] else torch.randn(sizes[1], 5).to(dtype)
    check(case, module, x_src, x_dst)


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_formula_with_a_projection(case: Any, dtype: torch.dtype) -> None:
    module = case.build(out_channels=3).to(dtype)
    assert module.lin is not None
    assert module.lin.weight.shape == (3, 5)
    x_src, x_dst = torch.randn(4, 5, dtype=dtype), torch.randn(3, 5, dtype=dtype)
    check(case, module, x_src, x_src)
    check(case, module, x_src, x_dst)


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_zero_rows_and_duplicates(case: Any, dtype: torch.dtype) -> None:
    x = torch.randn(6, 5, dtype=dtype)
    x[1], x[3], x[5] = 0, x[2], -x[4]
    check(case, case.build().to(dtype), x, x)


@pytest.mark.parametrize('factor', [1e30, 1e-30])
def test_huge_and_tiny_rows(case: Any, factor: float) -> None:
    x = torch.randn(4, 5)
    x[0] *= factor
    x[3] = x[0]
    check(case, case.build(), x, x)


@pytest.mark.parametrize('factor', [1e30, 1e-30])
def test_gradient_of_huge_and_tiny_rows_is_finite(case: Any, factor: float) -> None:
    x = torch.randn(4, 5)
    x[0] *= factor
    x.requires_grad_()
    for edge_index in (None, all_pairs(4, 4)):
        (grad,) = torch.autograd.grad(case.build()(x, edge_index).sum(), x)
        assert bool(grad.isfinite().all())


def test_distant_rows_do_not_blur_the_others(case: Any) -> None:
    x = torch.randn(4, 5)
    x[0] *= 1e4
    check(case, case.build(), x, x)


def test_non_contiguous_features(case: Any) -> None:
    x = torch.randn(5, 4, **DOUBLE).t()
    assert not x.is_contiguous()
    check(case, case.build().double(), x, x)
    wide = torch.randn(4, 10, **DOUBLE)[:, ::2]
    check(case, case.build().double(), wide, wide)


def test_gradient(case: Any) -> None:
    module = case.build(out_channels=3).double()
    x_src = torch.randn(3, 5, **DOUBLE, requires_grad=True)
    x_dst = torch.randn(2, 5, **DOUBLE, requires_grad=True)
    names, values = zip(*module.named_parameters(), strict=True)
    edges = torch.tensor([[0, 2, 2], [1, 0, 0]])

    def forward(
        edge_index: Tensor | None, x_src: Tensor, x_dst: Tensor, *values: Tensor
    ) -> Tensor:
        state = dict(zip(names, values, strict=True))
        args = ((x_src, x_dst), edge_index)
        out: Tensor = torch.func.functional_call(module, state, args)
        return out

    for edge_index in (None, edges):
        inputs = (edge_index, x_src, x_dst, *values)
        assert torch.autograd.gradcheck(forward, inputs)


def test_gradient_of_zero_rows_and_duplicates_is_finite(case: Any) -> None:
    module = case.build(out_channels=3)
    x = torch.randn(4, 5)
    x[1], x[3] = 0, x[2]
    x.requires_grad_()
    for edge_index in (None, all_pairs(4, 4)):
        x.grad = None
        module(x, edge_index).sum().backward()
        assert x.grad is not None
        assert bool(x.grad.isfinite().all())
    for parameter in module.parameters():
        assert parameter.grad is not None
        assert bool(parameter.grad.isfinite().all())
        assert bool(parameter.grad.any())


@settings(max_examples=15)
@given(st.permutations(range(5)))
def test_permuting_the_nodes_permutes_the_scores(
    cases: dict[str, Any], order: list[int]
) -> None:
    x = torch.randn(5, 5, **DOUBLE, generator=torch.Generator().manual_seed(1))
    for case in cases.values():
        torch.manual_seed(0)
        module, index = case.build().double(), torch.tensor(order)
        moved = module(x[index])
        torch.testing.assert_close(moved, module(x)[index][:, index])


def test_bounds(case: Any) -> None:
    # Opposite, equal, orthogonal and random rows.
    x = torch.cat([torch.eye(5), -torch.eye(5), torch.randn(200, 5)])
    module, rounding = case.build(), 1e-6
    low, high = module.bounds
    out = module(x)
    assert low - rounding <= float(out.min().detach())
    assert float(out.max().detach()) <= high + rounding
    assert float(out.max().detach()) > low + 0.9 * (high - low)


def test_sparse_features(case: Any) -> None:
    module = case.build(out_channels=3).double()
    x = torch.randn(6, 5, **DOUBLE) * (torch.rand(6, 5) < 0.5)
    torch.testing.assert_close(module(x.to_sparse_csr()), module(x))
    edges = all_pairs(6, 6)
    torch.testing.assert_close(module(x.to_sparse_csr(), edges), module(x, edges))


def test_sparse_features_need_a_projection(case: Any) -> None:
    with pytest.raises(ValueError, match=r"'x' is sparse .* needs a projection"):
        case.build()(torch.eye(5).to_sparse_csr())


def test_empty_inputs(case: Any) -> None:
    module, nothing, x = case.build(), torch.empty(0, 5), torch.randn(3, 5)
    assert module(nothing).shape == (0, 0)
    assert module((nothing, x)).shape == (3, 0)
    assert module((x, nothing)).shape == (0, 3)
    assert module(x, torch.empty(2, 0, dtype=torch.long)).shape == (0,)


def test_blocks_of_rows_give_the_matrix(case: Any) -> None:
    module = case.build().double()
    x_src, x_dst = torch.randn(4, 5, **DOUBLE), torch.randn(7, 5, **DOUBLE)
    pair = module.encode_pair((x_src, x_dst))
    blocks = [module.score_rows(pair, slice(i, i + 3)) for i in range(0, 7, 3)]
    torch.testing.assert_close(torch.cat(blocks), module((x_src, x_dst)))


def test_indices_of_pairs_broadcast(case: Any) -> None:
    module = case.build().double()
    x_src, x_dst = torch.randn(4, 5, **DOUBLE), torch.randn(7, 5, **DOUBLE)
    pair = module.encode_pair((x_src, x_dst))
    out = module.score_pairs(pair, torch.arange(4), torch.arange(7).unsqueeze(1))
    torch.testing.assert_close(out, module((x_src, x_dst)))


@pytest.mark.parametrize('budget', [1, 500])
def test_listed_pairs_are_scored_by_blocks(case: Any, budget: int) -> None:
    module = case.build().double()
    x = torch.randn(4, 5, **DOUBLE, requires_grad=True)
    source, target = torch.arange(4), torch.arange(4).unsqueeze(1)
    found = []
    for memory_budget in (2**25, budget):
        pair = module.encode_pair(x)
        score = module.score_pairs(pair, source, target, memory_budget=memory_budget)
        leaves = [x, *module.parameters()]
        found.append([score, *torch.autograd.grad(score.square().sum(), leaves)])
    torch.testing.assert_close(*found)
    torch.testing.assert_close(found[0][0], module(x))
    assert module.score_pairs(pair, source[:0], target).shape == (4, 0)


def test_nodes_are_embedded_once(case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module, calls, x = case.build(), [], torch.randn(3, 5)
    encode = module.encode

    def count(x: Tensor) -> Tensor:
        calls.append(x)
        return encode(x)

    monkeypatch.setattr(module, 'encode', count)
    pair = module.encode_pair(x)
    assert pair.src is pair.dst
    assert len(calls) == 1
    module.encode_pair((x, x.clone()))
    assert len(calls) == 3


def test_autocast_leaves_the_scores_alone(case: Any) -> None:
    module, x = case.build(), torch.randn(6, 5)
    with torch.autocast('cpu', dtype=torch.bfloat16):
        out, listed = module(x), module(x, all_pairs(6, 6))
    assert out.dtype == torch.float32
    torch.testing.assert_close(out, module(x))
    torch.testing.assert_close(listed, module(x, all_pairs(6, 6)))


def test_reset_parameters_initialises_everything_anew(case: Any) -> None:
    modules = [case.build(out_channels=3) for _ in range(2)]
    for parameter in modules[0].parameters():
        torch.nn.init.zeros_(parameter)
    for module in modules:
        torch.manual_seed(4)
        module.reset_parameters()
    for first, second in zip(*(m.parameters() for m in modules), strict=True):
        # Glorot: uniform within sqrt(6 / (fan_in + fan_out)).
        assert torch.equal(first, second)
        bound = (6 / sum(first.shape)) ** 0.5
        assert 0.3 * bound < float(first.detach().abs().max()) <= bound


def test_base_is_abstract() -> None:
    with pytest.raises(TypeError, match='abstract'):
        Similarity(4)  # type: ignore[abstract]


class Power(Similarity):
    """A similarity of one's own: its exponent depends on the target."""

    comparison: ClassVar[str] = 'squared_distance'

    def target_params(self, z: Tensor) -> tuple[Tensor, ...]:
        return (z[:, 0],)

    def encode(self, x: Tensor) -> Tensor:
        return self.project(x)

    def response(self, value: Tensor, *params: Tensor) -> Tensor:
        return value + 100 * params[0]


class Cube:
    def response(self, value: Tensor, *params: Tensor) -> Tensor:
        return 3 * value**3


def test_what_a_class_says_holds_for_its_own_scores() -> None:
    """Not for those of a mix-in, wherever it stands."""

    class Mixed(Cube, LinearSimilarity):
        pass

    class Again(Mixed):
        bounds = (-3.0, 3.0)

    class Plain(LinearSimilarity):
        def extra_repr(self) -> str:
            return ''

    unknown = Similarity.bounds
    assert (Mixed.formula, Mixed.bounds) == (None, unknown)
    assert (Again.formula, Again.bounds) == (None, (-3.0, 3.0))
    assert Plain.formula == LinearSimilarity.formula == 'identity'
    assert Plain.bounds == LinearSimilarity.bounds == (-1.0, 1.0)


def test_unknown_comparison() -> None:
    text = r"'comparison' must be one of \['dot', 'squared_distance'\] \(got 'cosine'"
    with pytest.raises(ValueError, match=text):
        type('Own', (Similarity,), {'comparison': 'cosine'})


def test_own_similarity() -> None:
    module = Power(1)
    assert str(module) == 'Power(1)'
    assert str(Power(1, 2)) == 'Power(1, 2)'
    assert Power(1).embedding_channels == 1
    assert Power(1, 2).embedding_channels == 2
    assert module.bounds == (-float('inf'), float('inf'))
    x_src, x_dst = torch.tensor([[0.0], [1.0], [3.0]]), torch.tensor([[1.0], [2.0]])
    assert module((x_src, x_dst)).tolist() == [[101, 100, 104], [204, 201, 201]]
    edges = torch.tensor([[2, 0], [0, 1]])
    assert module((x_src, x_dst), edges).tolist() == [104, 204]
    pair = module.encode_pair(x_src)
    assert isinstance(pair, EncodedPair)
    assert [param.tolist() for param in pair.params] == [[0, 1, 3]]
    module.reset_parameters()
