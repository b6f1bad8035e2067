"""Sizes, activations, inputs and runs of models with a stack of layers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import Linear
from torch_geometric.nn.resolver import activation_resolver

from torch_geometric_gsl._checks import (
    check_count,
    check_features,
    check_parameter_match,
    check_probability,
)
from torch_geometric_gsl.ops.local_random import dropout


def layer_sizes(
    in_channels: int, hidden_channels: int, num_layers: int, out_channels: int
) -> list[tuple[int, int]]:
    """Check sizes, and return those of the input and the output of each layer."""
    if in_channels != -1:
        check_count(in_channels, 'in_channels')
    check_count(hidden_channels, 'hidden_channels')
    check_count(num_layers, 'num_layers')
    check_count(out_channels, 'out_channels')
    widths = [in_channels, *[hidden_channels] * (num_layers - 1), out_channels]
    return list(pairwise(widths))


def resolve_activation(act: Any) -> Callable[[Tensor], Tensor]:
    """Return the activation with a name; the identity if :obj:`None`."""
    resolved: Callable[[Tensor], Tensor] = (
        torch.nn.Identity() if act is None else activation_resolver(act)
    )
    if not callable(resolved) or isinstance(resolved, type):
        raise TypeError(f"'act' must be a str, a callable or None (got {act!r})")
    return resolved


def reset_activation(act: Callable[[Tensor], Tensor]) -> None:
    """Reset the parameters of an activation, if it has any."""
    reset = getattr(act, 'reset_parameters', None)
    if reset is not None:
        reset()


class Dropout(torch.nn.Dropout):
    r"""Drop values with a source of randomness.

    Args:
        p (float, optional): The probability. (default: :obj:`0.5`)

    Example:
        >>> drop, generator = Dropout(0.5), torch.Generator().manual_seed(0)
        >>> drop(torch.ones(4), generator)
        tensor([0., 0., 2., 0.])
    """

    def __init__(self, p: float = 0.5) -> None:
        check_probability(p, 'dropout')
        super().__init__(p)

    def forward(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        r"""Run the forward pass.

        Args:
            x (torch.Tensor): The values.
            generator (torch.Generator, optional): Source of randomness.
                (default: :obj:`None`)
        """
        return dropout(x, self.p, self.training, generator)


def check_input(x: Tensor, lin: Linear) -> None:
    """Raise unless a first layer can take the features."""
    check_features(x, width=lin.in_channels)
    check_parameter_match(x, lin.weight)
