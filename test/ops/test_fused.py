from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from torch_geometric_gsl.ops import compiled
from torch_geometric_gsl.ops import fused as module
from torch_geometric_gsl.ops.fused import RESPONSES, FusedScore, has_triton


def make(response: str, scale: float = 1.0) -> FusedScore:
    dst, src = torch.randn(5, 3), torch.randn(7, 3)
    b = torch.rand(5) if response == 'gaussian' else None
    c = torch.rand(5) + 0.1 if response in ('gaussian', 'heat_kernel') else None
    return FusedScore(dst, src, response, b, c, scale)


def by_hand(score: FusedScore, i: int, j: int) -> float:
    u, v = score.dst[i].tolist(), score.src[j].tolist()
    dot = sum(a * b for a, b in zip(u, v, strict=True))
    if score.response == 'identity':
        return score.scale * dot
    if score.response == 'difference':
        return score.scale * (1 - dot)
    assert score.c is not None
    c = float(score.c[i])
    if score.b is None:
        return score.scale * math.exp(-(math.dist(u, v) ** 2) / c)
    return score.scale * math.exp(-((dot - float(score.b[i])) ** 2) / c)


@pytest.mark.parametrize('scale', [1.0, 2.5])
@pytest.mark.parametrize('response', RESPONSES)
def test_score(response: str, scale: float) -> None:
    score = make(response, scale)
    source = torch.randint(0, 7, (3, 4))
    result = score.score(slice(1, 4), source)
    expected = [
        [by_hand(score, 1 + row, int(j)) for j in source[row]] for row in range(3)
    ]
    torch.testing.assert_close(result, torch.tensor(expected), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('is_compiled', [False, True])
@pytest.mark.parametrize('response', RESPONSES)
def test_weights(
    response: str, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_compiled:
        monkeypatch.setattr(compiled, 'MIN_NUMEL', 1)
    score, tau, upper = make(response, scale=2.5), 0.7, 3.0
    result = score.weights(slice(1, 4), slice(2, 7), tau, upper)
    expected = [
        [math.exp((by_hand(score, i, j) - upper) / tau) for j in range(2, 7)]
        for i in range(1, 4)
    ]
    torch.testing.assert_close(result, torch.tensor(expected), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ('response', 'b', 'c'),
    [
        ('identity', torch.ones(5), None),
        ('difference', None, torch.ones(5)),
        ('gaussian', None, torch.ones(5)),
        ('gaussian', torch.ones(5), None),
        ('heat_kernel', None, None),
        ('heat_kernel', torch.ones(5), torch.ones(5)),
    ],
)
def test_parameters_belong_to_the_response(
    response: str, b: Tensor | None, c: Tensor | None
) -> None:
    score = make('identity')._replace(response=response, b=b, c=c)
    with pytest.raises(ValueError, match=f"got '{response}' with b={b is not None}"):
        score.score(slice(0, 5), torch.zeros(5, 1, dtype=torch.long))


def test_unknown_response() -> None:
    with pytest.raises(ValueError, match=r"must be one of .* \(got 'tanh'\)"):
        make('identity')._replace(response='tanh').check()


@pytest.mark.parametrize(
    ('device', 'installed', 'capability', 'expected'),
    [
        ('cpu', True, (9, 0), False),
        ('cuda', False, (9, 0), False),
        ('cuda', True, (7, 5), False),
        ('cuda', True, (8, 0), True),
    ],
)
def test_has_triton(
    monkeypatch: pytest.MonkeyPatch,
    device: str,
    installed: bool,
    capability: tuple[int, int],
    expected: bool,
) -> None:
    monkeypatch.setattr(module, '_is_installed', lambda: installed)
    monkeypatch.setattr(torch.cuda, 'get_device_capability', lambda _: capability)
    assert has_triton(torch.device(device)) is expected
