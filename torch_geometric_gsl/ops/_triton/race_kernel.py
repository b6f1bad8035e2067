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

from torch_geometric_gsl.ops._triton.race_program import run_races
from torch_geometric_gsl.ops.envelope import race_inputs
from torch_geometric_gsl.ops.race_block import RaceBlock

# Proposals and channels at a time, and the number of entries of a tile: small, so that
# its registers suffice and no race waits long for another.
_BLOCK_PROPOSALS = 16
_BLOCK_CHANNELS = 64
_TILE = 1024


@torch.no_grad()
def race_kernel(block: RaceBlock) -> None:
    """Run all rounds of a block of races; only that block calls this."""
    pairs, options, rates, state = block.pairs, block.options, block.rates, block.state
    num_races, inputs = state.numel(), race_inputs(pairs, rates, block.first)
    num_kinds, head = rates.bound.size(1), (rates.kinds or (None,))[-1]
    sizes = _tile_sizes(block.length, pairs.src.size(1), options.num_arrivals)
    device = state.device
    # Triton launches on the current device.
    with torch.cuda.device(device) if device.type == 'cuda' else nullcontext():
        run_races[(triton.cdiv(num_races, sizes['BLOCK_RACES']),)](
            # The kernel leaves out what reads tensors that are absent.
            *inputs[:2],
            *inputs[3:5],
            # A learned scale stays on the device.
            state.new_ones(1, dtype=torch.float32) * pairs.scale,
            *inputs[5:],
            state,
            *block.arrivals[:3],
            block.found,
            block.clock,
            num_races,
            options.num_races,
            block.length,
            block.least,
            options.num_arrivals,
            num_kinds,
            num_kinds - (0 if head is None else head.size(1)),
            pairs.src.size(1),
            *(0 if x is None else x.stride(0) for x in inputs[3:5]),
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
