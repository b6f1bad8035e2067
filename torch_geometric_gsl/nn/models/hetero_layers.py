"""A stack of layers over relations, and what each is called with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.typing import EdgeType, NodeType

from torch_geometric_gsl._checks import check_absent
from torch_geometric_gsl.nn.conv.hetero_latent_graph_conv import HeteroLatentGraphConv
from torch_geometric_gsl.nn.conv.typed_relations import (
    check_all_given,
    check_keys,
    ends_of,
    split_pairs,
)

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
        """Return the options of a relation in layers that are given the input."""
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
                    layer.convs[relation].sampler = first[relation].sampler
        return torch.nn.ModuleList(layers)

    def _through(
        self,
        call: Callable[..., Rows],
        x_dict: Any,
        edges: Any,
        batch: Any,
        context: Any,
        embedding: Any,
        generator: torch.Generator | None,
    ) -> Rows:
        """Run all layers on the rows, and all but the last one on their context."""
        x, context = self._inputs(x_dict, context)
        given, of_context = self._given(x, edges, batch, context, embedding)
        layers: list[Any] = list(self.convs)
        for conv in layers[:-1]:
            args = _part(given, conv)
            hidden = context
            if context is not None:
                args['context_dict'] = context = _pick(context, conv.node_types)
                out = run(conv, context, _part(of_context, conv), generator)
                hidden = self._after(context, out)
            x = self._after(
                x, call(conv, self._rows(conv, x, context), args, generator)
            )
            context = hidden
        args = _part(given, layers[-1])
        if context is not None:
            args['context_dict'] = _pick(context, layers[-1].node_types)
        return call(layers[-1], self._rows(layers[-1], x, context), args, generator)

    def _inputs(self, x_dict: Any, context: Any) -> tuple[Rows, Rows | None]:
        """Return the rows, and those of their context, of known types."""
        if context is None:
            return check_keys(x_dict, self.node_types, 'x_dict'), None
        known = self.target_types if self.target is None else [self.target]
        x = check_keys(x_dict, known, 'x_dict')
        check_all_given(x, known if self.target else [], 'x_dict')
        context = check_keys(context, self.node_types, 'context_dict')
        if len(self.convs) > 1:
            # It passes all layers but the last by itself.
            first: Any = self.convs[0]
            first.check_context(_pick(context, first.node_types))
        return x, context

    def _given(
        self, x: Rows, edges: Any, batch: Any, context: Rows | None, embedding: Any
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
            'batch_dict': check_keys(batch, self.node_types, 'batch_dict'),
            'embedding_dict': check_keys(embedding, self.node_types, 'embedding_dict'),
        }
        if context is None:
            return given, {}
        pairs = {name: split_pairs(value, name) for name, value in given.items()}
        # Edges of the rows come from their context alone; of the rest both are seen.
        own = given | {'edge_index_dict': pairs['edge_index_dict'][1]}
        return own, {name: pair[0] for name, pair in pairs.items()}

    def _rows(self, conv: Any, x: Rows, context: Rows | None) -> Rows:
        """Return the rows that a layer takes: of new ones, its targets."""
        return _pick(x, conv.node_types if context is None else conv.target_types)

    def _after(self, rows: Rows, out: Rows) -> Rows:
        """Return the rows that come after a layer; what it leaves out stays."""
        return rows | {t: self._hidden(value) for t, value in out.items()}

    def _hidden(self, x: Tensor) -> Tensor:
        return F.dropout(self.act(x), self.dropout, self.training)


def run(conv: Any, x: Rows, args: Arguments, generator: torch.Generator | None) -> Rows:
    """Return what a layer makes of rows."""
    out: Rows = conv(x, **args, generator=generator)
    return out


def _pick(values: dict[Any, Any], keys: Iterable[Any]) -> dict[Any, Any]:
    return {key: values[key] for key in keys if key in values}


def _part(given: Arguments, conv: HeteroLatentGraphConv) -> Arguments:
    """Return what one layer is given, which may have a part of the relations."""
    args = {
        'edge_index_dict': _pick(given['edge_index_dict'], conv.relations),
        'batch_dict': _pick(given['batch_dict'], conv.node_types),
    }
    layers: list[Any] = list(conv.convs.values())
    if any(layer.compare == 'embedding' for layer in layers):
        args['embedding_dict'] = _pick(given['embedding_dict'], conv.node_types)
    return args
