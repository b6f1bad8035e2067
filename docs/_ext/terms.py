"""Make the definitions of the glossary the targets of ``:term:``.

They are plain lists, since GitHub leaves out the directive ``glossary``.
"""

from __future__ import annotations

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.nodes import make_id

PAGE = 'glossary'


def register(app: Sphinx, doctree: nodes.document) -> None:
    """Note each term of the glossary."""
    if app.env.docname != PAGE:
        return
    domain = app.env.get_domain('std')
    for term in doctree.findall(nodes.term):
        name = term.astext()
        label = make_id(app.env, doctree, 'term', name)
        term['ids'].append(label)
        domain.note_object('term', name, label, location=term)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect('doctree-read', register)
    return {'parallel_read_safe': True}
