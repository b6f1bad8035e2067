r"""Graph structure learning for PyTorch Geometric."""

from torch_geometric_gsl import datasets as datasets
from torch_geometric_gsl import diagnostics as diagnostics
from torch_geometric_gsl import distributed as distributed
from torch_geometric_gsl import nn as nn
from torch_geometric_gsl import ops as ops
from torch_geometric_gsl import transforms as transforms
from torch_geometric_gsl import visualization as visualization
from torch_geometric_gsl.nn import *  # noqa: F403
from torch_geometric_gsl.typing import SampledGraph

__version__ = '0.3.0'

# Not the packages: one of them has the name of `torch.nn`.
__all__ = []
__all__ += nn.__all__
__all__ += ['SampledGraph', '__version__']
