from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn.resolver import aggregation_resolver

from torch_geometric_gsl._checks import (
    check_one_type,
    check_probability,
)
from torch_geometric_gsl.distributed.row_shard import RowShard
from torch_geometric_gsl.nn.conv.learned_graph_conv import compared_channels
from torch_geometric_gsl.nn.conv.transition_nodes import check_transition_nodes
from torch_geometric_gsl.nn.models.base import NodeClassifier
from torch_geometric_gsl.nn.models.layers import (
    layer_sizes,
    reset_activation,
    resolve_activation,
    run,
)
from torch_geometric_gsl.nn.models.reference import RemembersRows
from torch_geometric_gsl.nn.models.scale_choice import ChoosesScale
from torch_geometric_gsl.nn.models.stacks_layers import StacksLayers
from torch_geometric_gsl.nn.models.tasks import resolve_task
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.typing import Batch, Features, SampledGraph


class GSLNet(ChoosesScale, StacksLayers, RemembersRows, NodeClassifier):
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
        num_relations (int, optional): If given, the number of graphs of each layer, a
            :class:`~torch_geometric_gsl.nn.conv.MultiplexLatentGraphConv`.
            (default: :obj:`None`)
        **kwargs (optional): Additional arguments of the layers, such as :obj:`k`,
            :obj:`tau`, :obj:`similarity_kwargs`, :obj:`root_weight`,
            :obj:`null_score`, or :obj:`observed`, which tells what the
            :obj:`edge_index` of a call is: :obj:`"candidates"`, or a :obj:`"prior"` to
            mix with a learned graph.

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
        >>> # The cosine of the features refines a given graph.
        >>> options = {'compare': 'input', 'scale': 20.0, 'null_score': 5.0}
        >>> model = GSLNet(16, 32, 2, 7, 'linear', **options)
        >>> model(torch.randn(100, 16), torch.randint(100, (2, 400))).shape
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
        width = compared_channels(compare, in_channels, embedding_channels)
        kwargs |= {'similarity': similarity, 'scale': self._await_scale(scale)}
        self.convs = self._make_layers(sizes, width, kwargs)
        self.reset_parameters()

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
        edge_weight: Tensor | tuple[Tensor, Tensor] | None = None,
        batch: Batch | None = None,
        *,
        context: Tensor | None = None,
        embedding: Features | None = None,
        shard: RowShard | None = None,
        generator: torch.Generator | None = None,
        return_graph: bool = False,
    ) -> Tensor | tuple[Tensor, list[Any]]:
        r"""Run the forward pass.

        Args:
            x (torch.Tensor): The node features, dense or sparse CSR.
            edge_index (torch.Tensor, optional): If given, only these edges are
                candidates, or with :obj:`observed="prior"` a graph that is mixed with
                the learned one. (default: :obj:`None`)
            edge_weight (torch.Tensor, optional): Their weights, not negative: a prior
                of the choice, whose logarithm is added to the scores; an observed
                graph has these weights. (default: :obj:`None`)
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
                graphs and of dropout; the global one if :obj:`None`.
                (default: :obj:`None`)
            return_graph (bool, optional): If :obj:`True`, returns the graph of each
                layer that this call summed over as well, such as for a regularizer of
                :mod:`torch_geometric_gsl.ops.regularizers`; of several relations a
                list. (default: :obj:`False`)
        """
        check_one_type(x)
        context = self._context(x, context, edge_index, batch, embedding, shard)
        edges = edge_index, edge_weight
        given = self._arguments(x, *edges, batch, context, embedding, shard)
        graphs: list[Any] | None = [] if return_graph else None
        call = partial(run, graphs=graphs)
        x, args = self._last_layer(x, given, call, generator)
        out = self._read(call(self.convs[-1], x, args, generator), batch)
        return out if graphs is None else (out, graphs)

    def graphs(
        self,
        x: Tensor,
        edge_index: Tensor | tuple[Tensor, Tensor] | None = None,
        edge_weight: Tensor | tuple[Tensor, Tensor] | None = None,
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
            edge_weight (torch.Tensor, optional): Their weights, a prior.
                (default: :obj:`None`)
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
        context = self._context(x, context, edge_index, batch, embedding, shard)
        given = self._checked(
            x,
            generator,
            edge_index=edge_index,
            edge_weight=edge_weight,
            batch=batch,
            context=context,
            embedding=embedding,
            shard=shard,
        )
        graphs: list[Any] = []

        def call(conv: Any, x: Tensor, args: Any, generator: Any) -> Tensor:
            out: Tensor = run(conv, x, args, generator, graphs)
            if isinstance(graphs[-1], list):  # Those of several relations.
                graphs[-1] = conv.mix(graphs[-1], x, args.get('context'))
            return out

        h, args = self._last_layer(x, given, call, generator)
        call(self.convs[-1], h, args, generator)
        return graphs

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
        if self.chosen_scale is not None:
            text += f", scale='auto' ({float(self.chosen_scale):g})"
        return f'{text})'
