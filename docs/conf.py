"""Configuration of Sphinx."""

import json
import os
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path[:0] = [str(DOCS / '_ext'), str(ROOT), str(ROOT / 'paper')]

# Pages of the gallery are quick without compiled loops, which take a minute to compile.
os.environ.setdefault('TORCH_COMPILE_DISABLE', '1')

import gallery  # noqa: E402

import torch_geometric_gsl  # noqa: E402

project = 'torch_geometric_gsl'
author = 'torch_geometric_gsl contributors'
copyright = f'2026, {author}'
version = release = torch_geometric_gsl.__version__

extensions = [
    'sphinx.ext.autodoc',
    'sphinx.ext.autosummary',
    'sphinx.ext.intersphinx',
    'sphinx.ext.napoleon',
    'sphinx.ext.viewcode',
    'sphinx_copybutton',
    'sphinx_gallery.gen_gallery',
    # MathJax as files of the documentation: formulas need no network.
    'sphinx-mathjax-offline',
    'cells',
    'changelog',
    'gallery',
    'options',
    'links',
    'reference',
    'terms',
]
exclude_patterns = ['_build', '_ext', '_figures', '_templates', 'gallery']
sphinx_gallery_conf = gallery.CONF

html_theme = 'furo'
html_title = f'GSL {release}'
html_static_path = ['_static']
html_css_files = ['custom.css']
html_js_files = [('tables.js', {'defer': 'defer'})]
# The versions beside this one, where a host of documentation serves several.
home = os.environ.get('READTHEDOCS_CANONICAL_URL', '').rstrip('/').rpartition('/')[0]
html_context = {
    'shown_version': os.environ.get('READTHEDOCS_VERSION', release),
    'versions': {
        name: f'{home}/{name}/'
        for name in json.loads((DOCS / '_static' / 'versions.json').read_text())
        if home
    },
}
html_sidebars = {
    '**': [
        'sidebar/brand.html',
        'versions.html',
        'sidebar/search.html',
        'sidebar/scroll-start.html',
        'sidebar/navigation.html',
        'sidebar/scroll-end.html',
    ]
}
pygments_style = 'friendly'
pygments_dark_style = 'github-dark'

add_module_names = False
# A line for each argument where they do not fit into one.
maximum_signature_line_length = 76
toc_object_entries_show_parents = 'hide'
autodoc_member_order = 'bysource'
# An override without a docstring of its own says nothing that its base does not.
autodoc_inherit_docstrings = False
# What other libraries give to a class is on their own pages.
FOREIGN = (
    'Module MessagePassing EdgeConv BaseTransform InMemoryDataset Dataset '
    'tuple dict Warning '
    'BaseEstimator TransformerMixin ClassifierMixin RegressorMixin _MetadataRequester '
    '_SetOutputMixin Function _SingleLevelFunction FunctionCtx _HookMixin'
)
autodoc_default_options = {
    'members': True,
    'show-inheritance': True,
    'inherited-members': ','.join(FOREIGN.split()),
}
# Packages are documented by what they export, in that order.
autosummary_ignore_module_all = False
templates_path = ['_templates']
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_custom_sections = ['Shapes']

# These hold the names used here alone, so that the pages need no network.
intersphinx_mapping = {
    'python': ('https://docs.python.org/3/', '_inventories/python.inv'),
    'torch': ('https://docs.pytorch.org/docs/stable/', '_inventories/torch.inv'),
    'torch_geometric': (
        'https://pytorch-geometric.readthedocs.io/en/latest/',
        '_inventories/torch_geometric.inv',
    ),
}

nitpicky = True
# Other names of other projects are in no inventory.
nitpick_ignore_regex = [('py:.*', r'(?!torch_geometric_gsl\b).*')]


def skip_requests(
    app: object, what: str, name: str, value: object, skip: bool, options: object
) -> bool | None:
    """Leave out what scikit-learn adds to each estimator for its own routing."""
    return True if name.startswith('set_') and name.endswith('_request') else None


def setup(app: object) -> None:
    app.connect('autodoc-skip-member', skip_requests)
    app.add_css_file('tiles.css')
