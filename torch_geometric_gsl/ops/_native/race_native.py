"""The rounds of the Gumbel race in C++, on the threads of PyTorch.

:mod:`torch_geometric_gsl.ops.race` is the definition. The random words are the same,
so that both propose the same sources; where a score differs in its last bits, a
proposal may be accepted by one and rejected by the other, once in about ten million.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor

from torch_geometric_gsl.ops import scan
from torch_geometric_gsl.ops._native.compiled import NAMES, RESPONSES, load, run_parts
from torch_geometric_gsl.ops.envelope import race_inputs
from torch_geometric_gsl.ops.race_block import RaceBlock

# The fields of `Race` in `race.cpp`, in its order.
_TENSORS = (
    *('dst', 'src', 'a', 'b', 'c', 'excluded', 'start', 'listed', 'count'),
    *('bound', 'total', 'share', 'head', 'member', 'offset', 'state'),
    *('source', 'noise', 'horizon', 'found', 'clock'),
)
_NUMBERS = (
    *('channels', 'a_stride', 'b_stride', 'c_stride', 'per_target', 'length', 'least'),
    *('num_arrivals', 'num_kinds', 'num_clusters', 'look_share', 'response'),
    *('is_dot', 'is_distinct'),
)


class _Race(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in _TENSORS),
        ('scale', ctypes.c_double),
        *((name, ctypes.c_int64) for name in _NUMBERS),
    )


@torch.no_grad()
def race_native(block: RaceBlock) -> Tensor:
    """Run all rounds of a block of races; return the least and the largest score."""
    options = block.options
    outputs = *block.arrivals[:3], block.num_accepted, block.clock
    sizes = block.length, block.min_arrivals, options.num_arrivals
    return _run('race', block, outputs, sizes, not options.replace)


def tail_native(block: RaceBlock, state: Tensor) -> tuple[Tensor, Tensor]:
    """Draw the sources of the tails of races, and the logarithms of their shares."""
    size = block.options.num_tail
    pairs = block.pairs
    source = torch.empty(len(state), size, dtype=torch.long)
    share = pairs.dst.new_empty(len(state), size)
    pairs = pairs._replace(excluded=None)  # They are excluded where tails are scored.
    block = block._replace(pairs=pairs, state=state)
    _run('tail', block, (source, share, None, None, None), (0, 0, size))
    return source, share


def _run(
    function_name: str,
    block: RaceBlock,
    outputs: tuple[Any, ...],  # Those that are absent are None.
    sizes: tuple[int, int, int],
    is_distinct: bool = False,
) -> Tensor:
    """Run a function of the library for a block of races."""
    pairs = block.pairs
    rates = block.rates
    state = block.state.contiguous()
    inputs = race_inputs(pairs, rates, block.first)
    head = (rates.kinds or (None,))[-1]
    num_kinds = rates.bound.size(1)
    if not all(map(Tensor.is_contiguous, outputs[:2])):
        raise ValueError("'outputs' must be contiguous: they are written in place")
    race = _Race(
        *(None if x is None else x.data_ptr() for x in (*inputs, state, *outputs)),
        float(pairs.scale),
        *(pairs.src.size(1), *(0 if x is None else x.stride(0) for x in inputs[2:5])),
        state.numel() // max(1, rates.sizes.numel()),
        *(*sizes, num_kinds, num_kinds - (0 if head is None else head.size(1))),
        *(scan.SCAN_FACTOR, [*RESPONSES].index(str(pairs.response.kernel_formula))),
        *(pairs.comparison == 'dot', is_distinct),
    )
    function = getattr(load('race'), f'{function_name}_{NAMES[pairs.dst.dtype]}')
    return run_parts(function, race, state.numel()).to(pairs.dst.dtype)
