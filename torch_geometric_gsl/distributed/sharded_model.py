"""A model whose rows several processes share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from torch_geometric_gsl._checks import (
    as_pair,
    check_absent,
    check_matrix,
    check_type,
)
from torch_geometric_gsl.distributed.row_shard import RowShard
from torch_geometric_gsl.nn.conv.latent_graph_conv import LatentGraphConv
from torch_geometric_gsl.nn.conv.multiplex_latent_graph_conv import (
    MultiplexLatentGraphConv,
)
from torch_geometric_gsl.nn.conv.observed_prior import ObservedPrior
from torch_geometric_gsl.nn.conv.transition_graph_conv import TransitionGraphConv
from torch_geometric_gsl.nn.conv.transition_nodes import ProjectNodes
from torch_geometric_gsl.nn.models.gsl_net import GSLNet
from torch_geometric_gsl.nn.models.layers import Dropout
from torch_geometric_gsl.nn.models.tasks import check_choice, every_node
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.ops.edges import mix_graphs
from torch_geometric_gsl.ops.local_random import dropout
from torch_geometric_gsl.ops.runtime import full_precision
from torch_geometric_gsl.typing import Features, SampledGraph

#: Modules, the names of their parts, and the adapters of these.
Places: TypeAlias = list[tuple[torch.nn.Module, str, Any]]


class ShardedModel(torch.nn.Module):
    r"""Run a model on a table whose rows several processes share.

    Each rank gives its own rows and gets their outputs. What a layer compares and sums
    is gathered from all ranks; noise and dropout belong to the number of a row in the
    whole table, so that any number of ranks draws the graph of one process. All ranks
    make the same calls in the same order.

    The sources of a pair :obj:`(x_src, x_dst)` are the same on all ranks. Edges of a
    prior lead from any row of the table to the rows of this rank.

    Args:
        model (torch.nn.Module): A :class:`~torch_geometric_gsl.nn.GSLNet` without a
            readout, or a layer that it can have.
        shard (RowShard): The rows of this rank.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If the model has a readout.

    Example:
        >>> from torch_geometric_gsl import GSLNet
        >>> model = GSLNet(8, 16, num_layers=2, out_channels=3)
        >>> sharded = ShardedModel(model, RowShard(100))
        >>> sharded(torch.randn(100, 8)).shape
        torch.Size([100, 3])
    """

    def __init__(self, model: torch.nn.Module, shard: RowShard) -> None:
        super().__init__()
        kinds: Any = (GSLNet, LatentGraphConv, TransitionGraphConv)
        kinds += (MultiplexLatentGraphConv,)
        check_type(model, kinds, 'model', 'a GSLNet or one of its layers')
        check_type(shard, RowShard, 'shard', 'a RowShard')
        readout = getattr(model, 'readout', None)
        check_absent(readout, 'readout', 'where ranks share the rows')
        self.model: Any = model
        self.shard = shard

    def forward(self, x: Features, *args: Any, **kwargs: Any) -> Any:
        r"""Run the forward pass of the model.

        Args:
            x (torch.Tensor or tuple[torch.Tensor, torch.Tensor]): The rows of this
                rank, or a pair whose targets are those.
            *args (optional): Further arguments of the model, for these rows.
            **kwargs (optional): Its keyword arguments.
        """
        with self._shared(x):
            return self.model(x, *args, **kwargs)

    def graph(self, x: Features, *args: Any, **kwargs: Any) -> Any:
        r"""Return the edges to the rows of this rank, by their numbers in the table.

        Args:
            x (torch.Tensor or tuple[torch.Tensor, torch.Tensor]): The rows.
            *args (optional): Further arguments of the model.
            **kwargs (optional): Its keyword arguments.
        """
        with self._shared(x):
            return self.model.graph(x, *args, **kwargs)

    def graphs(self, x: Features, *args: Any, **kwargs: Any) -> list[SampledGraph]:
        r"""Return the same of each layer.

        Args:
            x (torch.Tensor or tuple[torch.Tensor, torch.Tensor]): The rows.
            *args (optional): Further arguments of the model.
            **kwargs (optional): Its keyword arguments.
        """
        with self._shared(x):
            graphs: list[SampledGraph] = self.model.graphs(x, *args, **kwargs)
        return graphs

    def loss(
        self, x: Features, y: Tensor, mask: Tensor | None = None, **kwargs: Any
    ) -> Tensor:
        r"""Return the mean loss of the labelled rows of all ranks.

        Args:
            x (torch.Tensor or tuple[torch.Tensor, torch.Tensor]): The rows of this
                rank.
            y (torch.Tensor): Their labels.
            mask (torch.Tensor, optional): The labelled rows, of which a rank may have
                none; all rows if :obj:`None`. (default: :obj:`None`)
            **kwargs (optional): Additional arguments of the model.
        """
        out = self(x, **kwargs)
        mask = every_node(out) if mask is None else mask
        check_choice(mask, out.size(0), none_ok=True)
        total, count = out[mask].sum(), len(out[mask])  # Of no rows: zero.
        if count > 0:
            task = self.model._task
            total = task.loss(out[mask], task.target(out, y, mask)) * count
        return self.shard.mean_loss(total, count)

    @torch.no_grad()
    def predict(self, x: Features, **kwargs: Any) -> Tensor:
        r"""Return the predictions of the rows of this rank.

        Args:
            x (torch.Tensor or tuple[torch.Tensor, torch.Tensor]): The rows.
            **kwargs (optional): Additional arguments of the model.
        """
        with self._shared(x):
            answers: Tensor = self.model.predict(x, **kwargs)
        return answers

    @torch.no_grad()
    def score(
        self, x: Features, y: Tensor, mask: Tensor | None = None, **kwargs: Any
    ) -> dict[str, float]:
        r"""Return the score of the rows of all ranks.

        Args:
            x (torch.Tensor or tuple[torch.Tensor, torch.Tensor]): The rows of this
                rank.
            y (torch.Tensor): Their labels.
            mask (torch.Tensor, optional): The rows that count; all rows if
                :obj:`None`. (default: :obj:`None`)
            **kwargs (optional): Additional arguments of the model.
        """
        with self._shared(x):
            out = self.model._evaluated(x, **kwargs)
        mask = every_node(out) if mask is None else mask
        check_choice(mask, out.size(0), none_ok=True)
        out, y = (self.shard.concatenate(rows[mask]) for rows in (out, y))
        scores: dict[str, float] = self.model._scored(out, y, None)
        return scores

    @contextmanager
    def _shared(self, x: Features) -> Iterator[None]:
        """Let the parts that see several rows see those of all ranks, in a block."""
        rows = x[1] if isinstance(x, tuple | list) else x
        check_matrix(rows)
        if rows.size(0) != self.shard.num_rows:
            raise ValueError(
                f"'x' must have the {self.shard.num_rows} rows of this rank "
                f'(got {rows.size(0)})'
            )
        gather = _Gather(self.shard)
        places = [
            (parent, name, _ADAPTERS[kind](child, gather))
            for parent in self.model.modules()
            for name, child in parent.named_children()
            for kind in _ADAPTERS
            if isinstance(child, kind)
        ]
        methods: dict[torch.nn.Module, dict[str, Any]] = {
            module: {'mix': partial(_mix, module, self.shard)}
            for module in self.model.modules()
            if isinstance(module, MultiplexLatentGraphConv)
        }
        if isinstance(self.model, GSLNet):
            # All ranks have the sources of a net: of these nothing is shared.
            alone = partial(_without, places, self.model._hidden)
            methods[self.model] = {'_hidden': alone}
        try:
            _place(places)
            for module, named in methods.items():
                module.__dict__.update(named)
            yield
        finally:
            _place(places, is_inner=True)
            for module, named in methods.items():
                for name in named:
                    del module.__dict__[name]


def _place(places: Places, is_inner: bool = False) -> None:
    """Put adapters into their places, or what was there."""
    for parent, name, adapter in places:
        parent._modules[name] = adapter.inner if is_inner else adapter


def _without(places: Places, call: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a function of a model while no adapter is in its place."""
    _place(places, is_inner=True)
    try:
        return call(*args, **kwargs)
    finally:
        _place(places)


def _mix(conv: Any, shard: RowShard, graphs: Any, x: Features) -> SampledGraph:
    """Mix graphs whose targets are the rows of this rank."""
    own = [graph._replace(edge_index=shard.own_edges(graph[0])) for graph in graphs]
    x_src, x_dst = as_pair(x)
    mixed = mix_graphs(own, conv.shares(x_dst), max(shard.total, x_src.size(0)))
    return _shifted(mixed, shard)


def _shifted(graph: SampledGraph, shard: RowShard) -> SampledGraph:
    """Return a graph of this rank by the numbers of its targets in the table."""
    first = graph.edge_index.new_tensor([[0], [shard.first]])
    return graph._replace(edge_index=graph.edge_index + first)


class _Gather:
    """Gather rows of all ranks, each tensor once a call."""

    def __init__(self, shard: RowShard) -> None:
        self.shard = shard
        #: Whether the sources of the last sum are the same on all ranks.
        self.is_pair = False
        self._found: dict[int, tuple[Tensor, Tensor]] = {}

    def __call__(self, x: Tensor) -> Tensor:
        if id(x) not in self._found:
            # The tensor is kept, or its number might be that of a later one.
            self._found[id(x)] = x, self.shard.gather(x)
        return self._found[id(x)][1]


class _Adapter(torch.nn.Module):
    """Base class of the parts that stand in for those of a model."""

    def __init__(self, inner: Any, gather: _Gather) -> None:
        super().__init__()
        self.training = inner.training
        self.inner = inner
        self.gather = gather
        self.shard = gather.shard

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__('inner'), name)


class _Sampler(_Adapter):
    """Sum the messages of the rows of all ranks for the rows of this one."""

    def propagate(
        self,
        z: Features,
        h: Tensor,
        *,
        generator: torch.Generator | None = None,
        return_graph: bool = False,
        **candidates: Any,
    ) -> Any:
        for name, value in candidates.items():
            check_absent(value, name, 'where ranks share the rows')
        source = h
        self.gather.is_pair = isinstance(z, tuple | list)
        if isinstance(z, tuple | list):
            compared: Features = (z[0], self._all_targets(*z))
        else:
            compared, source = self.gather(z), self.gather(h)
        how: Any = {'generator': generator, 'return_graph': return_graph}
        out = self.inner.propagate(compared, source, rows=self.shard.rows, **how)
        out, graph = out if return_graph else (out, None)
        parts = compared if isinstance(compared, tuple) else (compared,)
        others = [part for part in parts if part is not source]
        out = self.shard.attach(out, source, *others)
        return (out, graph) if return_graph else out

    def _all_targets(self, sources: Tensor, own: Tensor) -> Tensor:
        """Return the targets of all ranks, of which only the own ones are summed."""
        shard = self.shard
        if not self.inner.weighs_targets(shard.total, sources.size(0)):
            return F.pad(own, (0, 0, shard.first, shard.total - shard.rows[1]))
        # How a target draws depends on the others, but no gradient does.
        rows = shard.gather(own.detach()).split(shard.sizes)
        return torch.cat([*rows[: shard.rank], own, *rows[shard.rank + 1 :]])


class _Prior(_Adapter):
    """Mix in the edges that lead to the rows of this rank."""

    def forward(
        self, out: Tensor, h: Tensor, edge_index: Tensor, edge_weight: Any, batch: Any
    ) -> Any:
        observed = self.shard.own_edges(edge_index), edge_weight
        return self.inner(out, self._sources(h), *observed)

    def graph(
        self, graph: SampledGraph, x: Any, edge_index: Any, edge_weight: Any, batch: Any
    ) -> SampledGraph:
        shard = self.shard
        own = SampledGraph(shard.own_edges(graph.edge_index), graph.edge_weight)
        observed = shard.own_edges(edge_index), edge_weight
        mixed = self.inner.graph(own, (self._sources(x[0]), x[1]), *observed)
        return _shifted(mixed, shard)

    def _sources(self, h: Tensor) -> Tensor:
        """Return the sources, which are the same on all ranks in a pair."""
        return h if self.gather.is_pair else self.gather(h)


class _ProjectNodes(_Adapter):
    """Sum the rows of all ranks to transition nodes."""

    def forward(self, theta: Tensor, h: Tensor) -> Tensor:
        shard = self.shard
        if shard.total != theta.size(1):
            raise ValueError(
                f"'shard' must have num_nodes={theta.size(1)} rows on all ranks "
                f'together (got {shard.total})'
            )
        with torch.autocast(h.device.type, enabled=False):
            full = full_precision(h) / theta.size(1)
            own = theta[:, slice(*shard.rows)].to(full.dtype) @ full
            return shard.sum(own).to(h.dtype)


class _Dropout(_Adapter):
    """Drop values; a row loses the same ones however many ranks there are."""

    def forward(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        if not self.inner.training:
            return x
        ones = x.new_ones(self.shard.total, x.size(1))
        return x * self.shard.split(dropout(ones, self.inner.p, True, generator))


_ADAPTERS: dict[type, Any] = {
    GumbelKNNSampler: _Sampler,
    ObservedPrior: _Prior,
    ProjectNodes: _ProjectNodes,
    Dropout: _Dropout,
}
