"""Damaged files are refused, and too little memory is told as such."""

import io
import pickle
import warnings
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from torch_geometric_gsl import GSLNet
from torch_geometric_gsl._files import read_file, write_file
from torch_geometric_gsl.distributed import load_checkpoint, save_checkpoint
from torch_geometric_gsl.sklearn import GSLClassifier


class Trap:
    """An object whose pickle runs code when it is loaded."""

    def __reduce__(self):
        return exec, ('raise RuntimeError("executed")',)


def saved(value):
    """Return the bytes of a file of PyTorch."""
    stream = io.BytesIO()
    torch.save(value, stream)
    return stream.getvalue()


def spoiled(content):
    """Flip a bit in the middle, where the weights are."""
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def save_estimator(path):
    x, options = np.random.default_rng(0).normal(size=(30, 3)), {'random_state': 0}
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        model = GSLClassifier('none', n_members=1, max_iter=1, **options)
        model.fit(x, x[:, 0] > 0)
    model.save(path)


NET = torch.nn.Linear(30, 30)
KINDS = {
    'net': (GSLNet(64, 64, 2, 3).save, GSLNet.load),
    'estimator': (save_estimator, GSLClassifier.load),
    'checkpoint': (
        lambda path: save_checkpoint(path, NET),
        lambda path: load_checkpoint(path, NET),
    ),
}
DAMAGES = {
    'a lost byte': (lambda content: content[:-1], ''),
    'a lost half': (lambda content: content[: len(content) // 2], ''),
    'nothing': (lambda _: b'', ''),
    'a flipped bit': (spoiled, ''),
    'a text': (lambda _: b'a,b\n1,2\n', ': it is truncated, or of another program'),
    'a pickle': (lambda _: pickle.dumps(Trap()), ': it is truncated, or of another'),
    'a trap': (lambda _: saved({'class': Trap()}), ': it refers to'),
    'a list': (lambda _: saved([1]), r' \(got a list'),
    'a dict': (lambda _: saved({'weights': 1}), r" \(got \['weights'\]\)"),
}


@pytest.mark.parametrize('damage', DAMAGES)
@pytest.mark.parametrize('model', KINDS)
def test_damaged_files_are_refused(model, damage, tmp_path):
    (save, load), (change, text) = KINDS[model], DAMAGES[damage]
    path = tmp_path / 'a.pt'
    save(path)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(OSError, match=rf"a\.pt' is not a valid saved model{text}") as e:
        load(path)
    assert 'trust' not in str(e.value)  # PyTorch would have users load all of it.
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r'a\.pt'):
        load(path)


TEXT = "DefaultCPUAllocator: can't allocate memory: you tried to allocate {} bytes."


@pytest.mark.parametrize(
    ('error', 'kinds', 'text'),
    [
        (MemoryError('too little'), MemoryError, 'too little'),
        (RuntimeError(TEXT.format(40_000)), MemoryError, 'to allocate 40000 bytes'),
        # More than a file can hold: it is damaged.
        (
            RuntimeError(TEXT.format(2**50)),
            (OSError, ValueError),
            'a.pt. (must|is not)',
        ),
        (RuntimeError('to read 9 bytes'), OSError, 'a.pt. is not'),
    ],
)
def test_too_little_memory_is_no_damage(tmp_path, monkeypatch, error, kinds, text):
    path = tmp_path / 'a.pt'
    write_file(path, 'A', {}, {'x': torch.ones(10_000, 1)})
    monkeypatch.setattr(torch, 'load', Mock(side_effect=error))
    with pytest.raises(kinds, match=text):
        read_file(path, ['A'])


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
