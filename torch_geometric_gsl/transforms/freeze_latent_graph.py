from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform
from torch_geometric.typing import EdgeType, NodeType

from torch_geometric_gsl._checks import (
    check_count,
    check_edge_index,
    check_flag,
    check_number,
    check_type,
)
from torch_geometric_gsl.nn.conv.hetero_latent_graph_conv import HeteroLatentGraphConv
from torch_geometric_gsl.nn.conv.transition_graph_conv import TransitionGraphConv
from torch_geometric_gsl.nn.models.hetero_gsl_net import HeteroGSLNet
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.ops.listed import rank_in_group
from torch_geometric_gsl.transforms._graphs import (
    TYPED,
    evaluation,
    node_features,
    set_graph,
    sorted_graph,
)
from torch_geometric_gsl.typing import SampledGraph

#: Models that learn graphs between nodes of several types.
TYPED_MODELS = HeteroGSLNet, HeteroLatentGraphConv


@functional_transform('freeze_latent_graph')
class FreezeLatentGraph(BaseTransform):
    r"""Store the graph that a trained model learned, so that any model takes it
    (functional name: :obj:`freeze_latent_graph`).

    The model is asked for its graph of the features in evaluation mode, without
    gradient, and is left in its former mode. The edges run from neighbours to nodes,
    sorted by node, with weights in :obj:`data.edge_weight`. They are the graph over
    which the layer sums: its :obj:`eval_k` nearest nodes, or all. Weights sum to 1 for
    each node, less the share of a null neighbour among all candidates, and are not
    normalised again after :obj:`threshold` has removed edges.

    A :class:`~torch_geometric_gsl.nn.HeteroGSLNet` takes a
    :class:`~torch_geometric.data.HeteroData` object, and each relation that one of its
    layers has becomes an edge type. The later layers of a network with a target lack
    relations that reach the target no more: the graph of such a relation is that of
    the last layer before that has it.

    A graph that :obj:`data` already has is kept under names with a prefix, such as
    :obj:`observed_edge_index` and :obj:`observed_edge_attr`, or dropped if there are
    such names already. A batch cannot be taken apart afterwards.

    Args:
        model (torch.nn.Module): A model with a method :obj:`graphs`, such as
            :class:`~torch_geometric_gsl.nn.models.GSLNet`, one with a method
            :obj:`graph`, such as
            :class:`~torch_geometric_gsl.nn.conv.LatentGraphConv`, or a
            :class:`~torch_geometric_gsl.nn.sampler.GumbelKNNSampler` by itself.
            Graphs with transition nodes do not join nodes and cannot be stored.
        layer (int, optional): The layer whose graph is stored; negative numbers
            count from the last. The graph of the first layer depends on the features
            alone, those of later layers on all messages before. Relations that this
            layer lacks are taken from the last layer before that has them.
            (default: :obj:`0`)
        k (int, optional): If given, the samplers of the model are evaluated over their
            :obj:`k` nearest nodes, and of other graphs the :obj:`k` edges of largest
            weight of each node are kept. (default: :obj:`None`)
        threshold (float, optional): Edges at or below this weight are dropped.
            (default: :obj:`0.0`)
        use_edge_index (bool, optional): If :obj:`True`, :obj:`data.edge_index`, or the
            edges of each relation, are given to the model as its candidates, with
            :obj:`data.edge_weight` if there is one: use it where training did.
            (default: :obj:`False`)
        attr (str, optional): The features that the model is given: an attribute of the
            nodes. (default: :obj:`"x"`)

    Raises:
        TypeError: If an argument has the wrong type, :obj:`data` is not what the model
            takes, or the features are not a floating-point tensor.
        ValueError: If an argument is out of range, the model has transition nodes
            or no such layer, or :obj:`data` lacks what the model needs.

    Example:
        >>> from torch_geometric.data import Data
        >>> from torch_geometric_gsl.nn.models import GSLNet
        >>> model = GSLNet(16, 32, num_layers=2, out_channels=7, eval_k=5)
        >>> FreezeLatentGraph(model)(Data(x=torch.randn(100, 16)))
        Data(x=[100, 16], edge_index=[2, 500], edge_weight=[500])
    """

    def __init__(
        self,
        model: torch.nn.Module,
        layer: int = 0,
        *,
        k: int | None = None,
        threshold: float = 0.0,
        use_edge_index: bool = False,
        attr: str = 'x',
    ) -> None:
        _check_model(model)
        if isinstance(layer, bool) or not isinstance(layer, int):
            raise TypeError(f"'layer' must be an integer (got {type(layer).__name__})")
        if k is not None:
            check_count(k, 'k')
        check_number(threshold, 'threshold')
        check_flag(use_edge_index, 'use_edge_index')
        self.model: Any = model
        self.layer = layer
        self.k = k
        self.threshold = threshold
        self.use_edge_index = use_edge_index
        check_type(attr, str, 'attr', 'the name of an attribute')
        self.attr = attr

    def forward(self, data: Data | HeteroData) -> Data | HeteroData:
        given: Any = data
        if isinstance(self.model, TYPED_MODELS):
            check_type(
                data, HeteroData, 'data', f'{TYPED} for a model of several types'
            )
            for edge_type, graph in self._kept(self._typed_graphs, given).items():
                set_graph(given, graph.prune(self.threshold), edge_type)
            return data
        x = node_features(given, attr=self.attr)
        graph = self._kept(lambda data: {'': self._graph(data)}, given)['']
        check_edge_index(graph.edge_index, x, x)
        set_graph(given, graph.prune(self.threshold))
        return data

    def _kept(
        self, find: Callable[[Any], dict[Any, SampledGraph]], data: Any
    ) -> dict[Any, SampledGraph]:
        """Return the edges that are kept of each graph, sorted by target."""
        with evaluation(self.model), _at_most(self.k, self.model):
            graphs = {name: sorted_graph(graph) for name, graph in find(data).items()}
        if self.k is None:
            return graphs
        return {name: _heaviest(graph, self.k) for name, graph in graphs.items()}

    def _one_layer(self, graphs: list[Any]) -> Any:
        """Return the graph, or the graphs, of the layer that is asked for."""
        if not -len(graphs) <= self.layer < len(graphs):
            raise ValueError(
                f"'layer' must be one of the model's {len(graphs)} layers "
                f'(got {self.layer})'
            )
        return graphs[self.layer]

    def _graph(self, data: Data) -> SampledGraph:
        args: dict[str, Any] = {}
        if self.use_edge_index:
            if 'edge_index' not in data:
                raise ValueError(
                    "'data.edge_index' must hold the candidates where "
                    "'use_edge_index' is True (got None)"
                )
            args['edge_index'] = data.edge_index
            if data.edge_weight is not None:
                args['edge_weight'] = data.edge_weight
        batch = data.batch
        x = node_features(data, attr=self.attr)
        if batch is not None:
            args['batch'] = batch
        if isinstance(self.model, GumbelKNNSampler):
            graphs = [self.model(x, **args)]
        elif hasattr(self.model, 'graphs'):
            graphs = self.model.graphs(x, **args)
        else:
            graphs = [self.model.graph(x, **args)]
        return SampledGraph(*self._one_layer(graphs))

    def _typed_graphs(self, data: HeteroData) -> dict[EdgeType, SampledGraph]:
        """Return the graph of each relation: of a later layer, or the last before."""
        types: list[NodeType] = self.model.node_types
        x = {t: node_features(data, t, self.attr) for t in types}
        args: dict[str, Any] = {}
        if self.use_edge_index:
            # The first layer of a network has all relations that reach its target.
            is_layer = isinstance(self.model, HeteroLatentGraphConv)
            conv: Any = self.model if is_layer else self.model.convs[0]
            args |= _given_edges(data, conv.relations)
        batch = {t: data[t].batch for t in types if 'batch' in data[t]}
        layers = self.model.graphs(x, batch_dict=batch, **args)
        layers = [layers] if isinstance(layers, dict) else layers
        self._one_layer(layers)  # Raises if there is none.
        graphs: dict[EdgeType, SampledGraph] = {}
        for own in layers[: self.layer % len(layers) + 1]:
            graphs |= own
        return graphs

    def __repr__(self) -> str:
        attr = '' if self.attr == 'x' else f', attr={self.attr}'
        return (
            f'{self.__class__.__name__}({self.model}, layer={self.layer}, k={self.k}, '
            f'threshold={self.threshold}{attr})'
        )


@contextmanager
def _at_most(k: int | None, model: torch.nn.Module) -> Iterator[None]:
    """Evaluate the samplers of a model over their k nearest candidates."""
    samplers = [part for part in model.modules() if isinstance(part, GumbelKNNSampler)]
    former = [sampler.eval_k for sampler in samplers]
    for sampler in samplers:
        sampler.eval_k = min(filter(None, (k, sampler.num_nearest)), default='all')
    try:
        yield
    finally:
        for sampler, eval_k in zip(samplers, former, strict=True):
            sampler.eval_k = eval_k


def _heaviest(graph: SampledGraph, k: int) -> SampledGraph:
    keep = rank_in_group(graph.edge_weight, graph.edge_index[1]) < k
    return SampledGraph(graph.edge_index[:, keep], graph.edge_weight[keep])


def _given_edges(data: HeteroData, relations: list[EdgeType]) -> dict[str, Any]:
    """Return the edges of the relations that have some, and their weights."""
    stores = {r: data[r] for r in relations if r in data.edge_types}
    edges = {r: s.edge_index for r, s in stores.items() if 'edge_index' in s}
    weights = {r: s.edge_weight for r, s in stores.items() if 'edge_weight' in s}
    if not edges:
        raise ValueError(
            f"'data' must hold candidates of a relation where 'use_edge_index' is True "
            f'(got {data.edge_types})'
        )
    return {'edge_index_dict': edges, 'edge_weight_dict': weights}


def _check_model(model: Any) -> None:
    check_type(model, torch.nn.Module, 'model', 'a torch.nn.Module')
    is_sampler = isinstance(model, GumbelKNNSampler)
    methods = (getattr(model, name, None) for name in ('graphs', 'graph'))
    if not is_sampler and not any(map(callable, methods)):
        raise TypeError(
            f"'model' must have a method 'graphs' or 'graph', or be a "
            f'GumbelKNNSampler (got {type(model).__name__})'
        )
    if any(isinstance(part, TransitionGraphConv) for part in model.modules()):
        raise ValueError(
            f"'model' must learn a graph of the nodes, but its edges run from "
            f'transition nodes to nodes; freeze a model without '
            f"'num_transition_nodes' (got {type(model).__name__})"
        )
