"""Pages of the gallery, entries of the reference, and files of tables."""

import ast
import csv
import doctest
import importlib
import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest

import torch_geometric_gsl as gsl
from torch_geometric_gsl.transforms import ToSparseFeatures

DOCS = Path(__file__).resolve().parents[2] / 'docs'
FOLDER = DOCS / 'gallery'
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
    table = DOCS / '_tables' / 'benchmarks_training_intel.csv'
    with open(table, newline='', encoding='utf-8') as file:
        measured = {row[1].partition(' x ')[0]: row[2] for row in csv.reader(file)}
    lists = re.findall(r'^(?:ROWS|SECONDS) = (\[.*\])$', text, re.M)
    pairs = [*zip(*map(ast.literal_eval, lists), strict=True)]
    assert len(pairs) == 5
    for rows, seconds in pairs:
        assert measured[f'{rows:,}'].startswith(f'{seconds} / ')


def test_the_table_of_searches_is_that_of_its_run(monkeypatch):
    monkeypatch.syspath_prepend(DOCS.parent / 'benchmark')
    heaviest = importlib.import_module('heaviest')
    path = DOCS.parent / 'benchmark' / 'results' / 'heaviest.json'
    rows = json.loads(path.read_text(encoding='utf-8'))['rows']
    table = DOCS / '_tables' / 'benchmarks_heaviest.csv'
    assert table.read_text(encoding='utf-8') == heaviest.table(rows)
    assert all(row['agrees'] for row in rows)


def test_notebooks_have_no_roles():
    pytest.importorskip('sphinx_gallery')
    spec = importlib.util.spec_from_file_location('gallery', DOCS / '_ext/gallery.py')
    extension = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(extension)
    assert doctest.testmod(extension) == (0, 1)
    texts = [extension.plain(re.sub(r'\n# ', '\n', read(name))) for name in PAGES]
    assert [
        role for text in texts for role in re.findall(r':(?!math:)\w+:`', text)
    ] == []


@pytest.fixture
def reference(monkeypatch):
    pytest.importorskip('sphinx')
    monkeypatch.syspath_prepend(DOCS / '_ext')
    return importlib.import_module('reference')


@pytest.fixture
def documented(reference):
    """The entries of pages that show every name."""
    entries = set()
    for value, paths in reference.public_names().values():
        methods = reference.public_methods(value) if isinstance(value, type) else ()
        entries |= {paths[0]} | {f'{paths[0]}.{method}' for method in methods}
    return entries


def test_methods_are_those_of_the_package(reference):
    methods = {*reference.public_methods(gsl.GSLNet)}
    assert methods >= {'index', 'clear_index', 'paper', 'choose_anchors', 'loss'}
    assert methods >= {'save', 'load', 'predict'}
    assert methods.isdisjoint({'to', 'cuda', 'parameters'})
    assert 'forward' not in {*reference.public_methods(ToSparseFeatures)}


@pytest.mark.parametrize(
    'name',
    [
        'GSLNet',
        'GSLNet.index',
        'KNNGCN.save',
        'GSLClassifier.predict_proba',
        'DATASETS',
        'describe_graph',
        'SampledGraph',
        'best_sources',
    ],
)
def test_a_missing_entry_is_named(reference, documented, name):
    assert reference.missing_names(documented) == []
    rest = {path for path in documented if not path.endswith(f'.{name}')}
    assert reference.missing_names(rest) == [name]


def test_pages_show_the_files_there_are():
    pages = [path.read_text(encoding='utf-8') for path in sorted(DOCS.rglob('*.rst'))]
    shown = re.findall(r'^ +:file: /(\S+)$', '\n'.join(pages), re.M)
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
