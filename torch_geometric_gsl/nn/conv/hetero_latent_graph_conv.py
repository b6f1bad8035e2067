from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import HeteroConv, module_dict, parameter_dict
from torch_geometric.nn.conv.hetero_conv import group
from torch_geometric.nn.inits import reset, zeros
from torch_geometric.typing import EdgeType, NodeType

from torch_geometric_gsl._checks import (
    Ends,
    check_edge_index,
    check_edge_types,
    check_edge_weight,
    check_features,
    check_flag,
    check_generator,
    check_option,
    check_type,
)
from torch_geometric_gsl.nn.conv.latent_graph_conv import LatentGraphConv
from torch_geometric_gsl.nn.linear import apply_linear, plain_linear
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import share_similarities
from torch_geometric_gsl.nn.sampler.options import LayerOptions, check_options
from torch_geometric_gsl.nn.shared_module import keep_state
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.ops.edges import empty_graph
from torch_geometric_gsl.ops.runtime import check_not_batched
from torch_geometric_gsl.typing import Features, SampledGraph

#: The options of relations.
OPTIONS = {'z_channels', *LayerOptions.__annotations__} - {'root_weight', 'bias'}


class ModuleDict(module_dict.ModuleDict):
    """PyG's dict, also for keys that are attributes of instances: `training`."""

    CLASS_ATTRS = tuple(dir(torch.nn.ModuleDict()))  # type: ignore[misc]


class ParameterDict(parameter_dict.ParameterDict):
    """PyG's dict, also for keys that are attributes of instances: `training`."""

    CLASS_ATTRS = frozenset(dir(torch.nn.ParameterDict()))  # type: ignore[misc,assignment]


class RootTerms(torch.nn.Module):
    """A root weight and a bias for each target type.

    The counts are those of the sums of a target that stand side by side.
    """

    def __init__(
        self,
        in_channels: dict[NodeType, int],
        out_channels: int,
        counts: dict[NodeType, int],
        root_weight: bool,
        bias: bool,
    ) -> None:
        super().__init__()
        check_flag(root_weight, 'root_weight')
        check_flag(bias, 'bias')
        self.lins = ModuleDict()
        self.biases = ParameterDict()
        for target, count in counts.items():
            size = count * out_channels
            if root_weight:
                self.lins[target] = plain_linear(in_channels[target], size)
            if bias:
                self.biases[target] = torch.nn.Parameter(torch.zeros(size))

    def reset_parameters(self) -> None:
        reset(self.lins)
        zeros(self.biases)

    def forward(self, out: Tensor, x: Tensor, target: NodeType) -> Tensor:
        """Add the terms of a type to the sums of its targets."""
        if target in self.lins:
            root = apply_linear(self.lins[target], x)  # type: ignore[arg-type]
            # Sums of several relations may be stacked.
            out = out + (root.unsqueeze(1) if out.dim() == 3 else root)
        return out + self.biases[target] if target in self.biases else out


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
        self.in_channels = _check_keys(in_channels, types, 'in_channels', types)
        self.convs = ModuleDict()
        if not isinstance(relations, dict):
            relations = {relation: {} for relation in self.relations}
        for relation, options in relations.items():
            check_type(options, dict, f'relations[{relation}]', 'a dict of options')
            check_options(type(self), {*kwargs, *options}, OPTIONS)
            for name in options.keys() - OPTIONS - {'similarity'}:
                raise TypeError(
                    f"'{name}' is an option of all relations (got one of {relation})"
                )
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
        for rows in (x_src, x_dst):
            check_type(rows, dict, 'x_dict', 'a dict, such as data.x_dict')
        relations = self.relations
        if is_pair:
            _check_keys(x_dst, [target for _, _, target in relations], 'x_dict')
            relations = [relation for relation in relations if relation[2] in x_dst]
        compared = [r for r in relations if self.convs[r].z_channels is not None]
        if z_dict is not None and not compared:
            raise ValueError("'z_dict' needs a relation with 'z_channels' (got None)")
        types = self.node_types
        x = _rows_by_relation(x_dict, 'x_dict', relations, types, is_pair)
        batch = _rows_by_relation(batch_dict, 'batch_dict', relations, types, is_pair)
        z = _rows_by_relation(z_dict, 'z_dict', compared, types, is_pair)
        edges = _check_keys(edge_index_dict, relations, 'edge_index_dict')
        weights = _check_keys(edge_weight_dict, relations, 'edge_weight_dict')
        for node_type, rows in [*x_src.items(), *(x_dst.items() if is_pair else ())]:
            check_features(rows, f'x_dict[{node_type!r}]', self.in_channels[node_type])
        sums: dict[NodeType, list[Tensor]] = {}
        graphs: dict[EdgeType, Any] = {}
        for relation in relations:
            conv: Any = self.convs[relation]
            args = x[relation], edges.get(relation), weights.get(relation)
            if Ends.of(x[relation]).src.size(0) == 0:
                out, graph = _sum_without_sources(conv, *args, generator)
            else:
                out = conv(
                    *args,
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


def _check_keys(
    value: Any, keys: Iterable[Any], name: str, required: Iterable[Any] = ()
) -> dict[Any, Any]:
    """Return a dict of some keys, among them those required; empty for None."""
    value = {} if value is None else value
    check_type(value, dict, name, f'a dict, such as data.{name}')
    keys = list(dict.fromkeys(keys))
    for key in value:
        if key not in keys:
            raise ValueError(f"'{name}' must be a dict of {keys} (got {key!r})")
    for key in required:
        if key not in value:
            raise ValueError(
                f"'{name}' must have an entry for {key!r} (got {list(value)})"
            )
    return dict(value)


def _rows_by_relation(
    value: Any,
    name: str,
    relations: list[EdgeType],
    types: list[NodeType],
    is_pair: bool,
) -> dict[EdgeType, Any]:
    """Return the rows of each relation: a pair, or one tensor for one set of nodes.

    If the features are a pair of dicts, all relations have pairs.
    """
    if value is None:
        return {}
    if isinstance(value, tuple | list) != is_pair:
        expected = 'a pair of dicts' if is_pair else 'a dict'
        raise TypeError(
            f"'{name}' must be {expected} like 'x_dict' (got a {type(value).__name__})"
        )
    src, dst, _ = Ends.of(value, name)
    src = _check_keys(src, types, name, [source for source, _, _ in relations])
    dst = _check_keys(dst, types, name, [target for _, _, target in relations])
    rows: dict[EdgeType, Any] = {}
    for relation in relations:
        source, _, target = relation
        is_joint = is_pair or source != target
        rows[relation] = (src[source], dst[target]) if is_joint else src[source]
    return rows


def _sum_without_sources(
    conv: Any,
    x: Features,
    edge_index: Tensor | None,
    edge_weight: Tensor | None,
    generator: torch.Generator | None,
) -> tuple[Tensor, Any]:
    """Return zeros and no edges: without sources there are no messages."""
    x_src, x_dst, _ = conv._check_rows(x)
    h = apply_linear(conv.lin, x_src)
    if conv.lin_dst is not None:  # A lazy one learns its width here.
        apply_linear(conv.lin_dst, x_dst)
    if edge_index is not None:
        check_edge_index(edge_index, h, x_dst)
    if edge_weight is not None:
        check_edge_weight(edge_weight, edge_index, h)
    check_generator(generator, h.device)
    return h.new_zeros(x_dst.size(0), conv.out_channels), empty_graph(h)
