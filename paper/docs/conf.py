"""Configuration of Sphinx for the studies, which look like the manual."""

import runpy
from pathlib import Path

MANUAL = Path(__file__).resolve().parents[2] / 'docs'
SHARED = (
    'project author copyright version release html_theme html_css_files html_js_files '
    'html_context html_sidebars pygments_style pygments_dark_style'
)

settings = runpy.run_path(str(MANUAL / 'conf.py'))
globals().update({name: settings[name] for name in SHARED.split()})
html_title = f'Studies of GSL {settings["release"]}'
extensions = ['sphinx_copybutton', 'sphinx-mathjax-offline', 'cells', 'links']
templates_path = [str(MANUAL / '_templates')]
html_static_path = [
    str(MANUAL / '_static' / name) for name in ('custom.css', 'tables.js')
]
