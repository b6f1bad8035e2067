r"""NodeFormer and its attention."""

from torch_geometric_gsl.baselines.nodeformer.nodeformer import NodeFormer

__all__ = ['NodeFormer']
