"""Compare sums of a race with those of the definition, for the same scores on a subset.

The mean of a weighted sum over neighbours is the same for both. The check sums their
similarity to the target, which detects a wrong sharpness. One number per draw gives a
two-sample z-score; a correct method exceeds the bound in about one of ten thousand
rows.
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
# Of a mean of float32 similarities in [-1, 1].
ROUNDING = 1e-5


@torch.no_grad()
def check(x: Tensor, similarity: Similarity, scale: float, seed: int) -> dict[str, Any]:
    """Return the z-score of a race against the definition, and whether it is small."""
    generator = torch.Generator().manual_seed(seed)
    nodes = torch.randperm(x.size(0), generator=generator)[:SOURCES]
    pair = x[nodes], x[nodes[:TARGETS]]
    h = similarity(pair).t().contiguous()
    found = []
    for method in ('dense', 'race'):
        sampler = GumbelKNNSampler.paper(similarity, K, TAU, scale, method=method)
        sums = [sampler.propagate(pair, h, generator=generator) for _ in range(DRAWS)]
        # For each target, only the sum of similarities to this target.
        own = torch.stack(sums).double().diagonal(dim1=1, dim2=2)
        found.append(own.mean(dim=1, keepdim=True))
    first, second = found
    # If every node draws only itself, nothing varies but the rounding.
    is_equal = float((first.mean() - second.mean()).abs()) < ROUNDING
    z = 0.0 if is_equal else compare(first, second).largest
    # NaN never agrees.
    return {'z': z, 'agrees': z <= STANDARD_ERRORS}
