"""The rounds of the Gumbel race in C++, on the threads of PyTorch.

:mod:`torch_geometric_gsl.ops.race` is the definition. The random words are the same,
so that both propose the same sources; where a score differs in its last bits, a
proposal may be accepted by one and rejected by the other, once in about ten million.
"""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from torch_geometric_gsl.ops import scan
from torch_geometric_gsl.ops._native.library import load_library
from torch_geometric_gsl.ops.envelope import Rates
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.relax import Arrivals, DrawOptions

_RESPONSES = ('identity', 'negative', 'difference', 'heat_kernel', 'gaussian')
_FUNCTIONS = {torch.float32: 'race_float', torch.float64: 'race_double'}
_TENSORS = """dst src b c excluded start listed count bound total share member offset
head state source noise horizon found clock""".split()
_NUMBERS = """channels b_stride c_stride per_target length least num_arrivals num_kinds
num_clusters look_share response is_dot is_distinct""".split()
# Fewer races than these have one thread, and a thread has so many parts of others.
_FEW, _PARTS = 256, 4


class _Race(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in _TENSORS),
        ('scale', ctypes.c_double),
        *((name, ctypes.c_int64) for name in _NUMBERS),
    )


def find_function(pairs: PairScores) -> Any:
    """Return the compiled function that serves these scores, if there is one."""
    is_known = pairs.response.triton in _RESPONSES and not pairs.is_sparse
    name = _FUNCTIONS.get(pairs.dst.dtype)
    if not is_known or name is None or pairs.dst.device.type != 'cpu':
        return None
    library = load_library('race')
    return None if library is None else getattr(library, name)


@torch.no_grad()
def race_native(
    length: int,
    least: int,
    pairs: PairScores,
    options: DrawOptions,
    rates: Rates,
    first: int,
    state: Tensor,
    arrivals: Arrivals,
    found: Tensor,
    clock: Tensor,
) -> Tensor:
    """Run all rounds of a block of races; return the least and the largest score."""
    rows = slice(first, first + rates.sizes.size(0))
    share, _, member, offset, head = rates.kinds or (None,) * 5
    num_kinds = rates.bound.size(1)
    b, c = (None, None, *(param[rows] for param in pairs.response.params))[-2:]
    listed = pairs.candidates
    inputs = (
        *(pairs.dst[rows].contiguous(), pairs.src.contiguous(), b, c),
        None if pairs.excluded is None else pairs.excluded[rows],
        *((None, None) if listed is None else (listed.start[rows], listed.source)),
        *(rates.sizes, rates.bound, rates.total, share, member, offset, head, state),
    )
    # A parameter for all targets comes as a tensor of stride 0.
    strides = [0 if x is None else x.stride(0) for x in (b, c)]
    kept = [x if x is None or x is b or x is c else x.contiguous() for x in inputs]
    outputs = arrivals.source, arrivals.noise, arrivals.horizon, found, clock
    assert all(x.is_contiguous() for x in outputs)
    race = _Race(
        *(None if x is None else x.data_ptr() for x in (*kept, *outputs)),
        float(pairs.scale),
        *(pairs.src.size(1), *strides, found.numel() // max(1, rates.sizes.numel())),
        *(length, least, options.num_arrivals, num_kinds),
        num_kinds - (0 if head is None else head.size(1)),
        *(scan.SHARE, _RESPONSES.index(pairs.response.triton or '')),
        *(pairs.comparison == 'dot', not options.replace),
    )
    return _run(find_function(pairs), race, found.numel()).to(pairs.dst.dtype)


def _run(function: Any, race: _Race, count: int) -> Tensor:
    """Run races on all threads; return the least and the largest of their scores."""
    threads = torch.get_num_threads() if count >= _FEW else 1
    parts = threads * _PARTS if threads > 1 else 1
    ends = [count * i // parts for i in range(parts + 1)]
    found = [(ctypes.c_double * 2)() for _ in range(parts)]

    def run(i: int) -> None:
        args = ctypes.byref(race), *map(ctypes.c_int64, ends[i : i + 2])
        function(*args, found[i])

    if threads == 1:
        run(0)
    else:
        with ThreadPoolExecutor(threads) as pool:
            [*pool.map(run, range(parts))]
    scores = torch.tensor([[*two] for two in found], dtype=torch.float64)
    return torch.stack([scores[:, 0].amin(), scores[:, 1].amax()])
