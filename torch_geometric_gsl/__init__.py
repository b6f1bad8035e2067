r"""Graph structure learning for PyTorch Geometric."""

from torch_geometric_gsl import baselines, nn
from torch_geometric_gsl.baselines import *  # noqa: F403
from torch_geometric_gsl.nn import *  # noqa: F403
from torch_geometric_gsl.typing import SampledGraph

__version__ = '0.1.0'

__all__ = []
__all__ += nn.__all__
__all__ += baselines.__all__
__all__ += ['SampledGraph', '__version__']
