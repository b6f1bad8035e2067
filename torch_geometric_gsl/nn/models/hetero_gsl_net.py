from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn.inits import reset
from torch_geometric.typing import EdgeType, NodeType

from torch_geometric_gsl._checks import check_option
from torch_geometric_gsl.nn.conv.hetero_latent_graph_conv import (
    HeteroLatentGraphConv,
    TypedRows,
)
from torch_geometric_gsl.nn.conv.learned_graph_conv import compared_width
from torch_geometric_gsl.nn.conv.typed import (
    OPTIONS,
    both_ends,
    check_all_given,
    check_keys,
    check_relations,
    check_widths,
    ends_of,
)
from torch_geometric_gsl.nn.models.base import FollowsTask
from torch_geometric_gsl.nn.models.layers import Dropout, resolve_activation
from torch_geometric_gsl.nn.models.row_index import WatchesRows
from torch_geometric_gsl.nn.models.tasks import Task
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import share_similarities
from torch_geometric_gsl.nn.sampler.options import check_options
from torch_geometric_gsl.nn.shared_part import keeping
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.ops.runtime import check_not_batched
from torch_geometric_gsl.typing import SampledGraph

#: Rows by node type.
Rows = dict[NodeType, Tensor]
#: The arguments of a layer other than rows.
Arguments = dict[str, Any]

#: How relations to one type are combined without a change of width.
AGGREGATIONS = ('sum', 'mean', 'min', 'max')


class HeteroGSLNet(WatchesRows, FollowsTask):
    r"""Network of the `"Neural Gaussian Similarity Modeling for Differential
    Graph Structure Learning" <https://arxiv.org/abs/2312.09498>`_ paper for nodes of
    several types: layers that learn a graph per relation, with an activation and
    dropout between layers.

    .. math::
        \mathbf{H}_t^{(\ell + 1)} = \mathrm{Dropout} \left( \mathrm{ReLU} \left(
        \mathrm{Conv}^{(\ell)} ( \{ \mathbf{H}_s^{(\ell)} \} )_t \right) \right)

    where :math:`\mathrm{Conv}` is a
    :class:`~torch_geometric_gsl.nn.conv.HeteroLatentGraphConv`. The last layer has
    neither activation nor dropout.

    A type that is not a target of any relation is never updated: each layer projects
    its input.

    With a :obj:`target` the output belongs to one type, whose labels :meth:`loss`,
    :meth:`predict` and :meth:`score` take. Each layer then has only the relations that
    reach this type through later layers. A relation that is too many steps away is
    unused and accepts no edges.

    A relation with :obj:`z_channels` has one sampler and compares the same rows in all
    layers: :obj:`z_dict`, or the features themselves.

    In a pair of dicts, the first holds the rows of all source types, and the second new
    rows of target types, which attend to the sources only.

    Args:
        in_channels (int or dict[str, int]): Size of each input sample, one for all
            types or by type; :obj:`-1` for lazy initialization.
        hidden_channels, num_layers, out_channels (int): As in
            :class:`~torch_geometric_gsl.nn.GSLNet`.
        relations (list or dict): As in
            :class:`~torch_geometric_gsl.nn.conv.HeteroLatentGraphConv`.
        target (str, optional): The type of the labelled nodes; if :obj:`None`, the
            output is a dict of all types that are a target.
            (default: :obj:`None`)
        similarity (str or Similarity, optional): The similarity of a source and a
            target, by name; a module is shared by all layers, which must be equally
            wide, and all relations. (default: :obj:`"mixture"`)
        task, dropout, act (optional): As in :class:`~torch_geometric_gsl.nn.GSLNet`.
        aggr (str, optional): How relations to one type are combined:
            :obj:`"sum"`, :obj:`"mean"`, :obj:`"min"` or :obj:`"max"`.
            (default: :obj:`"sum"`)
        **kwargs (optional): Additional arguments of the layers, such as :obj:`k`,
            :obj:`tau`, :obj:`scale`, :obj:`z_channels` or :obj:`null_score`.

    Shapes:
        - **input and output:** as in
            :class:`~torch_geometric_gsl.nn.conv.HeteroLatentGraphConv`; with a target,
            the output of that type only

    Raises:
        ValueError: If no relation has the :obj:`target`.

    Example:
        >>> relations = [('word', 'in', 'document'), ('document', 'near', 'document')]
        >>> sizes = {'word': 8, 'document': 16}
        >>> model = HeteroGSLNet(sizes, 32, 2, 7, relations, target='document')
        >>> x_dict = {'word': torch.randn(50, 8), 'document': torch.randn(100, 16)}
        >>> model(x_dict).shape
        torch.Size([100, 7])
    """

    def __init__(
        self,
        in_channels: int | dict[NodeType, int],
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        relations: Any,
        target: NodeType | None = None,
        similarity: str | Similarity = 'mixture',
        *,
        task: str = 'classification',
        dropout: float = 0.5,
        act: Any = 'relu',
        aggr: str = 'sum',
        **kwargs: Any,
    ) -> None:
        super().__init__()
        widths = hidden_channels, num_layers, out_channels
        sizes = self._keep_sizes(-1, *widths, task=task)
        check_option(aggr, AGGREGATIONS, 'aggr')
        options = check_relations(relations)
        self.relations = list(options)
        self.node_types, self.target_types = ends_of(options)
        if target is not None:
            check_option(target, self.target_types, 'target')
        self.in_channels = check_widths(in_channels, self.node_types)
        self.target = target
        self.dropout = Dropout(dropout)
        self.act = resolve_activation(act)
        check_options(type(self), kwargs, {'root_weight', 'bias', *OPTIONS})
        kwargs |= {'similarity': similarity, 'aggr': aggr}
        self.convs = self._make_layers(sizes, options, kwargs)
        share_similarities(self)
        own_kinds = (own.get('similarity') for own in options.values())
        with keeping(similarity, act, *own_kinds):
            self.reset_parameters()

    def _make_layers(
        self,
        sizes: list[tuple[int, int]],
        options: dict[EdgeType, Arguments],
        kwargs: Arguments,
    ) -> torch.nn.ModuleList:
        """Create the layers, with the relations that reach the target through them."""
        needed = {*self.target_types} if self.target is None else {self.target}
        options = {r: own | self._width(r, kwargs | own) for r, own in options.items()}
        layers: list[HeteroLatentGraphConv] = []
        for number, (width, out_channels) in reversed([*enumerate(sizes)]):
            own = {r: options[r] for r in self.relations if r[2] in needed}
            widths = {
                t: width if number and t in self.target_types else self.in_channels[t]
                for t in ends_of(own)[0]
            }
            layers.insert(0, HeteroLatentGraphConv(widths, out_channels, own, **kwargs))
            needed |= {*widths}
        first: Any = layers[0].convs
        for layer in layers[1:]:
            for relation in layer.relations:
                if first[relation].z_channels is not None:
                    layer.convs[relation].share_sampler(first[relation])  # type: ignore[operator]
        return torch.nn.ModuleList(layers)

    def _width(self, relation: EdgeType, options: Arguments) -> Arguments:
        """Return the width of compared rows; -1 is the width of the input."""
        widths = self.in_channels[relation[0]], self.in_channels[relation[2]]
        return {'z_channels': compared_width(options.get('z_channels'), widths)}

    def reset_parameters(self) -> None:
        r"""Reset all learnable parameters of the module."""
        reset(self.act)
        reset(self.convs)

    def forward(
        self,
        x_dict: TypedRows,
        edge_index_dict: Any = None,
        edge_weight_dict: Any = None,
        batch_dict: TypedRows | None = None,
        *,
        z_dict: TypedRows | None = None,
        generator: torch.Generator | None = None,
        return_graph: bool = False,
    ) -> Any:
        r"""Run the forward pass.

        The arguments are those of
        :meth:`~torch_geometric_gsl.nn.conv.HeteroLatentGraphConv.forward`. With a pair
        all others are pairs as well: edges between sources, and edges from sources to
        targets. With :obj:`return_graph=True` it also returns the graphs of each layer.

        Returns:
            torch.Tensor or dict[str, torch.Tensor]: The outputs of the target type, or
            of all types that are a target.
        """
        check_not_batched(self, (x_dict, z_dict), self.parameters())
        is_pair = isinstance(x_dict, tuple | list)
        own, given = self._inputs(
            is_pair, x_dict, edge_index_dict, edge_weight_dict, batch_dict, z_dict
        )
        src, dst = own.pop('x_dict'), given.pop('x_dict')
        layers: list[Any] = list(self.convs)
        z = None if z_dict is None else (own['z_dict'], given['z_dict'])
        layers[0].check_z((src, dst), z)
        if not is_pair and not batch_dict:
            watched = dst.get(self.target, next(iter(dst.values()), None))
            self._watch(watched, bool(edge_index_dict))
        graphs: list[dict[EdgeType, SampledGraph]] = []
        for conv in layers:
            rows: Any = _pick(dst, conv.node_types)
            args = _part(given, conv)
            if is_pair:
                rows = _pick(src, conv.node_types), _pick(dst, conv.target_types)
                before = _part(own, conv)
                for name in {'batch_dict', 'z_dict'} & {*args}:
                    args[name] = before[name], args[name]
                if conv is not layers[-1]:
                    out = conv(rows[0], **before, generator=generator)
                    src = self._after(src, out, generator)
            out = conv(rows, **args, generator=generator, return_graph=return_graph)
            if return_graph:
                out, graph = out
                graphs.append(graph)
            if conv is not layers[-1]:
                dst = self._after(dst, out, generator)
        out = out if self.target is None else out[self.target]
        return (out, graphs) if return_graph else out

    def _inputs(self, is_pair: bool, *values: Any) -> tuple[Arguments, Arguments]:
        """Split the arguments of a call into those of sources and those of targets."""
        types, edges = self.node_types, self.convs[0].relations
        known: Any = {'x_dict': types, 'edge_index_dict': edges}
        known |= {'edge_weight_dict': edges, 'batch_dict': types, 'z_dict': types}
        ends = {
            name: both_ends(value, known[name], name, is_pair)
            for name, value in zip(known, values, strict=True)
        }
        if is_pair:
            x = ends['x_dict'][1]
            receive = self.target_types if self.target is None else [self.target]
            check_keys(x, receive, 'x_dict')
            check_all_given(x, receive if self.target else [], 'x_dict')
        if values[-1] is None:
            ends['z_dict'] = ends['x_dict']
        own, new = ({name: end[i] for name, end in ends.items()} for i in (0, 1))
        return own, new

    def _after(self, rows: Rows, out: Rows, generator: torch.Generator | None) -> Rows:
        """Return the rows after a layer; types that it does not update keep theirs."""
        updated = {t: self.dropout(self.act(h), generator) for t, h in out.items()}
        return rows | updated

    @property
    def _task(self) -> Task:
        if self.target is None:
            raise ValueError(
                "'target' must be the type of the labelled nodes (got None)"
            )
        return super()._task

    def graphs(self, *args: Any, **kwargs: Any) -> list[dict[EdgeType, SampledGraph]]:
        r"""Return the graph of each relation that :meth:`forward` sums over, given the
        same arguments, layer by layer.
        """
        _, graphs = self(*args, **kwargs, return_graph=True)
        return list(graphs)


def _pick(values: dict[Any, Any], keys: Iterable[Any]) -> dict[Any, Any]:
    return {key: values[key] for key in keys if key in values}


def _part(given: Arguments, conv: Any) -> Arguments:
    """Select the arguments of one layer, which may not have all relations."""
    known = {'edge_index_dict': conv.relations, 'edge_weight_dict': conv.relations}
    return {
        name: _pick(value, known.get(name, conv.node_types))
        for name, value in given.items()
        if name != 'z_dict' or any(c.z_channels for c in conv.convs.values())
    }
