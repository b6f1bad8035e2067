from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn.resolver import aggregation_resolver

from torch_geometric_gsl._checks import (
    check_absent,
    check_batch,
    check_context,
    check_features,
    check_generator,
    check_one_type,
    check_probability,
    split_pair,
)
from torch_geometric_gsl.distributed.row_shard import Gathered, RowShard
from torch_geometric_gsl.nn.conv.latent_graph_conv import LatentGraphConv
from torch_geometric_gsl.nn.conv.learned_graph_conv import (
    check_shard,
    compared_channels,
)
from torch_geometric_gsl.nn.conv.multiplex_latent_graph_conv import (
    MultiplexLatentGraphConv,
)
from torch_geometric_gsl.nn.conv.transition_graph_conv import TransitionGraphConv
from torch_geometric_gsl.nn.conv.transition_nodes import (
    FREE,
    KeepsAnchors,
    check_transition_nodes,
)
from torch_geometric_gsl.nn.models.base import NodeClassifier
from torch_geometric_gsl.nn.models.layers import (
    dropout_rows,
    layer_sizes,
    reset_activation,
    resolve_activation,
)
from torch_geometric_gsl.nn.models.penalties import check_regularizers, penalty
from torch_geometric_gsl.nn.models.reference import RemembersRows
from torch_geometric_gsl.nn.models.scale_choice import ChoosesScale
from torch_geometric_gsl.nn.models.tasks import resolve_task
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.ops.noise import clone_generator
from torch_geometric_gsl.typing import Batch, Features, SampledGraph

#: What layers are called with, beside their input.
Arguments = dict[str, Any]


class GSLNet(ChoosesScale, KeepsAnchors, RemembersRows, NodeClassifier):
    r"""The network of the `"Neural Gaussian Similarity Modeling for Differential
    Graph Structure Learning" <https://arxiv.org/abs/2312.09498>`_ paper: layers that
    learn their own graph, with an activation and dropout between them.

    .. math::
        \mathbf{H}^{(\ell + 1)} = \mathrm{Dropout} \left( \mathrm{ELU} \left(
        \mathrm{Conv}^{(\ell)} ( \mathbf{H}^{(\ell)} ) \right) \right)

    where :math:`\mathrm{Conv}` is a
    :class:`~torch_geometric_gsl.nn.conv.LatentGraphConv`, or a
    :class:`~torch_geometric_gsl.nn.conv.TransitionGraphConv` if
    :obj:`num_transition_nodes` is given (the paper's models with the suffix -T).
    The last layer has neither activation nor dropout.

    Transition nodes that are :obj:`"free"` or :obj:`"anchors"` serve new rows and
    mini-batches of any number of rows. :meth:`choose_anchors` keeps rows
    :math:`\mathbf{A}^{(0)}` of the input; the network runs on them beside those of a
    call, and their hidden rows :math:`\mathbf{A}^{(\ell)}` are the anchors of the later
    layers.

    With :obj:`compare="input"` the similarity of all layers sees the features
    :math:`\mathbf{X}` themselves. It is one similarity, with few parameters, and each
    layer draws its graph anew.

    Args:
        in_channels (int): Size of each input sample, or :obj:`-1` to derive the size
            from the first input to the forward method.
        hidden_channels (int): Size of each hidden sample.
        num_layers (int): The number of layers.
        out_channels (int): Size of each output sample.
        similarity (str or Similarity, optional): The similarity of two nodes, by
            name; a module serves only where all layers are equally wide, and is
            shared by them. (default: :obj:`"neural_gaussian"`)
        num_transition_nodes (int, optional): The number of transition nodes; if
            :obj:`None`, the graph joins all nodes. (default: :obj:`None`)
        num_nodes (int, optional): The number of nodes, needed with
            :obj:`num_transition_nodes` that are :obj:`"projected"`.
            (default: :obj:`None`)
        transition (str, optional): How transition nodes come about:
            :obj:`"projected"` (the paper), :obj:`"free"` or :obj:`"anchors"`, as in
            :class:`~torch_geometric_gsl.nn.conv.TransitionGraphConv`.
            (default: :obj:`"projected"`)
        dropout (float, optional): Dropout probability of the hidden samples.
            (default: :obj:`0.5`)
        act (str, Callable or None, optional): The activation, or :obj:`None` for none.
            (default: :obj:`"elu"`)
        compare (str, optional): What the similarity compares: the projected rows of
            each layer (:obj:`"projected"`, the paper), the network's input in all of
            them (:obj:`"input"`), or an :obj:`embedding` that each call gives
            (:obj:`"embedding"`). Transition nodes are projected.
            (default: :obj:`"projected"`)
        embedding_channels (int, optional): The width of that embedding.
            (default: :obj:`None`)
        scale (float or str, optional): The factor of the similarity, as in
            :class:`~torch_geometric_gsl.nn.sampler.GumbelKNNSampler`, or
            :obj:`"auto"`: 1 until :meth:`choose_scale` has chosen among several.
            (default: :obj:`1.0`)
        task (str, optional): What the model tells of a node, which :meth:`loss`,
            :meth:`predict` and :meth:`score` follow: a class (:obj:`"classification"`),
            numbers (:obj:`"regression"`, the squared error), one yes or no
            (:obj:`"binary"`, of one output), or one for each output
            (:obj:`"multilabel"`). (default: :obj:`"classification"`)
        readout (str or Aggregation, optional): What makes one output of all nodes of a
            graph, as :func:`~torch_geometric.nn.resolver.aggregation_resolver` knows
            it, such as :obj:`"mean"`; labels are those of graphs then.
            (default: :obj:`None`)
        regularizers (dict, optional): What :meth:`loss` adds, as weights by name: of
            :obj:`"smoothness"` (over the input features), :obj:`"degree"`,
            :obj:`"frobenius"`, :obj:`"entropy"` or :obj:`"prior"` (the divergence from
            the :obj:`edge_index` of the call), the functions of
            :mod:`torch_geometric_gsl.ops.regularizers`, or with several relations of
            :obj:`"overlap"` (of their graphs). (default: :obj:`None`)
        num_relations (int, optional): If given, the number of graphs of each layer, a
            :class:`~torch_geometric_gsl.nn.conv.MultiplexLatentGraphConv`; regularizers
            are means over them. (default: :obj:`None`)
        **kwargs (optional): Additional arguments of the layers, such as :obj:`k`,
            :obj:`tau`, :obj:`similarity_kwargs`, :obj:`root_weight`, :obj:`observed`
            or :obj:`null`.

    Shapes:
        - **input:** node features :math:`(|\mathcal{V}|, F_{in})`, dense or sparse
          CSR, candidate edges :math:`(2, |\mathcal{E}_c|)` *(optional)*, batch vector
          :math:`(|\mathcal{V}|)` *(optional)*, embedding
          :math:`(|\mathcal{V}|, F_{emb})` *(optional)*
        - **output:** node features :math:`(|\mathcal{V}|, F_{out})`

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range, or only one of
            :obj:`num_transition_nodes` and :obj:`num_nodes` is given where they go
            together, or :obj:`compare` is unknown or lacks its width.

    Example:
        >>> model = GSLNet(16, 32, num_layers=2, out_channels=7)
        >>> model(torch.randn(100, 16)).shape
        torch.Size([100, 7])
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        similarity: str | Similarity = 'neural_gaussian',
        num_transition_nodes: int | None = None,
        num_nodes: int | None = None,
        *,
        transition: str = 'projected',
        dropout: float = 0.5,
        act: Any = 'elu',
        compare: str = 'projected',
        embedding_channels: int | None = None,
        scale: float | str = 1.0,
        task: str = 'classification',
        readout: Any = None,
        regularizers: dict[str, float] | None = None,
        num_relations: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        sizes = layer_sizes(in_channels, hidden_channels, num_layers, out_channels)
        check_probability(dropout, 'dropout')
        check_transition_nodes(num_transition_nodes, num_nodes, transition)
        self.in_channels = in_channels
        self.hidden_channels = hidden_channels
        self.num_layers = num_layers
        self.out_channels = out_channels
        self.num_transition_nodes = num_transition_nodes
        self.num_nodes = num_nodes
        self.transition = transition
        self._await_anchors()
        self.dropout = dropout
        self.act = resolve_activation(act)
        self.task = task
        resolve_task(task, out_channels)
        self.readout = None if readout is None else aggregation_resolver(readout)
        self.compare = compare
        self.num_relations = num_relations
        numbers = num_transition_nodes, num_relations
        self.regularizers = check_regularizers(regularizers, *numbers)
        width = compared_channels(compare, in_channels, embedding_channels)
        kwargs |= {'similarity': similarity, 'scale': self._await_scale(scale)}
        self.convs = self._make_layers(sizes, width, kwargs)
        self.reset_parameters()

    def _make_layers(
        self, sizes: list[tuple[int, int]], width: int | None, options: Arguments
    ) -> torch.nn.ModuleList:
        """Return the layers; where all compare rows of one width, one similarity."""
        conv: Any = LatentGraphConv
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

    def reset_parameters(self) -> None:
        r"""Reset all learnable parameters of the module."""
        reset_activation(self.act)
        if self.readout is not None:
            self.readout.reset_parameters()
        for conv in self.convs:
            conv.reset_parameters()  # type: ignore[operator]

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | tuple[Tensor, Tensor] | None = None,
        batch: Batch | None = None,
        *,
        context: Tensor | None = None,
        embedding: Features | None = None,
        shard: RowShard | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        r"""Run the forward pass.

        Args:
            x (torch.Tensor): The node features, dense or sparse CSR.
            edge_index (torch.Tensor, optional): If given, only these edges are
                candidates, or with :obj:`observed="prior"` a graph that is mixed with
                the learned one. (default: :obj:`None`)
            batch (torch.Tensor, optional): Sorted graph ids of the nodes.
                (default: :obj:`None`)
            context (torch.Tensor, optional): The rows that are the neighbours of those
                of :obj:`x`, in place of these, in every layer. What else is given by
                row is a pair then, of the context and of :obj:`x`; edges are those of
                the context, and those from it to :obj:`x`. With transition nodes, the
                rows that make them up. (default: :obj:`None`)
            embedding (torch.Tensor, optional): What the similarity compares, if
                :obj:`compare` says so. (default: :obj:`None`)
            shard (RowShard, optional): The block of rows of this rank, if several
                processes share the nodes: all else is given for these rows.
                (default: :obj:`None`)
            generator (torch.Generator, optional): Source of randomness of the
                graphs; dropout uses the global one. (default: :obj:`None`)
        """
        check_one_type(x)
        context = self._context(context, edge_index, batch, embedding, shard)
        given = self._arguments(x, edge_index, batch, context, embedding, shard)
        x, args = self._last_layer(x, given, _outputs, generator)
        return self._read(self.convs[-1](x, **args, generator=generator), batch)

    def loss(
        self, x: Tensor, y: Tensor, mask: Tensor | None = None, **kwargs: Any
    ) -> Tensor:
        r"""Return the cross-entropy of labelled nodes, and the :obj:`regularizers`.

        These are means over the nodes and the layers, of the graphs of this call.

        Args:
            x (torch.Tensor): The node features, dense or sparse CSR.
            y (torch.Tensor): The labels :math:`[|\mathcal{V}|]`.
            mask (torch.Tensor, optional): The labelled nodes, as a boolean mask or as
                indices; all nodes if :obj:`None`. (default: :obj:`None`)
            **kwargs (optional): Additional arguments of the forward method.

        Returns:
            torch.Tensor: The loss, a number.

        Raises:
            TypeError: If :obj:`y` or :obj:`mask` has the wrong type.
            ValueError: If no node is labelled, a label is that of no class, or the
                regularizer :obj:`"prior"` lacks an :obj:`edge_index`.
        """
        if not self.regularizers:
            return super().loss(x, y, mask, **kwargs)
        given = {'generator': None} | kwargs
        for name in ('context', 'shard'):
            check_absent(given.get(name), name, "with 'regularizers'")
        generator = given.pop('generator')
        graphs: list[Any] = []
        look = 'graph' if self.num_relations is None else 'graphs'
        seen = partial(_seen, graphs, look=look)
        h, args = self._last_layer(
            x, self._checked(x, generator, **given), seen, generator
        )
        out = self._read(seen(self.convs[-1], h, args, generator), kwargs.get('batch'))
        loss = self._label_loss(out, y, mask)
        return loss + penalty(self.regularizers, x, graphs, kwargs.get('edge_index'))

    def graphs(
        self,
        x: Tensor,
        edge_index: Tensor | tuple[Tensor, Tensor] | None = None,
        batch: Batch | None = None,
        *,
        context: Tensor | None = None,
        embedding: Features | None = None,
        shard: RowShard | None = None,
        generator: torch.Generator | None = None,
    ) -> list[SampledGraph]:
        r"""Return the graph of each layer.

        Args:
            x (torch.Tensor): The node features, dense or sparse CSR.
            edge_index (torch.Tensor, optional): Candidates. (default: :obj:`None`)
            batch (torch.Tensor, optional): Sorted graph ids. (default: :obj:`None`)
            context (torch.Tensor, optional): The rows that are the neighbours of those
                of :obj:`x`. (default: :obj:`None`)
            embedding (torch.Tensor, optional): What the similarity compares.
                (default: :obj:`None`)
            shard (RowShard, optional): The block of rows of this rank, whose edges are
                returned. (default: :obj:`None`)
            generator (torch.Generator, optional): Source of randomness.
                (default: :obj:`None`)

        Returns:
            list[SampledGraph]: The edges and their weights, layer by layer.
        """
        context = self._context(context, edge_index, batch, embedding, shard)
        given = self._checked(
            x,
            generator,
            edge_index=edge_index,
            batch=batch,
            context=context,
            embedding=embedding,
            shard=shard,
        )
        graphs: list[SampledGraph] = []
        h, args = self._last_layer(x, given, partial(_seen, graphs), generator)
        last: Any = self.convs[-1]
        return [*graphs, last.graph(h, **args, generator=generator)]

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
                args = args | {'context': self._hidden(out, None)}
            out = call(conv, x, args | {'context': context}, generator)
            x = self._hidden(out, args.get('shard'))
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
        given = {'edge_index': edge_index, 'batch': batch, 'embedding': embedding}
        of_shard = {} if shard is None else {'shard': shard}
        if shard is not None:
            check_shard(
                shard,
                x,
                batch=batch,
                context=context,
                readout=self.readout,
                num_relations=self.num_relations,
            )
        if self.num_transition_nodes is not None:
            check_absent(edge_index, 'edge_index', 'with transition nodes')
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
        return given | {
            'edge_index': pairs['edge_index'][1],
            'context': context,
        }, of_context

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

    def _read(self, out: Tensor, batch: Any) -> Tensor:
        """Return the outputs of nodes, or of graphs if these are asked for."""
        if self.readout is None:
            return out
        if batch is None:
            batch = torch.zeros(len(out), dtype=torch.long, device=out.device)
        graphs: Tensor = self.readout(out, batch)
        if graphs.size(-1) != out.size(-1):
            raise ValueError(
                f"'readout' must keep the {out.size(-1)} channels of the nodes "
                f'(got {graphs.size(-1)} from {self.readout})'
            )
        return graphs

    def _hidden(self, x: Tensor, shard: RowShard | None) -> Tensor:
        return dropout_rows(self.act(x), self.dropout, self.training, shard)

    def __repr__(self) -> str:
        text = (
            f'{self.__class__.__name__}({self.in_channels}, {self.hidden_channels}, '
            f'num_layers={self.num_layers}, out_channels={self.out_channels}'
        )
        if self.num_transition_nodes is not None:
            text += f', num_transition_nodes={self.num_transition_nodes}'
        if self.transition != 'projected':
            text += f', transition={self.transition!r}'
        if self.compare != 'projected':
            text += f', compare={self.compare!r}'
        if self.task != 'classification':
            text += f', task={self.task!r}'
        if self.readout is not None:
            text += f', readout={self.readout}'
        if self.num_relations is not None:
            text += f', num_relations={self.num_relations}'
        if self.regularizers:
            text += f', regularizers={self.regularizers}'
        if self.chosen_scale is not None:
            text += f", scale='auto' ({float(self.chosen_scale):g})"
        return f'{text})'


def _outputs(
    conv: Any, x: Tensor, args: Arguments, generator: torch.Generator | None
) -> Tensor:
    out: Tensor = conv(x, **args, generator=generator)
    return out


def _seen(
    graphs: list[Any],
    conv: Any,
    x: Tensor,
    args: Arguments,
    generator: torch.Generator | None,
    look: str = 'graph',
) -> Tensor:
    """Return what a layer returns, and add its graph or graphs to those seen."""
    # Drawn twice, and the same: once to be seen, and once to be used.
    twin = clone_generator(generator, x.device)
    graphs.append(getattr(conv, look)(x, **args, generator=twin))
    return _outputs(conv, x, args, generator)
