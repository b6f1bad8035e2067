"""A stack of layers that learn their graphs, and what each is called with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torch_geometric_gsl._checks import (
    check_absent,
    check_batch,
    check_context,
    check_features,
    check_generator,
    split_pair,
)
from torch_geometric_gsl.distributed.row_shard import Gathered, RowShard
from torch_geometric_gsl.nn.conv.latent_graph_conv import LatentGraphConv
from torch_geometric_gsl.nn.conv.learned_graph_conv import check_shard
from torch_geometric_gsl.nn.conv.multiplex_latent_graph_conv import (
    MultiplexLatentGraphConv,
)
from torch_geometric_gsl.nn.conv.transition_graph_conv import TransitionGraphConv
from torch_geometric_gsl.nn.conv.transition_nodes import FREE, KeepsAnchors
from torch_geometric_gsl.nn.models.layers import dropout_rows

#: What layers are called with, beside their input.
Arguments = dict[str, Any]


class StacksLayers(KeepsAnchors):
    """Base class of the models that are a stack of layers which learn their graphs."""

    compare: str
    num_relations: int | None
    dropout: float
    act: Callable[[Tensor], Tensor]
    readout: Any
    convs: torch.nn.ModuleList

    def _make_layers(
        self, sizes: list[tuple[int, int]], width: int | None, options: Arguments
    ) -> torch.nn.ModuleList:
        """Return the layers; where all compare rows of one width, one similarity."""
        conv: Any = LatentGraphConv
        check_absent(options.get('label_channels'), 'label_channels', 'in a GSLNet')
        if self.num_transition_nodes is not None:
            if width is not None:
                raise ValueError(
                    f"'compare' must be 'projected' with transition nodes "
                    f'(got {self.compare!r})'
                )
            check_absent(self.num_relations, 'num_relations', 'with transition nodes')
            conv = TransitionGraphConv
            names = 'num_nodes', 'transition', 'num_transition_nodes'
            options |= {name: getattr(self, name) for name in names}
        elif self.num_relations is not None:
            conv = MultiplexLatentGraphConv
            options |= {'num_relations': self.num_relations}
        if width is not None:
            options |= {'compare': 'embedding', 'embedding_channels': width}
        layers = torch.nn.ModuleList(conv(*size, **options) for size in sizes)
        if width is not None:
            for layer in layers[1:]:
                layer.share_sampler(layers[0])  # type: ignore[operator]
        return layers

    def _last_layer(
        self,
        x: Tensor,
        given: tuple[Arguments, Arguments],
        call: Callable[..., Tensor],
        generator: torch.Generator | None,
    ) -> tuple[Tensor, Arguments]:
        """Run all layers but the last; return its input and its arguments."""
        args, of_context = given
        for conv in self.convs[:-1]:
            context = args.get('context')
            if context is not None:
                if self.transition == 'anchors':  # Their own ones in all layers.
                    of_context = {'context': context}
                out = conv(context, **of_context, generator=generator)
                args = args | {'context': self._hidden(out, None, generator)}
            out = call(conv, x, args | {'context': context}, generator)
            x = self._hidden(out, args.get('shard'), generator)
        return x, args

    def _checked(
        self, x: Tensor, generator: torch.Generator | None, **given: Any
    ) -> tuple[Arguments, Arguments]:
        """Return the arguments of layers of a call that looks at graphs."""
        check_features(x)
        check_generator(generator, x.device)
        return self._arguments(x, **given)

    def _arguments(
        self,
        x: Tensor,
        edge_index: Any = None,
        edge_weight: Any = None,
        batch: Any = None,
        context: Tensor | None = None,
        embedding: Any = None,
        shard: RowShard | None = None,
    ) -> tuple[Arguments, Arguments]:
        """Return the arguments of the layers for the rows, and for their context."""
        if self.compare != 'embedding':
            check_absent(embedding, 'embedding', f'with compare={self.compare!r}')
        if context is not None:
            check_absent(self.readout, 'context', 'with a readout')
            check_features(x)
            check_context(context, x)
        given = {'edge_index': edge_index, 'edge_weight': edge_weight}
        given |= {'batch': batch, 'embedding': embedding}
        of_shard = {} if shard is None else {'shard': shard}
        own = {'readout': self.readout, 'num_relations': self.num_relations}
        check_shard(shard, x, batch=batch, context=context, **own)
        if self.num_transition_nodes is not None:
            for name in ('edge_index', 'edge_weight'):
                check_absent(given[name], name, 'with transition nodes')
            return self._transition_arguments(x, batch, context) | of_shard, {}
        if context is None:
            if self.compare == 'input':
                given['embedding'] = x
            return self._shared_embedding(given, shard) | of_shard, {}
        if self.compare == 'input':
            given['embedding'] = (context, x)
        pairs = {name: split_pair(value, name) for name, value in given.items()}
        of_context = {name: pair[0] for name, pair in pairs.items()}
        # Edges of the rows come from their context alone; of the rest both are seen.
        of_rows = {name: pairs[name][1] for name in ('edge_index', 'edge_weight')}
        return given | of_rows | {'context': context}, of_context

    def _shared_embedding(self, given: Arguments, shard: RowShard | None) -> Arguments:
        """Gather what all layers compare, once for all of them."""
        embedding = given['embedding']
        if shard is None or embedding is None:
            return given
        return given | {'embedding': Gathered(shard.gather(embedding))}

    def _transition_arguments(
        self, x: Tensor, batch: Any, context: Tensor | None
    ) -> Arguments:
        """Return the arguments of layers of transition nodes."""
        if self.readout is None or self.transition == 'projected':
            check_absent(batch, 'batch', 'with transition nodes')
        elif batch is not None:
            check_features(x)
            check_batch(batch, x)
        if self.transition == 'free':
            check_absent(context, 'context', FREE)
        if self.transition == 'anchors':
            context = self._anchor_rows(context)
        return {'context': context}

    def _hidden(
        self, x: Tensor, shard: RowShard | None, generator: torch.Generator | None
    ) -> Tensor:
        return dropout_rows(self.act(x), self.dropout, self.training, shard, generator)
