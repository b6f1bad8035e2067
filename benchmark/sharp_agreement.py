"""Compare sums of a race and of the definition, of the same scores on a subset.

The mean of a weighted sum over neighbours is the same for both. The comparison takes
the two-sample z-score of one number a draw: a correct method exceeds the bound about
once in ten thousand rows.
"""

from __future__ import annotations

from typing import Any

import torch
from agreement import STANDARD_ERRORS
from laws import compare
from models import TAU, K
from torch import Tensor

from torch_geometric_gsl import GumbelKNNSampler, Similarity

SOURCES, TARGETS, DRAWS = 500, 16, 50


@torch.no_grad()
def check(x: Tensor, similarity: Similarity, scale: float, seed: int) -> dict[str, Any]:
    """Return the z-score of a race against the definition, and whether it is small."""
    generator = torch.Generator().manual_seed(seed)
    nodes = torch.randperm(x.size(0), generator=generator)[:SOURCES]
    h = torch.randn(nodes.numel(), 1, generator=generator)
    pair = x[nodes], x[nodes[:TARGETS]]
    found = []
    for method in ('dense', 'race'):
        sampler = GumbelKNNSampler(similarity, K, TAU, scale, method=method)
        sums = [
            sampler.propagate(pair, h, generator=generator).sum() for _ in range(DRAWS)
        ]
        found.append(torch.stack(sums).double().unsqueeze(1))
    z = compare(*found).largest
    # Scores that are NaN agree with nothing.
    return {'z': z, 'agrees': z <= STANDARD_ERRORS}
