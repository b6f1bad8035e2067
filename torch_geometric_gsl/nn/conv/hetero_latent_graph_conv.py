from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import HeteroConv
from torch_geometric.nn.conv.hetero_conv import group
from torch_geometric.typing import EdgeType, NodeType

from torch_geometric_gsl._checks import (
    Ends,
    check_edge_types,
    check_features,
    check_option,
    check_type,
)
from torch_geometric_gsl.nn.conv.latent_graph_conv import LatentGraphConv
from torch_geometric_gsl.nn.conv.typed import (
    ModuleDict,
    RootTerms,
    check_keys,
    rows_by_relation,
    sum_without_sources,
)
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import share_similarities
from torch_geometric_gsl.nn.sampler.options import LayerOptions, check_options
from torch_geometric_gsl.nn.shared_module import keep_state
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.ops.runtime import check_not_batched
from torch_geometric_gsl.typing import SampledGraph

#: The options of relations.
OPTIONS = {'z_channels', *LayerOptions.__annotations__} - {'root_weight', 'bias'}


class HeteroLatentGraphConv(HeteroConv):
    r"""Graph convolution on learned graphs between nodes of several types: a
    :class:`~torch_geometric.nn.conv.HeteroConv` with one layer of the `"Neural Gaussian
    Similarity Modeling for Differential Graph Structure Learning"
    <https://arxiv.org/abs/2312.09498>`_ paper per relation, a
    :class:`~torch_geometric_gsl.nn.conv.LatentGraphConv`.

    .. math::
        \mathbf{H}^{\prime}_t = \sum_{r = (s, \cdot, t)} \mathbf{A}_r \mathbf{X}_s
        \mathbf{W}_r + \mathbf{X}_t \mathbf{W}_{\textrm{root}, t} + \mathbf{b}_t

    The graph :math:`\mathbf{A}_r` is learned from the similarities of the rows of
    :math:`\mathbf{X}_s \mathbf{W}_r` with those of :math:`\mathbf{X}_t \mathbf{V}_r`,
    where :math:`\mathbf{V}_r = \mathbf{W}_r` within one type. A relation from a type
    without nodes sends no messages. Types that are never a target have no output. Pass
    new rows as a pair of dicts: the rows of all source types, and rows of some targets.

    Args:
        in_channels (int or dict[str, int]): Size of each input sample, one for all
            types or by type; :obj:`-1` derives it from the first input.
        out_channels (int): Size of each output sample.
        relations (list or dict): Edge types :obj:`(source, name, target)`, or a dict
            from them to options that override those of all relations.
        similarity (str or Similarity, optional): A name, or a module that all relations
            share. (default: :obj:`"mixture"`)
        aggr (str, optional): How relations to one type are combined, as in
            :class:`~torch_geometric.nn.conv.HeteroConv`. (default: :obj:`"sum"`)
        root_weight, bias (optional): As in
            :class:`~torch_geometric_gsl.nn.conv.LatentGraphConv`, for each type.
        **kwargs (optional): Options of the layers of all relations, such as :obj:`k`.

    Shapes:
        - **input and output:** as in
          :class:`~torch_geometric_gsl.nn.conv.LatentGraphConv`, for each type

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
        *,
        aggr: str | None = 'sum',
        root_weight: bool = True,
        bias: bool = True,
        **kwargs: Any,
    ) -> None:
        # PyG would warn of types that are never a target.
        super().__init__({}, aggr)
        check_option(aggr, ('sum', 'mean', 'min', 'max', 'cat', None), 'aggr')
        self.relations: list[EdgeType] = check_edge_types(relations, 'relations')
        types = [
            node_type
            for source, _, target in self.relations
            for node_type in (source, target)
        ]
        self.node_types = list(dict.fromkeys(types))
        if not isinstance(in_channels, dict):
            in_channels = dict.fromkeys(self.node_types, in_channels)
        self.out_channels = out_channels
        self.in_channels = check_keys(in_channels, types, 'in_channels', types)
        self.convs = ModuleDict()
        if not isinstance(relations, dict):
            relations = {relation: {} for relation in self.relations}
        for relation, options in relations.items():
            check_type(options, dict, f'relations[{relation}]', 'a dict of options')
            check_options(type(self), {*kwargs, *options}, OPTIONS)
            source, _, target = relation
            width, target_width = in_channels[source], in_channels[target]
            self.convs[relation] = LatentGraphConv(
                width if source == target else (width, target_width),
                out_channels,
                root_weight=False,
                bias=False,
                **{'similarity': similarity} | kwargs | options,
            )
        share_similarities(self)
        targets = types[1::2]
        counts = Counter(targets) if aggr == 'cat' else dict.fromkeys(targets, 1)
        self.root = RootTerms(in_channels, out_channels, counts, root_weight, bias)
        modules = (options.get('similarity') for options in relations.values())
        with keep_state(similarity, *modules):
            self.reset_parameters()

    def reset_parameters(self) -> None:
        r"""Reset all learnable parameters of the module."""
        super().reset_parameters()  # type: ignore[no-untyped-call]
        self.root.reset_parameters()

    def forward(
        self,
        x_dict: Any,
        edge_index_dict: dict[EdgeType, Tensor] | None = None,
        edge_weight_dict: dict[EdgeType, Tensor] | None = None,
        batch_dict: Any = None,
        *,
        z_dict: Any = None,
        generator: torch.Generator | None = None,
        return_graph: bool = False,
    ) -> Any:
        r"""Return the outputs by target type, and with :obj:`return_graph=True` graphs.

        The arguments are those of
        :meth:`~torch_geometric_gsl.nn.conv.LatentGraphConv.forward`, except :obj:`y`,
        as dicts: rows by type, or pairs of such dicts, and edges of some relations.
        """
        check_not_batched(self, (x_dict, z_dict), self.parameters())
        x_src, x_dst, is_pair = Ends.of(x_dict, 'x_dict')
        relations = self.relations
        if is_pair:
            check_keys(x_dst, [target for _, _, target in relations], 'x_dict')
            relations = [relation for relation in relations if relation[2] in x_dst]
        compared = [r for r in relations if self.convs[r].z_channels is not None]
        if z_dict is not None and not compared:
            raise ValueError("'z_dict' needs a relation with 'z_channels' (got None)")
        types = self.node_types
        x = rows_by_relation(x_dict, 'x_dict', relations, types, x_dict)
        batch = rows_by_relation(batch_dict, 'batch_dict', relations, types, x_dict)
        z = rows_by_relation(z_dict, 'z_dict', compared, types, x_dict)
        edges = check_keys(edge_index_dict, relations, 'edge_index_dict')
        weights = check_keys(edge_weight_dict, relations, 'edge_weight_dict')
        for node_type, rows in [*x_src.items(), *x_dst.items()]:
            check_features(rows, f'x_dict[{node_type!r}]', self.in_channels[node_type])
        sums: dict[NodeType, list[Tensor]] = {}
        graphs: dict[EdgeType, Any] = {}
        for relation in relations:
            conv: Any = self.convs[relation]
            args = x[relation], edges.get(relation)
            if Ends.of(x[relation]).src.size(0) == 0:
                out, graph = sum_without_sources(conv, *args)
            else:
                out = conv(
                    *args,
                    weights.get(relation),
                    batch.get(relation),
                    z=z.get(relation),
                    generator=generator,
                    return_graph=return_graph,
                )
                out, graph = out if return_graph else (out, None)
            sums.setdefault(relation[2], []).append(out)
            graphs[relation] = graph
        outs = {t: self.root(group(s, self.aggr), x_dst[t], t) for t, s in sums.items()}
        return (outs, graphs) if return_graph else outs

    def graphs(self, *args: Any, **kwargs: Any) -> dict[EdgeType, SampledGraph]:
        r"""Return the graph of each relation that :meth:`forward` sums over."""
        _, graphs = self(*args, **kwargs, return_graph=True)
        return dict(graphs)
