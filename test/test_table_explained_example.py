"""The example of explained predictions: made houses, and a file of the user's own."""

import functools
import importlib.util
import sys
from pathlib import Path

import pytest

for library in ('matplotlib', 'pandas', 'sklearn', 'rtdl_num_embeddings'):
    pytest.importorskip(library)
SCRIPT = Path(__file__).parents[1] / 'examples' / 'table_explained.py'
pytestmark = pytest.mark.filterwarnings('ignore:.* still improved after')


@pytest.fixture
def script(monkeypatch):
    spec = importlib.util.spec_from_file_location('table_explained', SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    few = functools.partial(module.GSLRegressor, max_iter=2)
    monkeypatch.setattr(module, 'GSLRegressor', few)
    return module


def run(script, monkeypatch, *args):
    monkeypatch.setattr(sys, 'argv', ['table_explained', *map(str, args)])
    script.main()


def test_made_houses(script, monkeypatch, tmp_path, capsys):
    picture = tmp_path / 'map.png'
    run(script, monkeypatch, '--rows', 60, '--out', picture)
    assert picture.stat().st_size > 1_000
    printed = capsys.readouterr().out
    assert 'learned graph: R2' in printed
    assert printed.count('\nprediction ') == 3


def test_a_file(script, monkeypatch, tmp_path, capsys):
    path, picture = tmp_path / 'rents.csv', tmp_path / 'map.png'
    names = {'east': 'lon', 'north': 'lat', 'price': 'rent', 'kind': 'type'}
    script.make_houses(60).rename(columns=names).to_csv(path, index=False)
    args = ['--csv', path, '--target', 'rent', '--map', 'lon', 'lat']
    run(script, monkeypatch, *args, '--out', picture)
    assert picture.stat().st_size > 1_000
    assert 'type' in capsys.readouterr().out


def test_made_houses_have_gaps_and_a_field(script):
    table = script.make_houses(400)
    assert list(table) == ['east', 'north', 'area', 'year', 'kind', 'price']
    share = table.isna().mean()
    assert share[['east', 'north', 'area', 'price']].eq(0).all()
    assert share[['year', 'kind']].between(0.04, 0.18).all()
    assert table.equals(script.make_houses(400))


def test_columns_that_lack_are_named_before_the_fit(script, monkeypatch, capsys):
    with pytest.raises(SystemExit):
        run(script, monkeypatch, '--rows', 60, '--map', 'east', 'height')
    assert "the table has no columns ['height']" in capsys.readouterr().err
