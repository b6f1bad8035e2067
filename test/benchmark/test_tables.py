import importlib.util
import json
import math
from pathlib import Path

import numpy as np
import pytest

# A command of `paper` has the same name.
PATH = Path(__file__).resolve().parents[2] / 'benchmark' / 'tables.py'
spec = importlib.util.spec_from_file_location('benchmark_tables', PATH)
tables = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tables)
REQUEST = {'num_rows': 60, 'seed': 0, 'repeats': 1, 'threads': 1, 'epochs': 2}


@pytest.fixture(autouse=True)
def _few_rows(monkeypatch):
    monkeypatch.setattr(tables, 'NUM_TEST', 20)


def test_the_law(monkeypatch):
    monkeypatch.setattr(tables, 'NUM_WAVES', 1)
    monkeypatch.setattr(tables, 'NOISE', 0.0)
    x, y = tables.make_table(50, 0)
    law = np.random.default_rng(0)
    east, north = law.normal(0, 20, (2, 1))[:, 0]
    phase = law.uniform(0, 2 * math.pi)
    for row, target in zip(x.tolist(), y.tolist(), strict=True):
        a, b, x1, x2, x3, x4, _, _ = row
        field = math.sqrt(2) * math.cos(a * east + b * north + phase)
        other = math.tanh(2 * x1) + x2 * x3 / 2 + (0.5 if x4 > 0 else 0)
        assert target == pytest.approx(field + other)


@pytest.mark.parametrize('method', tables.METHODS)
def test_measure(method):
    pytest.importorskip('sklearn')
    pytest.importorskip('rtdl_num_embeddings')
    row = tables.measure(REQUEST | {'method': method})
    assert row['num_rows'] == 60
    assert (row['epochs'] == 2) is (method == tables.METHODS[0])
    assert len(row['predict_seconds']) == len(row['one_row_seconds']) == 1
    assert 0 < row['rmse'] < 10
    assert row['megabytes'] > 50
    json.dumps(row)


def test_the_table(tmp_path, monkeypatch, capsys):
    row = {
        'num_rows': 1000,
        'method': 'LightGBM',
        'epochs': None,
        'epoch_seconds': None,
        'fit_seconds': 2.5,
        'predict_seconds': [0.5, 0.25, 4.0],
        'one_row_seconds': [0.001],
        'megabytes': 1234.0,
        'rmse': 0.5,
    }
    ours = row | {'method': 'learned graph', 'epochs': 2, 'epoch_seconds': 1.25}
    assert tables.markdown([row, ours]).splitlines()[2:] == [
        '| 1,000 | LightGBM | - | - | 2.5 | 0.5 | 1 | 1,234 | 0.500 |',
        '| 1,000 | learned graph | 2 | 1.25 | 2.5 | 0.5 | 1 | 1,234 | 0.500 |',
    ]
    monkeypatch.setattr(tables, 'ask', lambda function, request: (row, 0))
    path = tmp_path / 'tables.json'
    tables.main(['--rows', '1000', '--out', str(path)])
    written = json.loads(path.read_text())
    assert written['rows'] == [row, row]
    assert 'git_commit' in written
    assert '| 1,000 | LightGBM |' in capsys.readouterr().out
