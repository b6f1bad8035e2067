"""Replace the methods of a model that combine rows, for the rows of all ranks.

Within :func:`sharded_methods`, these functions replace methods of a model's modules,
which therefore need no code for ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from torch_geometric_gsl._checks import as_pair, check_absent, check_matrix
from torch_geometric_gsl.distributed.row_shard import RowShard
from torch_geometric_gsl.nn.conv.transition_nodes import ProjectNodes
from torch_geometric_gsl.nn.models.gsl_net import GSLNet
from torch_geometric_gsl.nn.models.layers import Dropout
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.shared_part import named_parts
from torch_geometric_gsl.ops.local_random import dropout
from torch_geometric_gsl.ops.runtime import full_precision
from torch_geometric_gsl.typing import Features


@contextmanager
def sharded_methods(
    model: torch.nn.Module, shard: RowShard, x: Features
) -> Iterator[None]:
    """Let a model gather the rows of all ranks while it is called with those of one."""
    rows = as_pair(x)[1]
    check_matrix(rows)
    if rows.size(0) != shard.num_rows:
        raise ValueError(
            f"'x' must have the {shard.num_rows} rows of this rank (got {rows.size(0)})"
        )
    gather = _Gather(shard)
    replacements = [
        (module, name, function)
        for _, module in named_parts(model)
        for type_, functions in _SHARED.items()
        if isinstance(module, type_)
        for name, function in functions.items()
    ]
    for module, name, function in replacements:
        module.__dict__[name] = partial(_call, module, name, function, gather)
    try:
        yield
    finally:
        for module, name, _ in replacements:
            del module.__dict__[name]


def _call(
    module: Any, name: str, function: Any, gather: _Gather, *args: Any, **kwargs: Any
) -> Any:
    """Call the replacement of a method, or without a shard the method itself."""
    if gather.is_idle:
        return getattr(type(module), name)(module, *args, **kwargs)
    return function(module, gather, *args, **kwargs)


class _Gather:
    """Gather rows of all ranks, each tensor once per call."""

    def __init__(self, shard: RowShard) -> None:
        self.shard = shard
        self.is_idle = False
        self._gathered: dict[int, tuple[Tensor, Tensor]] = {}

    def __call__(self, x: Tensor) -> Tensor:
        if id(x) not in self._gathered:
            # Keep the tensor: its id could be reused by a later one.
            self._gathered[id(x)] = x, self.shard.gather(x)
        return self._gathered[id(x)][1]


def _hidden(model: Any, gather: _Gather, *args: Any, **kwargs: Any) -> Any:
    """Compute hidden sources without communication, as all ranks have them."""
    gather.is_idle = True
    try:
        return type(model)._hidden(model, *args, **kwargs)
    finally:
        gather.is_idle = False


def _propagate(
    sampler: Any,
    gather: _Gather,
    z: Features,
    h: Tensor,
    *,
    generator: torch.Generator | None = None,
    return_graph: bool = False,
    **candidates: Any,
) -> Any:
    """Sum the messages of the rows of all ranks for the rows of this rank."""
    for name, value in candidates.items():
        check_absent(value, name, 'with distributed rows')
    shard = gather.shard
    # The sources of a pair are the same on all ranks.
    is_pair = isinstance(z, tuple | list)
    source = h if is_pair else gather(h)
    if not isinstance(z, tuple | list):
        compared: Features = gather(z)
    elif sampler.weighs_targets(shard.total, z[0].size(0)):
        # Draws of a target depend on the other targets, but without gradient.
        rows = shard.gather(z[1].detach()).split(shard.sizes)
        targets = [*rows[: shard.rank], z[1], *rows[shard.rank + 1 :]]
        compared = z[0], torch.cat(targets)
    else:
        padding = 0, 0, shard.first, shard.total - shard.rows[1]
        compared = z[0], F.pad(z[1], padding)
    options: Any = {'generator': generator, 'return_graph': return_graph}
    result = type(sampler).propagate(
        sampler, compared, source, rows=shard.rows, **options
    )
    out, graph = result if return_graph else (result, None)
    if shard.is_shared:
        # All ranks join the sum of gradients, even those that use no row.
        tensors = compared if isinstance(compared, tuple) else (compared,)
        for tensor in (source, *tensors):
            out = out + tensor[:0].sum()
    return (out, graph) if return_graph else out


def _project(_: Any, gather: _Gather, theta: Tensor, h: Tensor) -> Tensor:
    """Sum the rows of all ranks to transition nodes."""
    shard = gather.shard
    if shard.total != theta.size(1):
        raise ValueError(
            f"'shard' must have num_nodes={theta.size(1)} rows on all ranks "
            f'together (got {shard.total})'
        )
    with torch.autocast(h.device.type, enabled=False):
        messages = full_precision(h) / theta.size(1)
        partial_sum = theta[:, slice(*shard.rows)].to(messages.dtype) @ messages
        return shard.sum(partial_sum).to(h.dtype)


def _drop(
    layer: Dropout, gather: _Gather, x: Tensor, generator: torch.Generator | None = None
) -> Tensor:
    """Apply dropout by global row index, for any number of ranks."""
    if not layer.training:
        return x
    ones = x.new_ones(gather.shard.total, x.size(1))
    return x * gather.shard.split(dropout(ones, layer.p, True, generator))


#: Replacements of the methods that combine rows.
_SHARED: dict[type, dict[str, Callable[..., Any]]] = {
    GSLNet: {'_hidden': _hidden},
    GumbelKNNSampler: {'propagate': _propagate},
    ProjectNodes: {'forward': _project},
    Dropout: {'forward': _drop},
}
