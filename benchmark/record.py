"""Helpers of the experiments, the writer of result files, and cells of tables."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# A machine used only to measure has a copy of the repository and no installation.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'paper'))

from reproduction.files import write_text
from reproduction.record import environment, positive

__all__ = ['at_least', 'environment', 'format_number', 'line', 'positive', 'write_json']

# Lists of numbers: each is written on one line, not one line per entry.
LISTS = re.compile(r'\[([^][{}"]*)\]')


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Replace the file atomically: an interrupted run leaves no partial file."""
    text = json.dumps(content, indent=1, default=dataclasses.asdict, allow_nan=False)
    write_text(path, f'{LISTS.sub(_one_line, text)}\n')


def _one_line(match: re.Match[str]) -> str:
    return f'[{" ".join(match[1].split())}]'


def at_least(least: int) -> Callable[[str], int]:
    """Return a type of arguments: integers that are not too small to measure."""

    def read(text: str) -> int:
        if positive(text) < least:
            raise argparse.ArgumentTypeError(f'must be at least {least} (got {text})')
        return int(text)

    return read


def format_number(value: float | None) -> str:
    """Return a number in three digits, or a dash."""
    if value is None:
        return '-'
    return f'{value:,.0f}' if value >= 100 else f'{value:.3g}'


def line(cells: Any) -> str:
    """Return a row of a table in Markdown."""
    return f'| {" | ".join(cells)} |'
