from __future__ import annotations

from typing import Any

import pytest
import torch


@pytest.mark.parametrize('width', [1, 4, 6])
def test_wrong_width(case: Any, width: int) -> None:
    with pytest.raises(ValueError, match=rf"'x' must have 5 channels \(got {width}\)"):
        case.build()(torch.randn(3, width))


@pytest.mark.parametrize('value', [float('nan'), float('inf'), -float('inf')])
def test_values_that_are_not_finite(case: Any, value: float) -> None:
    x, bad = torch.randn(3, 5), torch.randn(3, 5)
    bad[1, 2] = value
    module = case.build()
    for name, args in (('x', bad), ('x_src', (bad, x)), ('x_dst', (x, bad))):
        with pytest.raises(ValueError, match=f"'{name}' contains NaN or infinite"):
            module(args)


def test_features_and_parameters_must_match(case: Any) -> None:
    module = case.build(out_channels=3)
    text = "'x' has torch.float64 but the parameters have torch.float32"
    with pytest.raises(TypeError, match=text):
        module(torch.randn(3, 5, dtype=torch.float64))


def test_edges_out_of_range(case: Any) -> None:
    module, pair = case.build(), (torch.randn(4, 5), torch.randn(2, 5))
    assert module(pair, torch.tensor([[3], [1]])).shape == (1,)
    with pytest.raises(ValueError, match=r"'edge_index' has sources outside 0\.\.3"):
        module(pair, torch.tensor([[4], [1]]))
    with pytest.raises(ValueError, match=r"'edge_index' has targets outside 0\.\.1"):
        module(pair, torch.tensor([[3], [2]]))


@pytest.mark.parametrize('name', ['in_channels', 'out_channels'])
def test_wrong_arguments(case: Any, name: str) -> None:
    for value, error, text in (
        (0, ValueError, rf"'{name}' must be at least 1 \(got 0\)"),
        (2.5, TypeError, rf"'{name}' must be an integer \(got float\)"),
        (True, TypeError, rf"'{name}' must be an integer \(got bool\)"),
    ):
        with pytest.raises(error, match=text):
            case.cls(**{'in_channels': 5, **case.kwargs, name: value})
