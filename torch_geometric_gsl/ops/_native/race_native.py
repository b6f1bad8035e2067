"""The rounds of the Gumbel race in C++, on the threads of PyTorch.

:mod:`torch_geometric_gsl.ops.race` is the definition. The random words are the same,
so that both propose the same sources; where a score differs in its last bits, a
proposal may be accepted by one and rejected by the other, once in about ten million.
"""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from torch_geometric_gsl.ops import scan
from torch_geometric_gsl.ops._native.compiled import load
from torch_geometric_gsl.ops.envelope import Rates, race_inputs
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.relax import Arrivals, DrawOptions
from torch_geometric_gsl.ops.runtime import is_compiling_off

_RESPONSES = ('identity', 'negative', 'difference', 'heat_kernel', 'gaussian')
_NAMES = {torch.float32: 'float', torch.float64: 'double'}
# The fields of `Race` in `race.cpp`, in its order.
_TENSORS = (
    *('dst', 'src', 'b', 'c', 'excluded', 'start', 'listed', 'count'),
    *('bound', 'total', 'share', 'head', 'member', 'offset', 'state'),
    *('source', 'noise', 'horizon', 'found', 'clock'),
)
_NUMBERS = (
    *('channels', 'b_stride', 'c_stride', 'per_target', 'length', 'least'),
    *('num_arrivals', 'num_kinds', 'num_clusters', 'look_share', 'response'),
    *('is_dot', 'is_distinct'),
)
# Below this number of races one thread is used; above, each has this number of parts.
_FEW, _PARTS = 256, 4


class _Race(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in _TENSORS),
        ('scale', ctypes.c_double),
        *((name, ctypes.c_int64) for name in _NUMBERS),
    )


def find_library(pairs: PairScores) -> ctypes.CDLL | None:
    """Return the compiled library if it serves the scores of these dense rows.

    The environment variable :obj:`TORCH_COMPILE_DISABLE=1` turns it off.
    """
    is_on_cpu = pairs.dst.device.type == 'cpu' and not is_compiling_off()
    return load('race') if is_on_cpu and is_known(pairs) else None


def is_known(pairs: PairScores) -> bool:
    """Return whether the library has the formula and the type of these rows."""
    response = pairs.response
    if pairs.is_sparse or response.kernel_formula not in _RESPONSES:
        return False
    if len(response.params) > 2:  # `b` and `c`.
        return False
    given = pairs.dst, pairs.src, *pairs.response.params
    dtypes = set(map(attrgetter('dtype'), given))
    return len(dtypes) == 1 and pairs.dst.dtype in _NAMES


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
    outputs = *arrivals[:3], found, clock
    sizes = length, least, options.num_arrivals
    return _run('race', pairs, rates, first, state, outputs, sizes, not options.replace)


def tail_native(
    pairs: PairScores, rates: Rates, first: int, state: Tensor, *outputs: Tensor
) -> None:
    """Draw the sources of the tails of races, and the logarithms of their shares."""
    pairs = pairs._replace(excluded=None)  # They are excluded where tails are scored.
    given = *outputs, None, None, None
    _run('tail', pairs, rates, first, state, given, (0, 0, outputs[0].size(-1)))


def _run(
    kind: str,
    pairs: PairScores,
    rates: Rates,
    first: int,
    state: Tensor,
    outputs: tuple[Any, ...],  # Those that are absent are None.
    sizes: tuple[int, int, int],
    is_distinct: bool = False,
) -> Tensor:
    """Run a function of the library for a block of races."""
    inputs, head = race_inputs(pairs, rates, first), (rates.kinds or (None,))[-1]
    num_kinds, state = rates.bound.size(1), state.contiguous()
    if not all(map(Tensor.is_contiguous, outputs[:2])):
        raise ValueError("'outputs' must be contiguous: they are written in place")
    race = _Race(
        *(None if x is None else x.data_ptr() for x in (*inputs, state, *outputs)),
        float(pairs.scale),
        *(pairs.src.size(1), *(0 if x is None else x.stride(0) for x in inputs[2:4])),
        state.numel() // max(1, rates.sizes.numel()),
        *(*sizes, num_kinds, num_kinds - (0 if head is None else head.size(1))),
        *(scan.SCAN_FACTOR, _RESPONSES.index(str(pairs.response.kernel_formula))),
        *(pairs.comparison == 'dot', is_distinct),
    )
    function = getattr(load('race'), f'{kind}_{_NAMES[pairs.dst.dtype]}')
    return _run_parts(function, race, state.numel()).to(pairs.dst.dtype)


def _run_parts(function: Any, race: _Race, count: int) -> Tensor:
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
    lowest, highest = scores[:, 0].amin(), scores[:, 1].amax()
    is_any = lowest <= highest  # Else there are none, or NaN alone.
    return torch.stack([lowest, highest]) if is_any else scores.new_empty(0)
