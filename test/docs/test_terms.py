"""The glossary is a plain list, whose terms are targets of `:term:`."""

import re
import sys
from pathlib import Path

import pytest

pytest.importorskip('sphinx')
from sphinx.application import Sphinx

# Sphinx's own extensions use what it deprecates.
pytestmark = pytest.mark.filterwarnings('ignore')
DOCS = Path(__file__).resolve().parents[2] / 'docs'
GLOSSARY = (DOCS / 'glossary.rst').read_text(encoding='utf-8')
USED = {
    name
    for path in [*DOCS.rglob('*.rst'), *DOCS.glob('gallery/*.py')]
    for text in re.findall(r':term:`(.*?)`', path.read_text(encoding='utf-8'), re.S)
    for name in [re.sub(r'\s+(# )?', ' ', re.sub(r'.*<(.*)>', r'\1', text, flags=re.S))]
}


def test_terms_are_on_the_page():
    terms = set(re.findall(r'^(\S.*)\n   \S', GLOSSARY, re.M))
    assert {'scale', 'transition node'} <= USED <= terms


def test_a_term_links_to_its_definition(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, 'path', [str(DOCS / '_ext'), *sys.path])
    source, made = tmp_path / 'docs', tmp_path / 'html'
    source.mkdir()
    (source / 'glossary.rst').write_text('Glossary\n===\n\nroot weight\n   A matrix.\n')
    page = 'Page\n===\n\n:term:`root weights <root weight>`\n'
    (source / 'index.rst').write_text(page)
    app = Sphinx(
        source,
        None,
        made,
        tmp_path / 'trees',
        'html',
        {'extensions': ['terms']},
        status=None,
        warning=None,
    )
    app.build()
    text = (made / 'index.html').read_text(encoding='utf-8')
    (label,) = re.findall(r'href="glossary.html#([\w-]+)"', text)
    assert f'id="{label}"' in (made / 'glossary.html').read_text(encoding='utf-8')
