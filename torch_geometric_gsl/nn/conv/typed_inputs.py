"""Checks of what typed layers are given: relations, widths, and rows by type."""

from __future__ import annotations

from collections.abc import Iterable
from inspect import signature
from typing import Any

from torch import Tensor
from torch_geometric.typing import EdgeType, NodeType

from torch_geometric_gsl._checks import as_pair, check_count, check_option, check_type
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler

#: The options that a relation may have in place of its layer's.
OPTIONS = (
    *('similarity_kwargs', 'z_channels', 'observed'),
    *signature(GumbelKNNSampler).parameters,
)


def check_relations(relations: Any) -> dict[EdgeType, dict[str, Any]]:
    """Return the options of each relation, which may be listed without any."""
    if not isinstance(relations, dict):
        return {relation: {} for relation in list_edge_types(relations, 'relations')}
    list_edge_types(list(relations), 'relations')
    for relation, options in relations.items():
        name = f'relations[{relation}]'
        check_type(options, dict, name, 'a dict of options')
        for option in options:
            check_option(option, OPTIONS, name)
    return dict(relations)


def list_edge_types(edge_types: Any, name: str) -> list[EdgeType]:
    """Return distinct edge types: a source, a name and a target each."""
    if isinstance(edge_types, str) or not isinstance(edge_types, Iterable):
        raise TypeError(
            f"'{name}' must be a list of edge types (got {type(edge_types).__name__})"
        )
    listed = list(edge_types)
    if not listed:
        raise ValueError(f"'{name}' must hold an edge type (got none)")
    for edge_type in listed:
        is_triple = isinstance(edge_type, tuple) and len(edge_type) == 3
        if not is_triple or not all(isinstance(p, str) and p for p in edge_type):
            raise ValueError(
                f"'{name}' must hold edge types (source, name, target) "
                f'(got {edge_type!r})'
            )
        if listed.count(edge_type) > 1:
            raise ValueError(f"'{name}' must be distinct (got {edge_type} twice)")
    return listed


def ends_of(relations: Iterable[EdgeType]) -> tuple[list[NodeType], list[NodeType]]:
    """Return the types that relations join, and those that they lead to."""
    ends = [(source, target) for source, _, target in relations]
    every = dict.fromkeys(end for pair in ends for end in pair)
    return list(every), list(dict.fromkeys(target for _, target in ends))


def check_widths(
    in_channels: Any, node_types: Iterable[NodeType]
) -> dict[NodeType, int]:
    """Return the width of each type; one number is that of all."""
    if not isinstance(in_channels, dict):
        in_channels = dict.fromkeys(node_types, in_channels)
    check_keys(in_channels, node_types, 'in_channels')
    check_all_given(in_channels, node_types, 'in_channels')
    for node_type in node_types:
        if in_channels[node_type] != -1:
            check_count(in_channels[node_type], f'in_channels[{node_type!r}]')
    return dict(in_channels)


def check_keys(value: Any, known: Iterable[Any], name: str) -> dict[Any, Any]:
    """Return a dict whose keys must be known; an empty one in place of None."""
    if value is None:
        return {}
    check_type(value, dict, name, 'a dict')
    known = list(known)
    for key in value:
        if key not in known:
            raise ValueError(f"'{name}' must be a dict of {known} (got {key!r})")
    return dict(value)


def check_all_given(
    rows: dict[NodeType, Any], needed: Iterable[NodeType], name: str
) -> None:
    """Raise unless there is an entry for each type."""
    for node_type in needed:
        if node_type not in rows:
            raise ValueError(
                f"'{name}' must have an entry for {node_type!r} (got {list(rows)})"
            )


def both_ends(
    value: Any, known: Iterable[Any], name: str, is_pair: bool
) -> tuple[dict[Any, Tensor], dict[Any, Tensor]]:
    """Return the entries of sources and of targets, of which one dict holds both."""
    if value is None:
        return {}, {}
    if isinstance(value, tuple | list) != is_pair:
        what = 'a pair of dicts' if is_pair else 'a dict'
        raise TypeError(
            f"'{name}' must be {what} like 'x_dict' (got a {type(value).__name__})"
        )
    if not is_pair:
        both = check_keys(value, known, name)
        return both, both
    src, dst = as_pair(value, name)
    known = list(known)
    return check_keys(src, known, name), check_keys(dst, known, name)
