"""The proposals of a race: random numbers, and the candidates that they stand for."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torch_geometric_gsl.ops.noise import below, random_words, uniform


def draw_uniform(
    state: Tensor, columns: Tensor, count: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw the candidate, the level of acceptance and the gap of each proposal.

    Races have random states :math:`[r]` and :obj:`count` candidates :math:`[r, 1]`;
    what a proposal adds to them for its two words is :obj:`columns` :math:`[2, 1, q]`.

    Returns:
        tuple[torch.Tensor, torch.Tensor, torch.Tensor]: The place of the candidate, the
        uniform number that decides on it, and the time since the proposal before it in
        units of the mean, :math:`[r, q]` each.
    """
    words = random_words(state.unsqueeze(1) + columns)
    level, gap = uniform(words, dtype)
    return below(words[0], count), level, gap.log().neg()


def draw_kinds(
    state: Tensor, columns: Tensor, dtype: torch.dtype, row: Tensor, *kinds: Any
) -> tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor]:
    r"""Draw the candidate, the level and the gap of proposals of several kinds.

    The targets :math:`[r]` of the races are :obj:`row`, and :obj:`kinds` is where
    :func:`propose` looks candidates up.

    Returns:
        tuple: What :func:`propose` returns, and the level and the gap of
        :func:`draw_uniform`.
    """
    words = random_words(state.unsqueeze(1) + columns)
    level, gap = uniform(words, dtype)
    found = propose((words[1] >> 32).int(), words[0], row, *kinds)
    return *found, level, gap.log().neg()


def propose(
    kind: Tensor,
    word: Tensor,
    row: Tensor,
    share: Tensor,
    bound: Tensor,
    source: Tensor,
    offsets: Tensor,
    head: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    r"""Look up proposed candidates.

    Args:
        kind (torch.Tensor): Uniform numbers :math:`[r, q]` from :math:`-2^{31}` to
            :math:`2^{31} - 1` that choose a kind of proposal.
        word (torch.Tensor): Random words :math:`[r, q]` that choose a member of it.
        row (torch.Tensor): The target of each row of proposals :math:`[r]`.
        share (torch.Tensor): The shares of the kinds, of :class:`Rates`.
        bound (torch.Tensor): The bounds of the kinds.
        source (torch.Tensor): The sources by clusters, of :class:`Clusters`.
        offsets (torch.Tensor): The places of the clusters.
        head (torch.Tensor or None): The candidates of the head :math:`[n, H]`.

    Returns:
        tuple[torch.Tensor, torch.Tensor, torch.Tensor or None]: The sources, the bounds
        of their scores, and which of them are void, :math:`[r, q]` each: proposed by a
        cluster, but members of the head.
    """
    row = row.unsqueeze(1)
    number = _count_up_to(share, row, kind).clamp(max=share.size(1) - 1)
    limit = bound.reshape(-1)[row * bound.size(1) + number]
    num_clusters = offsets.size(0) - 1
    cluster = number.clamp(max=num_clusters - 1)
    first = offsets[cluster]
    found = source[first + below(word, offsets[cluster + 1] - first)]
    if head is None:
        return found, limit, None
    start = row * head.size(1)
    is_head = number >= num_clusters
    listed = head.reshape(-1)[start + (number - num_clusters).clamp(min=0)]
    place = (_count_up_to(head, row, found) - 1).clamp(min=0)
    is_void = (head.reshape(-1)[start + place] == found) & ~is_head
    return torch.where(is_head, listed, found), limit, is_void


def _count_up_to(ascending: Tensor, row: Tensor, value: Tensor) -> Tensor:
    """Count the entries of a row [n, d] that are at most a value, by bisection."""
    # torch.searchsorted takes twice as long: its branches are hard to predict.
    width = ascending.size(1)
    entries, base = ascending.reshape(-1), row * width - 1
    count = torch.zeros_like(value, dtype=torch.long)
    bits = 0
    while 1 << bits <= width:  # A program serves all widths between two powers.
        bits += 1
    for step in (1 << bit for bit in reversed(range(bits))):
        further = count + step
        at = base + further.clamp(max=width)
        count = torch.where((further <= width) & (entries[at] <= value), further, count)
    return count
