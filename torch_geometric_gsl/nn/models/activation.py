"""Activation and dropout between the layers of a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn.resolver import activation_resolver

from torch_geometric_gsl._checks import check_probability
from torch_geometric_gsl.distributed.row_shard import RowShard
from torch_geometric_gsl.ops.generators import dropout


def resolve_activation(act: Any) -> Callable[[Tensor], Tensor]:
    """Return the activation of a name; the identity for :obj:`None`."""
    resolved: Callable[[Tensor], Tensor] = (
        torch.nn.Identity() if act is None else activation_resolver(act)
    )
    if not callable(resolved) or isinstance(resolved, type):
        raise TypeError(f"'act' must be a str, a callable or None (got {act!r})")
    return resolved


class Dropout(torch.nn.Dropout):
    """Dropout with a given source of randomness."""

    def __init__(self, p: float = 0.5) -> None:
        check_probability(p, 'dropout')
        super().__init__(p)

    def forward(
        self,
        x: Tensor,
        generator: torch.Generator | None = None,
        shard: RowShard | None = None,
    ) -> Tensor:
        if shard is None or not self.training:
            return dropout(x, self.p, self.training, generator)
        # Drawn for the rows of all ranks: any number of them drops the same entries.
        ones = x.new_ones(shard.total, x.size(1))
        return x * shard.split(dropout(ones, self.p, True, generator))
