from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

_SHARED = Path(__file__).parents[3] / 'shared' / 'data'


@pytest.fixture(scope='session')
def gsl_data() -> Callable[[str], Path]:
    """Finds a real data file under $GSL_DATA or beside the repository."""
    folder = Path(os.environ.get('GSL_DATA', _SHARED))

    def find(name: str) -> Path:
        if not (folder / name).is_file():
            pytest.skip(f"'{folder / name}' is absent: set GSL_DATA to the data folder")
        return folder / name

    return find
