from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest


class Harm:
    """An object whose pickle makes a folder when it is loaded."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.marker),)


@pytest.fixture
def harm(tmp_path: Path) -> Any:
    return Harm(tmp_path / 'executed')
