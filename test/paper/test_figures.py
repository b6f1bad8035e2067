"""Figures and trained models, of runs on a small data set."""

from __future__ import annotations

import shutil
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import command
import experiments
import figures
import pytest
import settings
import torch
from absent import absent_runs
from execute import execute
from experiments import Choice, Experiment
from figures import FIGURES, Figures
from files import write_json
from settings import make_config
from store import Store
from torch_geometric.data import Data
from trained import has_model, load_trained, train_again, without_nodes

from torch_geometric_gsl.datasets import paper_split
from torch_geometric_gsl.nn.models import _neighbours
from torch_geometric_gsl.nn.nearest_neighbours import nearest_neighbours
from torch_geometric_gsl.typing import SampledGraph

#: The data sets of each figure.
ALL = Choice((), (), figures.SEEDS)
METHODS = ('neural_gau_sim', 'neural_gau_sim_t', 'idgl_anchor', *figures.CONTROLS)


@pytest.fixture(scope='module')
def points() -> Data:
    """More nodes than a model has anchors."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(600) % 3
    return Data(x=torch.randn(600, 6, generator=generator) + y.unsqueeze(1), y=y)


@pytest.fixture(scope='module', autouse=True)
def short(points: Data) -> object:
    """A few epochs of every run; one data set for every figure."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(settings.EVERYTHING, 'epochs', 4)
        patch.setattr(figures, 'load', lambda dataset, label: points)
        for name in ('temperature', 'removal', 'parameters', 'graphs'):
            found = experiments.EXPERIMENTS[name]
            small = Experiment(('wine',), found.methods, found.variations)
            patch.setitem(experiments.EXPERIMENTS, name, small)
        yield


@pytest.fixture(scope='module')
def store(tmp_path_factory: pytest.TempPathFactory, points: Data, short: None) -> Store:
    store = Store(tmp_path_factory.mktemp('results'))
    configs = [make_config('wine', method, 0) for method in METHODS]
    # The controls have one more split than the models whose nodes are removed.
    configs += [make_config('wine', control, 1) for control in figures.CONTROLS]
    # One more split of one temperature: the others do not have it.
    configs.append(make_config('wine', 'neural_gau_sim', 1))
    for config in configs:
        execute(config, lambda: points, store, lambda metrics: None)
    for tau in (0.5, 1.0):
        config = make_config('wine', 'neural_gau_sim', 0, tau=tau)
        execute(config, lambda: points, store, lambda metrics: None)
    return store


def lines(found: Figures) -> dict[str, list[float]]:
    """The heights of the points of each line of the only panel."""
    (figure,) = found.values()
    (ax,) = figure.axes
    errors = {bar.get_label(): bar.lines[0] for bar in ax.containers}
    controls = {
        line.get_label(): line for line in ax.lines if line.get_label()[0] != '_'
    }
    return {
        name: [float(y) for y in line.get_ydata()]
        for name, line in (errors | controls).items()
    }


def accuracy(store: Store, method: str, seed: int = 0, **changes: float) -> float:
    record = store.record(make_config('wine', method, seed, **changes))
    assert record is not None
    return 100 * float(record['outcome']['test'])


def test_temperature(store: Store) -> None:
    found = lines(FIGURES['temperature'](store, ALL))
    expected = [accuracy(store, 'neural_gau_sim', tau=tau) for tau in (0.25, 0.5, 1.0)]
    assert found['NeuralGauSim'] == pytest.approx(expected)
    # The controls on the same splits, though they have more.
    assert found['MLP'] == pytest.approx([accuracy(store, 'mlp')] * 2)


def test_legend_lies_in_the_figure(store: Store) -> None:
    figure = FIGURES['removal'](store, ALL)['removal']
    figure.draw_without_rendering()
    (legend,) = figure.legends
    box = legend.get_window_extent()
    assert 0 <= box.x0 < box.x1 <= figure.bbox.width


def test_removal(store: Store) -> None:
    found = lines(FIGURES['removal'](store, ALL))
    for title, method in (
        ('NeuralGauSim-T', 'neural_gau_sim_t'),
        ('IDGL-Anchor', 'idgl_anchor'),
    ):
        assert len(found[title]) == len(figures.REMOVED)
        # Nothing removed: the accuracy of the run.
        assert found[title][0] == pytest.approx(accuracy(store, method))
    assert found['MLP'] == pytest.approx([accuracy(store, 'mlp')] * 2)


@pytest.mark.filterwarnings(
    'ignore::torch_geometric_gsl.diagnostics.UniformSamplingWarning'
)
def test_parameters(store: Store) -> None:
    figure = FIGURES['parameters'](store, ALL)['parameters']
    labels = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert labels == ['$b_1$', '$10\\,c_1$', '$b_2$', '$10\\,c_2$']


def test_files(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ['graphs', '--results', str(store.root), '--out', str(tmp_path)]
    monkeypatch.setattr(sys, 'argv', ['figures.py', *words])
    figures.main()
    names = ('graph_wine_layer1', 'graph_wine_layer2')
    written = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert written.keys() == {f'{n}.{kind}' for n in names for kind in ('png', 'svg')}
    for name in names:
        assert written[f'{name}.png'].startswith(b'\x89PNG')
        ElementTree.fromstring(written[f'{name}.svg'])
    # Drawn again, a file is the same.
    figures.main()
    assert written == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


def test_without_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names the commands that make the runs, and draws what needs none."""
    words = ['--results', str(tmp_path / 'no such'), '--out', str(tmp_path / 'drawn')]
    monkeypatch.setattr(sys, 'argv', ['figures.py', *words])
    with pytest.raises(SystemExit, match='want of finished runs') as raised:
        figures.main()
    run, found = 'python examples/paper/run.py', f"'{tmp_path / 'no such'}'"
    controls = f'{run} table1 --datasets wine --methods mlp knn_gcn_root'
    assert str(raised.value).splitlines()[1:] == [
        f'  {run} temperature --datasets wine --results {found}',
        f'  {controls} --results {found}',
        f'  {run} removal --datasets wine --seeds 1 --results {found}',
        f'  {controls} --seeds 1 --results {found}',
        f'  {run} parameters --datasets wine --seeds 1 --results {found}',
        f'  {run} graphs --datasets wine --seeds 1 --results {found}',
    ]
    names = {path.stem for path in (tmp_path / 'drawn').iterdir()}
    assert names == {'curves', 'curves_heat'}


def test_files_of_the_user(
    points: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--datasets` draws what has been run, and tells what has not."""
    root, out, files = tmp_path / 'results', tmp_path / 'drawn', []
    for folder, factor in (('a', 1), ('b', 2)):
        files.append(tmp_path / folder / 'mine.csv')
        write_csv(points, factor, files[-1])
    words = ['--datasets', *map(str, files), '--label', 'species', '--out', str(out)]
    words += ['--results', str(root), '--preset', 'quick']
    monkeypatch.setitem(settings.QUICK, 'epochs', 2)
    monkeypatch.setattr(figures, 'load', command.load)
    monkeypatch.setattr(sys, 'argv', ['figures.py', 'removal', 'graphs', *words])
    store = Store(root)
    run_all(files[0], store)
    with pytest.raises(SystemExit) as raised:
        figures.main()
    data = f'--datasets {files[1]}'
    end = f'--seeds 1 --label species --preset quick --results {root}'
    assert str(raised.value).splitlines()[1:] == [
        f'  python examples/paper/run.py removal {data} {end}',
        f'  python examples/paper/run.py table1 {data} '
        f'--methods mlp knn_gcn_root {end}',
        f'  python examples/paper/run.py graphs {data} {end}',
    ]
    names = {'removal', 'graph_mine.csv_layer1', 'graph_mine.csv_layer2'}
    assert {path.stem for path in out.iterdir()} == names
    run_all(files[1], store)
    figures.main()
    # Files that share their name are told apart.
    added = {path.stem for path in out.iterdir()} - names
    assert sorted(name.split('_')[-3:] for name in added) == [
        [folder, 'mine.csv', f'layer{number}'] for folder in 'ab' for number in (1, 2)
    ]


def test_commands_of_names_have_no_label(tmp_path: Path) -> None:
    # Of a file beside them, whose graphs are there.
    choice = ALL._replace(datasets=('wine',), label='species', results=tmp_path)
    (line,) = absent_runs('graphs', Store(tmp_path), choice)
    assert '--label' not in line


def test_names_that_a_file_cannot_have(
    points: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, files = Store(tmp_path / 'results'), []
    monkeypatch.setitem(settings.QUICK, 'epochs', 2)
    monkeypatch.setattr(figures, 'load', command.load)
    for name, factor in (('a b', 1), ('a_b', 2)):
        files.append(tmp_path / name / f'{name}.csv')
        write_csv(points, factor, files[-1])
        run_all(files[-1], store, 'neural_gau_sim')
    choice = Choice(tuple(map(str, files)), (), (0,), 'quick', 'species', store.root)
    first, second, *others = FIGURES['graphs'](store, choice)
    assert (first, second) == ('graph_a_b.csv_layer1', 'graph_a_b.csv_layer2')
    assert len(others) == 2


def write_csv(points: Data, factor: int, path: Path) -> None:
    lines = ['u,v,w,x,y,z,species']
    for row, label in zip((factor * points.x).tolist(), points.y.tolist(), strict=True):
        lines.append(','.join(str(entry) for entry in (*row, f'kind {label}')))
    path.parent.mkdir()
    path.write_text('\n'.join(lines), encoding='utf-8')


def run_all(file: Path, store: Store, *methods: str) -> None:
    data = command.load(str(file), 'species')
    for method in methods or METHODS:
        config = make_config(str(file), method, 0, 'quick', 'species')
        execute(config, lambda: data, store, lambda metrics: None)


@pytest.mark.parametrize('option', ['--results', '--out'])
def test_folders_are_no_files(
    option: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / 'file').touch()
    words = ['--out', str(tmp_path), option, str(tmp_path / 'file')]
    monkeypatch.setattr(sys, 'argv', ['figures.py', 'curves', *words])
    with pytest.raises(SystemExit):
        figures.main()
    assert f'{option} must be a folder (got ' in capsys.readouterr().err


@pytest.mark.parametrize(
    'words', [['--datasets', 'CS'], ['--results', 'other'], ['--preset', 'quick']]
)
def test_others_do_not_replace_those_of_the_documentation(
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, 'argv', ['figures.py', 'curves', *words])
    with pytest.raises(SystemExit):
        figures.main()
    assert 'name a folder, --out' in capsys.readouterr().err


def test_a_model_that_is_not_there_is_trained_again(
    store: Store, points: Data, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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


def test_a_model_that_differs_from_its_result_is_told(
    store: Store, points: Data, tmp_path: Path
) -> None:
    """Another machine may round differently."""
    config = make_config('wine', 'gau_sim', 0)
    other = Store(tmp_path)
    write_json(other.folder(config) / 'about.json', {'starts': [{}]})
    content = {'config': config.to_dict(), 'status': 'done', 'test': 0.125}
    write_json(other.folder(config) / 'result.json', content)
    with pytest.warns(UserWarning, match=r'trained again.* its result says 12\.50 %'):
        load_trained(other, config, points)


def test_a_run_without_a_model_is_told_and_not_shown(
    store: Store, tmp_path: Path
) -> None:
    config = make_config('wine', 'neural_gau_sim', 0)
    other = Store(tmp_path)
    assert not has_model(other, config)
    write_json(other.folder(config) / 'about.json', {'starts': [{}]})
    outcome = {'status': 'oom', 'detail': 'OOM at 24 GB'}
    content = {'config': config.to_dict(), **outcome}
    write_json(other.folder(config) / 'result.json', content)
    assert not has_model(other, config)
    assert has_model(store, config)
    assert FIGURES['parameters'](other, ALL) == {}
    assert absent_runs('parameters', other, ALL) == [f'{config}: OOM at 24 GB']


def test_neighbours_are_searched_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def search(*args: Any, **kwargs: Any) -> SampledGraph:
        calls.append(args)
        return nearest_neighbours(*args, **kwargs)

    monkeypatch.setattr(_neighbours, 'nearest_neighbours', search)
    cells = figures.after_removal(store, make_config('wine', 'idgl_anchor', 0))
    assert list(cells) == list(figures.REMOVED)
    assert len(calls) == 1


@pytest.mark.parametrize(
    ('method', 'option'),
    [('neural_gau_sim_t', 'num_transition_nodes'), ('idgl_anchor', 'num_anchors')],
)
def test_no_more_nodes_are_removed_than_there_are(
    store: Store, points: Data, method: str, option: str
) -> None:
    config = make_config('wine', method, 0, **{option: 200})
    execute(config, lambda: points, store, lambda metrics: None)
    assert list(figures.after_removal(store, config)) == [0, 100]


def test_anchors_of_the_model_are_kept(store: Store, points: Data) -> None:
    config = make_config('wine', 'idgl_anchor', 0)
    data = paper_split(points, seed=0)

    def anchors(count: int, seed: int) -> set[int]:
        model = without_nodes(trained, config, data, count, seed).eval()
        with torch.no_grad():
            return set(model.graphs(data.x)[0].edge_index[0].tolist())

    trained = load_trained(store, config, data)
    whole = anchors(0, 0)
    assert len(whole) == 500
    found = [anchors(100, seed) for seed in range(figures.REMOVALS)]
    assert all(len(kept) == 400 and kept < whole for kept in found)
    assert found[0] != found[1]


@pytest.mark.parametrize('method', ['neural_gau_sim_t', 'idgl_anchor'])
def test_nodes_are_removed(store: Store, points: Data, method: str) -> None:
    config = make_config('wine', method, 0)
    data = paper_split(points, seed=0)
    outputs = []
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
