"""Rows by relation, and root weights by node type."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import module_dict, parameter_dict
from torch_geometric.nn.inits import reset, zeros
from torch_geometric.typing import EdgeType, NodeType

from torch_geometric_gsl._checks import (
    Ends,
    check_edge_index,
    check_flag,
    check_type,
)
from torch_geometric_gsl.nn.linear import apply_linear, plain_linear
from torch_geometric_gsl.ops.edges import empty_graph
from torch_geometric_gsl.typing import Features


class ModuleDict(module_dict.ModuleDict):
    """PyG's dict, also for keys that are attributes of instances: `training`."""

    CLASS_ATTRS = tuple(dir(torch.nn.ModuleDict()))  # type: ignore[misc]


class ParameterDict(parameter_dict.ParameterDict):
    """PyG's dict, also for keys that are attributes of instances: `training`."""

    CLASS_ATTRS = frozenset(dir(torch.nn.ParameterDict()))  # type: ignore[misc,assignment]


class RootTerms(torch.nn.Module):
    """A root weight and a bias for each target type.

    The counts are those of the sums of a target that stand side by side.
    """

    def __init__(
        self,
        in_channels: dict[NodeType, int],
        out_channels: int,
        counts: dict[NodeType, int],
        root_weight: bool,
        bias: bool,
    ) -> None:
        super().__init__()
        check_flag(root_weight, 'root_weight')
        check_flag(bias, 'bias')
        self.lins = ModuleDict()
        self.biases = ParameterDict()
        for target, count in counts.items():
            size = count * out_channels
            if root_weight:
                self.lins[target] = plain_linear(in_channels[target], size)
            if bias:
                self.biases[target] = torch.nn.Parameter(torch.zeros(size))

    def reset_parameters(self) -> None:
        reset(self.lins)
        zeros(self.biases)

    def forward(self, out: Tensor, x: Tensor, target: NodeType) -> Tensor:
        """Add the terms of a type to the sums of its targets."""
        if target in self.lins:
            root = apply_linear(self.lins[target], x)  # type: ignore[arg-type]
            # Sums of several relations may be stacked.
            out = out + (root.unsqueeze(1) if out.dim() == 3 else root)
        return out + self.biases[target] if target in self.biases else out


def check_keys(
    value: Any, keys: Iterable[Any], name: str, required: Iterable[Any] = ()
) -> dict[Any, Any]:
    """Return a dict of some keys, among them those required; empty for None."""
    value = {} if value is None else value
    check_type(value, dict, name, f'a dict, such as data.{name}')
    keys = list(dict.fromkeys(keys))
    for key in value:
        if key not in keys:
            raise ValueError(f"'{name}' must be a dict of {keys} (got {key!r})")
    for key in required:
        if key not in value:
            raise ValueError(
                f"'{name}' must have an entry for {key!r} (got {list(value)})"
            )
    return dict(value)


def rows_by_relation(
    value: Any, name: str, relations: list[EdgeType], types: list[NodeType], like: Any
) -> dict[EdgeType, Any]:
    """Return the rows of each relation: a pair, or one tensor for one set of nodes.

    There are pairs for one node type as well if the features :obj:`like` are a pair.
    """
    if value is None:
        return {}
    is_pair = isinstance(like, tuple | list)
    if isinstance(value, tuple | list) != is_pair:
        expected = 'a pair of dicts' if is_pair else 'a dict'
        raise TypeError(
            f"'{name}' must be {expected} like 'x_dict' (got a {type(value).__name__})"
        )
    src, dst, _ = Ends.of(value, name)
    src = check_keys(src, types, name, [source for source, _, _ in relations])
    dst = check_keys(dst, types, name, [target for _, _, target in relations])
    rows: dict[EdgeType, Any] = {}
    for relation in relations:
        source, _, target = relation
        is_joint = is_pair or source != target
        rows[relation] = (src[source], dst[target]) if is_joint else src[source]
    return rows


def sum_without_sources(
    conv: Any, x: Features, edge_index: Tensor | None
) -> tuple[Tensor, Any]:
    """Return zeros and no edges: without sources there are no messages."""
    x_src, x_dst, _ = conv._rows(x)
    h = apply_linear(conv.lin, x_src)
    if conv.lin_dst is not None:  # A lazy one learns its width here.
        apply_linear(conv.lin_dst, x_dst)
    if edge_index is not None:
        check_edge_index(edge_index, h, x_dst)
    return h.new_zeros(x_dst.size(0), conv.out_channels), empty_graph(h)
