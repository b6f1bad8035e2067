"""Hand-written gradients are the same inside of autocast."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from torch_geometric_gsl.ops.dense import relaxed_weights
from torch_geometric_gsl.ops.distances import pair_distances
from torch_geometric_gsl.ops.neighbours import Neighbours, neighbour_sum, pair_dots
from torch_geometric_gsl.ops.relax import Arrivals, relax
from torch_geometric_gsl.ops.scorer import Law
from torch_geometric_gsl.ops.sparse_pairs import sparse_pair_dots

N, WIDTH = 6, 70
EVERY = Neighbours(torch.arange(N).repeat(N, 1), num_sources=N)


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def relaxed_race(score: Tensor) -> Tensor:
    noise = torch.rand(N, 5, 14, generator=seeded()).sort(descending=True).values
    source = torch.zeros(noise.shape, dtype=torch.long)
    arrivals = Arrivals(source, noise, torch.zeros(N, 5))
    return relax(score.view(N, 5, 14), arrivals, Law(5, 0.5))[0]


def relaxed_draws(score: Tensor) -> Tensor:
    return relaxed_weights(score, 5, 0.5, generator=seeded())


def sparse_dots(x: Tensor) -> Tensor:
    offsets = torch.arange(N + 1) * WIDTH
    places = Neighbours(torch.arange(WIDTH).repeat(N), WIDTH, offsets)
    return sparse_pair_dots(x.flatten(), places, EVERY)


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    'race': relaxed_race,
    'draws': relaxed_draws,
    'sparse_pair_dots': sparse_dots,
    'pair_dots': lambda x: pair_dots(x, x, EVERY),
    'pair_distances': lambda x: pair_distances(x, x, EVERY),
    'neighbour_sum': lambda x: neighbour_sum(x, x[:, :N].contiguous(), EVERY),
}


@pytest.mark.parametrize('name', FUNCTIONS)
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_gradient_inside_of_autocast(name: str, dtype: torch.dtype) -> None:
    x = torch.randn(N, WIDTH, dtype=dtype, generator=seeded()).requires_grad_()
    out = FUNCTIONS[name](x)
    given = torch.randn(out.shape, dtype=dtype, generator=seeded())
    (expected,) = torch.autograd.grad(out, x, given, retain_graph=True)
    with torch.autocast('cpu', dtype=torch.bfloat16):
        (inside,) = torch.autograd.grad(out, x, given)
    assert torch.equal(inside, expected)


def test_without_autocast() -> None:
    seen = []

    def backward(ctx: object, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        seen.append(torch.is_autocast_enabled('cpu'))
        return grads

    grads = (None, torch.ones(2))
    assert backward(None, *grads) == grads
    with torch.autocast('cpu', dtype=torch.bfloat16):
        assert backward(None, *grads) == grads
        assert torch.is_autocast_enabled('cpu')
    assert seen == [False, False]
    assert backward.__name__ == 'backward'
