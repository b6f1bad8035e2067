r"""The rounds of the Gumbel race in one kernel: proposals, scores and what arrives.

:mod:`torch_geometric_gsl.ops.race` is the definition. Nothing of the size of all
proposals is stored: the kernel writes arrivals alone. It draws the same random words,
so that both propose the same sources. Where a score differs in its last bits, a
proposal may be accepted by one and rejected by the other, once in about ten million.

Checked under Triton's interpreter against the definition, and compiled for compute
capabilities 8.0 and 9.0; not yet measured on a GPU.
"""

# Triton has neither types nor stubs.
# mypy: disable-error-code="import-untyped, import-not-found"
from __future__ import annotations

from contextlib import nullcontext

import torch
import triton
from torch import Tensor

from torch_geometric_gsl.ops._triton.race_program import run_races
from torch_geometric_gsl.ops.envelope import Rates
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.relax import Arrivals, DrawOptions

# Proposals and channels at a time, and the number of entries of a tile: small, so that
# its registers suffice and no race waits long for another.
_BLOCK_PROPOSALS = 16
_BLOCK_CHANNELS = 64
_TILE = 1024


@torch.no_grad()
def race_kernel(
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
) -> None:
    """Run all rounds of a block of races; only that block calls this."""
    num_races, rows = state.numel(), slice(first, first + rates.sizes.size(0))
    share, _, member, offset, head = rates.kinds or (None,) * 5
    num_kinds = rates.bound.size(1)
    num_heads = 0 if head is None else head.size(1)
    # The centre and the width of each bell, or the width of each heat kernel.
    b, c = (None, None, *(param[rows] for param in pairs.response.params))[-2:]
    # The kernel leaves out what reads tensors that are absent.
    excluded = None if pairs.excluded is None else pairs.excluded[rows]
    start = listed = None
    if pairs.candidates is not None:
        start, listed = pairs.candidates.start[rows], pairs.candidates.source
    sets = excluded, start, listed, rates.sizes, rates.bound, rates.total
    kinds = share, head, member, offset
    sizes = _tile_sizes(length, pairs.src.size(1), options.num_arrivals)
    device = state.device
    # Triton launches on the current device.
    with torch.cuda.device(device) if device.type == 'cuda' else nullcontext():
        run_races[(triton.cdiv(num_races, sizes['BLOCK_RACES']),)](
            pairs.dst[rows],
            pairs.src,
            b,
            c,
            # A learned scale stays on the device.
            state.new_ones(1, dtype=torch.float32) * pairs.scale,
            *(None if x is None else x.contiguous() for x in (*sets, *kinds)),
            state,
            *arrivals[:3],
            found,
            clock,
            num_races,
            options.num_races,
            length,
            least,
            options.num_arrivals,
            num_kinds,
            num_kinds - num_heads,
            pairs.src.size(1),
            # A number for all targets comes as a tensor of stride 0.
            0 if b is None else b.stride(0),
            0 if c is None else c.stride(0),
            RESPONSE=pairs.response.kernel_formula,
            COMPARISON=pairs.comparison,
            enable_fp_fusion=True,
            **sizes,
        )


def _tile_sizes(length: int, channels: int, num_arrivals: int) -> dict[str, int]:
    """Return the shapes of the tiles, powers of two, and the number of warps."""
    block_p = min(_BLOCK_PROPOSALS, triton.next_power_of_2(length))
    block_c = min(_BLOCK_CHANNELS, triton.next_power_of_2(channels))
    block_k = triton.next_power_of_2(num_arrivals)
    per_race = block_p * max(block_c, block_k)
    races = max(1, _TILE // per_race)
    return {
        'BLOCK_RACES': races,
        'BLOCK_PROPOSALS': block_p,
        'BLOCK_CHANNELS': block_c,
        'BLOCK_KEPT': block_k,
        'num_warps': max(1, min(8, races * per_race // 512)),
    }
