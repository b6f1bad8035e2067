"""What a similarity compares: inner products or squared distances of embeddings."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from torch_geometric_gsl.ops import scores
from torch_geometric_gsl.ops.chunking import MEMORY_BUDGET, row_blocks

# Bytes of gathered embeddings from which pairs are scored by blocks (256 MiB).
_GATHER_LIMIT = 8 * MEMORY_BUDGET


def compare_all(comparison: str, src: Tensor, dst: Tensor) -> Tensor:
    """Compares all targets with all sources."""
    if comparison == 'dot':
        return scores.dot_matrix(dst, src)
    return scores.squared_distance_matrix(dst, src)


def compare_pairs(
    comparison: str, src: Tensor, dst: Tensor, source: Tensor, target: Tensor
) -> Tensor:
    """Compares listed pairs; the two indices broadcast against each other."""
    compare = scores.dot if comparison == 'dot' else scores.squared_distance

    def gathered(source: Tensor, target: Tensor) -> Tensor:
        return compare(dst[target], src[source])

    source, target = torch.broadcast_tensors(source, target)
    bytes_per_pair = 4 * src.size(1) * src.element_size()
    few = source.numel() * bytes_per_pair <= _GATHER_LIMIT
    if few or torch.compiler.is_compiling():
        return gathered(source, target)
    # Raw features are wide and pairs many: gather them by blocks, in the backward pass
    # once more.
    flat = source.flatten(), target.flatten()
    parts = [
        checkpoint(
            gathered,
            flat[0][block],
            flat[1][block],
            use_reentrant=False,
            preserve_rng_state=False,
        )
        for block in row_blocks(source.numel(), bytes_per_pair)
    ]
    return torch.cat(parts).view(source.shape)
