"""Linear model of the processor time of a draw, in proposals of a race."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache

import torch
from torch.nn import functional as F

#: A bound of a cluster, and a comparison of a search.
BOUND, SEARCH = 0.06, 0.18
#: The rate of a candidate, an arrival that is drawn from all rates, a source of a tail
#: that is proposed by bounds, and the edge of any source of a tail.
RATE, ARRIVAL, TAIL, EDGE = 0.07, 2.2, 4.0, 3.0
#: Cost of a proposal without a kernel (custom formula or half precision).
SLOW = 5.0
#: Rows of this many channels double the time of a proposal.
WIDTH = 192
# A proposal takes the time of this many logarithms and sums of a random row, fitted on
# a processor of fast arithmetic (Intel Xeon) and one of fast memory (AMD EPYC).
_LOGARITHMS, _ROWS = 20, 5
_SIZE, _REPEATS = 2**14, 50


@cache
def proposal_seconds() -> float:
    """Measure the processor time of a proposal that compares few channels."""
    x, table = torch.linspace(0.1, 1, _SIZE), torch.ones(100_000, 32)
    generator = torch.Generator().manual_seed(0)
    row = torch.randint(len(table), (_SIZE // 16, 16), generator=generator)
    logarithm = _least_seconds(x.log)
    summed = _least_seconds(lambda: F.embedding_bag(row, table, mode='sum'))
    return (_LOGARITHMS * logarithm + _ROWS * summed) / _SIZE


def _least_seconds(run: Callable[[], object]) -> float:
    taken = []
    for _ in range(_REPEATS):
        begin = time.process_time()
        run()
        taken.append(time.process_time() - begin)
    return min(taken)
