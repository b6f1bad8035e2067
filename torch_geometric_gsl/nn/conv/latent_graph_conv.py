from __future__ import annotations

from typing import Any, TypeAlias, cast

import torch
from torch import Tensor

from torch_geometric_gsl._checks import check_absent, check_edge_weight, split_pair
from torch_geometric_gsl.distributed.row_shard import RowShard
from torch_geometric_gsl.nn.conv.learned_graph_conv import (
    LearnedGraphConv,
    check_embedding,
    check_shard,
    gathered,
)
from torch_geometric_gsl.nn.sampler.plan import SamplingPlan
from torch_geometric_gsl.typing import Batch, Features, SampledGraph

#: The projections of the rows, and of those that send messages, where they are known.
Projections: TypeAlias = tuple[Tensor | None, Tensor | None]
NOT_PROJECTED: Projections = (None, None)


class LatentGraphConv(LearnedGraphConv):
    r"""The graph convolution on a learned graph of all nodes from the `"Neural
    Gaussian Similarity Modeling for Differential Graph Structure Learning"
    <https://arxiv.org/abs/2312.09498>`_ paper.

    .. math::
        \mathbf{H}^{\prime} = \mathbf{A} \mathbf{X} \mathbf{W} +
        \mathbf{X} \mathbf{W}_{\textrm{root}} + \mathbf{b}

    where :math:`\mathbf{A}` is the graph that
    :class:`~torch_geometric_gsl.nn.sampler.GumbelKNNSampler` samples from the
    similarities of the rows of :math:`\mathbf{X} \mathbf{W}` in training mode, and
    the noise-free weights
    :math:`A_{ij} = \mathrm{softmax}_j(\lambda \phi_{ij} / \tau)` over all nodes, or
    the :obj:`eval_k` nearest, in evaluation mode. The rows of :math:`\mathbf{A}` sum
    to 1, less the share of a null neighbour. With
    :obj:`add_self_loops`, :math:`\frac{1}{2} (\mathbf{A} + \mathbf{I})` takes its
    place. With :obj:`compare` the similarity sees :math:`\mathbf{X}` itself or an
    embedding that is given: few parameters on honest features, where a wide projection
    overfits.

    Given edges are the candidates, which the layer prunes and weighs, or with
    :obj:`observed="prior"` a graph :math:`\mathbf{A}^{\mathrm{obs}}` of its own that is
    mixed with the learned graph of all nodes by a learned share :math:`\alpha`,
    :obj:`conv.prior.share`:

    .. math::
        \tilde{\mathbf{A}} = \alpha \, \mathbf{D}^{-1} \mathbf{A}^{\mathrm{obs}} +
        (1 - \alpha) \, \mathbf{A}

    With :obj:`label_channels` neighbours tell their labels as well: their messages are
    :math:`\mathbf{x}_j \mathbf{W} + y_j \mathbf{W}_y + \mathbf{b}_y`. No row hears its
    own label, for which its neighbours must be others (:obj:`loop=False`, or a
    :obj:`context` of other rows). Give labels to the last layer of several: from an
    earlier one they come back by way of the neighbours.

    New rows take a :obj:`context`: its rows are all their neighbours, so that what a
    new row gets depends on no other one. A row of the context itself gets what the
    layer gives it among them, if loops are allowed.

    Args:
        in_channels (int): Size of each input sample, or :obj:`-1` to derive the size
            from the first input to the forward method.
        out_channels (int): Size of each output sample.
        similarity (str or Similarity, optional): The similarity of two nodes, by
            name or as a module of :obj:`out_channels` input channels, whose
            parameters are reset with those of the layer: load trained ones into it
            afterwards. (default: :obj:`"neural_gaussian"`)
        k (int, optional): The number of draws :math:`K`. (default: :obj:`5`)
        tau (float, optional): The temperature :math:`\tau`. (default: :obj:`0.25`)
        similarity_kwargs (dict, optional): Arguments of a similarity that is given by
            name, such as :obj:`{"c_scale": 0.2}`. (default: :obj:`None`)
        root_weight (bool, optional): If :obj:`False`, the layer does not add
            :math:`\mathbf{X} \mathbf{W}_{\textrm{root}}`. The graph is nearly
            uniform, so that without it all nodes get nearly the same output.
            (default: :obj:`True`)
        add_self_loops (bool, optional): If :obj:`True`, half of what a node aggregates
            is its own :math:`\mathbf{x}_i \mathbf{W}`, the other half that of its
            neighbours. :meth:`graph` does not return the loops, which the paper does
            not have. (default: :obj:`False`)
        bias (bool, optional): If :obj:`False`, the layer does not learn a bias.
            (default: :obj:`True`)
        compare (str, optional): What the similarity compares: the rows of
            :math:`\mathbf{X} \mathbf{W}` (:obj:`"projected"`, the paper), of
            :math:`\mathbf{X}` (:obj:`"input"`), or of an :obj:`embedding` that each
            call gives (:obj:`"embedding"`). A similarity that is a module has as many
            input channels. (default: :obj:`"projected"`)
        embedding_channels (int, optional): The width of that embedding.
            (default: :obj:`None`)
        observed (str, optional): What given edges are: :obj:`"candidates"`, or a
            :obj:`"prior"` that is mixed with a learned graph of all nodes.
            (default: :obj:`"candidates"`)
        label_channels (int, optional): The number of classes, or of columns of numbers,
            of labels that neighbours tell; none are told if :obj:`None`.
            (default: :obj:`None`)
        **kwargs (optional): Additional arguments of
            :class:`~torch_geometric_gsl.nn.sampler.GumbelKNNSampler`, such as
            :obj:`scale`, :obj:`hard` or :obj:`method`.

    Shapes:
        - **input:** node features :math:`(|\mathcal{V}|, F_{in})`, dense or sparse
          CSR, candidate edges :math:`(2, |\mathcal{E}_c|)` *(optional)*, batch vector
          :math:`(|\mathcal{V}|)` *(optional)*, embedding
          :math:`(|\mathcal{V}|, F_{emb})` *(optional)*, context
          :math:`(|\mathcal{V}_c|, F_{in})` *(optional)*
        - **output:** node features :math:`(|\mathcal{V}|, F_{out})`

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range, :obj:`compare` is unknown or lacks
            its width, or an :obj:`embedding` is missing or not asked for.

    Example:
        >>> conv = LatentGraphConv(16, 32)
        >>> conv(torch.randn(100, 16)).shape
        torch.Size([100, 32])
        >>> # Edges that are given are pruned and weighed by the cosine of the features.
        >>> options = {'compare': 'input', 'scale': 20.0, 'null_score': 5.0}
        >>> conv = LatentGraphConv(16, 32, 'linear', **options)
        >>> conv(torch.randn(100, 16), torch.randint(100, (2, 400))).shape
        torch.Size([100, 32])
    """

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | None = None,
        edge_weight: Tensor | None = None,
        batch: Batch | None = None,
        *,
        y: Tensor | None = None,
        context: Tensor | None = None,
        embedding: Features | None = None,
        shard: RowShard | None = None,
        generator: torch.Generator | None = None,
        return_graph: bool = False,
    ) -> Tensor | tuple[Tensor, SampledGraph]:
        r"""Run the forward pass.

        Args:
            x (torch.Tensor): The node features, dense or sparse CSR.
            edge_index (torch.Tensor, optional): If given, only these edges are
                candidates, unless they are a prior. (default: :obj:`None`)
            edge_weight (torch.Tensor, optional): Their weights, not negative: a prior
                of the choice, whose logarithm is added to the scores; an observed
                graph has these weights. (default: :obj:`None`)
            batch (torch.Tensor, optional): Sorted graph ids. (default: :obj:`None`)
            y (torch.Tensor, optional): The labels of the neighbours, of :obj:`x` or of
                the :obj:`context`: classes, -1 where unknown, or numbers, NaN where
                unknown. (default: :obj:`None`)
            context (torch.Tensor, optional): The rows that are the neighbours of those
                of :obj:`x`, in place of these. What comes by row is a pair then, of
                the context and of :obj:`x`: edges, graph ids and embeddings.
                (default: :obj:`None`)
            embedding (torch.Tensor, optional): What the similarity compares, if
                :obj:`compare` says so. (default: :obj:`None`)
            shard (RowShard, optional): The block of rows of this rank, if several
                processes share the nodes: all else is given for these rows, and edges
                lead to them from any node. (default: :obj:`None`)
            generator (torch.Generator, optional): Source of randomness.
                (default: :obj:`None`)
            return_graph (bool, optional): If :obj:`True`, returns the graph that this
                call summed over as well. (default: :obj:`False`)
        """
        projected = self._projections(x, context, shard)
        told = self._told(y, context, shard, cast(Tensor, projected[1]))
        given = edge_index, edge_weight, batch, context, embedding
        graph = None
        if return_graph:
            graph = self._drawn(x, projected, *given, generator, shard)
        out = self._convolve(x, projected, *given, generator, shard, told, graph)
        return out if graph is None else (out, graph)

    def graph(
        self,
        x: Tensor,
        edge_index: Tensor | None = None,
        edge_weight: Tensor | None = None,
        batch: Batch | None = None,
        *,
        context: Tensor | None = None,
        embedding: Features | None = None,
        shard: RowShard | None = None,
        generator: torch.Generator | None = None,
    ) -> SampledGraph:
        r"""Return the graph that the layer learned for its input.

        Args:
            x (torch.Tensor): The node features, dense or sparse CSR.
            edge_index (torch.Tensor, optional): Candidates. (default: :obj:`None`)
            edge_weight (torch.Tensor, optional): Their weights, a prior.
                (default: :obj:`None`)
            batch (torch.Tensor, optional): Sorted graph ids. (default: :obj:`None`)
            context (torch.Tensor, optional): The rows that are the neighbours of those
                of :obj:`x`. (default: :obj:`None`)
            embedding (torch.Tensor, optional): What the similarity compares, if
                :obj:`compare` says so. (default: :obj:`None`)
            shard (RowShard, optional): The block of rows of this rank, if several
                processes share the nodes: all else is given for these rows, and edges
                lead to them from any node. (default: :obj:`None`)
            generator (torch.Generator, optional): Source of randomness.
                (default: :obj:`None`)

        Returns:
            SampledGraph: The edges and their weights, sorted by target.
        """
        given = edge_index, edge_weight, batch, context, embedding
        return self._drawn(x, NOT_PROJECTED, *given, generator, shard)

    def plan(
        self,
        x: Tensor,
        edge_index: Tensor | None = None,
        edge_weight: Tensor | None = None,
        batch: Batch | None = None,
        *,
        context: Tensor | None = None,
        embedding: Features | None = None,
        shard: RowShard | None = None,
    ) -> SamplingPlan:
        r"""Return the training-time sampling plan.

        Args:
            x (torch.Tensor): The node features, dense or sparse CSR.
            edge_index (torch.Tensor, optional): Candidates. (default: :obj:`None`)
            edge_weight (torch.Tensor, optional): Their weights, a prior.
                (default: :obj:`None`)
            batch (torch.Tensor, optional): Sorted graph ids. (default: :obj:`None`)
            context (torch.Tensor, optional): The rows that are the neighbours of those
                of :obj:`x`. (default: :obj:`None`)
            embedding (torch.Tensor, optional): What the similarity compares, if
                :obj:`compare` says so. (default: :obj:`None`)
            shard (RowShard, optional): The block of rows of this rank.
                (default: :obj:`None`)

        Returns:
            SamplingPlan: The method, its numbers, and why.
        """
        edges = self._candidates(edge_index, edge_weight, x, batch, context, shard)
        z = self._compared(x, NOT_PROJECTED, context, embedding, shard)
        return self.sampler.plan(z, *edges, batch)

    def share_sampler(self, other: LatentGraphConv) -> None:
        r"""Compare nodes and draw neighbours by the sampler of another layer.

        Args:
            other (LatentGraphConv): The other layer, which compares rows of one width.
        """
        self.sampler = other.sampler

    def _projections(
        self, x: Tensor, context: Tensor | None, shard: RowShard | None = None
    ) -> Projections:
        """Return the projections of the rows, and of those that send messages."""
        rows, name = (x, 'x') if context is None else (context, 'context')
        source = self._project(rows, name)
        h = source if context is None else self._new(x)
        check_shard(shard, x, context=context)
        return h, gathered(source, shard)

    def _drawn(
        self,
        x: Tensor,
        projected: Projections,
        edge_index: Tensor | None,
        edge_weight: Tensor | None,
        batch: Batch | None,
        context: Tensor | None,
        embedding: Features | None,
        generator: torch.Generator | None,
        shard: RowShard | None = None,
    ) -> SampledGraph:
        """Return the graph of rows whose projections may be at hand."""
        edges = self._candidates(edge_index, edge_weight, x, batch, context, shard)
        z = self._compared(x, projected, context, embedding, shard)
        rows = None if shard is None else shard.rows
        graph: SampledGraph = self.sampler(
            z, *edges, batch, rows=rows, generator=generator
        )
        if self.prior is None or edge_index is None:
            return graph
        if shard is None:
            pair = x if context is None else context, x
            return self.prior.graph(graph, pair, edge_index, edge_weight, batch)
        own = SampledGraph(shard.own_edges(graph.edge_index), graph.edge_weight)
        pair = cast(Tensor, z), x
        observed = shard.own_edges(edge_index), edge_weight
        graph = self.prior.graph(own, pair, *observed)
        first = graph.edge_index.new_tensor([[0], [shard.first]])
        return SampledGraph(graph.edge_index + first, graph.edge_weight)

    def _convolve(
        self,
        x: Tensor,
        projected: Projections,
        edge_index: Tensor | None,
        edge_weight: Tensor | None,
        batch: Batch | None,
        context: Tensor | None,
        embedding: Features | None,
        generator: torch.Generator | None,
        shard: RowShard | None = None,
        told: Tensor | None = None,
        graph: SampledGraph | None = None,
    ) -> Tensor:
        """Run the forward pass, whose projections and graph may be at hand."""
        h, source = projected[0], cast(Tensor, projected[1])
        if self.label is not None and told is None:
            raise ValueError("'y' must be given with 'label_channels' (got None)")
        message = source if told is None else source + told
        edges = self._candidates(edge_index, edge_weight, x, batch, context, shard)
        z = self._compared(x, projected, context, embedding, shard)
        given = {'edge_index': edges[0], 'edge_weight': edges[1], 'batch': batch}
        out = self._summed(z, message, shard, generator, graph, **given)
        if graph is None and self.prior is not None and edge_index is not None:
            observed = edge_index if shard is None else shard.own_edges(edge_index)
            out = self.prior(out, source, observed, edge_weight, batch)
        return self._finish(x, h, out)

    def _told(
        self,
        y: Tensor | None,
        context: Tensor | None,
        shard: RowShard | None,
        source: Tensor,
    ) -> Tensor | None:
        """Return what the labels of the sources add to their messages."""
        if y is None:
            return None
        if self.label is None:
            raise ValueError("'y' needs a layer with 'label_channels' (got None)")
        check_absent(shard, 'shard', "beside labels 'y'")
        if context is None and self.sampler.loop:
            raise ValueError(
                "'y' needs loop=False, or a 'context' of other rows: no row is told "
                'its own label (got loop=True)'
            )
        told: Tensor = self.label(y, source.size(0))
        return told.to(source.dtype)

    def _new(self, x: Tensor) -> Tensor | None:
        """Return the projections of new rows, unless nothing needs them."""
        if self.add_self_loops or self.compare == 'projected':
            return self._project(x)
        self._check_rows(x)
        return None

    def _candidates(
        self,
        edge_index: Tensor | None,
        edge_weight: Tensor | None,
        x: Tensor,
        batch: Batch | None,
        context: Tensor | None,
        shard: RowShard | None,
    ) -> tuple[Tensor | None, Tensor | None]:
        """Return the edges to which the sampler is confined, and their weights."""
        if edge_weight is not None:
            check_edge_weight(edge_weight, edge_index, x)
        edges = edge_index if self.prior is None else None
        check_shard(shard, x, edge_index=edges, batch=batch, context=context)
        return edges, edge_weight if self.prior is None else None

    def _compared(
        self,
        x: Tensor,
        projected: Projections,
        context: Tensor | None,
        embedding: Any,
        shard: RowShard | None,
    ) -> Features:
        """Return what the similarity compares: of new rows a pair."""
        h, source = projected
        if context is None:
            return self._compared_rows(x, source, embedding, 'x', shard)
        of_context, of_x = split_pair(embedding, 'embedding')
        return (
            self._compared_rows(context, source, of_context, 'context'),
            self._compared_rows(x, h, of_x, 'x'),
        )

    def _compared_rows(
        self,
        x: Tensor,
        h: Tensor | None,
        z: Any,
        name: str,
        shard: RowShard | None = None,
    ) -> Tensor:
        """Return what stands for rows, whose projections may be at hand."""
        if self.compare != 'embedding':
            check_absent(z, 'embedding', f'with compare={self.compare!r}')
        if self.compare == 'projected':
            return gathered(self._project(x, name), shard) if h is None else h
        if self.compare == 'input':
            return gathered(x, shard)
        if z is None:
            raise ValueError("'embedding' must be given (got None)")
        rows: Tensor = gathered(z, shard)
        check_embedding(rows, self.sampler, x.size(0) if shard is None else shard.total)
        return rows
