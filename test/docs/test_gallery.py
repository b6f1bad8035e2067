"""The pages of the gallery, which run when the documentation is built, not here."""

import ast
import csv
import doctest
import importlib.util
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / 'docs' / 'gallery'
PAGES = sorted(path.stem for path in FOLDER.glob('*.py'))
#: The calls that make a page the same in each build.
SEEDS = re.compile(r'seed_everything\(|random_state=\d|default_rng\(\d')
#: What a page imports, and the extra or the library that its first lines name for it.
NEEDS = {'sklearn': 'sklearn', 'matplotlib': 'plot', 'pandas': 'pandas'}


def read(name):
    return (FOLDER / f'{name}.py').read_text(encoding='utf-8')


def imported(tree):
    """The libraries that a script imports, wherever it does."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split('.')[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module.split('.')[0]
            if node.module == 'torch_geometric_gsl.sklearn':
                yield 'sklearn'


@pytest.mark.parametrize('name', PAGES)
def test_page(name):
    text = read(name)
    tree = ast.parse(text)
    title, line, rest = ast.get_docstring(tree).split('\n', 2)
    assert set(line) == {'='}
    assert len(line) == len(title)
    install = re.search(r"``pip install '\.\[(.*?)\]'(.*?)``", rest)
    named = {*install[1].split(','), *install[2].split()}
    libraries = {*imported(tree)}
    assert named == {NEEDS[library] for library in libraries & {*NEEDS}}
    known = {'numpy', 'torch', 'torch_geometric', 'torch_geometric_gsl', *NEEDS}
    assert libraries - known - sys.stdlib_module_names == set()
    assert 'plt.show()' in text
    assert SEEDS.search(text)


@pytest.mark.parametrize('name', PAGES)
def test_pages_run_without_a_network(name):
    """Of what downloads, nothing is called outside of prose."""
    calls = [node.func for node in ast.walk(ast.parse(read(name))) if is_call(node)]
    names = {getattr(func, 'id', getattr(func, 'attr', '')) for func in calls}
    assert {each for each in names if each.startswith('fetch_')} == set()
    assert names.isdisjoint({'load_dataset', 'TwentyNewsgroups', 'urlopen'})


def is_call(node):
    return isinstance(node, ast.Call)


def test_quoted_figures_are_those_of_the_benchmarks():
    text = read('plot_09_a_million_rows')
    table = ROOT / 'docs' / '_tables' / 'benchmarks_training_intel.csv'
    with open(table, newline='', encoding='utf-8') as file:
        measured = {row[1].partition(' x ')[0]: row[2] for row in csv.reader(file)}
    lists = re.findall(r'^(?:ROWS|SECONDS) = (\[.*\])$', text, re.M)
    pairs = [*zip(*map(ast.literal_eval, lists), strict=True)]
    assert len(pairs) == 5
    for rows, seconds in pairs:
        assert measured[f'{rows:,}'].startswith(f'{seconds} / ')


def test_notebooks_have_no_roles():
    pytest.importorskip('sphinx_gallery')
    path = ROOT / 'docs' / '_ext' / 'gallery.py'
    spec = importlib.util.spec_from_file_location('gallery', path)
    extension = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(extension)
    assert doctest.testmod(extension) == (0, 1)
    texts = [extension.plain(re.sub(r'\n# ', '\n', read(name))) for name in PAGES]
    assert [
        role for text in texts for role in re.findall(r':(?!math:)\w+:`', text)
    ] == []
