"""The tables of arguments of the reference."""

import re
import sys
from html import unescape
from pathlib import Path

import pytest

pytest.importorskip('sphinx')
from sphinx.application import Sphinx

# Sphinx's own extensions use what it deprecates.
pytestmark = pytest.mark.filterwarnings('ignore')
EXTENSIONS = Path(__file__).resolve().parents[2] / 'docs' / '_ext'
PAGE = """Page
====

.. autoclass:: torch_geometric_gsl.TransitionGraphConv
"""


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """Returns name, default and meaning of each argument of a page."""
    monkeypatch.setattr(sys, 'path', [str(EXTENSIONS), *sys.path])
    source, made = tmp_path / 'docs', tmp_path / 'html'
    source.mkdir()
    (source / 'index.rst').write_text(PAGE)
    extensions = ['sphinx.ext.autodoc', 'sphinx.ext.napoleon', 'options']
    config = {'extensions': extensions, 'napoleon_custom_sections': ['Shapes']}
    output = source, None, made, tmp_path / 'trees'
    app = Sphinx(*output, 'html', config, status=None, warning=None)
    app.build()
    text = (made / 'index.html').read_text(encoding='utf-8')
    table = [
        [unescape(re.sub('<.*?>', '', cell)).strip() for cell in cells]
        for line in re.findall('<tr.*?</tr>', text, re.DOTALL)
        if (cells := re.findall('<td>(.*?)</td>', line, re.DOTALL))
    ]
    return {name.split('\n')[0]: (default, said) for name, default, said in table}


def test_arguments_of_another_class_have_their_defaults(rows):
    for name, default in {'k': '5', 'tau': '0.5', 'root_weight': 'True'}.items():
        assert rows[name][0] == default
        assert rows[name][1].startswith('As in')
    assert rows['in_channels'][0] == 'required'
    assert rows['transition'][0] == '"projected"'
    assert rows['**kwargs'][0] == ''
