"""Scripts are imported by their names: which of them two folders share."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def names(folder: str) -> set[str]:
    return {path.stem for path in (ROOT / folder).glob('*.py')}


def test_one_name_is_that_of_the_examples() -> None:
    # So no test imports this one: it would be that of `examples/paper`.
    assert names('benchmark') & names('examples/paper') == {'run'}
