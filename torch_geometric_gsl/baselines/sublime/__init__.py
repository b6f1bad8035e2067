r"""SUBLIME, its contrast of two views and its anchor graph."""

from torch_geometric_gsl.baselines.sublime.sublime import SUBLIME

__all__ = ['SUBLIME']
