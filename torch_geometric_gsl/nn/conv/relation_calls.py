"""What the layer of each relation is called with, given rows by type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn.dense.linear import is_uninitialized_parameter
from torch_geometric.typing import EdgeType, NodeType

from torch_geometric_gsl._checks import (
    check_absent,
    check_candidate_count,
    check_edge_index,
    check_edge_weight,
)
from torch_geometric_gsl.nn.conv.learned_graph_conv import check_embedding
from torch_geometric_gsl.nn.conv.typed_relations import (
    TypedRows,
    check_all_given,
    check_graph_ids,
    check_keys,
    check_rows,
    split_rows,
)

#: What the layer of a relation is called with.
Arguments = dict[str, Any]


class CallsRelations(torch.nn.Module):
    """Base class of the layers that have a layer of their own for each relation."""

    relations: list[EdgeType]
    node_types: list[NodeType]
    target_types: list[NodeType]
    in_channels: dict[NodeType, int]
    # A `ModuleDict` each, whose type does not say what it holds.
    convs: Any
    roots: Any

    def _widths(self) -> dict[NodeType, int]:
        """Return the width of each type, -1 where neither size nor input tells it."""
        projections = list(self.roots.items())
        for source, name, target in self.relations:
            conv = self.convs[source, name, target]
            projections.append((source, conv._projection('context')))
            if conv.compare == 'projected':
                projections.append((target, conv._projection('x')))
        # A relation that has not been called does not know what others do.
        known = {t: lin.in_channels for t, lin in projections if lin.in_channels != -1}
        return self.in_channels | known

    def _calls(
        self,
        x_dict: Any,
        edges: Any,
        weights: Any,
        batch: Any,
        context: Any,
        embedding: Any,
    ) -> Iterator[tuple[EdgeType, Arguments | None]]:
        """Check a call; yield each relation to its rows, and what its layer is given.

        That is None for a relation without sources.
        """
        sources, targets = self._rows(x_dict, batch, context, embedding)
        edges = check_keys(edges, self.relations, 'edge_index_dict')
        weights = check_keys(weights, self.relations, 'edge_weight_dict')
        for relation in self.relations:
            if relation[2] not in targets.x:
                continue
            ends = sources.x[relation[0]], targets.x[relation[2]]
            edge_index = edges.get(relation)
            if edge_index is not None:
                check_edge_index(edge_index, *ends, f'edge_index_dict[{relation}]')
            weight = weights.get(relation)
            if weight is not None:
                name = f'edge_weight_dict[{relation}]'
                check_edge_weight(weight, edge_index, ends[0], name)
            if ends[0].size(0) == 0 < ends[1].size(0):
                self._learn_widths(relation, ends)
                yield relation, None
                continue
            is_pair = context is not None or relation[0] != relation[2]
            self._check_count(relation, ends, edge_index, targets, is_pair)
            args = self._arguments(relation, sources, targets, edge_index, is_pair)
            yield relation, args if weight is None else args | {'edge_weight': weight}

    def _learn_widths(self, relation: EdgeType, ends: tuple[Tensor, Tensor]) -> None:
        """Initialise projections that are not called, by the widths of the rows."""
        conv = self.convs[relation]
        for name, rows in zip(('context', 'x'), ends, strict=True):
            lin = conv._projection(name)
            if is_uninitialized_parameter(lin.weight):
                lin.initialize_parameters(lin, (rows,))

    def check_context(self, context: dict[NodeType, Tensor]) -> None:
        """Raise unless a context has the rows of all types, as the layer takes them."""
        check_all_given(context, self.node_types, 'context_dict')
        like = next(self.parameters())
        check_rows(TypedRows(context, {}, {}), self._widths(), like, 'context_dict')

    def _rows(
        self, x_dict: Any, batch: Any, context: Any, embedding: Any
    ) -> tuple[TypedRows, TypedRows]:
        """Return the rows of the sources and those of the targets, checked."""
        if all(self.convs[r].compare != 'embedding' for r in self.relations):
            check_absent(embedding, 'embedding_dict', "without compare='embedding'")
        batch = check_keys(batch, self.node_types, 'batch_dict')
        embedding = check_keys(embedding, self.node_types, 'embedding_dict')
        like = next(self.parameters())
        if context is None:
            x = check_keys(x_dict, self.node_types, 'x_dict')
            check_all_given(x, self.node_types, 'x_dict')
            rows = TypedRows(x, batch, embedding)
            check_rows(rows, self._widths(), like, 'x_dict')
            check_graph_ids(rows, x if batch else [])
            return rows, rows
        x = check_keys(x_dict, self.target_types, 'x_dict')
        context = check_keys(context, self.node_types, 'context_dict')
        needed = dict.fromkeys(r[0] for r in self.relations if r[2] in x)
        check_all_given(context, needed, 'context_dict')
        sources, targets = split_rows(context, x, batch, embedding)
        check_rows(sources, self._widths(), like, 'context_dict')
        check_rows(targets, self._widths(), like, 'x_dict')
        if sources.batch or targets.batch:
            check_graph_ids(sources, needed, " in 'context_dict'")
            check_graph_ids(targets, x, " in 'x_dict'")
        return sources, targets

    def _check_count(
        self,
        relation: EdgeType,
        ends: tuple[Tensor, Tensor],
        edge_index: Tensor | None,
        targets: TypedRows,
        is_pair: bool,
    ) -> None:
        """Raise if a relation among all rows has fewer sources than are drawn."""
        conv = self.convs[relation]
        is_listed = targets.batch or (edge_index is not None and conv.prior is None)
        if conv.sampler.replace:  # Few candidates are drawn repeatedly.
            return
        if not is_listed and ends[1].size(0) > 0:
            available = ends[0].size(0) - int(not is_pair and not conv.sampler.loop)
            check_candidate_count(conv.sampler.k, available, f' of relation {relation}')

    def _arguments(
        self,
        relation: EdgeType,
        sources: TypedRows,
        targets: TypedRows,
        edge_index: Tensor | None,
        is_pair: bool,
    ) -> Arguments:
        source, _, target = relation
        args: Arguments = {'x': targets.x[target], 'edge_index': edge_index}
        if is_pair:
            args['context'] = sources.x[source]
        if targets.batch:
            of_target = targets.batch[target]
            pair = sources.batch[source], of_target
            args['batch'] = pair if is_pair else of_target
        if self.convs[relation].compare == 'embedding':
            of_source = self._embedding(relation, sources, source)
            of_target = self._embedding(relation, targets, target)
            args['embedding'] = (of_source, of_target) if is_pair else of_target
        return args

    def _embedding(self, relation: EdgeType, rows: TypedRows, kind: NodeType) -> Tensor:
        """Return the embedding of the rows of a type, checked."""
        check_all_given(rows.embedding, [kind], 'embedding_dict')
        found = rows.embedding[kind]
        sampler, name = self.convs[relation].sampler, f'embedding_dict[{kind!r}]'
        check_embedding(found, sampler, rows.x[kind].size(0), name)
        return found
