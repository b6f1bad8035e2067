"""Activations, dropout and evaluation mode of models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn.dense.linear import is_uninitialized_parameter
from torch_geometric.nn.resolver import activation_resolver

from torch_geometric_gsl._checks import check_probability
from torch_geometric_gsl.distributed.row_shard import RowShard
from torch_geometric_gsl.nn.shared_module import all_named_modules, twin_of
from torch_geometric_gsl.ops.noise import dropout


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


@contextmanager
def evaluation(module: torch.nn.Module, *, has_options: bool = False) -> Iterator[Any]:
    """Yield a module in evaluation mode, and compute without gradients inside.

    A module of which a part is in training mode is left as it is, so that threads may
    share it: its twin has the same parameters, buffers and caches. So is one whose
    options the caller sets.
    """
    submodules = [submodule for _, submodule in all_named_modules(module)]
    modes = [submodule.training for submodule in submodules]
    # The first call of lazy modules changes them, not only their parameters.
    values = chain.from_iterable(
        submodule.parameters(recurse=False) for submodule in submodules
    )
    is_lazy = any(map(is_uninitialized_parameter, values))
    is_twin = (has_options or any(modes)) and not is_lazy
    try:
        for submodule in submodules if is_lazy else ():
            submodule.training = False
        with torch.no_grad():
            yield _evaluated(module) if is_twin else module
    finally:
        for submodule, mode in zip(submodules, modes, strict=True) if is_lazy else ():
            submodule.training = mode


def _evaluated(module: torch.nn.Module) -> Any:
    twin = twin_of(module)
    for _, submodule in all_named_modules(twin):
        vars(submodule)['training'] = False
    return twin
