from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from torch_geometric_gsl.baselines.mlp import MLPClassifier


def make(**kwargs: Any) -> MLPClassifier:
    torch.manual_seed(1)
    sizes = {'in_channels': 5, 'hidden_channels': 4, 'num_layers': 3, 'out_channels': 2}
    return MLPClassifier(**{**sizes, **kwargs})


def test_repr() -> None:
    model = MLPClassifier(16, 32, num_layers=2, out_channels=7)
    assert str(model) == 'MLPClassifier(16, 32, num_layers=2, out_channels=7)'


def test_against_a_plain_loop() -> None:
    model, x = make().double().eval(), torch.randn(3, 5, dtype=torch.float64)
    rows = x.tolist()
    for number, lin in enumerate(model.lins):
        weight, bias = lin.weight.tolist(), lin.bias.tolist()
        rows = [
            [
                math.fsum(a * b for a, b in zip(row, column, strict=True)) + c
                for column, c in zip(weight, bias, strict=True)
            ]
            for row in rows
        ]
        if number < 2:
            rows = [[a if a > 0 else math.expm1(a) for a in row] for row in rows]
    torch.testing.assert_close(model(x), torch.tensor(rows, dtype=torch.float64))


@pytest.mark.parametrize('num_layers', [1, 2])
def test_sparse_and_lazy_features(num_layers: int) -> None:
    x = torch.randn(6, 5).relu()
    model = make(num_layers=num_layers).eval()
    torch.testing.assert_close(model(x.to_sparse_csr()), model(x))
    lazy = make(in_channels=-1, num_layers=num_layers)
    assert lazy(x.to_sparse_csr()).shape == (6, 2)
    assert lazy.lins[0].weight.shape[1] == 5


def test_dropout_follows_hidden_layers_only() -> None:
    model, x = make(dropout=0.25, act=None, num_layers=2), torch.randn(900, 5)
    received: list[Tensor] = []
    model.lins[1].register_forward_pre_hook(lambda _, args: received.append(args[0]))
    out = model(x)
    kept = received[0] != 0
    assert 0.7 < float(kept.float().mean()) < 0.8
    torch.testing.assert_close(received[0][kept], model.lins[0](x)[kept] / 0.75)
    torch.testing.assert_close(out, model.lins[1](received[0]))
    assert torch.equal(model.eval()(x), model(x))


def test_loss_trains() -> None:
    model, y = make(dropout=0.0), torch.arange(20) % 2
    x, mask = torch.randn(20, 5) + 2.0 * y.unsqueeze(1), torch.arange(20) < 15
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(40):
        optimizer.zero_grad()
        loss = model.loss(x, y, mask)
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) < 0.05


@pytest.mark.parametrize(
    ('error', 'kwargs', 'match'),
    [
        (ValueError, {'in_channels': 0}, r"'in_channels' must be at least 1 \(got 0"),
        (ValueError, {'hidden_channels': 0}, "'hidden_channels' must be at least 1"),
        (ValueError, {'num_layers': 0}, r"'num_layers' must be at least 1 \(got 0\)"),
        (TypeError, {'out_channels': 2.0}, "'out_channels' must be an integer"),
        (ValueError, {'dropout': 1.0}, r"'dropout' must lie in \[0, 1\) \(got 1.0\)"),
        (ValueError, {'act': 'bell'}, 'Could not resolve'),
    ],
)
def test_bad_arguments(error: type[Exception], kwargs: Any, match: str) -> None:
    with pytest.raises(error, match=match):
        make(**kwargs)


@pytest.mark.parametrize(
    ('error', 'x', 'match'),
    [
        (ValueError, torch.ones(3, 4), r"'x' must have 5 channels \(got 4\)"),
        (ValueError, torch.full((3, 5), torch.nan), "'x' contains NaN"),
        (TypeError, torch.ones(3, 5).double(), "'x' has torch.float64 but the param"),
    ],
)
def test_bad_features(error: type[Exception], x: Tensor, match: str) -> None:
    with pytest.raises(error, match=match):
        make()(x)
