import math

import pytest
import torch
from oracles import inner, seeded
from scipy import stats

from torch_geometric_gsl.baselines.nodeformer.attention import (
    feature_exponents,
    kernel_attention,
    orthogonal_directions,
)

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
                own = [
                    weight * math.exp(float(noise[j, head, draw]))
                    for j, weight in enumerate(weights)
                ]
                for j, weight in enumerate(own):
                    out[i, head] += weight / sum(own) * value[j, head] / draws
    return out


@pytest.mark.parametrize('size', [(4, 5, 2, 3, 6), (1, 1, 1, 1, 1), (3, 7, 1, 2, 2)])
def test_against_sums_over_all_pairs(size):
    args = problem(*size)
    torch.testing.assert_close(kernel_attention(*args), quadratic(*args))
    plain = kernel_attention(*args[:4])
    expected = quadratic(*args[:4], torch.zeros_like(args[4][..., :1]))
    torch.testing.assert_close(plain, expected)


def test_gradient():
    query, key, value, directions, noise = problem()
    inputs = [part.requires_grad_() for part in (query, key, value)]
    assert torch.autograd.gradcheck(
        lambda *parts: kernel_attention(*parts, directions, noise), inputs
    )


def test_factors_cancel():
    # Noise of a draw far beyond what exponentials can hold.
    *parts, noise = problem()
    shifted = noise + torch.tensor([900.0, -900.0, 0.0])
    out = kernel_attention(*parts, shifted)
    torch.testing.assert_close(out, kernel_attention(*parts, noise))


@pytest.mark.parametrize('size', [1.0, 30.0])
def test_nothing_overflows(size):
    # Few keys count for a query, and few of them have the noise that counts.
    parts = [size * normal(300, 1, 8, seed=seed) for seed in (1, 2)]
    parts.append(normal(300, 1, 2))
    time = torch.empty(300, 1, 10).double().exponential_(generator=seeded())
    fixed = orthogonal_directions(30, 8, generator=seeded()), -20 * time.log()
    found = []
    for dtype in (torch.float64, torch.float32):
        inputs = [part.to(dtype).requires_grad_() for part in parts]
        out = kernel_attention(*inputs, *(part.to(dtype) for part in fixed))
        found.append(out.detach().double())
        for grad in torch.autograd.grad(out.square().sum(), inputs):
            assert bool(grad.isfinite().all())
    torch.testing.assert_close(*found, rtol=0, atol=1e-5 * size)


@pytest.mark.parametrize('channels', [1, 3, 4])
def test_features_are_unbiased(channels):
    x, y = 0.6 * normal(channels, seed=5).abs(), 0.5 * normal(channels, seed=6).abs()
    blocks = 40_000
    w = orthogonal_directions(
        blocks * channels, channels, dtype=torch.float64, generator=seeded()
    )
    product = (feature_exponents(x, w) + feature_exponents(y, w)).exp()
    # Blocks alone are independent; their means are far from normal one by one.
    found = product.view(blocks, channels).mean(dim=1)
    expected = math.exp(inner(x.tolist(), y.tolist()))
    z = (float(found.mean()) - expected) / (float(found.std()) / math.sqrt(blocks))
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
    rates += [stats.kstest(part, 'chi', (channels,)).pvalue for part in length.t()]
    assert min(rates) > ERROR_RATE / len(rates)
    gram = (w @ w.mT) / (length.unsqueeze(1) * length.unsqueeze(2))
    torch.testing.assert_close(
        gram, torch.eye(channels, dtype=torch.float64).expand_as(gram)
    )


def test_directions_by_size_type_and_seed():
    for size in ((30, 32), (7, 3), (1, 1), (6, 3)):
        w = orthogonal_directions(*size, generator=seeded(1))
        assert w.shape == size
        assert w.dtype == torch.float32
        assert torch.equal(w, orthogonal_directions(*size, generator=seeded(1)))
        torch.manual_seed(1)
        assert torch.equal(w, orthogonal_directions(*size))
    assert not torch.equal(w, orthogonal_directions(6, 3, generator=seeded(2)))
