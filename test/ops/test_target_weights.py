"""Checks, sums and shares of the weights of each target."""

import pytest
import torch
from torch_geometric import EdgeIndex

from torch_geometric_gsl.ops.target_weights import (
    check_weighted_edges,
    merge_edges,
    reduce_targets,
    target_shares,
)

N, E = 7, 16


def graph():
    """Edges in no order, one pair twice, no edge to the last node."""
    generator = torch.Generator().manual_seed(0)
    pairs = torch.randperm((N - 1) * N, generator=generator)[:E]
    edge_index = torch.stack([pairs % N, pairs // N])
    edge_index[:, 1] = edge_index[:, 0]
    return edge_index, 0.1 + torch.rand(E, generator=generator, dtype=torch.double)


def matrix(edge_index, weight):
    a = torch.zeros(N, N, dtype=weight.dtype)
    for (j, i), w in zip(edge_index.t().tolist(), weight, strict=True):
        a[i, j] += w
    return a


@pytest.mark.parametrize(
    ('error', 'change', 'match'),
    [
        (ValueError, {'reduction': 'max'}, r"'reduction' must be one of \['mean', 's"),
        (ValueError, {'num_nodes': 0}, r"'num_nodes' must be at least 1 \(got 0\)"),
        (TypeError, {'num_nodes': 7.0}, "'num_nodes' must be an integer"),
        (TypeError, {'edge_weight': [1.0]}, r"'edge_weight' must be a floating-.*list"),
        (
            TypeError,
            {'edge_weight': torch.ones(E).long()},
            r"'edge_weight' must be a floating-point torch.Tensor \(got torch.int64\)",
        ),
        (ValueError, {'edge_weight': torch.ones(3)}, r'one entry per edge \(got \[3\]'),
        (
            ValueError,
            {'edge_weight': torch.ones(E, 1)},
            r"'edge_weight' must have one entry per edge \(got \[16, 1\] for 16 edges",
        ),
        (ValueError, {'edge_weight': torch.full((E,), torch.nan)}, 'contains NaN'),
        (
            ValueError,
            {'edge_weight': torch.full((E,), torch.inf)},
            r"'edge_weight' contains NaN or infinite values \(got 16 of 16\)",
        ),
        (TypeError, {'edge_index': None}, "'edge_index' must be a torch.Tensor"),
        (TypeError, {'edge_index': torch.ones(2, E)}, "'edge_index' must have dtype"),
        (ValueError, {'edge_index': torch.ones(3, E).long()}, r'\(got \[3, 16\]\)'),
        (ValueError, {'edge_index': torch.full((2, E), N)}, r'0..6 \(got 7..7\)'),
        (
            ValueError,
            {'edge_index': torch.tensor([[0], [N]]).repeat(1, E)},
            r"'edge_index' has targets outside 0..6 \(got 7..7\)",
        ),
    ],
)
@pytest.mark.parametrize('prefix', ['', 'prior_'])
def test_bad_arguments(error, change, match, prefix):
    edge_index, edge_weight = graph()
    given = {'edge_index': edge_index, 'edge_weight': edge_weight}
    given |= {'num_nodes': N, 'reduction': 'sum', **change}
    match = match.replace("'edge_", f"'{prefix}edge_")
    with pytest.raises(error, match=match):
        check_weighted_edges(**given, prefix=prefix)


def test_negative_weights_are_no_shares():
    edge_index, weight = graph()
    weight[3] = -0.5
    assert torch.equal(check_weighted_edges(edge_index, weight, N, 'mean'), weight)
    with pytest.raises(ValueError, match=r"'edge_weight' must not be neg.*\(got -0.5"):
        check_weighted_edges(edge_index, weight, N, 'mean', is_share=True)
    none = edge_index[:, :0], weight[:0]
    assert check_weighted_edges(*none, N, 'mean', is_share=True).numel() == 0


@pytest.mark.parametrize(
    ('dtype', 'expected'),
    [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_half_precision_is_not_summed_in(dtype, expected):
    edge_index, weight = graph()
    weight = weight.to(dtype).requires_grad_()
    found = check_weighted_edges(edge_index, weight, N, 'mean')
    assert found.dtype == expected
    assert torch.equal(found.detach().to(dtype), weight.detach())
    found.sum().backward()
    assert torch.equal(weight.grad, torch.ones(E).to(dtype))


def test_reductions():
    value = torch.tensor([1.0, 2.0, 6.0])
    found = {name: reduce_targets(value, name) for name in ('mean', 'sum', 'none')}
    assert (found['mean'], found['sum']) == (3.0, 9.0)
    assert found['none'] is value


@pytest.mark.parametrize('kind', [lambda edges: edges, EdgeIndex])
def test_merged_edges(kind):
    edge_index, weight = graph()
    found, merged = merge_edges(kind(edge_index), weight, N)
    a = matrix(edge_index, weight)
    assert torch.equal(found, a.nonzero().t().flip(0))  # By target, then by source.
    torch.testing.assert_close(merged, a[a != 0])
    assert type(found) is torch.Tensor
    assert merged.numel() < E
    assert torch.autograd.gradcheck(
        lambda w: merge_edges(edge_index, w, N)[1], weight.requires_grad_()
    )


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_shares(dtype):
    edge_index, weight = graph()
    found, share, log_share = target_shares(edge_index, weight.to(dtype), N)
    a = matrix(edge_index, weight)
    p = (a / a.sum(dim=1, keepdim=True).clamp(min=1e-9))[a > 0]
    assert share.dtype == log_share.dtype == dtype
    assert torch.equal(found, a.nonzero().t().flip(0))
    torch.testing.assert_close(share, p.to(dtype))
    torch.testing.assert_close(log_share, p.log().to(dtype))


def test_gradients_of_shares():
    edge_index, weight = graph()
    assert torch.autograd.gradcheck(
        lambda w: target_shares(edge_index, w, N)[1:], weight.requires_grad_()
    )


def test_shares_of_no_edges():
    edge_index, weight = graph()
    for given in ((edge_index[:, :0], weight[:0]), (edge_index, torch.zeros(E))):
        found, share, log_share = target_shares(*given, N)
        assert found.shape == (2, 0)
        assert share.shape == log_share.shape == (0,)


def test_weights_of_zero_have_no_share():
    """The derivative of p log p has no limit there."""
    edge_index, weight = graph()
    weight[2:5] = 0
    keep = weight > 0
    expected = target_shares(edge_index[:, keep], weight[keep], N)
    found = target_shares(edge_index, weight.requires_grad_(), N)
    assert all(map(torch.equal, found, expected))
    (found[1] * found[2]).sum().backward()
    assert bool(weight.grad.isfinite().all())
    assert bool((weight.grad[2:5] == 0).all())


@pytest.mark.parametrize('scale', [1.0, 1e38])
def test_weights_that_are_far_apart(scale):
    """A share may vanish in float32, and a sum overflow: its logarithm does neither."""
    edge_index = torch.tensor([[0, 1, 2, 0, 1], [0, 0, 0, 1, 1]])
    weight = torch.tensor([1e-37, 3.0, 1.0, 2.0, 3.0]) * scale
    weight.requires_grad_()
    found = target_shares(edge_index, weight, 3)
    exact = target_shares(edge_index, weight.detach().double(), 3)
    assert torch.equal(found[0], exact[0])
    for one, other in zip(found[1:], exact[1:], strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-6)
    (found[1] * found[2]).sum().backward()
    assert bool(weight.grad.isfinite().all())


@pytest.mark.parametrize('size', [1e-37, 1e-39, 1e-42, 1e-45])
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_gradients_of_weights_that_vanish_are_finite(size, dtype):
    """A softmax leaves such weights, and a target may have no others."""
    edge_index = torch.tensor([[0, 1, 0, 1], [0, 0, 1, 2]])
    weight = torch.tensor([size, 2 * size, 1.0, size], dtype=dtype, requires_grad=True)
    edges, share, log_share = target_shares(edge_index, weight, 3)
    total = torch.zeros(3, dtype=dtype).index_add(0, edges[1], share.detach())
    assert bool(((total - 1).abs() < 1e-3).logical_or(total == 0).all())
    assert bool(log_share.isfinite().all())
    (share * log_share).sum().backward()
    assert bool(weight.grad.isfinite().all())
