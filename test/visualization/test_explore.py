"""The page that `explore` writes, and what it refuses."""

import base64
import io
import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path

import numpy as np
import pandas
import pytest
import scipy.sparse
import torch
from pages import content, notes
from PIL import Image
from torch_geometric.data import Data

from torch_geometric_gsl import _files
from torch_geometric_gsl.diagnostics import describe_graph
from torch_geometric_gsl.visualization import explore

EDGES = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
GRAPH = EDGES, torch.tensor([0.4, 0.1, 0.3, 0.2])
Y = torch.tensor([0, 1, 1, 0])


@pytest.fixture
def write(tmp_path):
    def write(graph=GRAPH, **kwargs):
        return content(explore(graph, path=tmp_path / 'graph.html', **kwargs))

    return write


def test_edges(write):
    page = write()
    (graph,) = page['graphs']
    assert graph['name'] == 'graph'
    edges = zip(graph['source'], graph['target'], graph['weight'], strict=True)
    assert list(edges) == [(0, 1, 0.4), (2, 3, 0.3), (3, 0, 0.2), (1, 2, 0.1)]
    assert page['nodes']['names'] == ['0', '1', '2', '3']
    assert page['colours'] == []
    assert page['images'] is None
    assert page['arrange'] is True
    (graph,) = write(max_edges=2)['graphs']  # The strongest.
    assert (graph['weight'], graph['total']) == ([0.4, 0.3], 4)
    page = write({'a': GRAPH, 'b': (torch.tensor([[5], [0]]), torch.ones(1))})
    assert [graph['name'] for graph in page['graphs']] == ['a', 'b']
    assert len(page['nodes']['names']) == 6


def test_columns_of_a_table(write):
    day = np.datetime64('2019-03-11T23:47:41')
    columns = {
        'size': [2.0, None, 3.0, 1.0],
        'rooms': np.array([1, 2, 2, 1]),
        'city': ['Bonn', None, 'Pisa', 'Bonn'],
        'new': pandas.array([True, False, None, True], dtype='boolean'),
        'sold': np.array([day, day, 'NaT', '1970-01-01'], 'M8[s]'),
        'wait': np.array([1, 2, 3, 'NaT'], 'm8[h]'),
    }
    for table in (columns, pandas.DataFrame(columns)):
        colours = {each['name']: each for each in write(columns=table)['colours']}
        assert [*colours] == [*columns]
        assert all(each['isFeature'] for each in colours.values())
        assert colours['size']['values'] == [2.0, None, 3.0, 1.0]
        assert colours['rooms']['kind'] == 'number'
        assert colours['city']['classes'] == ['Bonn', 'Pisa']
        assert colours['city']['values'] == [0, None, 1, 0]
        assert colours['new']['classes'] == ['False', 'True']
        assert colours['new']['values'] == [1, 0, None, 1]
        assert colours['sold']['isDate']
        assert colours['sold']['values'] == [1552348061.0, 1552348061.0, None, 0.0]
        assert colours['wait']['values'] == [3600.0, 7200.0, 10800.0, None]
    few = write(data=Data(x=torch.ones(4, 1)), columns=columns, max_features=2)
    assert [each['name'] for each in few['colours']] == ['size', 'wait']
    gap = [np.nan] * 3 + [1.0]
    few = write(columns={'gap': gap, 'full': [1, 2, 3, 3]}, max_features=1)
    assert [each['name'] for each in few['colours']] == ['full']
    page = write(columns={0: [1.0] * 4}, feature_names=np.array(['size']))
    assert [each['name'] for each in page['colours']] == ['size']


def test_a_matrix_of_scipy(write):
    matrix = scipy.sparse.csr_array(([0.4, 0.1], ([1, 2], [0, 1])), shape=(4, 4))
    page = write(matrix)
    graph = page['graphs'][0]
    # Rows are targets, as of a graph of neighbours.
    assert (graph['source'], graph['target']) == ([0, 1], [1, 2])
    assert len(page['nodes']['names']) == 4
    with pytest.raises(ValueError, match=r"'graph' must be square \(got \[4, 3\]\)"):
        write(matrix[:, :3])


def test_labels_and_predictions(write):
    data = Data(y=torch.tensor([2, -1, 0, 2]))
    prediction = torch.tensor([[0.5], [float('nan')], [1.5], [1.0]])
    kwargs = {'prediction': prediction, 'class_names': ['a', 'b', 'c']}
    label, predicted = write(data=data, **kwargs)['colours']
    assert (label['classes'], label['values']) == (['a', 'c'], [1, None, 0, 1])
    assert predicted['values'] == [0.5, None, 1.5, 1.0]
    assert (predicted['kind'], predicted['low'], predicted['high']) == (
        'number',
        0.5,
        1.5,
    )
    # Numbers far from zero have colours of their own.
    value = 1.7e9 + torch.arange(4, dtype=torch.double)
    (predicted,) = write(prediction=value)['colours']
    assert predicted['values'] == value.tolist()
    assert (predicted['low'], predicted['high']) == (1.7e9, 1.7e9 + 3)


def test_a_class_has_one_colour_as_label_and_as_prediction(write):
    data = Data(y=torch.tensor([5, -1, 2, 5]))
    prediction = torch.tensor([5, 5, 9, 5])
    label, predicted = write(data=data, prediction=prediction)['colours']
    assert label['classes'] == predicted['classes'] == ['2', '5', '9']
    assert label['values'] == [1, None, 0, 1]
    assert predicted['values'] == [1, 1, 2, 1]
    (label,) = write(data=Data(y=torch.tensor([True, False, True, True])))['colours']
    assert (label['classes'], label['values']) == (['0', '1'], [1, 0, 1, 1])
    (label,) = write(data=Data(y=torch.full((4,), -1)), class_names=['a'])['colours']
    assert (label['classes'], label['values']) == ([], [None] * 4)


TEXTS = ['yes', 'no', None, 'yes']


def by_pandas(values):
    return pytest.importorskip('pandas').Series(values, index=[3, 2, 1, 0])


HOLDERS = [list, lambda v: np.array(v, dtype=object), by_pandas]


@pytest.mark.parametrize('make', HOLDERS)
def test_classes_that_are_texts(write, make):
    (predicted,) = write(prediction=make(TEXTS))['colours']
    assert (predicted['classes'], predicted['values']) == (
        ['no', 'yes'],
        [1, 0, None, 1],
    )
    # Beside numbers that have these names.
    y = torch.tensor([0, 1, -1, 2])
    label, predicted = write(
        data=Data(y=y), prediction=make(TEXTS), class_names=['yes', 'b', 'no']
    )['colours']
    assert label['classes'] == predicted['classes'] == ['yes', 'b', 'no']
    assert label['values'] == [0, 1, None, 2]
    assert predicted['values'] == [0, 2, None, 0]
    # And without names.
    label, predicted = write(data=Data(y=make(TEXTS)), prediction=y)['colours']
    assert label['classes'] == predicted['classes'] == ['0', '1', '2', 'no', 'yes']
    assert (label['values'], predicted['values']) == ([4, 3, None, 4], [0, 1, None, 2])
    with pytest.raises(ValueError, match=r"every class of .* without 'no'\)"):
        write(prediction=make(TEXTS), class_names=['yes'])


@pytest.mark.parametrize('make', HOLDERS)
@pytest.mark.parametrize(
    ('prediction', 'classes', 'values'),
    [
        ([3, 1, 3, 1], ['1', '3'], [1, 0, 1, 0]),
        ([-1, 1, 1, -1], ['-1', '1'], [0, 1, 1, 0]),
        ([-2, -1, 0, 1], ['-2', '-1', '0', '1'], [0, 1, 2, 3]),
        (['a', None, 'a', 'a'], ['a'], [0, None, 0, 0]),
        ([0.5, None, 1.5, 1.0], None, [0.5, None, 1.5, 1.0]),
    ],
)
def test_predictions_that_are_no_tensors(write, make, prediction, classes, values):
    (predicted,) = write(prediction=make(prediction))['colours']
    assert (predicted.get('classes'), predicted['values']) == (classes, values)


def test_features_that_are_not_numbers_are_absent(write):
    x = torch.tensor([[torch.nan, 1], [torch.inf, 2], [0, 3], [5, torch.nan]])
    for features in (x, x.to_sparse_coo()):
        with_infinity, with_nan = write(data=Data(x=features))['colours']
        assert with_infinity['values'] == [None, None, 0, 5]
        assert (with_infinity['low'], with_infinity['high']) == (0, 5)
        assert with_nan['values'] == [1, 2, 3, None]
    (nothing,) = write(data=Data(x=torch.full((4, 1), torch.nan)))['colours']
    assert (nothing['low'], nothing['high']) == (0, 0)


def test_sparse_features_stay_sparse(write, meter):
    n, d = 300, 20_000
    index = torch.stack([torch.arange(n), torch.arange(n) * 7])
    x = torch.sparse_coo_tensor(index, torch.arange(1.0, n + 1), (n, d))
    graph = torch.tensor([[0], [n - 1]]), torch.ones(1)
    with meter() as memory:
        colours = write(graph, data=Data(x=x.to_sparse_csr()), max_features=2)[
            'colours'
        ]
    names = [f'feature {7 * (n - 2)}', f'feature {7 * (n - 1)}']
    assert [colour['name'] for colour in colours] == names
    assert colours[1]['values'][-1] == n
    assert memory.largest < 10 * d


def test_features_of_largest_variance(write):
    x = torch.tensor([[0, 5.0, 1], [0, 0, 2], [0, 5, 1], [0, 0, 2]])
    page = write(data=Data(x=x), feature_names=['a', 'b', 'c'], max_features=2)
    assert [colour['name'] for colour in page['colours']] == ['b', 'c']
    sparse = write(data=Data(x=x.to_sparse_csr()), max_features=2)
    for dense_colour, sparse_colour in zip(
        page['colours'], sparse['colours'], strict=True
    ):
        assert dense_colour['values'] == sparse_colour['values']
    assert write(data=Data(x=x), max_features=0)['colours'] == []


def test_places(write):
    pos = torch.tensor([[0.0, 1], [2, 3], [4, 5], [6, 7]])
    page = write(data=Data(pos=pos))
    assert page['nodes']['x'] == [0, 2, 4, 6]
    assert page['nodes']['y'] == [1, 3, 5, 7]
    assert page['arrange'] is False
    assert write(seed=1)['nodes'] == write(seed=1)['nodes'] != write(seed=2)['nodes']
    equal = write(data=Data(x=torch.ones(4, 3)))['nodes']
    assert len(set(zip(equal['x'], equal['y'], strict=True))) == 4


def sprite_of(images):
    data = base64.b64decode(images['uri'].removeprefix('data:image/png;base64,'))
    return np.array(Image.open(io.BytesIO(data)))


@pytest.mark.parametrize('shape', [(4, 2, 3), (4, 2, 3, 3), (4, 5, 1)])
def test_images(write, shape):
    images = torch.randint(256, shape, dtype=torch.uint8)
    sprites = write(images=images)['images']
    sprite, (height, width) = sprite_of(sprites), shape[1:3]
    assert (sprites['height'], sprites['width']) == (height, width)
    for i, image in enumerate(images.numpy()):
        top = i // sprites['columns'] * height
        left = i % sprites['columns'] * width
        shown = sprite[top : top + height, left : left + width]
        np.testing.assert_array_equal(shown, image)


def test_numbers_of_images_become_bytes(write):
    images = torch.tensor([[[-1.0, 0.0]], [[1.0, 0.5]]])
    graph = torch.tensor([[0], [1]]), torch.ones(1)
    sprite = sprite_of(write(graph, images=images)['images'])
    assert sorted(sprite.flatten().tolist()) == [0, 128, 191, 255]
    flat = sprite_of(write(graph, images=torch.ones(2, 2, 2))['images'])
    assert flat.max() == 0


def test_markup_stays_text(tmp_path):
    bad = '</script><script>alert(1)</script>'
    path = explore(
        {bad: GRAPH},
        data=Data(y=Y),
        names=[bad, 'b', 'c', 'd'],
        class_names=[bad, 'x'],
        title=bad,
        path=tmp_path / 'graph.html',
    )
    text = path.read_text(encoding='utf-8')
    assert 'alert(1)</script>' not in text
    assert text.count('<script') == text.count('</script>') == 6
    # Nor does the page ask for anything.
    assert "default-src 'none'" in text
    assert not re.search(r'<(script|link|img)[^>]+(src|href)=', text)
    assert content(path)['nodes']['names'][0] == bad


class Elements(HTMLParser):
    """The attributes of the elements of a page, by their ids."""

    def __init__(self, text):
        super().__init__()
        self.by_id, self.labelled = {}, set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.by_id[attributes.get('id')] = {'tag': tag, **attributes}
        self.labelled |= (
            {attributes['for']} if tag == 'label' and 'for' in attributes else set()
        )


def test_controls_and_legend_are_in_the_page(tmp_path):
    path = explore(GRAPH, data=Data(y=Y), path=tmp_path / 'graph.html')
    text = path.read_text(encoding='utf-8')
    elements = Elements(text)
    for name in ('keep', 'least', 'search'):
        assert elements.by_id[name]['tag'] == 'input'
        assert name in elements.labelled
    assert elements.by_id['dark']['tag'] == 'button'
    assert {'legend', 'edges', 'homophily', 'node'} <= {*elements.by_id}
    # Each element that the program looks for is there.
    assert {*re.findall(r"\belement\('([a-z-]+)'\)", text)} <= {*elements.by_id}
    # The style has a colour for a dark page wherever it has one.
    style = re.search(r'<style>(.*?)</style>', text, re.DOTALL)[1]
    light, dark = style.split(':root[data-theme', 1)
    assert not re.findall(r'#[0-9a-f]{3,8}\b(?=[;, )])', dark)
    assert {*re.findall(r'var\((--\w+)\)', dark)} <= {*re.findall(r'--\w+', light)}


def run_page(path, script):
    """Return what a script says of a page whose drawing is left out."""
    node = shutil.which('node')
    if node is None:
        pytest.skip('needs node')
    text = path.read_text(encoding='utf-8')
    scripts = re.findall(r'<script>(.*?)</script>', text, flags=re.DOTALL)
    view, panel, page = scripts[-3:]
    program = f"""
        const data = {json.dumps(content(path))};
        {view}
        {panel}
        {page[: page.index('window.explorer')]}
        const shown = (index, least, perNode) => Object.assign(
          Object.create(View.prototype), {{
            edges: data.graphs[index], page: {{ least, perNode }},
            ranks: ranks(data.graphs[index]) }});
        console.log(JSON.stringify({script}));
        """
    run = subprocess.run([node], input=program, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_homophily_is_that_of_the_edges_shown(tmp_path):
    generator = torch.Generator().manual_seed(0)
    source, target = torch.randint(30, (2, 200), generator=generator).unique(dim=1)
    graph = torch.stack([source, target]), torch.rand(len(source), generator=generator)
    y = torch.randint(3, (30,), generator=generator)
    value = torch.rand(30, generator=generator)
    path = explore(
        graph, data=Data(y=y), prediction=value, path=tmp_path / 'graph.html'
    )
    script = """[
        alike(shown(0, 0, Infinity), data.colours[0]),
        alike(shown(0, 0, Infinity), data.colours[1]),
        alike(shown(0, 2, Infinity), data.colours[0]),
        data.graphs[0].weight.map((_, e) => shown(0, 0, 2).keeps(e)),
        new Page(data).perNode ]"""
    classes, numbers, nothing, is_drawn, per_node = run_page(path, script)
    summary = describe_graph(graph, y)
    share, chance = summary.weighted_homophily, summary.chance
    assert classes.startswith(f'Homophily {share:.2f}: ')
    assert f' {100 * share:.0f}% joins nodes of equal target' in classes
    assert classes.endswith(f'{100 * chance:.0f}%.')
    apart = source != target
    ends = value[source[apart]], value[target[apart]]
    covariance = np.cov(*ends, aweights=graph[1][apart], ddof=0)
    correlation = covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1])
    assert numbers.startswith(f'Correlation {correlation:.2f}: of prediction')
    assert nothing == ''
    # The two heaviest edges into each node are drawn at first; no loop is.
    order = graph[1].argsort(descending=True, stable=True)
    source, target = source[order], target[order]
    for node in range(30):
        into = [
            k
            for k, s, t in zip(is_drawn, source, target, strict=True)
            if t == node != s
        ]
        assert into == [True] * min(2, len(into)) + [False] * (len(into) - 2)
    assert not any(np.array(is_drawn)[(source == target).numpy()])
    assert per_node == 2


def test_few_edges_are_all_drawn_and_dark_classes_lighter(tmp_path):
    path = explore(GRAPH, data=Data(y=Y), path=tmp_path / 'graph.html')
    script = """[ new Page(data).perNode === Infinity,
        data.palette.map((one) => classColour(one)),
        (theme = THEMES.dark, data.palette.map((one) => classColour(one))) ]"""
    everything, light, dark = run_page(path, script)
    assert everything
    assert light == content(path)['palette']
    assert len({*dark}) == len(light)

    def brightness(colour):
        rgb = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
        return np.dot(rgb, [0.21, 0.72, 0.07]) / 255

    assert min(map(brightness, dark)) > 0.3 > min(map(brightness, light))


def test_the_libraries_are_told_with_versions_and_licences():
    assets = resources.files('torch_geometric_gsl.visualization') / 'assets'
    text = (assets / 'vendor.LICENSES.txt').read_text(encoding='utf-8')
    recipe = re.findall(r'([a-z0-9-]+)@(\d+\.\d+\.\d+)', text)
    names = [f'{name} {version}' for name, version in recipe if name != 'esbuild']
    titles = re.findall(r'^(.+)\n=+$', text, flags=re.MULTILINE)
    assert sorted(titles) == sorted(names)
    assert text.count('Copyright') == text.count('Permission is hereby granted')
    assert text.count('Copyright') == len(titles)
    # Each library that is imported is told.
    entry = (assets / 'vendor.entry.js').read_text(encoding='utf-8')
    imported = {name.split('/')[0] for name in re.findall(r"from '([^']+)'", entry)}
    assert imported <= {name for name, _ in recipe}


def test_the_file_is_replaced_as_a_whole(tmp_path, monkeypatch):
    path = tmp_path / 'graph.html'
    path.write_text('old')

    def fail(*args):
        raise OSError('no space left')

    monkeypatch.setattr(_files.os, 'replace', fail)
    with pytest.raises(OSError, match='no space left'):
        explore(GRAPH, path=path)
    assert [file.name for file in tmp_path.iterdir()] == ['graph.html']
    assert path.read_text() == 'old'
    monkeypatch.undo()
    assert explore(GRAPH, path=str(path)) == path
    assert path.stat().st_size > 100_000


def test_half_precision_and_gradients(write):
    weight = GRAPH[1].half().requires_grad_()
    page = write((EDGES, weight), data=Data(x=torch.rand(4, 2).bfloat16()))
    assert page['graphs'][0]['weight'][0] == pytest.approx(0.4, rel=1e-3)


AB = {'class_names': ['a', 'b']}
COMPLEX = torch.ones(4, 1, dtype=torch.cfloat)
LARGE = torch.empty(1, 1, 1, dtype=torch.uint8).expand(4, 5000, 5000)


@pytest.mark.parametrize(
    ('kwargs', 'error', 'message'),
    [
        ({'graph': {}}, ValueError, r"'graph' must hold graphs .*\(got \[\]\)"),
        ({'graph': {1: GRAPH, '1': GRAPH}}, ValueError, "'graph' .* distinct names"),
        ({'graph': EDGES}, TypeError, "'graph' must be a SampledGraph"),
        ({'graph': (EDGES[:, :0], torch.ones(0))}, ValueError, 'must have nodes'),
        ({'data': {'y': Y}}, TypeError, "'data' must be a torch_geometric.data.Data"),
        ({'data': Data(y=Y[:3])}, ValueError, r"'data.y' must .*\(got 3 for 4 nodes\)"),
        ({'data': Data(y=torch.ones(4, 2))}, ValueError, r"'data.y' .* shape \[n\]"),
        ({'data': Data(x=torch.ones(4))}, ValueError, r"'data.x' .* shape \[n, d\]"),
        (
            {'data': Data(x=COMPLEX)},
            ValueError,
            r"'data.x' .*\(got \[4, 1\] of torch.c",
        ),
        (
            {'columns': {'a': [1.0]}},
            ValueError,
            r"'columns\['a'\]' .*got 1 for 4 nodes",
        ),
        (
            {'columns': {'a': [[1, 2]] * 4}},
            ValueError,
            r"'columns\['a'\]' .* shape \[n",
        ),
        ({'columns': {0: Y, '0': Y}}, ValueError, "distinct names .got '0' twice"),
        ({'columns': [1.0]}, TypeError, r"'columns' must be a mapping .*\(got list\)"),
        ({'data': Data(y=COMPLEX)}, ValueError, "'data.y' .* real numbers"),
        ({'data': Data(pos=torch.ones(4, 3))}, ValueError, "'data.pos' must be finite"),
        ({'prediction': 3}, TypeError, r"'prediction' must be a tensor.*\(got int\)"),
        ({'prediction': torch.ones(())}, ValueError, "'prediction' must have one row"),
        ({'prediction': [[1, 2]] * 4}, ValueError, r"'prediction' .* \[n\]"),
        ({'prediction': [[1], [2, 3]]}, ValueError, "'prediction' must have one value"),
        ({'prediction': [-2, 0, 1, 1]} | AB, ValueError, r'negative .*got -2\)'),
        ({'prediction': [0, 1, 2, 2]} | AB, ValueError, r'must name all 3 \(got 2\)'),
        ({'images': torch.ones(4, 2, 2, 4)}, ValueError, r"'images' must have shape"),
        ({'images': torch.full((4, 2, 2), torch.inf)}, ValueError, 'finite real'),
        ({'images': LARGE}, ValueError, r'into 8192 x 8192 .*\(got 4 of 5000 x 5000\)'),
        ({'names': ['a']}, ValueError, r"'names' must .*\(got 1 for 4 nodes\)"),
        ({'names': 'abcd'}, TypeError, "'names' must be a sequence"),
        ({'title': 3}, TypeError, "'title' must be a str"),
        ({'target_name': 3}, TypeError, "'target_name' must be a str"),
        ({'max_edges': 0}, ValueError, "'max_edges' must be"),
        ({'max_features': -1}, ValueError, "'max_features' must be"),
        ({'path': Path('no') / 'a.html'}, OSError, "'path' must be a file in a folder"),
        ({'path': Path()}, OSError, "'path' must be a file in a folder that exists"),
        ({'path': 3}, TypeError, 'PathLike'),
    ],
)
def test_bad_input(tmp_path, kwargs, error, message):
    path = tmp_path / 'graph.html'
    with pytest.raises(error, match=message):
        explore(**{'graph': GRAPH, 'path': path} | kwargs)
    assert not path.exists()


AT_CHANCE = (
    'The graph joins nodes of equal <i> as by chance (homophily 0.00, by chance 0.33): '
    'it may be untrained.'
)


def test_images_without_pillow(monkeypatch, write):
    monkeypatch.setitem(sys.modules, 'PIL', None)
    with pytest.raises(ImportError, match='pip install pillow'):
        write(images=torch.zeros(4, 1, 1, dtype=torch.uint8))


@pytest.mark.parametrize(
    ('y', 'text'),
    [
        (torch.tensor([0, 1, 0, 1]), [AT_CHANCE]),
        (torch.tensor([0, 1, -1, -1]), []),
        (torch.tensor([0, 0, 1, 1]), []),
        (torch.tensor([0.5, 1.0, 0.0, 2.0]), []),
        (['a', 'b', 'a', 'b'], []),
        (None, []),
    ],
)
def test_a_note_tells_a_graph_at_chance(y, text, tmp_path):
    data = Data(y=y, num_nodes=4)
    page = explore(GRAPH, data=data, path=tmp_path / 'graph.html', target_name='<i>')
    assert notes(page) == text
