"""Too little memory is told as such: it is no damage of a file."""

from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from torch_geometric_gsl._files import read_file, write_file

DATA = Data(x=torch.ones(10_000, 1), y=torch.arange(10_000) % 2)
TEXT = "DefaultCPUAllocator: can't allocate memory: you tried to allocate {} bytes."
FILES = {
    'table.pt': (
        lambda path: write_file(path, 'A', {}, DATA.to_dict()),
        lambda path: read_file(path, ['A']),
    ),
}


@pytest.mark.parametrize('name', FILES)
@pytest.mark.parametrize(
    ('error', 'kinds', 'text'),
    [
        (MemoryError('too little'), MemoryError, 'too little'),
        (RuntimeError(TEXT.format(40_000)), MemoryError, 'to allocate 40000 bytes'),
        # More than a file can hold: it is damaged.
        (RuntimeError(TEXT.format(2**50)), (OSError, ValueError), '{}. (must|is not)'),
        (RuntimeError('to read 9 bytes'), (OSError, ValueError), '{}. (must|is not)'),
    ],
)
def test_too_little_memory_is_no_damage(
    tmp_path, monkeypatch, name, error, kinds, text
):
    write, read = FILES[name]
    write(tmp_path / name)
    monkeypatch.setattr(torch, 'load', Mock(side_effect=error))
    with pytest.raises(kinds, match=text.format(name)):
        read(tmp_path / name)


def test_what_cannot_be_read_again_is_not_written(tmp_path):
    path = tmp_path / 'a.pt'
    write_file(path, 'A', {'a': np.float64(1)}, {})
    with pytest.raises(ValueError, match=r"a.pt' is unchanged: .* pathlib"):
        write_file(path, 'A', {'a': path}, {})
    assert read_file(path, ['A'])['options'] == {'a': 1.0}
    assert [item.name for item in tmp_path.iterdir()] == ['a.pt']


def test_the_text_of_torch():
    """What torch says today is what is looked for."""
    with pytest.raises(RuntimeError, match=rf'tried to allocate {2**52} bytes'):
        torch.UntypedStorage(2**52)
