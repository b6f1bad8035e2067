r"""Graph structure learning for PyTorch Geometric."""

from importlib import import_module
from typing import Any

from torch_geometric_gsl import baselines, nn
from torch_geometric_gsl.baselines import *  # noqa: F403
from torch_geometric_gsl.nn import *  # noqa: F403
from torch_geometric_gsl.typing import SampledGraph

__version__ = '0.1.0'

__all__ = []
__all__ += nn.__all__
__all__ += baselines.__all__
__all__ += ['SampledGraph', '__version__']

# Imported when they are asked for: they need more time, or more libraries.
_LAZY = ('datasets', 'diagnostics', 'transforms', 'visualization')


def __getattr__(name: str) -> Any:
    """Import a subpackage that is used as an attribute."""
    if name not in _LAZY:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return import_module(f'{__name__}.{name}')


def __dir__() -> list[str]:
    """List the public names, and the subpackages that are not imported yet."""
    return sorted({*globals(), *_LAZY})
