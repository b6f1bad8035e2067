"""What a similarity compares: inner products or squared distances of embeddings."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from torch_geometric_gsl.ops import scores
from torch_geometric_gsl.ops.edge_distances import pair_distances
from torch_geometric_gsl.ops.pairs import Neighbours, pair_dots

COMPARISONS = ('dot', 'squared_distance')


def compare_all(comparison: str, src: Tensor, dst: Tensor) -> Tensor:
    """Compares all targets with all sources."""
    if comparison == 'dot':
        return scores.dot_matrix(dst, src)
    return scores.squared_distance_matrix(dst, src)


def comparison_of(comparison: str) -> Callable[[Tensor, Tensor, Neighbours], Tensor]:
    """What compares targets with the sources that they list."""
    return pair_dots if comparison == 'dot' else pair_distances
