from __future__ import annotations

from collections import Counter
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor
from torch_geometric.nn import Linear, module_dict, parameter_dict
from torch_geometric.nn.conv.hetero_conv import group
from torch_geometric.nn.inits import reset, zeros
from torch_geometric.typing import EdgeType, NodeType

from torch_geometric_gsl._checks import (
    as_pair,
    check_count,
    check_edge_index,
    check_features,
    check_flag,
    check_option,
)
from torch_geometric_gsl.nn.conv.latent_graph_conv import LatentGraphConv
from torch_geometric_gsl.nn.conv.learned_graph_conv import check_serves_as_z
from torch_geometric_gsl.nn.conv.typed import (
    OPTIONS,
    Ends,
    both_ends,
    check_all_given,
    check_keys,
    check_relations,
    check_widths,
    ends_of,
    of_relation,
)
from torch_geometric_gsl.nn.linear import apply_linear, plain_linear
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import share_similarities
from torch_geometric_gsl.nn.sampler.options import check_options
from torch_geometric_gsl.nn.shared_part import keeping
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.ops.edges import empty_graph
from torch_geometric_gsl.ops.runtime import check_not_batched
from torch_geometric_gsl.typing import Features, SampledGraph


class ModuleDict(module_dict.ModuleDict):
    """PyG's dict, also for keys that are attributes of instances: `training`."""

    CLASS_ATTRS = tuple(dir(torch.nn.ModuleDict()))  # type: ignore[misc]


class ParameterDict(parameter_dict.ParameterDict):
    """PyG's dict, also for keys that are attributes of instances: `training`."""

    CLASS_ATTRS = frozenset(dir(torch.nn.ParameterDict()))  # type: ignore[misc,assignment]


#: How the sums of several relations are combined.
AGGREGATIONS = ('sum', 'mean', 'min', 'max', 'cat', None)
#: Rows by type, or a pair of such dicts for sources and targets.
TypedRows: TypeAlias = (
    dict[NodeType, Tensor] | tuple[dict[NodeType, Tensor], dict[NodeType, Tensor]]
)


class HeteroLatentGraphConv(torch.nn.Module):
    r"""Graph convolution on learned graphs between nodes of several types: one layer
    of the `"Neural Gaussian Similarity Modeling for Differential Graph Structure
    Learning" <https://arxiv.org/abs/2312.09498>`_ paper per relation.

    .. math::
        \mathbf{H}^{\prime}_t = \sum_{r = (s, \cdot, t)} \mathbf{A}_r \mathbf{X}_s
        \mathbf{W}_r + \mathbf{X}_t \mathbf{W}_{\textrm{root}, t} + \mathbf{b}_t

    where the sum runs over the relations :math:`r` from a type :math:`s` of sources to
    the type :math:`t` of targets, and :math:`\mathbf{A}_r` is the graph that the
    relation's :class:`~torch_geometric_gsl.nn.sampler.GumbelKNNSampler` samples from
    the similarities of the rows of :math:`\mathbf{X}_s \mathbf{W}_r` with those of
    :math:`\mathbf{X}_t \mathbf{V}_r`. In evaluation mode it has the noise-free
    weights over all sources. Each target's weights of one relation sum to 1.

    Each relation has its own similarity and two projections: :math:`\mathbf{W}_r` of
    the sources, which also computes the messages, and :math:`\mathbf{V}_r` of the
    targets, if projections are compared; within one type :math:`\mathbf{V}_r =
    \mathbf{W}_r`. With one type and one relation the layer is a
    :class:`~torch_geometric_gsl.nn.conv.LatentGraphConv`.

    A relation from a type without nodes sends no messages. Types that are never a
    target have no output. Pass new rows as a pair of dicts: the rows of all source
    types, and rows of some target types.

    Args:
        in_channels (int or dict[str, int]): Size of each input sample, one for all
            types or by type; :obj:`-1` derives it from the first input to the forward
            method.
        out_channels (int): Size of each output sample.
        relations (list or dict): The relations, as edge types
            :obj:`(source, name, target)`; or a dict from edge types to options that
            override the layer's.
        similarity (str or Similarity, optional): The similarity of a source and a
            target, by name; a module is shared by all relations.
            (default: :obj:`"mixture"`)
        k, tau (optional): As in
            :class:`~torch_geometric_gsl.nn.conv.LatentGraphConv`.
        aggr (str, optional): How relations to one type are combined, as in
            :class:`~torch_geometric.nn.conv.HeteroConv`: :obj:`"sum"`, :obj:`"mean"`,
            :obj:`"min"`, :obj:`"max"`, :obj:`"cat"` (side by side) or :obj:`None`
            (stacked along a second dimension). (default: :obj:`"sum"`)
        root_weight, bias (optional): As in
            :class:`~torch_geometric_gsl.nn.conv.LatentGraphConv`, for each type.
        **kwargs (optional): Further options of the layers of all relations, such as
            :obj:`z_channels` or :obj:`scale`.

    Shapes:
        - **input:** node features :math:`(|\mathcal{V}_t|, F_t)` of each type, dense or
          sparse CSR, candidate edges :math:`(2, |\mathcal{E}_r|)` of each relation
          *(optional)*, batch vector :math:`(|\mathcal{V}_t|)` of each type *(optional)*
        - **output:** node features :math:`(|\mathcal{V}_t|, F_{out})` of each type that
          is a target

    Raises:
        ValueError: If an edge type does not have three parts, a type or an option is
            unknown, or rows of a type are missing.

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
        similarity: str | Similarity = 'mixture',
        k: int = 5,
        tau: float = 0.5,
        *,
        aggr: str | None = 'sum',
        root_weight: bool = True,
        bias: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        check_count(out_channels, 'out_channels')
        check_option(aggr, AGGREGATIONS, 'aggr')
        check_flag(root_weight, 'root_weight')
        check_flag(bias, 'bias')
        check_options(type(self), kwargs, OPTIONS)
        options = check_relations(relations)
        self.relations = list(options)
        self.node_types, self.target_types = ends_of(self.relations)
        self.in_channels = check_widths(in_channels, self.node_types)
        self.out_channels = out_channels
        self.aggr = aggr
        common = {'similarity': similarity, 'k': k, 'tau': tau, **kwargs}
        self.convs = ModuleDict()
        for relation, own in options.items():
            self.convs[relation] = self._make(relation, common, own)
        share_similarities(self)
        heads = dict.fromkeys(self.target_types, 1)
        if aggr == 'cat':
            heads = Counter(target for _, _, target in self.relations)
        self.roots, self.biases = ModuleDict(), ParameterDict()
        for target, number in heads.items():
            size = self.in_channels[target], number * out_channels
            if root_weight:
                self.roots[target] = plain_linear(*size)
            if bias:
                self.biases[target] = torch.nn.Parameter(torch.empty(size[1]))
        own_kinds = (own.get('similarity') for own in options.values())
        with keeping(similarity, *own_kinds):
            self.reset_parameters()

    def _make(
        self, relation: EdgeType, common: dict[str, Any], own: dict[str, Any]
    ) -> LatentGraphConv:
        """Return the layer of one relation."""
        source, _, target = relation
        options = common | own
        if options['similarity'] != common['similarity']:
            # Arguments of the common similarity do not fit this relation's.
            options['similarity_kwargs'] = own.get('similarity_kwargs')
        widths: Any = self.in_channels[source], self.in_channels[target]
        return LatentGraphConv(
            widths[0] if source == target else widths,
            self.out_channels,
            root_weight=False,
            bias=False,
            **options,
        )

    def reset_parameters(self) -> None:
        r"""Reset all learnable parameters of the module."""
        reset(self.convs)
        reset(self.roots)
        zeros(self.biases)

    def forward(
        self,
        x_dict: TypedRows,
        edge_index_dict: dict[EdgeType, Tensor] | None = None,
        edge_weight_dict: dict[EdgeType, Tensor] | None = None,
        batch_dict: TypedRows | None = None,
        *,
        z_dict: TypedRows | None = None,
        generator: torch.Generator | None = None,
        return_graph: bool = False,
    ) -> (
        dict[NodeType, Tensor]
        | tuple[dict[NodeType, Tensor], dict[EdgeType, SampledGraph]]
    ):
        r"""Run the forward pass; relations sample in order.

        The arguments are those of
        :meth:`~torch_geometric_gsl.nn.conv.LatentGraphConv.forward`, except :obj:`y`,
        as dicts: rows by node type, or pairs of such dicts, and edges by relation.
        Edges may be given for some relations only.

        Returns:
            dict[str, torch.Tensor]: The outputs of each type that is a target, and with
            :obj:`return_graph=True` the graph of each relation.
        """
        check_not_batched(self, (x_dict, z_dict), self.parameters())
        is_pair = isinstance(x_dict, tuple | list)
        named = {'x_dict': x_dict, 'batch_dict': batch_dict, 'z_dict': z_dict}
        ends = [
            both_ends(value, self.node_types, name, is_pair)
            for name, value in named.items()
        ]
        x, batch, z = ends
        heard = self._check_rows(x, batch, is_pair)
        self.check_z(x, z if z_dict is not None else None)
        edges = check_keys(edge_index_dict, heard, 'edge_index_dict')
        weights = check_keys(edge_weight_dict, heard, 'edge_weight_dict')
        sums: dict[NodeType, list[Tensor]] = {}
        graphs: dict[EdgeType, SampledGraph] = {}
        for relation in heard:
            conv: Any = self.convs[relation]
            rows, ids, seen = (of_relation(relation, e, is_pair) for e in ends)
            given = rows, edges.get(relation), weights.get(relation)
            if as_pair(rows)[0].size(0) == 0:
                found = _without_sources(conv, *given[:2])
                out: Any = found if return_graph else found[0]
            else:
                out = conv(
                    *given,
                    ids,
                    z=None if conv.z_channels is None else seen,
                    generator=generator,
                    return_graph=return_graph,
                )
            if return_graph:
                out, graphs[relation] = out
            sums.setdefault(relation[2], []).append(out)
        outs = {t: self._finish(t, x[1][t], parts) for t, parts in sums.items()}
        return (outs, graphs) if return_graph else outs

    def _check_rows(self, x: Ends, batch: Ends, is_pair: bool) -> list[EdgeType]:
        """Check rows and graph ids; return the relations that lead to given targets."""
        if is_pair:
            check_keys(x[1], self.target_types, 'x_dict')
        heard = [r for r in self.relations if not is_pair or r[2] in x[1]]
        check_all_given(
            x[0], [r[0] for r in heard] if is_pair else self.node_types, 'x_dict'
        )
        for rows in x:
            for node_type, value in rows.items():
                width = self.in_channels[node_type]
                check_features(value, f'x_dict[{node_type!r}]', width)
        if any(batch):
            for end, ids in zip((0, 2), batch, strict=True):
                check_all_given(ids, [r[end] for r in heard], 'batch_dict')
        return heard

    def check_z(self, x: Ends, z: Ends | None) -> None:
        """Raise unless `z` is given for each relation that needs it."""
        widths: Any = {r: self.convs[r].z_channels for r in self.relations}
        if z is not None and not any(widths.values()):
            raise ValueError("'z_dict' needs a relation with 'z_channels' (got None)")
        for relation, width in widths.items():
            for place, rows in enumerate(x):
                node_type = relation[2 * place]
                if width is None or node_type not in rows:
                    continue
                if z is None:
                    check_serves_as_z(rows[node_type], width, '_dict')
                else:
                    check_all_given(z[place], [node_type], 'z_dict')

    def _finish(self, target: NodeType, x: Tensor, sums: list[Tensor]) -> Tensor:
        out = cast(Tensor, group(sums, self.aggr))
        if target in self.roots:
            root = apply_linear(cast(Linear, self.roots[target]), x)
            out = out + (root.unsqueeze(1) if self.aggr is None else root)
        return out + self.biases[target] if target in self.biases else out

    def graphs(self, *args: Any, **kwargs: Any) -> dict[EdgeType, SampledGraph]:
        r"""Return the graph of each relation that :meth:`forward` sums over."""
        _, graphs = self(*args, **kwargs, return_graph=True)
        return dict(graphs)

    def __repr__(self) -> str:
        return (
            f'{self.__class__.__name__}({self.in_channels}, {self.out_channels}, '
            f'relations={self.relations}, aggr={self.aggr!r})'
        )


def _without_sources(
    conv: LatentGraphConv, x: Features, edge_index: Tensor | None
) -> tuple[Tensor, SampledGraph]:
    """Return zeros and no edges: without sources there are no messages."""
    x_src, x_dst = conv._rows(x)
    h = conv._project(x_src, conv.lin)
    if conv.lin_dst is not None:  # A lazy one learns its width here.
        conv._project(x_dst, conv.lin_dst)
    if edge_index is not None:
        check_edge_index(edge_index, h, x_dst)
    return h.new_zeros(x_dst.size(0), conv.out_channels), empty_graph(h)
