from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

PAPER = Path(__file__).resolve().parents[2] / 'examples' / 'paper'
sys.path[:0] = [str(PAPER), str(Path(__file__).parent)]


@pytest.fixture
def data() -> Data:
    """Three classes around three centres."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(48) % 3
    return Data(x=torch.randn(48, 6, generator=generator) + y.unsqueeze(1), y=y)
