"""Figures and trained models, of runs on a small data set."""

import shutil
import xml.etree.ElementTree as ElementTree

import pytest
import torch
from torch_geometric.data import Data

from reproduction import command, experiments, figures, settings
from reproduction.experiments import CONTROLS, Choice, Experiment, make_config
from reproduction.figures import FIGURES
from reproduction.run import execute
from reproduction.store import Store
from reproduction.trained import (
    REMOVED,
    after_removal,
    load_trained,
    train_again,
    without_nodes,
)
from torch_geometric_gsl.datasets import paper_split

pytestmark = pytest.mark.slow

#: The data sets of each figure.
ALL = Choice((), (), figures.SEEDS)
METHODS = ('neural_gau_sim', 'neural_gau_sim_t', 'idgl_anchor', *CONTROLS)


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


def test_files(store, tmp_path, call):
    words = ['graphs', '--results', store.root, '--out', tmp_path]
    call(figures.main, *words)
    names = ('graph_wine_layer1', 'graph_wine_layer2')
    written = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert written.keys() == {f'{n}.{kind}' for n in names for kind in ('png', 'svg')}
    for name in names:
        assert written[f'{name}.png'].startswith(b'\x89PNG')
        ElementTree.fromstring(written[f'{name}.svg'])


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
