"""Run the scripts of ``docs/gallery`` and make pages and notebooks of them.

    python docs/_ext/gallery.py

writes ``docs/notebooks``, which the links to Colab open from the repository.
"""

from __future__ import annotations

import copy
import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from sphinx.application import Sphinx
from sphinx_gallery import gen_gallery, notebook
from sphinx_gallery.py_source_parser import split_code_and_text_blocks

from torch_geometric_gsl.diagnostics import UniformSamplingWarning

PAGES = 'auto_gallery'
ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = ROOT / 'docs' / 'notebooks'
#: The address of the repository, as the package's metadata has it.
URL = re.search(r"^URL = '(.+)'$", (ROOT / 'setup.py').read_text('utf-8'), re.M)[1]
COLAB = URL.replace('https://github.com', 'https://colab.research.google.com/github')
#: What Colab installs of it, with what the scripts of the gallery need.
EXTRAS = '[sklearn,plot]'
SOURCE = f'torch_geometric_gsl{EXTRAS} @ git+{URL}'
#: The first cell of a notebook, which does nothing where the package is installed.
INSTALL = f"""
import importlib.util

if importlib.util.find_spec('torch_geometric_gsl') is None:
    %pip install -q '{SOURCE}' pandas
"""

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
    'first_notebook_cell': INSTALL,
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


def link_notebook(app: Sphinx, docname: str, source: list[str]) -> None:
    """Link the notebook of a page, below its title, in Colab."""
    folder, _, name = docname.partition('/')
    if folder == PAGES and (NOTEBOOKS / f'{name}.ipynb').exists():
        link = f'{COLAB}/blob/main/docs/notebooks/{name}.ipynb'
        line = f'`Open in Colab <{link}>`__'
        source[0] = re.sub(
            r'^={3,}\n', rf'\g<0>\n{line}\n', source[0], count=1, flags=re.M
        )


def to_notebook(path: Path) -> dict[str, Any]:
    """Return the notebook of a script."""
    conf = copy.deepcopy(gen_gallery.DEFAULT_GALLERY_CONF) | CONF
    notebook.rst2md = to_markdown
    _, blocks = split_code_and_text_blocks(path)
    found = notebook.jupyter_notebook(blocks, conf, path.parent)
    found['metadata'] = {'language_info': {'name': 'python'}}
    return found


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
    app.connect('source-read', link_notebook)
    app.connect('build-finished', copy_pages)
    return {'parallel_read_safe': True}


if __name__ == '__main__':
    NOTEBOOKS.mkdir(exist_ok=True)
    for script in sorted((ROOT / 'docs' / 'gallery').glob('*.py')):
        text = json.dumps(to_notebook(script), indent=1) + '\n'
        (NOTEBOOKS / f'{script.stem}.ipynb').write_text(text, encoding='utf-8')
