from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from archive import add_to_archive, read_archive
from config import RunConfig


def record(seed: int, test: float = 0.5, commit: str = 'abc', **changes: Any) -> dict:
    config = RunConfig('wine', 'mlp', seed, **changes)
    return {
        'config': config.to_dict(),
        'outcome': {'status': 'done', 'test': test},
        'cost': {'seconds': 1.5},
        'environment': {'git_commit': commit},
    }


def key(item: dict) -> str:
    return str(RunConfig.from_dict(item['config']))


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / 'a.runs.json'
    records = [record(1), record(0, commit='def'), record(0, lr=0.5)]
    assert add_to_archive(path, records) == 3
    assert read_archive(path) == {key(item): item for item in records}


def test_adding_replaces_and_keeps(tmp_path: Path) -> None:
    path = tmp_path / 'a.runs.json'
    add_to_archive(path, [record(0), record(1)])
    assert add_to_archive(path, [record(1, test=0.9), record(2)]) == 3
    found = read_archive(path)
    assert [found[key(record(s))]['outcome']['test'] for s in range(3)] == [
        *(0.5, 0.9, 0.5)
    ]


def test_order_does_not_matter(tmp_path: Path) -> None:
    records = [record(seed, commit=f'{seed % 2}') for seed in range(4)]
    add_to_archive(tmp_path / 'a', records)
    add_to_archive(tmp_path / 'b', records[::-1])
    assert (tmp_path / 'a').read_bytes() == (tmp_path / 'b').read_bytes()


def test_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / 'a.runs.json'
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda s: add_to_archive(path, [record(s)]), range(12)))
    assert len(read_archive(path)) == 12


def test_absent(tmp_path: Path) -> None:
    assert read_archive(tmp_path / 'a.runs.json') == {}


def test_damaged(tmp_path: Path) -> None:
    path = tmp_path / 'a.runs.json'
    add_to_archive(path, [record(0)])
    path.write_text(path.read_text()[:-20])
    with pytest.raises(ValueError, match=r"a\.runs\.json' is damaged or was edited"):
        read_archive(path)
