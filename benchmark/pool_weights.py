"""The weights of a pool by their definition, which a Triton kernel must reproduce."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_geometric_gsl.ops.noise import STEP, race_states, random_words, uniform
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.pool_sum import from_bits


def keyed_weights(
    pairs: PairScores, p: float = 0.0, draws: int | None = None, *, seed: Tensor
) -> Tensor:
    r"""Compute the weights of all pairs :math:`[n, N]`, with noise from a seed.

    Weights are distributed as :func:`~torch_geometric_gsl.ops.pool_sum.pool_weights`.
    The noise of a pair is a function of the seed, the target, the draw and the source.
    """
    score, count = pairs.rows(), draws or 1
    state = race_states(seed, pairs.first * count, score.size(0) * count)
    source = torch.arange(1, score.size(1) + 1, device=seed.device)
    word = random_words(state.unsqueeze(1) + source * STEP)
    if draws is None:
        weight = score.softmax(dim=1)
        is_left = uniform(word, torch.float) >= p
        return (weight / (1 - p)).where(is_left, 0) if p > 0 else weight
    # Noise added to huge scores would be lost in rounding.
    rate = (score - score.detach().amax(dim=1, keepdim=True)).exp().unsqueeze(1)
    time = from_bits((word >> 32).int(), torch.float).to(score.dtype)
    rate = rate / time.view(-1, draws, score.size(1))
    return (rate / rate.sum(dim=2, keepdim=True)).mean(dim=1)
