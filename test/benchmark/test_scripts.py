"""Scripts time what agrees with a definition, and fail where something does not."""

import importlib.util
import json
import math
import re
from pathlib import Path
from types import SimpleNamespace

import agreement
import clouds
import epochs
import estimate
import heaviest
import kernel
import measure
import numpy as np
import pytest
import sharp
import torch
from workloads import load_embeddings, parse_embeddings

from torch_geometric_gsl.ops.pair_scores import PairScores

# A command of `paper` has the same name.
PATH = Path(__file__).resolve().parents[2] / 'benchmark' / 'tables.py'
spec = importlib.util.spec_from_file_location('benchmark_tables', PATH)
tables = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tables)


@pytest.fixture
def at_once(monkeypatch):
    """Scripts measure in this process, and not their memory, which would change it."""

    def use(module, change=lambda row: None):
        def ask(function, request):
            rows = function(request)
            change(rows[0] if isinstance(rows, list) else rows)
            return rows, 0

        monkeypatch.setattr(module, 'ask', ask)
        monkeypatch.setattr(module, 'peak_memory', lambda *a, **k: 1.0, raising=False)

    return use


def other_error(row):
    row['actual_error'] *= 9


CASES = {
    'estimate': (
        estimate,
        '--sizes 1500 --samples 1024 --repeats 1',
        other_error,
        'not of the size of the announced one',
    ),
}


@pytest.mark.parametrize('agrees', [True, False])
@pytest.mark.parametrize('name', CASES)
def test_an_error_beyond_its_bound_fails(name, agrees, at_once, tmp_path, capsys):
    module, words, change, text = CASES[name]
    at_once(module, *(() if agrees else (change,)))
    args = [*words.split(), '--out', str(tmp_path / 'out.json')]
    if agrees:
        module.main(args)
    else:
        with pytest.raises(SystemExit, match=text):
            module.main(args)
    # What was measured is kept and shown in any case.
    rows = json.loads((tmp_path / 'out.json').read_text())['rows']
    assert sum(map(module.agrees, rows)) == len(rows) - (not agrees)
    printed = [x for x in capsys.readouterr().out.splitlines() if x.startswith('| ')]
    assert len(printed) >= 1 + len(rows)


def test_sharp_agreement_sees_a_mistake(monkeypatch):
    x, similarity = (
        load_embeddings('clustered-1000', seed=0)[0],
        sharp.make_similarity('bell', 32),
    )
    assert agreement.check_race(x, similarity, 10.0, seed=0)['agrees']
    rows = PairScores.rows
    monkeypatch.setattr(PairScores, 'rows', lambda *args: 0.9 * rows(*args))
    assert not agreement.check_race(x, similarity, 10.0, seed=0)['agrees']


@pytest.mark.parametrize('agrees', [pytest.param(True, marks=pytest.mark.slow), False])
def test_sharp_times_what_agrees(agrees, at_once, monkeypatch, tmp_path, capsys):
    if not agrees:
        monkeypatch.setattr(agreement, 'STANDARD_ERRORS', -1.0)
    at_once(sharp)
    path = tmp_path / 'sharp.json'
    args = ['--repeats', '1', '--out', str(path), '--similarities', 'bell']
    args += ['--workloads', 'noise-1000', '--scales', '1']
    if agrees:
        sharp.main(args)
    else:
        with pytest.raises(SystemExit, match='1'):
            sharp.main(args)
    (row,) = json.loads(path.read_text())['rows']
    assert row['agrees'] is agrees
    assert ('methods' in row) is agrees
    assert ('DISAGREES' in capsys.readouterr().out) is not agrees


@pytest.mark.parametrize(('limit', 'rounds'), [(0.0, 3), (8.0, 4), (1e9, 7)])
def test_the_limit_leaves_three_rounds(limit, rounds, monkeypatch):
    now = [0.0]

    def wait():
        now[0] += 1.0

    def read():
        return now[0]

    clock = SimpleNamespace(perf_counter=read, process_time=read)
    monkeypatch.setattr(measure, 'time', clock)
    # Two seconds a round, the one that is not counted included.
    times = measure.interleave({'a': wait, 'b': wait}, 7, limit)
    assert times == {'a': [1.0] * rounds, 'b': [1.0] * rounds}


@pytest.mark.parametrize('agrees', [True, False])
def test_heaviest(agrees, monkeypatch, tmp_path, capsys):
    if not agrees:
        monkeypatch.setattr(heaviest, 'best_sources', lambda pairs, k: wrong(pairs, k))

    def wrong(pairs, k):
        return pairs._replace(dst=pairs.dst + 0.1).best(k)[1]

    path = tmp_path / 'heaviest.json'
    few = '--rows 1000 --k 5 --steps 1 --targets 100 --repeats 1'
    status = heaviest.main([*few.split(), '--out', str(path)])
    assert status == int(not agrees)
    rows = json.loads(path.read_text())['rows']
    assert {row['workload'] for row in rows} == {'table', 'clustered'}
    ours = [row for row in rows if row['method'] == 'best_sources']
    assert [row['agrees'] for row in ours] == [agrees, agrees]
    assert {row['ratio'] for row in ours} == {1.0}
    assert all(row['extrapolated'] for row in rows if row['method'] == 'blocks')
    assert ('disagrees' in capsys.readouterr().out) is not agrees


@pytest.mark.filterwarnings('ignore:little signal was found')
@pytest.mark.parametrize('method', tables.METHODS)
def test_tables(method, at_once, monkeypatch, tmp_path, capsys):
    pytest.importorskip('sklearn')
    pytest.importorskip('rtdl_num_embeddings')
    monkeypatch.setattr(tables, 'NUM_TEST', 20)
    at_once(tables)
    path = tmp_path / 'tables.json'
    few = ['--rows', '60', '--repeats', '1', '--epochs', '2']
    tables.main([*few, '--methods', method, '--out', str(path)])
    (row,) = json.loads(path.read_text())['rows']
    assert (row['epochs'] == 2) is (method == 'learned graph')
    assert row['num_rows'] == 60
    assert 0 < row['rmse'] < 10
    assert math.isfinite(row['fit_seconds'])
    assert f'| 60 | {row["method"]} |' in capsys.readouterr().out


def test_clouds(monkeypatch, tmp_path, capsys):
    path, few = tmp_path / 'clouds.json', ['--clouds', '20', '--sizes', '60']
    assert clouds.main([*few, '--repeats', '1', '--out', str(path)]) == 0
    rows = json.loads(path.read_text())['rows']
    assert rows[0]['method'] == 'knn_graph'
    assert all(row['points'] == 60 and row['differ'] == 0 for row in rows)
    printed = capsys.readouterr().out
    assert 'knn_graph: 0 of 20 clouds differ' in printed
    assert 'radius_graph: 0 of 20 clouds differ' in printed

    def graph(x, **kwargs):
        return x.new_zeros(2, 1)

    monkeypatch.setattr(clouds, 'knn_graph', graph)
    assert clouds.count_errors(5) == {'knn_graph': 5, 'radius_graph': 0}
    monkeypatch.setattr(clouds, 'radius_graph', graph)
    assert clouds.count_errors(5) == {'knn_graph': 5, 'radius_graph': 5}


@pytest.mark.parametrize('name', [*clouds.OPERATORS])
def test_clouds_are_those_of_pyg(name):
    if not clouds.has_pyg_operators():
        pytest.skip('PyG finds near points with pyg-lib, or below 2.8 torch-cluster')
    random = np.random.default_rng(0)
    drawn = [clouds.draw_cloud(random, can_tie=False) for _ in range(50)]
    assert all(clouds.OPERATORS[name](k % 9 + 1, **x) for k, x in enumerate(drawn))


def test_clouds_beside_torch_cluster():
    pytest.importorskip('torch_cluster', reason='torch-cluster is not installed')
    x = torch.rand(300, 3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(clouds.METHODS['torch_cluster'](x, 1), clouds._ours(x, 1))


def test_epochs(capsys):
    epochs.main(['--nodes', '1000', '--epochs', '2'])
    (printed,) = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r'1,000 nodes: [\d.e-]+ s an epoch, [\d.]+ s for 2', printed)


def test_kernel(tmp_path, capsys):
    out = tmp_path / 'kernel.json'
    names = 'noise-1000/cosine/1', 'clustered-1000@0.1/bell/5'
    kernel.main(['--rows', *names, '--repeats', '1', '--out', str(out)])
    rows = json.loads(out.read_text())['rows']
    assert [row['differ'] for row in rows] == [0.0, 0.0]
    assert all(row['ratio'] > 0 for row in rows)
    assert 'noise-1000/cosine/1' in capsys.readouterr().out


@pytest.mark.parametrize(
    ('module', 'option', 'name', 'text'),
    [
        (kernel, '--rows', '2000', 'a row must be WORKLOAD/SIMILARITY/SCALE'),
        (kernel, '--rows', 'noise-1000/bell/x', 'a row must be WORKLOAD/SIMILARITY'),
        (kernel, '--rows', 'noise-10/bell/1', "'workloads' must be among"),
        (sharp, '--workloads', '2000', "'workloads' must be among"),
        (heaviest, '--rows', '999', 'must be at least 1000 (got 999)'),
        (clouds, '--sizes', '20', 'must be at least 21 (got 20)'),
    ],
)
def test_arguments_are_read_before_any_measurement(module, option, name, text, capsys):
    with pytest.raises(SystemExit, match='2'):
        module.main([option, name])
    assert f'argument {option}: {text}' in capsys.readouterr().err


def test_noise_of_clusters():
    assert parse_embeddings('clustered-1000') == ('clustered', 1000, 0.5)
