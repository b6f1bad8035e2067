"""Too little memory is told as such: it is no damage of a file."""

import pickle

import pytest
import torch
from torch_geometric.data import Data

from torch_geometric_gsl.datasets import load_dataset
from torch_geometric_gsl.datasets._feature_table import FeatureTable
from torch_geometric_gsl.datasets._io.safe_pickle import load_arrays

VALUES = torch.ones(10_000)
TEXT = "DefaultCPUAllocator: can't allocate memory: you tried to allocate {} bytes."


def write_pickle(path):
    path.write_bytes(pickle.dumps({'x': VALUES}))


def write_data(path):
    torch.save(Data(x=VALUES.view(-1, 1), y=torch.arange(10_000) % 2), path)


FILES = {
    'my.pkl': (write_pickle, lambda path: load_arrays(path, ['x'])),
    'my.sealed': (
        lambda path: FeatureTable.save([Data(x=VALUES)], str(path)),
        lambda path: FeatureTable.load(FeatureTable.__new__(FeatureTable), str(path)),
    ),
    'my.pt': (write_data, load_dataset),
}


def fail_with(monkeypatch, error):
    def load(*args, **kwargs):
        raise error

    monkeypatch.setattr(torch, 'load', load)


@pytest.mark.parametrize('name', FILES)
@pytest.mark.parametrize(
    ('error', 'kinds', 'text'),
    [
        (MemoryError('too little'), MemoryError, 'too little'),
        (RuntimeError(TEXT.format(40_000)), MemoryError, 'to allocate 40000 bytes'),
        # More than a file can hold: it is damaged.
        (RuntimeError(TEXT.format(2**50)), (OSError, ValueError), '{}. (must|is)'),
        (RuntimeError('to read 9 bytes'), (OSError, ValueError), '{}. (must|is)'),
    ],
)
def test_too_little_memory_is_no_damage(
    tmp_path, monkeypatch, name, error, kinds, text
):
    write, read = FILES[name]
    write(tmp_path / name)
    fail_with(monkeypatch, error)
    with pytest.raises(kinds, match=text.format(name)):
        read(tmp_path / name)


def test_what_cannot_be_read_back_for_lack_of_memory(tmp_path, monkeypatch):
    for error in (MemoryError(), RuntimeError(TEXT.format(40_000))):
        fail_with(monkeypatch, error)
        with pytest.raises(MemoryError):
            FeatureTable.save([Data(x=VALUES)], str(tmp_path / 'my.sealed'))
    assert not list(tmp_path.iterdir())


def test_the_text_of_torch():
    """What torch says today is what is looked for."""
    with pytest.raises(RuntimeError, match=rf'tried to allocate {2**52} bytes'):
        torch.UntypedStorage(2**52)
