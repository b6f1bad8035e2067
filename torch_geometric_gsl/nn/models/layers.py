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
)
from torch_geometric_gsl.distributed.row_shard import RowShard
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


def dropout_rows(
    x: Tensor,
    p: float,
    training: bool,
    shard: RowShard | None,
    generator: torch.Generator | None,
) -> Tensor:
    """Drop hidden values; a row loses the same ones however many ranks there are."""
    if shard is None or not training:
        return dropout(x, p, training, generator)
    kept = dropout(x.new_ones(shard.total, x.size(1)), p, True, generator)
    return x * shard.split(kept)


def check_input(x: Tensor, lin: Linear) -> None:
    """Raise unless a first layer can take the features."""
    check_features(x, width=lin.in_channels)
    check_parameter_match(x, lin.weight)


def run(
    conv: Any,
    x: Any,
    args: dict[str, Any],
    generator: torch.Generator | None,
    graphs: list[Any] | None = None,
) -> Any:
    """Run a layer, and append its graph to a list if there is one."""
    if graphs is None:
        return conv(x, **args, generator=generator)
    out, graph = conv(x, **args, generator=generator, return_graph=True)
    graphs.append(graph)
    return out
