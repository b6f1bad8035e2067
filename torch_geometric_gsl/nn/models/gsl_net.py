from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch_geometric.nn.inits import reset
from torch_geometric.nn.resolver import aggregation_resolver
from typing_extensions import Unpack

from torch_geometric_gsl._checks import (
    Ends,
    check_absent,
    check_batch,
    check_compared,
    check_edge_index,
    check_edge_weight,
    check_ends,
    check_features,
    check_matrix,
    check_num_nodes,
    check_one_type,
    check_parameter_match,
    check_type,
)
from torch_geometric_gsl.distributed.row_shard import RowShard
from torch_geometric_gsl.nn.conv.latent_graph_conv import LatentGraphConv
from torch_geometric_gsl.nn.conv.learned_graph_conv import (
    AnchorMixin,
    check_serves_as_z,
    check_transition,
    compared_width,
)
from torch_geometric_gsl.nn.conv.transition_graph_conv import TransitionGraphConv
from torch_geometric_gsl.nn.models.base import (
    Dropout,
    NodeClassifier,
    resolve_activation,
)
from torch_geometric_gsl.nn.models.row_index import (
    RowIndexMixin,
    evaluation_at_full_precision,
)
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import share_similarities
from torch_geometric_gsl.nn.sampler.options import (
    LayerOptions,
    check_options,
    paper_options,
)
from torch_geometric_gsl.nn.shared_module import keep_state
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.ops.runtime import check_not_batched
from torch_geometric_gsl.typing import Batch, Features, SampledGraph

#: The arguments of a layer other than rows.
Arguments = dict[str, Any]
# Ends the error of options that transition nodes do not support.
_WITH_TRANSITION = 'with transition nodes'


class GSLNet(AnchorMixin, RowIndexMixin, NodeClassifier):
    r"""Network of layers that learn their own graph, after the `"Neural Gaussian
    Similarity Modeling for Differential Graph Structure Learning"
    <https://arxiv.org/abs/2312.09498>`_ paper, with an activation and dropout between
    layers. :meth:`paper` is the model as printed.

    .. math::
        \mathbf{H}^{(\ell + 1)} = \mathrm{Dropout} \left( \mathrm{ReLU} \left(
        \mathrm{Conv}^{(\ell)} ( \mathbf{H}^{(\ell)} ) \right) \right)

    where :math:`\mathrm{Conv}` is a
    :class:`~torch_geometric_gsl.nn.conv.LatentGraphConv`, or a
    :class:`~torch_geometric_gsl.nn.conv.TransitionGraphConv` if
    :obj:`num_transition_nodes` is given (the paper's models with the suffix -T).
    The last layer has neither activation nor dropout.

    :meth:`choose_anchors` chooses rows of the input; their hidden rows are the anchors
    of later layers. With :obj:`z_channels` all layers compare the same rows by one
    sampler, and each samples its own graph. The plan of its draws is
    :obj:`model.convs[0].sampler.plan(x)`.

    Pass new rows as a pair :obj:`(x_src, x_dst)`: in every layer the sources attend to
    each other, and the targets to the sources only. :meth:`index` computes the rows of
    the sources in all layers once, and keeps them.

    Args:
        in_channels (int): Size of each input sample; :obj:`-1` for lazy initialization.
        hidden_channels (int): Size of each hidden sample.
        num_layers (int): The number of layers.
        out_channels (int): Size of each output sample.
        similarity (str or Similarity, optional): The similarity of two nodes, by
            name; a module is shared by all layers, which must be equally wide.
            :obj:`"mixture"` without arguments becomes :obj:`"distance"` where one
            column is compared, or two of the input. (default: :obj:`"mixture"`)
        num_transition_nodes (int, optional): The number of transition nodes; if
            :obj:`None`, the graph joins all nodes. (default: :obj:`None`)
        num_nodes, transition (optional): As in
            :class:`~torch_geometric_gsl.nn.conv.TransitionGraphConv`.
        dropout (float, optional): Dropout probability of the hidden samples.
            (default: :obj:`0.5`)
        act (str, Callable or None, optional): The activation, or :obj:`None` for none.
            (default: :obj:`"relu"`)
        z_channels (int or str, optional): The width of the rows that all layers
            compare, as in :class:`~torch_geometric_gsl.nn.conv.LatentGraphConv`.
            :obj:`"auto"` is :obj:`-1`, or :obj:`None` if the width of the input is
            unknown, with transition nodes, or if the similarity has the width of all
            layers. (default: :obj:`"auto"`)
        task (str, optional): The task of :meth:`loss`, :meth:`predict` and
            :meth:`score`: :obj:`"classification"`, :obj:`"regression"` (squared
            error), :obj:`"binary"` (one output), or :obj:`"multilabel"` (each output
            is binary). (default: :obj:`"classification"`)
        readout (str or Aggregation, optional): Aggregates the outputs of a graph's
            nodes, by :func:`~torch_geometric.nn.resolver.aggregation_resolver`, such as
            :obj:`"mean"`; labels are then those of graphs. (default: :obj:`None`)
        **kwargs (optional): Additional arguments of the layers, such as :obj:`k`,
            :obj:`tau`, :obj:`similarity_kwargs`, :obj:`root_weight` or
            :obj:`null_score`, with the defaults of the layers.

    Shapes:
        - **input and output:** as in
          :class:`~torch_geometric_gsl.nn.conv.LatentGraphConv`, where edges may be a
          pair as well

    Raises:
        ValueError: If only one of :obj:`num_transition_nodes` and :obj:`num_nodes` is
            given and both are required.

    Example:
        >>> model = GSLNet(16, 32, num_layers=2, out_channels=7)
        >>> model(torch.randn(100, 16)).shape
        torch.Size([100, 7])
        >>> # Refine a given graph by the cosine of the features.
        >>> options = {'z_channels': -1, 'scale': 20.0, 'null_score': 5.0}
        >>> model = GSLNet(16, 32, 2, 7, 'linear', **options)
        >>> model(torch.randn(100, 16), torch.randint(100, (2, 400))).shape
        torch.Size([100, 7])
    """

    # The sources of all layers but the first are stacked.
    _INDEXED = 'x', 'edge_index', 'edge_weight', 'z', 'hidden'

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        similarity: str | Similarity = 'mixture',
        num_transition_nodes: int | None = None,
        num_nodes: int | None = None,
        *,
        transition: str = 'projected',
        dropout: float = 0.5,
        act: Any = 'relu',
        z_channels: int | str | None = 'auto',
        task: str = 'classification',
        readout: Any = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__()
        widths = in_channels, hidden_channels, num_layers, out_channels
        sizes = self._keep_sizes(*widths, task=task)
        check_transition(transition, num_nodes, num_transition_nodes)
        self.num_transition_nodes = num_transition_nodes
        self.num_nodes = num_nodes
        self.transition = transition
        self._init_anchors()
        self.dropout = Dropout(dropout)
        self.act = resolve_activation(act)
        self.readout = None if readout is None else aggregation_resolver(readout)
        if z_channels == 'auto':
            # A module compares rows of its width; transition nodes are projections.
            width = getattr(similarity, 'in_channels', in_channels)
            # Of layers that are not equally wide, only the input has one width.
            is_input = width == in_channels or {width} != {out for _, out in sizes}
            is_input &= in_channels != -1
            z_channels = -1 if is_input and num_transition_nodes is None else None
        self.z_channels = compared_width(z_channels, in_channels)  # type: ignore[arg-type]
        self.convs = self._make_layers(sizes, {'similarity': similarity, **kwargs})
        with keep_state(similarity, act, readout):
            self.reset_parameters()

    @classmethod
    def paper(cls, *args: Any, **kwargs: Any) -> GSLNet:
        r"""Return the model as printed in the paper, with the constructor's arguments:
        neural Gaussian similarity of projections, draws with loops at :obj:`tau=0.25`
        and :obj:`scale=1`, ELU, and sums over all nodes in evaluation mode.

        Example:
            >>> GSLNet.paper(16, 32, 2, 7)(torch.randn(100, 16)).shape
            torch.Size([100, 7])
        """
        return cls(
            *args, **paper_options(cls, args, kwargs, act='elu', z_channels=None)
        )

    def _make_layers(
        self, sizes: list[tuple[int, int]], options: Arguments
    ) -> torch.nn.ModuleList:
        """Create the layers; those that compare the same rows share a sampler."""
        supported = {'similarity', *LayerOptions.__annotations__}
        check_options(type(self), options, supported)
        conv: Any = LatentGraphConv
        if self.num_transition_nodes is None:
            options |= {'z_channels': self.z_channels}
        else:
            conv = TransitionGraphConv
            check_absent(self.z_channels, 'z_channels', _WITH_TRANSITION)
            for name in ('num_nodes', 'transition', 'num_transition_nodes'):
                options[name] = getattr(self, name)
        layers = torch.nn.ModuleList(conv(*size, **options) for size in sizes)
        if self.z_channels is not None:
            for layer in layers[1:]:
                layer.share_sampler(layers[0])  # type: ignore[operator]
        share_similarities(layers)
        return layers

    def reset_parameters(self) -> None:
        r"""Reset all learnable parameters of the module; delete the index."""
        for module in (self.act, self.readout, self.convs):
            reset(module)
        self.clear_index()

    def forward(
        self,
        x: Features,
        edge_index: Features | None = None,
        edge_weight: Features | None = None,
        batch: Batch | None = None,
        *,
        z: Features | None = None,
        generator: torch.Generator | None = None,
        shard: RowShard | None = None,
        return_graph: bool = False,
    ) -> Tensor | tuple[Tensor, list[SampledGraph]]:
        r"""Run the forward pass.

        The arguments are those of
        :meth:`~torch_geometric_gsl.nn.conv.LatentGraphConv.forward`, except :obj:`y`.
        With a pair :obj:`(x_src, x_dst)` all others are pairs as well: edges between
        sources, and edges from sources to targets. After :meth:`index`, a tensor
        :obj:`x` holds new rows in evaluation mode, unless graph ids are given. Dropout
        uses the :obj:`generator` too. With :obj:`return_graph=True` it also returns the
        graph of each layer. A :obj:`shard` excludes a readout; with it :meth:`loss` and
        :meth:`score` are those of the labelled rows of all processes.
        """
        check_one_type(x)  # PyG's `to_hetero` traces this method.
        check_not_batched(self, (x, z), self.parameters())
        if shard is not None:
            check_type(shard, RowShard, 'shard', 'a RowShard')
            check_absent(self.readout, 'readout', "with 'shard'")
            shard = shard.memoized()  # All layers may compare the same rows.
        src, dst, src_args, args = self._inputs(x, edge_index, edge_weight, batch, z)
        is_pair = isinstance(x, tuple | list)
        # Anchors are sources without an index, too.
        is_indexed = src is not None and not is_pair and self.transition == 'projected'
        hidden = None
        # A part of the model may still be random.
        if is_indexed and not any(module.training for module in self.modules()):
            hidden = self._index_tensor('hidden')
        graphs: list[SampledGraph] = []
        last_layer = self.num_layers - 1
        call_options: Arguments = {'generator': generator, 'shard': shard}
        call_options['return_graph'] = return_graph
        for layer, conv in enumerate(self.convs):
            rows: Features = dst if src is None else (src, dst)
            if src is not None and hidden is None and layer < last_layer:
                src = self._hidden(conv, src, src_args, generator)
            out: Any = conv(rows, **args, **call_options)
            if return_graph:
                out, graph = out
                graphs.append(graph)
            dst = out
            if layer < last_layer:
                dst = self.dropout(self.act(out), generator, shard)
            if hidden is not None and layer < last_layer:
                src = hidden[layer].to(dst.dtype)  # Lower under autocast.
        out = self._apply_readout(dst, batch)
        if self.training and batch is None:
            self._note_num_trained(x)
        return (out, graphs) if return_graph else out

    def index(
        self,
        x: Tensor,
        edge_index: Tensor | None = None,
        edge_weight: Tensor | None = None,
        *,
        z: Tensor | None = None,
    ) -> GSLNet:
        r"""Compute the sources of later calls in evaluation mode, and keep them.

        Such a call holds new rows, unless it passes a pair or graph ids; edges lead
        from indexed rows to new ones. The arguments are those of :meth:`forward`. The
        rows and their hidden rows in all layers are computed here, in evaluation mode,
        without gradients and in the precision of the parameters. Later changes of
        parameters or options do not update them, except if a part of the model stays in
        training mode, such as dropout for estimates of uncertainty: then each call
        computes the hidden rows anew.

        The index is part of the :obj:`state_dict`, of saved models and of copies.
        :meth:`clear_index`, :meth:`train`, :meth:`reset_parameters` and a loaded
        :obj:`state_dict` delete it; the latter brings its own. Returns the model
        itself.
        """
        self._check_index(x, edge_index, edge_weight, z)
        edges_and_z: Arguments
        edges_and_z = {'edge_index': edge_index, 'edge_weight': edge_weight, 'z': z}
        src_args = self._layer_args(x, edges_and_z)
        hidden = [x]
        with evaluation_at_full_precision(self, x) as model:
            for conv in model.convs[:-1]:
                hidden.append(model._hidden(conv, hidden[-1], src_args))
        stacked = torch.stack(hidden[1:]) if len(hidden) > 1 else None
        self._store_index(x=x, hidden=stacked, **edges_and_z)
        return self

    def graphs(self, *args: Any, **kwargs: Any) -> list[SampledGraph]:
        r"""Return the graph of each layer that :meth:`forward` sums over, given the
        same arguments.
        """
        _, graphs = self(*args, **kwargs, return_graph=True)
        return list(graphs)

    def _inputs(
        self, x: Any, edge_index: Any, edge_weight: Any, batch: Any, z: Any
    ) -> tuple[Tensor | None, Tensor, Arguments, Arguments]:
        """Return sources and targets, and the arguments of layers for both.

        There are no sources if the layers join the rows of one set.
        """
        self._check_z(z)
        args = {'edge_index': edge_index, 'edge_weight': edge_weight}
        args |= {'batch': batch, 'z': z}
        src_args: Arguments = dict.fromkeys(args)
        src: Tensor | None = None
        dst: Any = x
        ends: Ends | None = None
        if isinstance(x, tuple | list):
            ends = check_ends(cast(Features, x), self.in_channels)
        elif self.transition == 'anchors':
            src = self._required_anchors()
        elif self.transition == 'projected':
            has_edges = edge_index is not None
            if self._indexed(x, batch, self.readout is None, has_edges) is not None:
                ends, args = self._with_index(x, args)
        if ends is not None:
            src, dst, _ = ends
            pairs = {name: ends.like(value, name) for name, value in args.items()}
            src_args = {name: pair.src for name, pair in pairs.items()}
            # Edges start at sources only; layers take the other pairs whole.
            for name in ('edge_index', 'edge_weight'):
                args[name] = pairs[name].dst
        if z is None and self.z_channels is not None:
            check_matrix(dst, width=self.in_channels)
            check_serves_as_z(x, self.z_channels)
        if self.num_transition_nodes is not None:
            for layer_args in (src_args, args):
                for name in ('edge_index', 'edge_weight'):
                    check_absent(layer_args[name], name, _WITH_TRANSITION)
            self._check_batch(batch, dst)
            src_args['batch'] = args['batch'] = None
        rows = dst if src is None else (src, dst)
        src_args = self._layer_args(src, src_args)
        return src, dst, src_args, self._layer_args(rows, args)

    def _check_index(
        self, x: Any, edge_index: Any, edge_weight: Any, z: Tensor | None
    ) -> None:
        """Raise unless rows can be indexed."""
        check_features(x, width=self.in_channels)
        if self.transition != 'projected':
            raise ValueError(
                f'index() is not supported with transition={self.transition!r}, where '
                'new rows need no other rows (got rows)'
            )
        if self.num_nodes is not None:
            check_num_nodes(x, self.num_nodes)
        if self.num_transition_nodes is not None:
            check_absent(edge_index, 'edge_index', _WITH_TRANSITION)
            check_absent(edge_weight, 'edge_weight', _WITH_TRANSITION)
        check_parameter_match(x, next(self.parameters()))
        self._check_z(z)
        if edge_index is not None:
            check_edge_index(edge_index, x, x)
        if edge_weight is not None:
            check_edge_weight(edge_weight, edge_index, x)
        if z is not None:
            check_compared(z, self.z_channels or 0, x)
        elif self.z_channels is not None:
            check_serves_as_z(x, self.z_channels)

    def _check_z(self, z: Any) -> None:
        if z is not None and self.z_channels is None:
            raise ValueError("'z' needs a model with 'z_channels' (got None)")

    def _with_index(self, x: Tensor, args: Arguments) -> tuple[Ends, Arguments]:
        """Make pairs of the indexed rows and new ones, and of their arguments."""
        index_z = self._index_tensor('z')
        z = args['z']
        if (index_z is None) != (z is None):
            rows_with_z = 'the new' if z is not None else 'the indexed'
            raise ValueError(
                f"'z' must be given both to 'index' and with new rows, or to "
                f'neither (got z of {rows_with_z} rows only)'
            )
        args = args | {'z': None if z is None else (index_z, z)}
        for name in ('edge_index', 'edge_weight'):
            args[name] = self._index_tensor(name), args[name]
        return Ends(self._index_tensor('x'), x, is_pair=True), args

    def _layer_args(self, x: Any, args: Arguments) -> Arguments:
        """Return the arguments that are given; without `z`, features are compared."""
        if self.z_channels is not None and args['z'] is None:
            args = args | {'z': x}
        return {name: value for name, value in args.items() if value is not None}

    def _hidden(
        self,
        conv: Any,
        src: Tensor,
        src_args: Arguments,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return the sources of the next layer."""
        rows = (src, src) if self.transition == 'anchors' else src
        out = self.act(conv(rows, **src_args, generator=generator))
        hidden: Tensor = self.dropout(out, generator)
        return hidden

    def _check_batch(self, batch: Any, x: Any) -> None:
        """Check graph ids with transition nodes, which only a readout uses."""
        if self.readout is None or self.transition == 'projected':
            check_absent(batch, 'batch', _WITH_TRANSITION)
        if batch is not None:
            check_matrix(x)
            check_batch(Ends.of(batch, 'batch').dst, x)

    def _apply_readout(self, out: Tensor, batch: Any) -> Tensor:
        """Apply the readout."""
        if self.readout is None:
            return out
        batch = Ends.of(batch, 'batch').dst
        if batch is None:
            batch = torch.zeros(len(out), dtype=torch.long, device=out.device)
        graphs: Tensor = self.readout(out, batch)
        if graphs.size(-1) != out.size(-1):
            raise ValueError(
                f"'readout' must keep the {out.size(-1)} channels of the nodes "
                f'(got {graphs.size(-1)} from {self.readout})'
            )
        return graphs
