import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

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


class _Meter(TorchDispatchMode):
    """Notes the size of the largest tensor that any operation returns."""

    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for result in out if isinstance(out, tuple | list) else [out]:
            # The size of a sparse matrix counts places that hold nothing.
            if isinstance(result, Tensor) and result.layout == torch.strided:
                self.largest = max(self.largest, result.numel())
        return out


@pytest.fixture(scope='session')
def meter():
    """A context that measures the tensors made inside it."""
    return _Meter
