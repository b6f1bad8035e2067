"""Activations, dropout and evaluation mode of models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn.resolver import activation_resolver

from torch_geometric_gsl._checks import check_probability
from torch_geometric_gsl.nn.shared_part import named_parts
from torch_geometric_gsl.ops.local_random import dropout


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

    def forward(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return dropout(x, self.p, self.training, generator)


@contextmanager
def evaluation(module: torch.nn.Module) -> Iterator[None]:
    """Set evaluation mode without gradients; restore the mode of each part."""
    modes = [(part, part.training) for _, part in named_parts(module)]
    module.eval()
    for part, _ in modes:  # Also parts that another module registers.
        part.training = False
    try:
        with torch.no_grad():
            yield
    finally:
        for part, mode in modes:
            part.training = mode
