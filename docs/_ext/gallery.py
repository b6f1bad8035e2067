"""Run the scripts of ``docs/gallery`` and make pages of them, each with a notebook."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from sphinx.application import Sphinx
from sphinx_gallery import notebook

from torch_geometric_gsl.diagnostics import UniformSamplingWarning

PAGES = 'auto_gallery'

CONF = {
    'examples_dirs': 'gallery',
    'parallel': 2,
    'gallery_dirs': PAGES,
    'within_subsection_order': 'FileNameSortKey',
    'doc_module': ('torch_geometric_gsl',),
    'capture_repr': ('_repr_html_',),
    'image_scrapers': ('matplotlib', 'gallery.keep_pages'),
    'image_srcset': ['2x'],
    'reset_modules': ('matplotlib', 'gallery.reset'),
    # What differs from one build to the next.
    'show_memory': False,
    'min_reported_time': 1e9,
    'write_computation_times': False,
    'show_signature': False,
}

#: Role, its text, and what it leads to if that is said.
ROLE = re.compile(r':(?P<role>[\w:]+):`(?P<text>[^`<]+?)(?:\s*<(?P<target>[^`>]+)>)?`')
_rst2md = notebook.rst2md


def reset(gallery_conf: Mapping[str, Any], fname: str) -> None:
    """Let each page begin as a program of its own does."""
    torch.manual_seed(0)
    UniformSamplingWarning.reset()


def keep_pages(
    block: Any, block_vars: Mapping[str, Any], gallery_conf: Mapping[str, Any]
) -> str:
    """Put what a script writes for browsers beside its page; show nothing of it.

    Its name begins with that of the script, and is not that of the page itself.
    """
    script = Path(block_vars['src_file'])
    for path in script.parent.glob(f'{script.stem}_*.html'):
        shutil.move(path, Path(block_vars['target_file']).with_name(path.name))
    return ''


def copy_pages(app: Sphinx, error: Exception | None) -> None:
    """Take these files to the output."""
    folder = Path(app.outdir, PAGES)
    if error is None and folder.is_dir():
        for path in Path(app.srcdir, PAGES).glob('*.html'):
            shutil.copy(path, folder)


def plain(text: str) -> str:
    r"""Write roles of Sphinx, which notebooks do not know, as text.

    Example:
        >>> plain(':doc:`/pays`, :class:`~a.b.C`, a :term:`root weight`, :math:`x`')
        '*pays*, `C`, a root weight, :math:`x`'
    """
    return ROLE.sub(_plain_role, text)


def _plain_role(match: re.Match[str]) -> str:
    role, text = match['role'], ' '.join(match['text'].split())
    if role == 'math':
        return match[0]
    if role == 'term':
        return text
    if role == 'doc':
        return f'*{text.rpartition("/")[2]}*'
    return f'`{text.rpartition(".")[2] if text.startswith("~") else text}`'


def to_markdown(text: str, *args: Any, **kwargs: Any) -> str:
    """Translate a block of prose for a notebook."""
    return _rst2md(plain(text), *args, **kwargs)


def setup(app: Sphinx) -> dict[str, bool]:
    notebook.rst2md = to_markdown
    app.connect('build-finished', copy_pages)
    return {'parallel_read_safe': True}
