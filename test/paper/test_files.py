from __future__ import annotations

from pathlib import Path

import pytest
import torch
from files import (
    read_json,
    read_tensors,
    write_json,
    write_tensors,
    write_text,
)
from hypothesis import given
from hypothesis import strategies as st

CONTENT = {'a': 1.5, 'b': ['x', None, True], 'c': {'é': 'ü'}}


def test_json(tmp_path: Path) -> None:
    path = tmp_path / 'new' / 'a.json'
    write_json(path, CONTENT)
    assert read_json(path) == CONTENT


def test_tensors(tmp_path: Path) -> None:
    content = {'a': torch.randn(3, 2), 'b': {'c': [1, 2.5, 'd']}}
    write_tensors(tmp_path / 'a.pt', content)
    found = read_tensors(tmp_path / 'a.pt')
    assert found is not None
    assert torch.equal(found['a'], content['a'])
    assert found['b'] == content['b']


def test_absent(tmp_path: Path) -> None:
    assert read_json(tmp_path / 'a.json') is None
    assert read_tensors(tmp_path / 'a.pt') is None


@pytest.mark.parametrize('kind', ['json', 'tensors'])
@given(data=st.data())
def test_damage_is_found(
    tmp_path_factory: pytest.TempPathFactory, kind: str, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp('damage') / 'file'
    write, read = {
        'json': (write_json, read_json),
        'tensors': (write_tensors, read_tensors),
    }[kind]
    write(path, {'a': [1, 2, 3], 'b': 0.25})
    whole = path.read_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        path.write_bytes(whole[:place])
    else:
        other = data.draw(st.integers(1, 255))
        changed = bytes([whole[place] ^ other])
        path.write_bytes(whole[:place] + changed + whole[place + 1 :])
    # White space between the items of JSON is no content.
    assert read(path) in (None, {'a': [1, 2, 3], 'b': 0.25})
    if kind == 'tensors':
        assert read(path) is None


def test_changed_json_is_found(tmp_path: Path) -> None:
    path = tmp_path / 'a.json'
    write_json(path, {'test': 0.5})
    path.write_text(path.read_text().replace('0.5', '0.9'))
    assert read_json(path) is None


def test_json_without_seal_or_of_other_kind(tmp_path: Path) -> None:
    path = tmp_path / 'a.json'
    path.write_text('{"test": 0.5}')
    assert read_json(path) is None
    path.write_text('[1, 2]')
    assert read_json(path) is None


def test_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / 'a'
    write_text(path, 'old')

    def fail(descriptor: int) -> None:
        raise OSError('disk full')

    monkeypatch.setattr('os.fsync', fail)
    with pytest.raises(OSError, match='disk full'):
        write_text(path, 'new')
    assert path.read_bytes() == b'old'
    assert list(tmp_path.iterdir()) == [path]


def test_tensors_are_read_without_executing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import hashlib
    import pickle

    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (print, ('executed',))

    payload = pickle.dumps(Evil(), protocol=2)
    path = tmp_path / 'a.pt'
    path.write_bytes(hashlib.sha256(payload).digest() + payload)
    assert read_tensors(path) is None
    assert capsys.readouterr().out == ''
