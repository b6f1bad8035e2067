"""The files that hold the rows of the documentation's tables."""

import csv
import importlib
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / 'docs'


def test_pages_show_the_files_there_are():
    pages = [path.read_text(encoding='utf-8') for path in sorted(DOCS.glob('*.rst'))]
    shown = re.findall(r'^ +:file: (\S+)$', '\n'.join(pages), re.M)
    files = [path.relative_to(DOCS).as_posix() for path in DOCS.glob('_tables/*')]
    assert sorted(shown) == sorted(files)


@pytest.mark.parametrize('path', sorted(DOCS.glob('_tables/*')), ids=lambda p: p.stem)
def test_rows_are_equally_long_and_a_line_each(path):
    text = path.read_text(encoding='utf-8')
    rows = [*csv.reader(text.splitlines())]
    assert len({len(row) for row in rows}) == 1
    assert len(rows) == text.count('\n') > 1


@pytest.fixture
def layout(monkeypatch):
    pytest.importorskip('sphinx')
    monkeypatch.syspath_prepend(DOCS / '_ext')
    return importlib.import_module('cells').lay_out


def test_parts_of_a_cell_stand_in_lines(layout):
    core = importlib.import_module('docutils.core')
    text = """
1 ± 2; 3

.. csv-table::
   :header-rows: 1
   :class: results

   ,a; b
   c; d,**1 ± 2**; 3 ± 4
   e,
"""
    tree = core.publish_doctree(text)
    layout(None, tree)
    assert tree.children[0].astext() == '1\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}2; 3'
    (block,) = tree.findall(lambda node: node.tagname == 'line_block')
    assert [line.astext().replace('\xa0', ' ') for line in block] == ['1 ± 2', '3 ± 4']
    assert block[0][0].tagname == 'strong'
