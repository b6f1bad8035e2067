from __future__ import annotations

from pathlib import Path

import pytest
import torch

import torch_geometric_gsl
from torch_geometric_gsl.ops.runtime import full_dtype, full_precision

ROOT = Path(torch_geometric_gsl.__file__).parent


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision_is_left(dtype: torch.dtype) -> None:
    x = torch.tensor([0.1, -3.0], dtype=dtype)
    assert full_dtype(dtype) == torch.float32
    assert torch.equal(full_precision(x), x.float())


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_full_precision_stays(dtype: torch.dtype) -> None:
    x = torch.ones(2, dtype=dtype)
    assert full_dtype(dtype) == dtype
    assert full_precision(x) is x


def test_the_rule_stands_in_one_place() -> None:
    places = [p.name for p in ROOT.rglob('*.py') if 'torch.bfloat16)' in p.read_text()]
    assert [name for name in places if name != 'precision.py'] == []
