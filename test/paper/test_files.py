import hashlib
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reproduction.files import (
    read_json,
    read_results,
    read_tensors,
    write_json,
    write_tensors,
    write_text,
)

CONTENT = {'a': 1.5, 'b': ['x', None, True], 'c': {'é': 'ü'}}
FORMATS = {
    'a.json': (write_json, read_json),
    'a.json.gz': (write_json, read_json),
    'a.pt': (write_tensors, read_tensors),
}


@pytest.mark.parametrize('name', FORMATS)
def test_round_trip(tmp_path, name):
    (write, read), path = FORMATS[name], tmp_path / 'new' / name
    assert read(path) is None
    write(path, CONTENT)
    assert read(path) == CONTENT
    before = path.read_bytes()
    write(path, CONTENT)
    assert path.read_bytes() == before
    if name == 'a.pt':
        tensor = torch.randn(3, 2)
        write(path, {'a': tensor})
        assert torch.equal(read(path)['a'], tensor)


@pytest.mark.parametrize('name', FORMATS)
@settings(max_examples=40)
@given(data=st.data())
def test_damage_is_found(tmp_path_factory, name, data):
    path = tmp_path_factory.mktemp('damage') / name
    (write, read), content = FORMATS[name], {'a': [1, 2, 3], 'b': 0.25}
    write(path, content)
    written = path.read_bytes()
    position = data.draw(st.integers(0, len(written) - 1))
    if data.draw(st.booleans()):
        path.write_bytes(written[:position])
    else:
        flip = data.draw(st.integers(1, 255))
        changed = bytes([written[position] ^ flip])
        path.write_bytes(written[:position] + changed + written[position + 1 :])
    # White space between items and the header of a compressed file are no content.
    assert read(path) in (None, content)
    if name == 'a.pt':
        assert read(path) is None


@pytest.mark.parametrize(
    'text',
    [
        '{"test": 0.5}',
        '[1, 2]',
        '{"test": 0.5, "sha256": "1"}',
        '{"a":' * 100_000 + '1' + '}' * 100_000,
        '[' * 100_000 + ']' * 100_000,
    ],
    ids=['no seal', 'list', 'seal', 'nested', 'nested list'],
)
@pytest.mark.parametrize('name', ['a.json', 'a.json.gz'])
def test_other_json_counts_as_damaged(tmp_path, text, name):
    path = tmp_path / name
    write_text(path, text)
    assert read_json(path) is None
    with pytest.raises(ValueError, match=r"a\.json(\.gz)?' is damaged or was edited"):
        read_results(path)


def test_tensors_are_read_without_executing(tmp_path, capsys):
    class Evil:
        def __reduce__(self):
            return (print, ('executed',))

    payload = pickle.dumps(Evil(), protocol=2)
    path = tmp_path / 'a.pt'
    path.write_bytes(hashlib.sha256(payload).digest() + payload)
    assert read_tensors(path) is None
    assert capsys.readouterr().out == ''
