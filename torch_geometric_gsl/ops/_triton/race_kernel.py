r"""The Gumbel race in one kernel: proposals, scores and the arrivals that are kept.

:func:`torch_geometric_gsl.ops.race.race_arrivals` is the definition. Nothing of the
size of all proposals is stored: the kernel writes arrivals alone. It draws the same
random words, so that both propose the same sources. Where a score differs in its last
bits, a proposal may be accepted by one and rejected by the other, once in about ten
million.

Checked under Triton's interpreter against the definition, and compiled for compute
capabilities 8.0 and 9.0; not yet measured on a GPU.
"""

# Triton has neither types nor stubs.
# mypy: disable-error-code="import-untyped, import-not-found"
from __future__ import annotations

import math
from contextlib import nullcontext

import torch
import triton
from torch import Tensor

from torch_geometric_gsl.ops._triton.race_program import run_races
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.relax import Arrivals, DrawOptions

# Proposals and channels at a time, and the number of entries of a tile: small, so that
# its registers suffice and no race waits long for another.
_BLOCK_PROPOSALS = 16
_BLOCK_CHANNELS = 64
_TILE = 1024


@torch.no_grad()
def race_kernel(
    pairs: PairScores, options: DrawOptions, proposals: int, seed: Tensor
) -> Arrivals:
    """Find what `race_arrivals` finds; only it calls this, with scores that fit."""
    dst, src, num_arrivals = pairs.dst, pairs.src, options.num_arrivals
    if not (1 <= proposals < 2**31 and 1 <= src.size(0) < 2**31):
        raise ValueError(
            f"'proposals' and sources must be between 1 and 2^31 - 1 "
            f'(got {proposals} and {src.size(0)})'
        )
    shape, device = (dst.size(0), options.num_races, num_arrivals), dst.device
    source = torch.empty(shape, dtype=torch.long, device=device)
    noise = torch.empty(shape, dtype=torch.float32, device=device)
    horizon = noise.new_empty(shape[:2])
    num_races = shape[0] * shape[1]
    if num_races == 0:
        return Arrivals(source, noise, horizon)
    # The centre and the width of each bell, or the width of each heat kernel.
    b, c = (None, None, *pairs.response.params)[-2:]
    # The kernel leaves out what reads tensors that are absent.
    sets = pairs.excluded, *(pairs.candidates or (None,) * 3)
    sizes = _tile_sizes(proposals, src.size(1), num_arrivals)
    # Triton launches on the current device.
    with torch.cuda.device(device) if device.type == 'cuda' else nullcontext():
        run_races[(triton.cdiv(num_races, sizes['BLOCK_RACES']),)](
            dst.contiguous(),
            src.contiguous(),
            b,
            c,
            *(None if x is None else x.contiguous() for x in sets),
            seed,
            source,
            noise,
            horizon,
            num_races,
            shape[1],
            proposals,
            num_arrivals,
            src.size(0),
            src.size(1),
            # A number for all targets comes as a tensor of stride 0.
            0 if b is None else b.stride(0),
            0 if c is None else c.stride(0),
            pairs.scale,
            pairs.upper,
            0.0 if pairs.candidates is not None else math.log(pairs.available),
            RESPONSE=pairs.response.formula,
            enable_fp_fusion=True,
            **sizes,
        )
    return Arrivals(source, noise, horizon)


def _tile_sizes(proposals: int, channels: int, num_arrivals: int) -> dict[str, int]:
    """Return the shapes of the tiles, powers of two, and the number of warps."""
    block_p = min(_BLOCK_PROPOSALS, triton.next_power_of_2(proposals))
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
