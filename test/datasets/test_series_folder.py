"""Folders of series of sensors, and of the graph that joins them."""

import re

import pytest

from torch_geometric_gsl.datasets import load_dataset

SERIES = 'a,b,c\n1,2,3\n4,5,6.5\n'
ADJACENCY = '1,0.5,0\n0,1,0\n0.25,0,1\n'
PLACES = 'index,sensor_id,latitude,longitude\n0,c,3,-3\n1,a,1,-1\n2,b,2,-2\n'
FILES = {'speed.csv': SERIES, 'x_adj.csv': ADJACENCY, 'x_locations.csv': PLACES}


@pytest.fixture
def folder(tmp_path):
    def write(**changes):
        files = FILES | {name.replace('__', '.'): t for name, t in changes.items()}
        for name, text in files.items():
            if text is not None:
                (tmp_path / name).write_text(text, encoding='utf-8')
        return tmp_path

    return write


def test_series_graph_and_places(folder):
    data = load_dataset(folder())
    assert data.x.tolist() == [[1, 4], [2, 5], [3, 6.5]]
    assert data.sensors == ['a', 'b', 'c']
    assert data.edge_index.tolist() == [[0, 2], [1, 0]]
    assert data.edge_weight.tolist() == [0.5, 0.25]
    assert data.pos.tolist() == [[1, -1], [2, -2], [3, -3]]


def test_series_alone(folder):
    data = load_dataset(str(folder(x_adj__csv=None, x_locations__csv=None)))
    assert set(data.keys()) == {'x', 'sensors'}


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        ({'speed__csv': None}, 'must have exactly one .csv file of series (got [])'),
        (
            {'more__csv': SERIES},
            "exactly one .csv file of series (got ['more.csv', 'speed.csv'])",
        ),
        ({'y_adj__csv': ADJACENCY}, "exactly one '*adj.csv'"),
        ({'speed__csv': 'a,a,c\n1,2,3\n'}, 'distinct sensor names'),
        ({'speed__csv': 'a,b,c\n'}, '(got 3 names and 0 steps)'),
        ({'speed__csv': 'a,b,c\n1,2\n'}, 'line 2 must have 3 fields, one per sensor'),
        ({'speed__csv': 'a,b,c\n1,2,3\n1,,3\n'}, 'line 3, field 2 must be a finite'),
        ({'speed__csv': 'a,b,c\n1,nan,3\n'}, "(got 'nan')"),
        ({'speed__csv': ''}, '(got 0 names and 0 steps)'),
        ({'speed__csv': 'a,b,c\n1,2,3\n\n4,5,6\n'}, 'line 3 must have 3 fields'),
        ({'speed__csv': 'a,b,c\n1,1e39,3\n'}, "(got '1e39')"),
        ({'x_locations__csv': PLACES + '3,a,1,1\n'}, 'line 5 must have one location'),
        ({'x_locations__csv': PLACES + '3,d\n'}, 'line 5 must have 4 fields'),
        ({'x_adj__csv': '1,0,0\n0,1,0\n'}, 'must have 3 lines, one per sensor'),
        ({'x_adj__csv': '1,0,0\n0,1,-1\n0,0,1\n'}, 'no negative weights (got -1.0)'),
        ({'x_locations__csv': 'sensor_id,latitude\na,1\n'}, "a column 'longitude'"),
        (
            {'x_locations__csv': 'sensor_id,latitude,longitude\na,1,1\nb,2,2\n'},
            "a line for each sensor (got none for 'c')",
        ),
        (
            {'x_locations__csv': PLACES.replace('2,-2', 'west,-2')},
            "(got 'b' at 'west', '-2')",
        ),
    ],
)
def test_bad_files(folder, changes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        load_dataset(folder(**changes))


def test_bytes_that_are_no_text(folder):
    path = folder()
    (path / 'speed.csv').write_bytes(b'\xff\xfe\x00')
    with pytest.raises(ValueError, match='must be text in UTF-8'):
        load_dataset(path)


def test_options_of_tables_are_refused(folder):
    with pytest.raises(ValueError, match="'label'"):
        load_dataset(folder(), label='a')


def test_traffic(gsl_data):
    data = load_dataset(gsl_data('traffic'))
    assert data.x.shape == (207, 2016)
    assert data.pos.shape == (207, 2)
    assert data.edge_index.shape == (2, 2626)
    assert bool(((data.x > 0) & (data.x <= 70)).all())
