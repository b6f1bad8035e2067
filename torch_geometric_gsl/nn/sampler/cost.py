"""Linear model of the processor time of a draw, in proposals of a race."""

from __future__ import annotations

import time
from functools import cache

import torch

#: A bound of a cluster, and a comparison of a search.
BOUND, SEARCH = 0.06, 0.18
#: The rate of a candidate, an arrival that is drawn from all rates, a source of a tail
#: that is proposed by bounds, and the edge of any source of a tail.
RATE, ARRIVAL, TAIL, EDGE = 0.07, 2.2, 4.0, 3.0
#: Cost of a proposal without a kernel (custom formula or half precision).
SLOW = 5.0
#: Rows of this many channels double the time of a proposal.
WIDTH = 192
# The time of a proposal over that of a logarithm, and the size of the measurement: one
# thread, however many PyTorch has.
_LOGARITHMS, _SIZE, _REPEATS = 33, 2**14, 50


@cache
def proposal_seconds() -> float:
    """Measure the time of a proposal, using logarithms as a stand-in."""
    x = torch.linspace(0.1, 1, _SIZE)
    taken = []
    for _ in range(_REPEATS):
        begin = time.perf_counter()
        x.log()
        taken.append(time.perf_counter() - begin)
    return _LOGARITHMS * min(taken) / _SIZE
