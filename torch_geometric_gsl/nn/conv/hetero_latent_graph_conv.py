from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch_geometric.nn import Linear
from torch_geometric.nn.conv.hetero_conv import group
from torch_geometric.nn.inits import zeros
from torch_geometric.typing import EdgeType, NodeType

from torch_geometric_gsl._checks import check_count, check_flag, check_option
from torch_geometric_gsl.nn.conv.latent_graph_conv import LatentGraphConv
from torch_geometric_gsl.nn.conv.relation_calls import CallsRelations
from torch_geometric_gsl.nn.conv.relation_graph_conv import RelationGraphConv
from torch_geometric_gsl.nn.conv.typed_modules import TypedModules, TypedParameters
from torch_geometric_gsl.nn.conv.typed_relations import (
    OPTIONS,
    check_relations,
    check_widths,
    ends_of,
    own_options,
)
from torch_geometric_gsl.nn.linear import apply_linear
from torch_geometric_gsl.nn.sampler.plan import SamplingPlan
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.typing import SampledGraph

#: How the sums of several relations become one.
AGGREGATIONS = ('sum', 'mean', 'min', 'max', 'cat', None)


class HeteroLatentGraphConv(CallsRelations):
    r"""The graph convolution on learned graphs between nodes of several types: the
    layer of the `"Neural Gaussian Similarity Modeling for Differential Graph Structure
    Learning" <https://arxiv.org/abs/2312.09498>`_ paper for each relation.

    .. math::
        \mathbf{H}^{\prime}_t = \sum_{r = (s, \cdot, t)} \mathbf{A}_r \mathbf{X}_s
        \mathbf{W}_r + \mathbf{X}_t \mathbf{W}_{\textrm{root}, t} + \mathbf{b}_t

    where the sum runs over the relations :math:`r` from a type :math:`s` of sources to
    the type :math:`t` of targets, and :math:`\mathbf{A}_r` is the graph that a
    :class:`~torch_geometric_gsl.nn.sampler.GumbelKNNSampler` of its own samples from
    the similarities of the rows of :math:`\mathbf{X}_s \mathbf{W}_r` with those of
    :math:`\mathbf{X}_t \mathbf{V}_r`. In evaluation mode it holds the noise-free
    weights over all sources. Each target's weights of one relation sum to 1.

    A relation has a similarity and two projections of its own, :math:`\mathbf{W}_r` of
    the sources, which are the messages as well, and :math:`\mathbf{V}_r` of the
    targets, if these are compared; a relation between nodes of one type has one,
    :math:`\mathbf{V}_r = \mathbf{W}_r`. With one type and one relation the layer is a
    :class:`~torch_geometric_gsl.nn.conv.LatentGraphConv`. Relations have no further
    weights: how much one counts, its :math:`\mathbf{W}_r` learns.

    A relation from a type without nodes sends nothing. Types that are never a target
    have no output.

    Args:
        in_channels (int or dict[str, int]): Size of each input sample, one for all
            types or by type; :obj:`-1` derives it from the first input to the forward
            method.
        out_channels (int): Size of each output sample.
        relations (list or dict): The relations, edge types
            :obj:`(source, name, target)`; or a dict from them to options that they
            have in place of the layer's: :obj:`similarity`,
            :obj:`similarity_kwargs`, :obj:`compare`, :obj:`embedding_channels`,
            :obj:`observed`, and those of the sampler, such as :obj:`k` or
            :obj:`scale`.
        similarity (str or Similarity, optional): The similarity of a source and a
            target, by name; a module serves all relations, which share it then.
            (default: :obj:`"neural_gaussian"`)
        k (int, optional): The number of draws :math:`K`. (default: :obj:`5`)
        tau (float, optional): The temperature :math:`\tau`. (default: :obj:`0.25`)
        aggr (str, optional): What becomes of several relations to one type, as in
            :class:`~torch_geometric.nn.conv.HeteroConv`: :obj:`"sum"`, :obj:`"mean"`,
            :obj:`"min"`, :obj:`"max"`, :obj:`"cat"` (side by side) or :obj:`None`
            (stacked along a second dimension). (default: :obj:`"sum"`)
        similarity_kwargs (dict, optional): Arguments of a similarity that is given by
            name. (default: :obj:`None`)
        root_weight (bool, optional): If :obj:`False`, the layer does not add
            :math:`\mathbf{X}_t \mathbf{W}_{\textrm{root}, t}`. (default: :obj:`True`)
        bias (bool, optional): If :obj:`False`, the layer does not learn a bias of each
            type. (default: :obj:`True`)
        compare (str, optional): What the similarities compare: projected rows
            (:obj:`"projected"`), the rows themselves (:obj:`"input"`), of equal widths
            then, or rows of an :obj:`embedding_dict` that each call gives
            (:obj:`"embedding"`). (default: :obj:`"projected"`)
        embedding_channels (int, optional): The width of that embedding.
            (default: :obj:`None`)
        observed (str, optional): What given edges are: :obj:`"candidates"`, or a
            :obj:`"prior"` that is mixed with the learned graph.
            (default: :obj:`"candidates"`)
        **kwargs (optional): Additional arguments of
            :class:`~torch_geometric_gsl.nn.sampler.GumbelKNNSampler`, such as
            :obj:`scale`, :obj:`hard` or :obj:`method`. With :obj:`loop=False` a node
            is no neighbour of its own; nodes of two types always are candidates.

    Shapes:
        - **input:** node features :math:`(|\mathcal{V}_t|, F_t)` of each type, dense or
          sparse CSR, candidate edges :math:`(2, |\mathcal{E}_r|)` of each relation
          *(optional)*, batch vector :math:`(|\mathcal{V}_t|)` of each type *(optional)*
        - **output:** node features :math:`(|\mathcal{V}_t|, F_{out})` of each type that
          is a target

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range, an edge type has not three parts, a
            type or an option is unknown, or rows of a type are missing.

    Example:
        >>> relations = [('word', 'in', 'document'), ('document', 'near', 'document')]
        >>> conv = HeteroLatentGraphConv({'word': 8, 'document': 16}, 32, relations)
        >>> x_dict = {'word': torch.randn(50, 8), 'document': torch.randn(100, 16)}
        >>> {name: out.shape for name, out in conv(x_dict).items()}
        {'document': torch.Size([100, 32])}
    """

    def __init__(
        self,
        in_channels: int | dict[NodeType, int],
        out_channels: int,
        relations: Any,
        similarity: str | Similarity = 'neural_gaussian',
        k: int = 5,
        tau: float = 0.25,
        *,
        aggr: str | None = 'sum',
        similarity_kwargs: dict[str, Any] | None = None,
        root_weight: bool = True,
        bias: bool = True,
        compare: str = 'projected',
        embedding_channels: int | None = None,
        observed: str = 'candidates',
        **kwargs: Any,
    ) -> None:
        super().__init__()
        check_count(out_channels, 'out_channels')
        check_option(aggr, AGGREGATIONS, 'aggr')
        check_flag(root_weight, 'root_weight')
        check_flag(bias, 'bias')
        for option in kwargs:
            check_option(option, OPTIONS, 'options')
        options = check_relations(relations)
        self.relations = list(options)
        self.node_types, self.target_types = ends_of(self.relations)
        self.in_channels = check_widths(in_channels, self.node_types)
        self.out_channels = out_channels
        self.aggr = aggr
        common = {
            'similarity': similarity,
            'k': k,
            'tau': tau,
            'similarity_kwargs': similarity_kwargs,
            'compare': compare,
            'embedding_channels': embedding_channels,
            'observed': observed,
            **kwargs,
        }
        self.convs = TypedModules(
            {own: self._make(own, common, options[own]) for own in self.relations}
        )
        self._add_parameters(root_weight, bias)
        self.reset_parameters()

    def _make(
        self, relation: EdgeType, common: dict[str, Any], own: dict[str, Any]
    ) -> LatentGraphConv:
        """Return the layer of one relation."""
        source, _, target = relation
        options = own_options(common, own)
        width = self.in_channels[target]
        if source == target:
            options |= {'root_weight': False, 'bias': False}
            return LatentGraphConv(width, self.out_channels, **options)
        pair = self.in_channels[source], width
        return RelationGraphConv(pair, self.out_channels, **options)

    def _add_parameters(self, root_weight: bool, bias: bool) -> None:
        """Add a root weight and a bias of each type that is a target."""
        rooted = self.target_types if root_weight else []
        biased = self.target_types if bias else []
        self.roots = TypedModules({target: self._root(target) for target in rooted})
        self.biases = TypedParameters(
            {t: torch.nn.Parameter(torch.empty(self._out_width(t))) for t in biased}
        )

    def _root(self, target: NodeType) -> Linear:
        size = self.in_channels[target], self._out_width(target)
        return Linear(*size, bias=False, weight_initializer='glorot')

    def _out_width(self, target: NodeType) -> int:
        count = sum(relation[2] == target for relation in self.relations)
        return self.out_channels * (count if self.aggr == 'cat' else 1)

    def reset_parameters(self) -> None:
        r"""Reset all learnable parameters of the module."""
        for module in (*self.convs.values(), *self.roots.values()):
            module.reset_parameters()
        for bias in self.biases.values():
            zeros(bias)

    def forward(
        self,
        x_dict: dict[NodeType, Tensor],
        edge_index_dict: dict[EdgeType, Tensor] | None = None,
        edge_weight_dict: dict[EdgeType, Tensor] | None = None,
        batch_dict: dict[NodeType, Any] | None = None,
        *,
        context_dict: dict[NodeType, Tensor] | None = None,
        embedding_dict: dict[NodeType, Any] | None = None,
        generator: torch.Generator | None = None,
        return_graph: bool = False,
    ) -> (
        dict[NodeType, Tensor]
        | tuple[dict[NodeType, Tensor], dict[EdgeType, SampledGraph]]
    ):
        r"""Run the forward pass.

        Args:
            x_dict (dict[str, torch.Tensor]): The node features of each type.
            edge_index_dict (dict, optional): Edges of some relations, which alone are
                candidates there, unless they are a prior. (default: :obj:`None`)
            edge_weight_dict (dict, optional): The weights of edges that are given, a
                prior. (default: :obj:`None`)
            batch_dict (dict, optional): Sorted graph ids of each type.
                (default: :obj:`None`)
            context_dict (dict[str, torch.Tensor], optional): The rows of each type that
                are the sources, in place of those of :obj:`x_dict`, which holds the
                rows of some targets then. What else comes by node is a pair, of the
                context and of :obj:`x_dict`: graph ids and embeddings.
                (default: :obj:`None`)
            embedding_dict (dict, optional): What the similarities compare, if
                :obj:`compare` says so. (default: :obj:`None`)
            generator (torch.Generator, optional): Source of randomness, for one
                relation after the other. (default: :obj:`None`)
            return_graph (bool, optional): If :obj:`True`, returns the graph of each
                relation that this call summed over as well. (default: :obj:`False`)

        Returns:
            dict[str, torch.Tensor]: The outputs of each type that is a target.
        """
        listed = edge_index_dict, edge_weight_dict
        given = *listed, batch_dict, context_dict, embedding_dict
        sums: dict[NodeType, list[Tensor]] = {}
        graphs: dict[EdgeType, SampledGraph] = {}
        how = {'generator': generator, 'return_graph': return_graph}
        for relation, args in self._calls(x_dict, *given):
            x = x_dict[relation[2]]
            if args is None:
                # Of sparse rows `new_zeros` would be sparse.
                size = x.size(0), self.out_channels
                total = torch.zeros(size, dtype=x.dtype, device=x.device)
                graphs[relation] = _empty_graph(x)
            else:
                total = self.convs[relation](**args, **how)
                if return_graph:
                    total, graphs[relation] = total
            sums.setdefault(relation[2], []).append(total)
        out = {
            target: self._finish(target, x_dict[target], parts)
            for target, parts in sums.items()
        }
        return (out, graphs) if return_graph else out

    def _finish(self, target: NodeType, x: Tensor, sums: list[Tensor]) -> Tensor:
        out = cast(Tensor, group(sums, self.aggr))
        if target in self.roots:
            root = apply_linear(self.roots[target], x)
            out = out + (root.unsqueeze(1) if self.aggr is None else root)
        return out + self.biases[target] if target in self.biases else out

    def graphs(
        self,
        x_dict: dict[NodeType, Tensor],
        edge_index_dict: dict[EdgeType, Tensor] | None = None,
        edge_weight_dict: dict[EdgeType, Tensor] | None = None,
        batch_dict: dict[NodeType, Any] | None = None,
        *,
        context_dict: dict[NodeType, Tensor] | None = None,
        embedding_dict: dict[NodeType, Any] | None = None,
        generator: torch.Generator | None = None,
    ) -> dict[EdgeType, SampledGraph]:
        r"""Return the graph of each relation.

        Args:
            x_dict (dict[str, torch.Tensor]): The node features of each type.
            edge_index_dict (dict, optional): Candidates. (default: :obj:`None`)
            edge_weight_dict (dict, optional): The weights of edges that are given, a
                prior. (default: :obj:`None`)
            batch_dict (dict, optional): Sorted graph ids. (default: :obj:`None`)
            context_dict (dict[str, torch.Tensor], optional): The rows that are the
                sources. (default: :obj:`None`)
            embedding_dict (dict, optional): What the similarities compare.
                (default: :obj:`None`)
            generator (torch.Generator, optional): Source of randomness.
                (default: :obj:`None`)

        Returns:
            dict[tuple[str, str, str], SampledGraph]: The edges and their weights.
        """
        listed = edge_index_dict, edge_weight_dict
        given = *listed, batch_dict, context_dict, embedding_dict
        graphs: dict[EdgeType, SampledGraph] = {}
        for relation, args in self._calls(x_dict, *given):
            if args is None:
                graphs[relation] = _empty_graph(x_dict[relation[2]])
            else:
                conv = self.convs[relation]
                graphs[relation] = conv.graph(**args, generator=generator)
        return graphs

    def plan(
        self,
        x_dict: dict[NodeType, Tensor],
        edge_index_dict: dict[EdgeType, Tensor] | None = None,
        edge_weight_dict: dict[EdgeType, Tensor] | None = None,
        batch_dict: dict[NodeType, Any] | None = None,
        *,
        context_dict: dict[NodeType, Tensor] | None = None,
        embedding_dict: dict[NodeType, Any] | None = None,
    ) -> dict[EdgeType, SamplingPlan]:
        r"""Return the training-time sampling plan of each relation that has sources.

        Args:
            x_dict (dict[str, torch.Tensor]): The node features of each type.
            edge_index_dict (dict, optional): Candidates. (default: :obj:`None`)
            edge_weight_dict (dict, optional): The weights of edges that are given, a
                prior. (default: :obj:`None`)
            batch_dict (dict, optional): Sorted graph ids. (default: :obj:`None`)
            context_dict (dict[str, torch.Tensor], optional): The rows that are the
                sources. (default: :obj:`None`)
            embedding_dict (dict, optional): What the similarities compare.
                (default: :obj:`None`)

        Returns:
            dict[tuple[str, str, str], SamplingPlan]: The methods, their numbers, and
            why.
        """
        listed = edge_index_dict, edge_weight_dict
        given = *listed, batch_dict, context_dict, embedding_dict
        return {
            relation: self.convs[relation].plan(**args)
            for relation, args in self._calls(x_dict, *given)
            if args is not None
        }

    def __repr__(self) -> str:
        return (
            f'{self.__class__.__name__}({self.in_channels}, {self.out_channels}, '
            f'relations={self.relations}, aggr={self.aggr!r})'
        )


def _empty_graph(x: Tensor) -> SampledGraph:
    edges = torch.empty(2, 0, dtype=torch.long, device=x.device)
    return SampledGraph(edges, torch.empty(0, dtype=x.dtype, device=x.device))
