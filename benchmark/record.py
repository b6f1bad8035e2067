"""Share among the commands what the experiments have, and the file that they write."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from pathlib import Path
from typing import Any

# A machine that only measures has a copy of the repository, and installs nothing.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'paper'))

from reproduction.files import write_text
from reproduction.record import environment, positive

__all__ = ['environment', 'positive', 'write_json']

# Of numbers: one takes a line as a whole, not with each of its entries.
LISTS = re.compile(r'\[([^][{}"]*)\]')


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Replace the file at once, so that an interrupted run leaves no half of it."""
    text = json.dumps(content, indent=1, default=dataclasses.asdict, allow_nan=False)
    write_text(path, f'{LISTS.sub(_one_line, text)}\n')


def _one_line(match: re.Match[str]) -> str:
    return f'[{" ".join(match[1].split())}]'
