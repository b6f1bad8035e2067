from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Expanded(NamedTuple):
    r"""Ranges of integers, one after the other.

    Args:
        number (torch.Tensor): The range of each entry.
        place (torch.Tensor): The integer itself.
    """

    number: Tensor
    place: Tensor


def expand_ranges(start: Tensor, count: Tensor) -> Expanded:
    r"""Lists the integers of ranges, such as the entries of rows in CSR.

    Args:
        start (torch.Tensor): Where each range starts :math:`[r]`.
        count (torch.Tensor): How many integers it has :math:`[r]`.

    Example:
        >>> expand_ranges(torch.tensor([7, 0, 3]), torch.tensor([2, 0, 3]))
        Expanded(number=tensor([0, 0, 2, 2, 2]), place=tensor([7, 8, 3, 4, 5]))
    """
    every = torch.arange(count.numel(), device=count.device)
    number = every.repeat_interleave(count)
    # From the place in the list to the integer.
    shift = start - (count.cumsum(0) - count)
    place = torch.arange(number.numel(), device=count.device)
    return Expanded(number, place.add_(shift.repeat_interleave(count)))
