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
from torch_geometric_gsl.ops.arrivals import Arrivals
from torch_geometric_gsl.ops.fused import FusedScore
from torch_geometric_gsl.ops.scorer import Law, Scorer

# Proposals and channels at a time, and the number of entries of a tile: small, so that
# its registers suffice and no race waits long for another.
_BLOCK_PROPOSALS = 16
_BLOCK_CHANNELS = 64
_TILE = 1024


@torch.no_grad()
def race_kernel(
    scorer: Scorer, fused: FusedScore, law: Law, proposals: int, seed: Tensor
) -> Arrivals:
    r"""Finds the first arrivals of each race in one kernel.

    Args:
        scorer (Scorer): The scores; their bound, excluded sources and candidates
            are used.
        fused (FusedScore): The same scores as a formula.
        law (Law): How neighbours are drawn.
        proposals (int): The number of proposals :math:`P`.
        seed (torch.Tensor): The seed, one number of type :obj:`torch.int64` on the
            device.

    Returns:
        Arrivals: The first arrivals, without gradient.

    Raises:
        ValueError: If the scores are not of type :obj:`torch.float32`, do not match
            :obj:`scorer`, their response is unknown, or neighbours are to be drawn
            without replacement.
    """
    _check(scorer, fused, law, proposals)
    (num_targets, num_sources), kept = scorer.size, law.kept
    shape, device = (num_targets, law.draws, kept), scorer.device
    source = torch.empty(shape, dtype=torch.long, device=device)
    noise = torch.empty(shape, dtype=torch.float32, device=device)
    horizon = noise.new_empty(shape[:2])
    num_races = num_targets * law.draws
    if num_races == 0:
        return Arrivals(source, noise, horizon)
    inputs = _inputs(scorer, fused)
    options = _options(proposals, fused.src.size(1), kept)
    # Triton launches on the current device.
    with torch.cuda.device(device) if device.type == 'cuda' else nullcontext():
        run_races[(triton.cdiv(num_races, options['BLOCK_RACES']),)](
            *inputs,
            seed,
            source,
            noise,
            horizon,
            num_races,
            law.draws,
            proposals,
            kept,
            num_sources,
            fused.src.size(1),
            # A number for all targets comes as a tensor of stride 0.
            0 if fused.b is None else fused.b.stride(0),
            0 if fused.c is None else fused.c.stride(0),
            fused.scale,
            scorer.upper,
            0.0 if scorer.candidates is not None else math.log(scorer.available),
            RESPONSE=fused.response,
            enable_fp_fusion=True,
            **options,
        )
    return Arrivals(source, noise, horizon)


def _inputs(scorer: Scorer, fused: FusedScore) -> list[Tensor | None]:
    """The tensors that the kernel reads; an absent one is left out of the kernel."""
    sets = (None, None, None) if scorer.candidates is None else scorer.candidates
    packed = [
        None if x is None else x.contiguous()
        for x in (fused.dst, fused.src, scorer.excluded, *sets)
    ]
    return [*packed[:2], fused.b, fused.c, *packed[2:]]


def _check(scorer: Scorer, fused: FusedScore, law: Law, proposals: int) -> None:
    fused.check()
    if not law.replace:
        raise ValueError("'law' must draw with replacement (got replace=False)")
    for name in ('dst', 'src', 'b', 'c'):
        given = getattr(fused, name)
        if given is not None and given.dtype != torch.float32:
            raise ValueError(f"'{name}' must be of type float32 (got {given.dtype})")
    size = fused.dst.size(0), fused.src.size(0)
    if size != tuple(scorer.size) or fused.dst.size(1) != fused.src.size(1):
        raise ValueError(
            f"'fused' must hold the embeddings of {tuple(scorer.size)} targets and "
            f'sources, equally wide (got {tuple(fused.dst.shape)} and '
            f'{tuple(fused.src.shape)})'
        )
    if not (1 <= proposals < 2**31 and 1 <= scorer.size[1] < 2**31):
        raise ValueError(
            f"'proposals' and sources must be between 1 and 2^31 - 1 "
            f'(got {proposals} and {scorer.size[1]})'
        )


def _options(proposals: int, channels: int, kept: int) -> dict[str, int]:
    """Shapes of the tiles, powers of two, and the number of warps."""
    block_p = min(_BLOCK_PROPOSALS, triton.next_power_of_2(proposals))
    block_c = min(_BLOCK_CHANNELS, triton.next_power_of_2(channels))
    block_k = triton.next_power_of_2(kept)
    per_race = block_p * max(block_c, block_k)
    races = max(1, _TILE // per_race)
    return {
        'BLOCK_RACES': races,
        'BLOCK_PROPOSALS': block_p,
        'BLOCK_CHANNELS': block_c,
        'BLOCK_KEPT': block_k,
        'num_warps': max(1, min(8, races * per_race // 512)),
    }
