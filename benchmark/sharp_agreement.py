"""Compare sums of a race and of the definition, of the same scores on a subset.

The mean of a weighted sum over neighbours is the same for both: here of their
similarity to the target, which sees a wrong sharpness. One number a draw gives a
two-sample z-score, which a correct method takes beyond the bound in about one of ten
thousand rows.
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
# Of a mean of similarities, which lie in [-1, 1], in float32.
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
        sampler = GumbelKNNSampler(similarity, K, TAU, scale, method=method)
        sums = [sampler.propagate(pair, h, generator=generator) for _ in range(DRAWS)]
        # Each target's neighbours by their similarity to it alone.
        own = torch.stack(sums).double().diagonal(dim1=1, dim2=2)
        found.append(own.mean(dim=1, keepdim=True))
    first, second = found
    # Where every node draws itself alone nothing varies but the rounding.
    is_equal = float((first.mean() - second.mean()).abs()) < ROUNDING
    z = 0.0 if is_equal else compare(first, second).largest
    # Scores that are NaN agree with nothing.
    return {'z': z, 'agrees': z <= STANDARD_ERRORS}
