"""Figures and trained models, of runs on a small data set."""

import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch_geometric.data import Data

from reproduction import command, experiments, figures, settings
from reproduction.experiments import CONTROLS, Choice, Experiment, make_config
from reproduction.figures import FIGURES
from reproduction.run import execute
from reproduction.store import Store
from reproduction.trained import (
    REMOVED,
    absent_runs,
    after_removal,
    has_model,
    load_trained,
    train_again,
    without_nodes,
)
from torch_geometric_gsl.datasets import paper_split

#: The data sets of each figure.
ALL = Choice((), (), figures.SEEDS)
METHODS = ('neural_gau_sim', 'neural_gau_sim_t', 'idgl_anchor', *CONTROLS)
LOAD = command.load


@pytest.fixture(scope='module')
def points():
    """More nodes than a model has anchors."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(600) % 3
    return Data(x=torch.randn(600, 6, generator=generator) + y.unsqueeze(1), y=y)


@pytest.fixture(scope='module', autouse=True)
def short(points):
    """A few epochs of every run; one data set for every figure."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(settings.EVERYTHING, 'epochs', 4)
        patch.setattr(command, 'load', lambda dataset, label: points)
        for name in ('temperature', 'removal', 'parameters', 'graphs'):
            found = experiments.EXPERIMENTS[name]
            small = Experiment(('wine',), found.methods, found.variations)
            patch.setitem(experiments.EXPERIMENTS, name, small)
        yield


@pytest.fixture(scope='module')
def store(tmp_path_factory, points, short):
    store = Store(tmp_path_factory.mktemp('results'))
    configs = [make_config('wine', method, 0) for method in METHODS]
    # The controls have one more split than the models whose nodes are removed.
    configs += [make_config('wine', control, 1) for control in CONTROLS]
    # One more split of one temperature: the others do not have it.
    configs.append(make_config('wine', 'neural_gau_sim', 1))
    for config in configs:
        execute(config, lambda: points, store)
    for tau in (0.5, 1.0):
        config = make_config('wine', 'neural_gau_sim', 0, tau=tau)
        execute(config, lambda: points, store)
    return store


def lines(found):
    """The heights of the points of each line of the only panel."""
    (figure,) = found.values()
    (ax,) = figure.axes
    drawn = {bar.get_label(): bar.lines[0] for bar in ax.containers}
    drawn |= {line.get_label(): line for line in ax.lines if line.get_label()[0] != '_'}
    return {name: list(map(float, line.get_ydata())) for name, line in drawn.items()}


def accuracy(store, method, seed=0, **changes):
    record = store.record(make_config('wine', method, seed, **changes))
    return 100 * float(record['outcome']['test'])


def test_temperature(store):
    found = lines(FIGURES['temperature'](store, ALL))
    expected = [accuracy(store, 'neural_gau_sim', tau=tau) for tau in (0.25, 0.5, 1.0)]
    assert found['NeuralGauSim'] == pytest.approx(expected)
    # The controls on the same splits, though they have more.
    assert found['MLP'] == pytest.approx([accuracy(store, 'mlp')] * 2)


def test_removal(store):
    drawn = FIGURES['removal'](store, ALL)
    found = lines(drawn)
    titles = {'NeuralGauSim-T': 'neural_gau_sim_t', 'IDGL-Anchor': 'idgl_anchor'}
    for title, method in titles.items():
        assert len(found[title]) == len(REMOVED)
        # Nothing removed: the accuracy of the run.
        assert found[title][0] == pytest.approx(accuracy(store, method))
    assert found['MLP'] == pytest.approx([accuracy(store, 'mlp')] * 2)
    drawn['removal'].draw_without_rendering()
    (legend,) = drawn['removal'].legends
    box = legend.get_window_extent()
    assert 0 <= box.x0 < box.x1 <= drawn['removal'].bbox.width


@pytest.mark.filterwarnings(
    'ignore::torch_geometric_gsl.diagnostics.UniformSamplingWarning'
)
def test_parameters(store):
    figure = FIGURES['parameters'](store, ALL)['parameters']
    labels = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert labels == ['$b_1$', '$10\\,c_1$', '$b_2$', '$10\\,c_2$']


def test_files(store, tmp_path, call):
    words = ['graphs', '--results', store.root, '--out', tmp_path]
    call(figures.main, *words)
    names = ('graph_wine_layer1', 'graph_wine_layer2')
    written = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert written.keys() == {f'{n}.{kind}' for n in names for kind in ('png', 'svg')}
    for name in names:
        assert written[f'{name}.png'].startswith(b'\x89PNG')
        ElementTree.fromstring(written[f'{name}.svg'])
    # Drawn again, a file is the same.
    call(figures.main, *words)
    assert written == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


def test_without_runs(tmp_path, call):
    """Names the commands that make the runs, and draws what needs none."""
    words = ['--results', tmp_path / 'no such', '--out', tmp_path / 'drawn']
    told = call(figures.main, *words)
    assert 'want of finished runs' in told
    run, found = 'python paper/run.py', f"'{tmp_path / 'no such'}'"
    controls = f'{run} table1 --datasets wine --methods mlp knn_gcn_root'
    assert [line.rstrip() for line in told.splitlines() if run in line] == [
        f'  {run} temperature --datasets wine --results {found}',
        f'  {controls} --results {found}',
        f'  {run} removal --datasets wine --seeds 1 --results {found}',
        f'  {controls} --seeds 1 --results {found}',
        f'  {run} parameters --datasets wine --seeds 1 --results {found}',
        f'  {run} graphs --datasets wine --seeds 1 --results {found}',
    ]
    names = {path.stem for path in (tmp_path / 'drawn').iterdir()}
    assert names == {'curves', 'curves_heat'}


def test_files_of_the_user(points, tmp_path, monkeypatch, call):
    """`--datasets` draws what has been run, and tells what has not."""
    root, out, files = tmp_path / 'results', tmp_path / 'drawn', []
    for folder, factor in (('a', 1), ('b', 2)):
        files.append(tmp_path / folder / 'mine.csv')
        write_csv(points, factor, files[-1])
    words = ['--datasets', *map(str, files), '--label', 'species', '--out', str(out)]
    words += ['--results', str(root), '--preset', 'quick']
    monkeypatch.setitem(settings.QUICK, 'epochs', 2)
    monkeypatch.setattr(command, 'load', LOAD)
    words = ['removal', 'graphs', *words]
    store = Store(root)
    run_all(files[0], store)
    told = call(figures.main, *words)
    data = f'--datasets {files[1]}'
    end = f'--seeds 1 --label species --preset quick --results {root}'
    run = 'python paper/run.py'
    assert [line.rstrip() for line in told.splitlines() if run in line] == [
        f'  {run} removal {data} {end}',
        f'  {run} table1 {data} --methods mlp knn_gcn_root {end}',
        f'  {run} graphs {data} {end}',
    ]
    names = {'removal', 'graph_mine.csv_layer1', 'graph_mine.csv_layer2'}
    assert {path.stem for path in out.iterdir()} == names
    run_all(files[1], store)
    assert 'want of' not in call(figures.main, *words)
    # Files that share their name are told apart.
    added = {path.stem for path in out.iterdir()} - names
    assert sorted(name.split('_')[-3:] for name in added) == [
        [folder, 'mine.csv', f'layer{number}'] for folder in 'ab' for number in (1, 2)
    ]


def test_names_that_a_file_cannot_have(points, tmp_path, monkeypatch):
    store, files = Store(tmp_path / 'results'), []
    monkeypatch.setitem(settings.QUICK, 'epochs', 2)
    monkeypatch.setattr(command, 'load', LOAD)
    for name, factor in (('a b', 1), ('a_b', 2)):
        files.append(tmp_path / name / f'{name}.csv')
        write_csv(points, factor, files[-1])
        run_all(files[-1], store, 'neural_gau_sim')
    choice = Choice(tuple(map(str, files)), (), (0,), 'quick', 'species', store.root)
    first, second, *others = FIGURES['graphs'](store, choice)
    assert (first, second) == ('graph_a_b.csv_layer1', 'graph_a_b.csv_layer2')
    assert len(others) == 2
    # A name beside the files has no label.
    named = choice._replace(datasets=('wine',))
    (line,) = absent_runs('graphs', store, named)
    assert '--label' not in line


def write_csv(points, factor, path):
    lines = ['u,v,w,x,y,z,species']
    for row, label in zip((factor * points.x).tolist(), points.y.tolist(), strict=True):
        lines.append(','.join(str(entry) for entry in (*row, f'kind {label}')))
    path.parent.mkdir()
    path.write_text('\n'.join(lines), encoding='utf-8')


def run_all(file, store, *methods):
    data = command.load(str(file), 'species')
    for method in methods or METHODS:
        config = make_config(str(file), method, 0, 'quick', 'species')
        execute(config, lambda: data, store)


@pytest.mark.parametrize(
    ('words', 'text'),
    [
        (['--results', 'file'], '--results must be a folder (got '),
        (['--out', 'file'], '--out must be a folder (got '),
        # The documentation's are those of all data sets.
        (['--datasets', 'CS'], 'name a folder, --out'),
        (['--results', 'other'], 'name a folder, --out'),
        (['--preset', 'quick'], 'name a folder, --out'),
    ],
)
def test_folders(words, text, tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    Path('file').touch()
    others = ['--out', 'drawn'] if words == ['--results', 'file'] else []
    assert text in call(figures.main, 'curves', *words, *others)


def test_a_model_that_is_not_there_is_trained_again(store, points, tmp_path, capsys):
    """As in a clone, which has the archive alone."""
    config = make_config('wine', 'neural_gau_sim', 0)
    store.collect([config])
    archive = tmp_path / store.archive(config).name
    shutil.copy(store.root / archive.name, archive)
    before = archive.read_bytes()
    clone = Store(tmp_path)
    record = clone.record(config)
    assert record is not None

    state = load_trained(clone, config, points).state_dict()
    assert 'trained again' in capsys.readouterr().err
    for name, value in load_trained(store, config, points).state_dict().items():
        assert torch.equal(state[name], value)
    load_trained(clone, config, points)
    assert 'trained again' not in capsys.readouterr().err
    # It is no new result.
    assert clone.record(config) == Store(tmp_path).record(config) == record
    assert archive.read_bytes() == before
    assert not (clone.folder(config) / 'result.json').exists()
    with clone.claim(config), pytest.raises(SystemExit, match='another process'):
        train_again(Store(tmp_path), config, points)


def test_models_that_differ_or_are_not_there_are_told(store, points, tmp_path):
    """Another machine may round differently, or have too little memory."""
    other, config = Store(tmp_path), make_config('wine', 'gau_sim', 0)
    other.finish(config, {'status': 'done', 'test': 0.125}, {'starts': [{}]})
    with pytest.warns(UserWarning, match=r'trained again.* its result says 12\.50 %'):
        load_trained(other, config, points)
    config = make_config('wine', 'neural_gau_sim', 0)
    assert has_model(store, config)
    assert not has_model(other, config)
    outcome = {'status': 'oom', 'detail': 'OOM at 24 GB'}
    other.finish(config, outcome, {'starts': [{}]})
    assert not has_model(other, config)
    assert FIGURES['parameters'](other, ALL) == {}
    assert absent_runs('parameters', other, ALL) == [f'{config}: OOM at 24 GB']


class Searches(TorchFunctionMode):
    """Counts how often the nearest of all nodes are looked for."""

    count = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        is_search = getattr(func, '__name__', '') == 'topk'
        # The first rows tell whether single precision serves.
        self.count += is_search and tuple(args[0].shape) == (600, 600)
        return func(*args, **(kwargs or {}))


def test_neighbours_are_searched_once(store, points):
    config, data = make_config('wine', 'idgl_anchor', 0), paper_split(points, seed=0)
    with Searches() as searches:
        cells = after_removal(store, config, data)
    assert list(cells) == list(REMOVED)
    assert searches.count == 1


@pytest.mark.parametrize(
    ('method', 'option'),
    [('neural_gau_sim_t', 'num_transition_nodes'), ('idgl_anchor', 'num_anchors')],
)
def test_nodes_are_removed(store, points, method, option):
    data = paper_split(points, seed=0)
    few = make_config('wine', method, 0, **{option: 200})
    execute(few, lambda: points, store)
    assert list(after_removal(store, few, data)) == [0, 100]

    config, outputs = make_config('wine', method, 0), []
    for count, seed in ((0, 0), (400, 0), (400, 0), (400, 1)):
        trained = load_trained(store, config, data)
        model = without_nodes(trained, config, data, count, seed).eval()
        with torch.no_grad():
            outputs.append(model(data.x))
    whole, first, again, other = outputs
    with torch.no_grad():
        assert torch.equal(whole, load_trained(store, config, data).eval()(data.x))
    assert torch.equal(first, again)
    assert not torch.equal(first, whole)
    assert not torch.equal(first, other)
