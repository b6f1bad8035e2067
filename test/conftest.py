import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

# For plain calls of pytest: the Makefile sets it, too.
os.environ.setdefault('MPLBACKEND', 'Agg')

_SHARED = Path(__file__).parents[2] / 'shared' / 'data'

# The same examples in every run: a failure that one sees is one that all see.
settings.register_profile(
    'repeatable', deadline=None, derandomize=True, max_examples=50
)
settings.load_profile('repeatable')


@pytest.fixture(scope='session', autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(12345)


@pytest.fixture(scope='session')
def gsl_data():
    """Finds real data under $GSL_DATA or beside the repository."""
    folder = Path(os.environ.get('GSL_DATA', _SHARED))

    def find(name):
        if not (folder / name).exists():
            pytest.skip(f"'{folder / name}' is absent: set GSL_DATA to the data folder")
        return folder / name

    return find


@pytest.fixture
def spy(monkeypatch):
    """Lists note(out, *args) of each call from now on: spy(owner, name, note)."""

    def watch(owner, name, note=lambda out, *args: args):
        notes, plain = [], getattr(owner, name)

        def watched(*args, **kwargs):
            out = plain(*args, **kwargs)
            notes.append(note(out, *args))
            return out

        monkeypatch.setattr(owner, name, watched)
        return notes

    return watch


class _Meter(TorchDispatchMode):
    """Notes all operations, what they return, and the size of their largest tensor."""

    def __init__(self):
        super().__init__()
        self.largest, self.names, self.shapes = 0, set(), set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.names.add(str(func))
        for result in out if isinstance(out, tuple | list) else [out]:
            if not isinstance(result, Tensor):
                continue
            self.shapes.add(tuple(result.shape))
            # The size of a sparse matrix counts places that hold nothing.
            if result.layout == torch.strided:
                self.largest = max(self.largest, result.numel())
        return out


@pytest.fixture(scope='session')
def meter():
    """A context that measures the tensors made inside it."""
    return _Meter
