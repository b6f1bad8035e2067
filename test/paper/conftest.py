from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
import torch
from torch_geometric.data import Data

from reproduction import command

#: Runs the main function of a command with words, as a shell does.
Call = Callable[..., str]


@pytest.fixture
def data() -> Data:
    """Three classes around three centres."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(48) % 3
    return Data(x=torch.randn(48, 6, generator=generator) + y.unsqueeze(1), y=y)


@pytest.fixture(autouse=True)
def _no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of a command would be that of all later tests."""
    monkeypatch.setattr(command, 'limit_memory', lambda gigabytes: None)
    monkeypatch.setattr(command, '_UNREADABLE', {})


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """What a command prints, or the text with which it ends."""

    def main(program: Callable[[], None], *words: object) -> str:
        monkeypatch.setattr(sys, 'argv', ['program.py', *map(str, words)])
        try:
            program()
        except SystemExit as ended:
            out = capsys.readouterr()
            return f'{out.out}{ended} {out.err}'
        return capsys.readouterr().out

    return main
