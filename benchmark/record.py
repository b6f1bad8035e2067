"""Helpers of the experiments for the commands, and the writer of their files."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from pathlib import Path
from typing import Any

# A machine used only to measure has a copy of the repository and no installation.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'paper'))

from reproduction.files import write_text
from reproduction.record import environment, positive

__all__ = ['environment', 'positive', 'write_json']

# Lists of numbers: each is written on one line, not one line per entry.
LISTS = re.compile(r'\[([^][{}"]*)\]')


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Replace the file atomically: an interrupted run leaves no partial file."""
    text = json.dumps(content, indent=1, default=dataclasses.asdict, allow_nan=False)
    write_text(path, f'{LISTS.sub(_one_line, text)}\n')


def _one_line(match: re.Match[str]) -> str:
    return f'[{" ".join(match[1].split())}]'
