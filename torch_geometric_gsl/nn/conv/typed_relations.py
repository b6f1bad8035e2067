"""Relations between types of nodes, and what a call gives of each type."""

from __future__ import annotations

from collections.abc import Iterable
from inspect import signature
from typing import Any, NamedTuple

from torch import Tensor
from torch_geometric.typing import EdgeType, NodeType

from torch_geometric_gsl._checks import (
    check_batch,
    check_count,
    check_features,
    check_option,
    check_parameter_match,
    check_type,
    split_pair,
)
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler

#: The options that a relation may have of its own.
OPTIONS = (
    *('similarity_kwargs', 'compare', 'embedding_channels', 'observed'),
    *signature(GumbelKNNSampler).parameters,
)

#: Options, and what says more of each of them.
DETAILS = {'similarity': 'similarity_kwargs', 'compare': 'embedding_channels'}


class TypedRows(NamedTuple):
    """Hold what a call gives by the type of the nodes: its sources, or its targets."""

    x: dict[NodeType, Tensor]
    batch: dict[NodeType, Tensor]
    embedding: dict[NodeType, Tensor]


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


def own_options(common: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a relation: those of all, where it has none of its own."""
    options = common | own
    for name, detail in DETAILS.items():
        # Details of the common option do not hold for the relation's own.
        if options[name] != common[name] and detail not in own:
            options[detail] = None
    return options


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
    for node_type in node_types:
        if node_type not in in_channels:
            raise ValueError(f"'in_channels' must tell of {node_type!r} (got none)")
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


def split_rows(
    context: dict[NodeType, Tensor],
    x: dict[NodeType, Tensor],
    batch: dict[NodeType, Any],
    embedding: dict[NodeType, Any],
) -> tuple[TypedRows, TypedRows]:
    """Return the sources, a context, and the targets, new rows: the rest is pairs."""
    batches = split_pairs(batch, 'batch_dict')
    embeddings = split_pairs(embedding, 'embedding_dict')
    return (
        TypedRows(context, batches[0], embeddings[0]),
        TypedRows(x, batches[1], embeddings[1]),
    )


def split_pairs(
    given: dict[Any, Any], name: str
) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Return what is given of the context, and of the new rows, each where it is."""
    pairs = {key: split_pair(value, f'{name}[{key!r}]') for key, value in given.items()}
    first, second = (
        {key: pair[place] for key, pair in pairs.items() if pair[place] is not None}
        for place in (0, 1)
    )
    return first, second


def check_rows(
    rows: TypedRows, widths: dict[NodeType, int], like: Tensor, name: str
) -> None:
    """Raise unless features are like parameters, and graph ids are those of rows."""
    for node_type, x in rows.x.items():
        where = f'{name}[{node_type!r}]'
        check_features(x, where, widths[node_type])
        check_parameter_match(x, like, where)
        if node_type in rows.batch:
            check_batch(rows.batch[node_type], x, f'batch_dict[{node_type!r}]')


def check_graph_ids(
    rows: TypedRows, needed: Iterable[NodeType], where: str = ''
) -> None:
    """Raise unless the graph ids of each type are there."""
    for node_type in needed:
        if node_type not in rows.batch:
            raise ValueError(
                f"'batch_dict' must have the graph ids of {node_type!r}{where} (got "
                f'those of {list(rows.batch)})'
            )


def check_all_given(
    rows: dict[NodeType, Tensor], needed: Iterable[NodeType], name: str
) -> None:
    """Raise unless the rows of each type are there."""
    for node_type in needed:
        if node_type not in rows:
            raise ValueError(
                f"'{name}' must hold the rows of {node_type!r} (got those of "
                f'{list(rows)})'
            )
