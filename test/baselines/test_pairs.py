import pytest
import torch
from oracles import seeded

from torch_geometric_gsl.baselines.idgl import pairs as module
from torch_geometric_gsl.baselines.idgl.pairs import (
    DensePairs,
    inner,
    symmetric_sum,
    unit_heads,
    whole_columns,
)
from torch_geometric_gsl.nn.similarity import CosineSimilarity

N, IN, HEADS = 7, 5, 3
BLOCKS = [slice(0, 3), slice(3, 6), slice(6, 7)]
KINDS = pytest.mark.parametrize('kind', ['dense', 'sparse'])


def randn(*size, seed=0):
    return torch.randn(*size, generator=seeded(seed), dtype=torch.double)


def symmetric(seed):
    matrix = randn(N, N, seed=seed)
    return matrix + matrix.t()


def strips_of(matrix):
    """The strips of a symmetric matrix; each begins with its own columns."""
    return [(rows, matrix[rows, rows.start :]) for rows in BLOCKS]


def features():
    """Features of which many are zero, and a node without any."""
    x = randn(N, IN) * (torch.rand(N, IN, generator=seeded(1)) < 0.5)
    x[4] = 0
    return x


def build(kind):
    """Pairs, and a dense matrix whose products with itself they are."""
    if kind == 'dense':
        rows = randn(N, IN)
        return DensePairs(rows.clone().requires_grad_()), rows
    x, weight = features(), randn(HEADS, IN, seed=2)
    pairs = unit_heads(x.to_sparse_csr(), weight)
    pairs.input = pairs.input.detach().requires_grad_()
    heads = []
    for own in weight:
        norm = (x * own).norm(dim=1, keepdim=True)
        heads.append(x * own / norm.where(norm > 0, 1) / HEADS**0.5)
    return pairs, torch.cat(heads, dim=1)


@KINDS
@torch.no_grad()
def test_products(kind):
    pairs, rows = build(kind)
    expected = rows @ rows.t()
    torch.testing.assert_close(pairs.products(pairs), expected)
    some = torch.tensor([5, 0, 4])
    torch.testing.assert_close(pairs.products(pairs.at(some)), expected[:, some])
    for block in BLOCKS:
        torch.testing.assert_close(pairs.strip(block), expected[block, block.start :])


@KINDS
def test_gradient_by_strips_is_that_of_autograd(kind):
    pairs, _ = build(kind)
    factor = randn(N, N, seed=3)
    value = (factor * pairs.products(pairs)).sum()
    (expected,) = torch.autograd.grad(value, pairs.input)
    # That of a product and of its mirror image.
    found = pairs.gradient(strips_of(factor + factor.t()))
    torch.testing.assert_close(found, expected)


@KINDS
def test_squares_and_sums_of_columns(kind):
    pairs, rows = build(kind)
    h = randn(N, 2, seed=4)
    torch.testing.assert_close(pairs.squares(), rows.square().sum(dim=1))
    torch.testing.assert_close(pairs.column_sums(h), rows.t() @ h)
    # Both receive gradients.
    leaf = pairs.input
    (found,) = torch.autograd.grad(pairs.squares().sum(), leaf)
    torch.testing.assert_close(found, 2 * leaf)
    assert torch.autograd.grad(pairs.column_sums(h).sum(), leaf)[0].any()


def test_heads_compare_as_the_metric_does():
    metric, x = CosineSimilarity(IN, heads=HEADS).double(), features()
    pairs = unit_heads(x.to_sparse_csr(), metric.weight)
    found, expected = pairs.products(pairs), metric(x)
    torch.testing.assert_close(found, expected)
    grads = [
        torch.autograd.grad(s.exp().sum(), metric.weight) for s in (found, metric(x))
    ]
    torch.testing.assert_close(*grads)


def test_what_is_wide_is_costly(monkeypatch):
    assert not DensePairs(randn(2, module.WIDE)).is_costly
    assert DensePairs(randn(2, module.WIDE + 1)).is_costly
    monkeypatch.setattr(module, 'WIDE', 3)
    assert DensePairs(randn(2, 4)).is_costly
    assert build('sparse')[0].is_costly


def test_inner_products_count_mirror_images():
    one, two = symmetric(1), symmetric(2)
    parts = zip(strips_of(one), strips_of(two), strict=True)
    found = sum(inner(first, second) for (_, first), (_, second) in parts)
    torch.testing.assert_close(found, (one * two).sum())


def test_sums_along_strips():
    matrix, h = symmetric(3), randn(2, N, seed=4)
    torch.testing.assert_close(symmetric_sum(h, strips_of(matrix)), h @ matrix)


def test_whole_columns_of_strips():
    matrix = symmetric(5)
    for rows, columns in whole_columns(strips_of(matrix)):
        assert torch.equal(columns, matrix[:, rows])
