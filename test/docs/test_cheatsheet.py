"""The cheat sheet names everything public."""

import importlib
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / 'docs'


@pytest.fixture
def public(monkeypatch):
    monkeypatch.syspath_prepend(DOCS / '_ext')
    found = importlib.import_module('reference').public_names()
    # Functions of `ops` are shown on a page of their own.
    return {
        name
        for (name, _), (_, paths) in found.items()
        if not all('.ops' in path for path in paths)
    }


def named():
    text = (DOCS / 'cheatsheet.rst').read_text(encoding='utf-8')
    return set(re.findall(r'[~<.](\w+)>?`', text))


def test_every_public_name_is_on_the_cheat_sheet(public):
    assert {'GSLNet', 'explore'} <= public
    assert public - named() == set()
