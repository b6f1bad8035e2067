"""Inputs by node or edge type."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from torch import Tensor
from torch_geometric.typing import EdgeType, NodeType

from torch_geometric_gsl._checks import (
    as_pair,
    check_count,
    check_edge_types,
    check_option,
    check_type,
)
from torch_geometric_gsl.nn.sampler.options import LayerOptions

#: Options that belong to a whole layer.
_OF_LAYER = {'root_weight', 'bias'}
#: The options that a relation may override.
OPTIONS = {'similarity', 'z_channels', *LayerOptions.__annotations__} - _OF_LAYER
#: Rows of sources and of targets, by type.
Ends: TypeAlias = tuple[dict[NodeType, Tensor], dict[NodeType, Tensor]]


def check_relations(relations: Any) -> dict[EdgeType, dict[str, Any]]:
    """Return the options of each relation, given a list or a dict."""
    listed = check_edge_types(relations, 'relations')
    if not isinstance(relations, dict):
        return {relation: {} for relation in listed}
    for relation, options in relations.items():
        name = f'relations[{relation}]'
        check_type(options, dict, name, 'a dict of options')
        for option in options:
            check_option(option, sorted(OPTIONS), name)
    return dict(relations)


def ends_of(relations: Iterable[EdgeType]) -> tuple[list[NodeType], list[NodeType]]:
    """Return all types of the relations, and their target types."""
    ends = [(source, target) for source, _, target in relations]
    every = dict.fromkeys(end for pair in ends for end in pair)
    return list(every), list(dict.fromkeys(target for _, target in ends))


def check_widths(
    in_channels: Any, node_types: Iterable[NodeType]
) -> dict[NodeType, int]:
    """Return the width of each type; one number is used for all."""
    if not isinstance(in_channels, dict):
        in_channels = dict.fromkeys(node_types, in_channels)
    check_keys(in_channels, node_types, 'in_channels')
    check_all_given(in_channels, node_types, 'in_channels')
    for node_type in node_types:
        if in_channels[node_type] != -1:
            check_count(in_channels[node_type], f'in_channels[{node_type!r}]')
    return dict(in_channels)


def check_keys(value: Any, known: Iterable[Any], name: str) -> dict[Any, Any]:
    """Check the keys of a dict; return an empty one for None."""
    if value is None:
        return {}
    check_type(value, dict, name, f'a dict, such as data.{name}')
    for key in value:
        if key not in (known := list(known)):
            raise ValueError(f"'{name}' must be a dict of {known} (got {key!r})")
    return dict(value)


def check_all_given(
    rows: dict[NodeType, Any], needed: Iterable[NodeType], name: str
) -> None:
    """Raise unless each type has an entry."""
    for node_type in needed:
        if node_type not in rows:
            raise ValueError(
                f"'{name}' must have an entry for {node_type!r} (got {list(rows)})"
            )


def both_ends(value: Any, known: Iterable[Any], name: str, is_pair: bool) -> Ends:
    """Split a pair of dicts into sources and targets; one dict is both."""
    if value is None:
        return {}, {}
    if isinstance(value, tuple | list) != is_pair:
        what = 'a pair of dicts' if is_pair else 'a dict'
        raise TypeError(
            f"'{name}' must be {what} like 'x_dict' (got a {type(value).__name__})"
        )
    src, dst = as_pair(value)
    return check_keys(src, known, name), check_keys(dst, known, name)


def of_relation(relation: EdgeType, ends: Ends, is_pair: bool) -> Any:
    """Return the rows of a relation: a pair, or one tensor for one set of nodes."""
    source, target = ends[0].get(relation[0]), ends[1].get(relation[2])
    if source is None and target is None:
        return None
    return (source, target) if is_pair or relation[0] != relation[2] else source
