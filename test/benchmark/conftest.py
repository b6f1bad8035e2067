from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

BENCHMARK = Path(__file__).resolve().parents[2] / 'benchmark'
# Behind all others: a name that the examples of the paper have as well is theirs.
sys.path.append(str(BENCHMARK))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling, and collecting the garbage of all tests, would take longest here."""
    monkeypatch.setenv('TORCH_COMPILE_DISABLE', '1')
    monkeypatch.setattr('measure.gc', SimpleNamespace(collect=lambda: None))
