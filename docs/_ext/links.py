"""Lead links between pages, which name rst files as on GitHub, to the HTML of these."""

from __future__ import annotations

import os
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

ROOT = Path(__file__).resolve().parents[2]
#: Folders of pages, and of their HTML below that of the manual.
FOLDERS = {ROOT / 'docs': '', ROOT / 'paper' / 'docs': 'studies'}


def lead(app: Sphinx, doctree: nodes.document) -> None:
    """Replace the addresses of pages in a document."""
    page = Path(app.env.doc2path(app.env.docname))
    for node in doctree.findall(nodes.reference):
        address = node.get('refuri', '')
        if address.endswith('.rst') and '://' not in address:
            target = (page.parent / address).resolve()
            if not target.is_file():
                raise ExtensionError(f'{page} links to {address}, which is no file')
            node['refuri'] = os.path.relpath(html_of(target), html_of(page).parent)


def html_of(page: Path) -> Path:
    """Return the path of the HTML of a page, below that of the manual.

    Example:
        >>> html_of(ROOT / 'paper' / 'docs' / 'pays.rst').as_posix()
        'studies/pays.html'
    """
    folder = next(folder for folder in FOLDERS if page.is_relative_to(folder))
    return Path(FOLDERS[folder], page.relative_to(folder)).with_suffix('.html')


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect('doctree-read', lead)
    return {'parallel_read_safe': True}
