"""Pages of the gallery, entries of the reference, and files of tables."""

import ast
import csv
import doctest
import importlib
import importlib.util
import inspect
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import torch_geometric_gsl as gsl
from torch_geometric_gsl.transforms import FreezeLatentGraph

DOCS = Path(__file__).resolve().parents[2] / 'docs'
STUDIES = DOCS.parent / 'paper' / 'docs'
TABLES = sorted([*DOCS.glob('_tables/*'), *STUDIES.glob('_tables/*')])
FOLDER = DOCS / 'gallery'
PAGES = sorted(path.stem for path in FOLDER.glob('*.py'))
#: The calls that make a page the same in each build.
SEEDS = re.compile(r'seed_everything\(|random_state=\d|default_rng\(\d')
#: What a page imports, and the extra or the library that its first lines name for it.
NEEDS = {'sklearn': 'sklearn', 'matplotlib': 'plot', 'pandas': 'pandas'}
NEEDS |= {'scipy': 'sklearn'}


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
    title, line, body = ast.get_docstring(tree).split('\n', 2)
    assert set(line) == {'='}
    assert len(line) == len(title)
    install = re.search(r"``pip install '\.\[(.*?)\]'(.*?)``", body)
    requirements = {*install[1].split(','), *install[2].split()}
    libraries = {*imported(tree)}
    assert requirements == {NEEDS[library] for library in libraries & {*NEEDS}}
    base = {'numpy', 'torch', 'torch_geometric', 'torch_geometric_gsl', *NEEDS}
    assert libraries - base - sys.stdlib_module_names == set()
    assert 'plt.show()' in text
    assert SEEDS.search(text)


@pytest.mark.parametrize('name', PAGES)
def test_pages_run_without_a_network(name):
    """Of what downloads, nothing is called outside of prose."""
    calls = [node.func for node in ast.walk(ast.parse(read(name))) if is_call(node)]
    names = {getattr(func, 'id', getattr(func, 'attr', '')) for func in calls}
    assert {each for each in names if each.startswith('fetch_')} == set()
    assert names.isdisjoint({'TwentyNewsgroups', 'urlopen'})


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
    folder, rows = DOCS.parent / 'benchmark' / 'results', []
    for path in sorted(folder.glob('heaviest*.json')):
        rows += json.loads(path.read_text(encoding='utf-8'))['rows']
    table = DOCS / '_tables' / 'benchmarks_heaviest.csv'
    assert table.read_text(encoding='utf-8') == heaviest.table(rows)
    assert all(row['agrees'] for row in rows)


@pytest.fixture
def gallery():
    pytest.importorskip('sphinx_gallery')
    spec = importlib.util.spec_from_file_location('gallery', DOCS / '_ext/gallery.py')
    extension = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(extension)
    return extension


def test_notebooks_have_no_roles(gallery):
    assert doctest.testmod(gallery) == (0, 1)
    assert gallery.to_markdown(':class:`~a.b.C`', {}, '', {}) == '`C`'
    texts = [gallery.plain(re.sub(r'\n# ', '\n', read(name))) for name in PAGES]
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
    assert 'forward' not in {*reference.public_methods(FreezeLatentGraph)}


@pytest.mark.parametrize(
    'name',
    [
        'GSLNet',
        'GSLNet.index',
        'GSLClassifier.predict_proba',
        'HiddenRelation',
        'describe_graph',
        'SampledGraph',
        'best_sources',
    ],
)
def test_a_missing_entry_is_named(reference, documented, name):
    assert reference.missing_names(documented) == []
    listed = {path for path in documented if not path.endswith(f'.{name}')}
    assert reference.missing_names(listed) == [name]


@pytest.mark.parametrize('folder', [DOCS, STUDIES], ids=['manual', 'studies'])
def test_pages_show_the_files_there_are(folder):
    pages = [path.read_text(encoding='utf-8') for path in sorted(folder.rglob('*.rst'))]
    shown = re.findall(r'^ +:file: /(\S+)$', '\n'.join(pages), re.M)
    files = [path.relative_to(folder).as_posix() for path in folder.glob('_tables/*')]
    assert sorted(shown) == sorted(files)


@pytest.mark.parametrize('name', ['index', 'faq', 'glossary', 'guide/*'])
def test_pages_for_users_are_whole_on_github(name):
    """GitHub reads no files into tables, and takes `/` for the repository's root."""
    for path in DOCS.glob(f'{name}.rst'):
        text = path.read_text(encoding='utf-8')
        missing = r'^ +:file:|^\.\. glossary::|:: /_(static|build)/'
        assert not re.search(missing, text, re.M), path


@pytest.mark.parametrize('path', TABLES, ids=lambda p: p.stem)
def test_rows_are_equally_long_and_a_line_each(path):
    text = path.read_text(encoding='utf-8')
    rows = [*csv.reader(text.splitlines())]
    assert len({len(row) for row in rows}) == 1
    assert len(rows) == text.count('\n') > 1


def test_the_guide_has_ten_short_pages():
    lengths = {
        path.name: len(path.read_text(encoding='utf-8').split())
        for path in DOCS.glob('guide/*.rst')
    }
    assert len(lengths) == 10
    assert {name for name, length in lengths.items() if length > 700} == set()


def test_the_sidebar_is_short():
    text = (DOCS / 'index.rst').read_text(encoding='utf-8')
    assert 10 < len(re.findall(r'^   [\w/]+$', text, re.M)) <= 18


@pytest.fixture
def links(monkeypatch):
    pytest.importorskip('sphinx')
    monkeypatch.syspath_prepend(DOCS / '_ext')
    return importlib.import_module('links')


@pytest.mark.parametrize(
    ('page', 'address', 'html'),
    [
        (DOCS / 'faq.rst', '../paper/docs/pays.rst', 'studies/pays.html'),
        (STUDIES / 'pays.rst', '../../docs/guide/mend.rst', '../guide/mend.html'),
        (STUDIES / 'pays.rst', 'https://pyg.org/a.rst', 'https://pyg.org/a.rst'),
    ],
)
def test_links_between_manual_and_studies_lead_to_html(links, page, address, html):
    assert doctest.testmod(links) == (0, 1)
    app = SimpleNamespace(env=SimpleNamespace(docname='', doc2path=lambda _: page))
    document = importlib.import_module('docutils.core').publish_doctree
    tree = document(f'`a <{address}>`__')
    links.lead(app, tree)
    (node,) = tree.findall(links.nodes.reference)
    assert node['refuri'] == html
    with pytest.raises(links.ExtensionError, match='is no file'):
        links.lead(app, document('`a <gone.rst>`__'))


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


@pytest.fixture
def options(monkeypatch):
    pytest.importorskip('sphinx')
    monkeypatch.syspath_prepend(DOCS / '_ext')
    return importlib.import_module('options')


def test_arguments_stand_in_a_table(options):
    nodes = importlib.import_module('docutils.nodes')
    addnodes = importlib.import_module('sphinx.addnodes')

    def argument(name, *children):
        return nodes.list_item(
            '', nodes.paragraph('', '', nodes.strong('', name), *children)
        )

    literal, text = nodes.literal, nodes.Text
    type_nodes = [text(' ('), nodes.emphasis('', 'int')]
    k = argument('k', *type_nodes, text(')'), text(options.DASH), text('The number.'))
    optional = [nodes.emphasis('', ', '), nodes.emphasis('', 'optional'), text(')')]
    default = text('Noise (of a draw).\n(default: '), literal('', '0.5'), text(')')
    inline = nodes.inline('', '', *default)
    tau = argument('tau', *type_nodes, *optional, text(options.DASH), inline)
    body = nodes.field_body('', nodes.bullet_list('', k, tau))
    rows = [
        [cell.astext() for cell in row]
        for row in options.make_table(body, {}).findall(nodes.row)
    ]
    assert rows == [
        ['Argument', 'Default', 'Meaning'],
        ['k\n\nint', 'required', 'The number.'],
        ['tau\n\nint', '0.5', 'Noise (of a draw).'],
    ]
    # In an entry of a class it takes the place of the list.
    fields = nodes.field_list(
        '', nodes.field('', nodes.field_name('', 'Parameters'), body)
    )
    content = addnodes.desc_content('', fields)
    entry = addnodes.desc('', addnodes.desc_signature(), content, objtype='class')
    options.lay_out(None, nodes.section('', entry))
    assert [type(child) for child in content] == [nodes.rubric, nodes.table]


def test_a_click_sorts_rows_by_their_numbers():
    node = shutil.which('node')
    if node is None:
        pytest.skip('needs node')
    script = (DOCS / '_static' / 'tables.js').read_text(encoding='utf-8')
    program = """
        const document = { querySelectorAll: () => [] };
        class ResizeObserver {}
        SCRIPT
        const sorted = (texts, isUp) => {
          const rows = texts.map((textContent) => ({ cells: [{ textContent }] }));
          let found;
          const append = (...all) => { found = all; };
          sortBy({ tBodies: [{ rows, append }] }, 0, isUp);
          return found.map(({ cells }) => cells[0].textContent);
        };
        const numbers = [
          '1,024', '0.9 ± 5', 'none', '\N{MINUS SIGN}3', '~10 (12)', '1e-3'];
        const words = ['b', 'A 2', 'c'];
        console.log(JSON.stringify(
          [sorted(numbers, true), sorted(numbers, false), sorted(words, true)]));
        """.replace('SCRIPT', script)
    run = subprocess.run([node], input=program, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    up, down, words = json.loads(run.stdout)
    assert up == ['\N{MINUS SIGN}3', '1e-3', '0.9 ± 5', '~10 (12)', '1,024', 'none']
    assert down == [*up[-2::-1], 'none']
    assert words == ['A 2', 'b', 'c']


@pytest.mark.parametrize(
    ('column', 'cls'), [(1, gsl.LatentGraphConv), (2, gsl.GumbelKNNSampler)]
)
def test_the_table_of_sampler_options_has_the_defaults(column, cls):
    path = DOCS / '_tables' / 'sampler_options.csv'
    with path.open(encoding='utf-8') as file:
        cells = {
            re.sub('[:`]|term', '', row[0]): row[column] for row in csv.reader(file)
        }
    # A layer passes the other options on to its sampler.
    parameters = {
        **inspect.signature(gsl.GumbelKNNSampler).parameters,
        **inspect.signature(cls).parameters,
    }
    learned = ', learned' if parameters['train_scale'].default else ', fixed'
    assert cells['scale'] == f'{parameters["scale"].default:g}{learned}'
    for name in ('k', 'tau', 'hard', 'replace', 'loop'):
        assert cells[name].strip('`') == str(parameters[name].default), name
