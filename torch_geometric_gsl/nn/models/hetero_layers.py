"""A stack of layers over relations, and what each is called with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch_geometric.typing import EdgeType, NodeType

from torch_geometric_gsl._checks import check_absent
from torch_geometric_gsl.nn.conv.hetero_latent_graph_conv import HeteroLatentGraphConv
from torch_geometric_gsl.nn.conv.typed_relations import (
    check_all_given,
    check_keys,
    ends_of,
    split_pairs,
)
from torch_geometric_gsl.nn.models.layers import run
from torch_geometric_gsl.ops.local_random import dropout

#: The options of each relation.
Options = dict[EdgeType, dict[str, Any]]
#: Rows, by the type of the nodes.
Rows = dict[NodeType, Tensor]
#: What a layer is called with, beside rows.
Arguments = dict[str, Any]


class StacksRelations(torch.nn.Module):
    """Base class of the models that are a stack of layers over relations."""

    relations: list[EdgeType]
    node_types: list[NodeType]
    target_types: list[NodeType]
    in_channels: dict[NodeType, int]
    target: NodeType | None
    dropout: float
    act: Callable[[Tensor], Tensor]
    #: What the similarity of each relation compares.
    compared: dict[EdgeType, str]
    convs: torch.nn.ModuleList

    def _own_options(self, relation: EdgeType, own: dict[str, Any]) -> dict[str, Any]:
        """Return a relation's options in a layer, which gets the input as embedding."""
        if self.compared[relation] != 'input':
            return own
        if 'embedding' in self.compared.values():
            raise ValueError(
                "'compare' must not be 'input' for some relations and 'embedding' for "
                'others (got both)'
            )
        source, target = (self.in_channels[end] for end in relation[::2])
        if -1 in (source, target) or source != target:
            raise ValueError(
                f"'in_channels' must be known and equal for both types with "
                f"compare='input' (got {source} and {target} of {relation})"
            )
        width = own.get('embedding_channels')
        check_absent(width, 'embedding_channels', "with compare='input'")
        return own | {'compare': 'embedding', 'embedding_channels': source}

    def _make_layers(
        self, sizes: list[tuple[int, int]], options: Options, kwargs: Arguments
    ) -> torch.nn.ModuleList:
        """Return the layers, of the relations that reach the target through them."""
        needed = {*self.target_types} if self.target is None else {self.target}
        layers: list[HeteroLatentGraphConv] = []
        for number, (width, out_channels) in reversed([*enumerate(sizes)]):
            own = {r: options[r] for r in self.relations if r[2] in needed}
            widths = {
                t: width if number and t in self.target_types else self.in_channels[t]
                for t in ends_of(own)[0]
            }
            layers.insert(0, HeteroLatentGraphConv(widths, out_channels, own, **kwargs))
            needed |= {*widths}
        first: Any = layers[0].convs
        for layer in layers[1:]:
            for relation in layer.relations:
                if self.compared[relation] != 'projected':
                    layer.convs[relation].share_sampler(first[relation])
        return torch.nn.ModuleList(layers)

    def _last_layer(
        self,
        call: Callable[..., Rows],
        x_dict: Any,
        edges: Any,
        weights: Any,
        batch: Any,
        context: Any,
        embedding: Any,
        generator: torch.Generator | None,
    ) -> tuple[Rows, Arguments]:
        """Run all layers but the last; return its rows and its arguments."""
        x, context = self._inputs(x_dict, context)
        given, of_context = self._given(x, edges, weights, batch, context, embedding)
        layers: list[Any] = list(self.convs)
        for conv in layers[:-1]:
            rows, args = _for_layer(conv, x, context, given)
            if context is not None:
                sources = args['context_dict']
                out = run(conv, sources, _part(of_context, conv), generator)
                context = self._after(sources, out, generator)
            x = self._after(x, call(conv, rows, args, generator), generator)
        return _for_layer(layers[-1], x, context, given)

    def _inputs(self, x_dict: Any, context: Any) -> tuple[Rows, Rows | None]:
        """Return the rows, and those of their context, of known types."""
        if context is None:
            return check_keys(x_dict, self.node_types, 'x_dict'), None
        known = self.target_types if self.target is None else [self.target]
        x = check_keys(x_dict, known, 'x_dict')
        check_all_given(x, known if self.target else [], 'x_dict')
        context = check_keys(context, self.node_types, 'context_dict')
        if len(self.convs) > 1:
            # The context alone passes all layers but the last, as if it were 'x_dict'.
            first: Any = self.convs[0]
            first.check_context(_pick(context, first.node_types))
        return x, context

    def _given(
        self,
        x: Rows,
        edges: Any,
        weights: Any,
        batch: Any,
        context: Rows | None,
        embedding: Any,
    ) -> tuple[Arguments, Arguments]:
        """Return what the layers are given for the rows, and for their context."""
        modes = self.compared.values()
        if 'embedding' not in modes:
            check_absent(embedding, 'embedding_dict', "without compare='embedding'")
        if 'input' in modes:
            embedding = x
            if context is not None:
                embedding = {t: (context.get(t), x.get(t)) for t in context | x}
        given = {
            'edge_index_dict': check_keys(edges, self.relations, 'edge_index_dict'),
            'edge_weight_dict': check_keys(weights, self.relations, 'edge_weight_dict'),
            'batch_dict': check_keys(batch, self.node_types, 'batch_dict'),
            'embedding_dict': check_keys(embedding, self.node_types, 'embedding_dict'),
        }
        if context is None:
            return given, {}
        pairs = {name: split_pairs(value, name) for name, value in given.items()}
        # Edges of the rows come from their context alone; of the rest both are seen.
        names = 'edge_index_dict', 'edge_weight_dict'
        own = given | {name: pairs[name][1] for name in names}
        return own, {name: pair[0] for name, pair in pairs.items()}

    def _after(self, rows: Rows, out: Rows, generator: torch.Generator | None) -> Rows:
        """Return the rows after a layer; those that it does not update stay."""
        args = self.dropout, self.training, generator
        return rows | {t: dropout(self.act(x), *args) for t, x in out.items()}


def _pick(values: dict[Any, Any], keys: Iterable[Any]) -> dict[Any, Any]:
    return {key: values[key] for key in keys if key in values}


def _for_layer(
    conv: Any, x: Rows, context: Rows | None, given: Arguments
) -> tuple[Rows, Arguments]:
    """Return the rows that a layer takes, its targets if new, and its arguments."""
    args = _part(given, conv)
    if context is None:
        return _pick(x, conv.node_types), args
    args['context_dict'] = _pick(context, conv.node_types)
    return _pick(x, conv.target_types), args


def _part(given: Arguments, conv: HeteroLatentGraphConv) -> Arguments:
    """Return what one layer is given, which may have a part of the relations."""
    args = {
        'edge_index_dict': _pick(given['edge_index_dict'], conv.relations),
        'edge_weight_dict': _pick(given['edge_weight_dict'], conv.relations),
        'batch_dict': _pick(given['batch_dict'], conv.node_types),
    }
    layers: list[Any] = list(conv.convs.values())
    if any(layer.compare == 'embedding' for layer in layers):
        args['embedding_dict'] = _pick(given['embedding_dict'], conv.node_types)
    return args
