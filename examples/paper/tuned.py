"""The settings that a search found, in one file beside the results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from filelock import FileLock
from files import digest_of, read_kept, write_json

from torch_geometric_gsl.datasets import DATASETS

RESULTS = Path(__file__).resolve().parent / 'results'
NAME = 'tuned.json'


def data_key(dataset: str, label: str | None) -> str:
    """A name as it is, a file by its content and the column of its labels."""
    if dataset in DATASETS:
        return dataset
    path = Path(dataset)
    return ':'.join([path.name, label or '', digest_of(path) or ''])


def found_settings(
    results: Path, dataset: str, label: str | None = None
) -> dict[str, dict[str, Any]]:
    """What was found for each method, with the preset that it changes."""
    found: dict[str, dict[str, Any]] = (read_kept(results / NAME) or {}).get(
        data_key(dataset, label), {}
    )
    return found


def keep_setting(
    results: Path, dataset: str, label: str | None, method: str, found: dict[str, Any]
) -> None:
    """Writes down the best setting of a method."""
    with FileLock(results / f'.{NAME}.lock'):
        content = read_kept(results / NAME) or {}
        content.setdefault(data_key(dataset, label), {})[method] = found
        write_json(results / NAME, content)
