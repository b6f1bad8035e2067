r"""Graph structure learning for PyTorch Geometric."""

from torch_geometric_gsl import baselines as baselines
from torch_geometric_gsl import datasets as datasets
from torch_geometric_gsl import diagnostics as diagnostics
from torch_geometric_gsl import distributed as distributed
from torch_geometric_gsl import nn as nn
from torch_geometric_gsl import ops as ops
from torch_geometric_gsl import transforms as transforms
from torch_geometric_gsl import visualization as visualization
from torch_geometric_gsl.baselines import *  # noqa: F403
from torch_geometric_gsl.nn import *  # noqa: F403
from torch_geometric_gsl.typing import SampledGraph

__version__ = '0.2.0'

# Not the packages: one of them has the name of `torch.nn`.
__all__ = []
__all__ += nn.__all__
__all__ += baselines.__all__
__all__ += ['SampledGraph', '__version__']

_MOVED = ('KNNLINKX', 'SLAPS', 'SUBLIME', 'HESGSL', 'IDGL', 'IDGLAnchor', 'NodeFormer')


def __getattr__(name: str) -> object:
    """Raise an error with the new place of a name that moved."""
    if name in _MOVED:
        raise ImportError(
            f'since 0.2 {name!r} is in a separate distribution: '
            f"'pip install ./paper', 'from reproduction.baselines import {name}'"
        )
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
