from types import SimpleNamespace

import pytest


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """Compiling, and collecting the garbage of all tests, would take longest here."""
    monkeypatch.setenv('TORCH_COMPILE_DISABLE', '1')
    monkeypatch.setattr('measure.gc', SimpleNamespace(collect=lambda: None))
