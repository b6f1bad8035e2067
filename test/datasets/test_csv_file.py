import math

import pytest
import torch

from torch_geometric_gsl.datasets import load_dataset

CSV = 'width,species,length\n1,b,0.5\n2, a,-3\n4,b,1e2\n4,b,1e2\n'


def write(folder, text, name='my.csv'):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_csv(tmp_path):
    path = write(tmp_path, CSV)
    data = load_dataset(path, label='species', standardize=False)
    assert data.x.tolist() == [[1, 0.5], [2, -3], [4, 100], [4, 100]]
    assert data.y.tolist() == [1, 0, 1, 1]
    assert data.class_names == ['a', 'b']
    assert (data.x.dtype, data.y.dtype) == (torch.float32, torch.int64)
    assert data.validate()
    # Nothing is written beside the file, and the file stays as it is.
    assert [item.name for item in tmp_path.iterdir()] == ['my.csv']
    assert path.read_bytes() == CSV.encode()


def test_csv_is_standardized_by_default(tmp_path):
    rows = [[5.0, 1.0, 1e6], [5, 2, 1e6 + 1], [5, 6, 1e6 + 5]]
    lines = [f'{i % 2},{",".join(map(str, row))}' for i, row in enumerate(rows)]
    path = write(tmp_path, '\n'.join(['y,a,b,c', *lines]))
    # The first column is constant, the third a shifted second: 1, 2 and 6.
    scaled = [(value - 3) / math.sqrt(14 / 3) for value in (1, 2, 6)]
    expected = torch.tensor([[0.0, value, value] for value in scaled])
    torch.testing.assert_close(load_dataset(str(path), label='y').x, expected)


@pytest.mark.parametrize(
    'text',
    [
        '\ufeffy,a\n0,1\n1,2\n',  # As a spreadsheet program writes it.
        'a,y\r\n1,0\r\n2,1\r\n',
        '"a","y"\n"1","0"\n"2","1"\n',
        'a,y\n\n1,0\n\n2,1\n\n',
        ' a , y \n 1 , 0 \n 2 , 1',
    ],
)
def test_dialects(tmp_path, text):
    data = load_dataset(write(tmp_path, text, 'my.CSV'), label='y', standardize=False)
    assert data.x.tolist() == [[1], [2]]
    assert data.y.tolist() == [0, 1]


@pytest.mark.parametrize(
    ('text', 'label', 'message'),
    [
        ('', 'y', r"my.csv' must begin with the names of its columns"),
        ('a,y\n', 'y', r"my.csv' must have rows below its header \(got none\)"),
        ('a,y\n1,0', 'z', r"'label' must name .*, one of \['a', 'y'\] \(got 'z'\)"),
        ('a,y\n1,0', None, r"'label' must name .*, one of \['a', 'y'\] \(got None\)"),
        ('a;y\n1;0', 'y', r"one of \['a;y'\] \(got 'y'\)"),
        ('y\n1\n0', 'y', r"must have features beside the column 'y'"),
        (',a,y\n0,1,0', 'y', r'column 1 has no name'),
        ('a,b,a,y', 'y', r"must give each column its own name \(got \['a'\]\)"),
        ('a,y\n1,0\n2', 'y', r'line 3 must have 2 fields, .* \(got 1\)'),
        ('a,y\n1,0\n2,1,1', 'y', r'line 3 must have 2 fields, .* \(got 3\)'),
        ('a,y\n1,0\n\n,1', 'y', r"line 4: 'a' must not be missing \(got ''\)"),
        ('a,y\nNaN,0', 'y', r"line 2: 'a' must not be missing \(got 'NaN'\)"),
        ('a,y\n1, ?', 'y', r"line 2: 'y' must not be missing \(got ' \?'\)"),
        ('b,a,y\n1,red,0', 'y', r"line 2: 'a' must be a finite .* \(got 'red'\); enco"),
        ('a,y\n1_000,0', 'y', r"line 2: 'a' must be a finite .* \(got '1_000'\)"),
        ('a,y\ninf,0', 'y', r"line 2: 'a' must be a finite number \(got 'inf'\)"),
        ('a,y\n1,0\n2,0', 'y', r"column 'y' of .* at least two classes \(got \{0\}\)"),
        ('a,y\n1,u\n2,u', 'y', r"at least two classes \(got \{'u'\}\)"),
        ('a,y\n1,0\n2,1.5', 'y', r'classes, not measured numbers \(got 1.5\)'),
        ('a,y\n1e39,0\n2,1', 'y', r'must have finite features \(got 1 that are not'),
        ('a,y\n1,NA\n2,0\n1,1', 'y', r"line 2: 'y' must not be missing \(got 'NA'\)"),
        (b'a,y\n1,\xff', 'y', r"my.csv' must be text in UTF-8 \(.*0xff.*; line 2\)"),
        ('a,y\n1,"5" pipe"\n2,v\n', 'y', r"my.csv', after line 1: "),
        ('a,y\n1,"u\nw"\n2,v\n3,"5" pipe"\n', 'y', r"my.csv', after line 4: "),
        ('a,y\n1,u\n2,' + 'v' * 200_000 + '\n', 'y', r"my.csv', after line 2: field"),
        ('b,y,a\n1,"u\nw",x\n', 'y', r"line 3: 'a' must be a finite"),
        ('a,y,b\nx,"u\nw",1\n', 'y', r"line 2: 'a' must be a finite"),
        ('a,y,b\n1,"u\nw"\n', 'y', r'line 2 must have 3 fields'),
        ('a,y\n1,0\n"2,1', 'y', r"my.csv', after line 2: unexpected end of data"),
    ],
)
def test_damaged_csv(tmp_path, text, label, message):
    path = write(tmp_path, text)
    with pytest.raises(ValueError, match=message) as caught:
        load_dataset(path, label=label, standardize=False)
    assert str(path) in str(caught.value)
