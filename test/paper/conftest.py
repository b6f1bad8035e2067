import sys
from types import SimpleNamespace

import pytest
import torch
from torch_geometric.data import Data

from reproduction import command


@pytest.fixture
def data():
    """Three classes around three centres."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(48) % 3
    return Data(x=torch.randn(48, 6, generator=generator) + y.unsqueeze(1), y=y)


@pytest.fixture(autouse=True)
def _as_alone(monkeypatch):
    """Limit no memory, as later tests would have it, and collect no garbage."""
    monkeypatch.setattr('reproduction.run.gc', SimpleNamespace(collect=lambda: None))
    monkeypatch.setattr(command, 'limit_memory', lambda gigabytes: None)
    monkeypatch.setattr(command, '_UNREADABLE', {})


@pytest.fixture
def call(monkeypatch, capsys):
    """What a command prints, or the text with which it ends."""

    def main(program, *words):
        monkeypatch.setattr(sys, 'argv', ['program.py', *map(str, words)])
        try:
            program()
        except SystemExit as ended:
            out = capsys.readouterr()
            return f'{out.out}{ended} {out.err}'
        return capsys.readouterr().out

    return main
