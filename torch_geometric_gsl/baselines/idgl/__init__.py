r"""Iterative deep graph learning."""

from torch_geometric_gsl.baselines.idgl.idgl import IDGL
from torch_geometric_gsl.baselines.idgl.idgl_anchor import IDGLAnchor

__all__ = ['IDGL', 'IDGLAnchor']
