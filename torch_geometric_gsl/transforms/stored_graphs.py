"""Store the learned graph of a model in data."""

from __future__ import annotations

from collections.abc import Iterator
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
from torch_geometric_gsl.nn.conv.learned_graph_conv import LearnedGraphConv
from torch_geometric_gsl.nn.conv.transition_graph_conv import TransitionGraphConv
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import (
    GumbelKNNSampler,
    samplers_of,
)
from torch_geometric_gsl.nn.shared_module import all_modules, evaluation
from torch_geometric_gsl.ops.edges import rank_in_group
from torch_geometric_gsl.transforms._graphs import (
    node_features,
    set_graph,
    sorted_graph,
)
from torch_geometric_gsl.typing import SampledGraph


@functional_transform('freeze_latent_graph')
class FreezeLatentGraph(BaseTransform):
    r"""Store the learned graph of a trained model (functional name:
    :obj:`freeze_latent_graph`).

    The graph is computed in evaluation mode, without gradients; the mode is restored.
    The edges run from neighbours to nodes, sorted by node, with weights in
    :obj:`data.edge_weight`: the graph over which the layer sums, of the :obj:`eval_k`
    nearest nodes or all. The weights of a node sum to 1, less the weight of a null
    neighbour, and are not normalised again after edges below :obj:`threshold` are
    dropped.

    For a :class:`~torch_geometric_gsl.nn.HeteroLatentGraphConv`, or a network of such
    layers whose method :obj:`graphs` takes a dict of features and returns the layers'
    graphs, pass a :class:`~torch_geometric.data.HeteroData` object: each relation
    becomes an edge type.

    Batches and existing graphs are handled as in :class:`SimilarityKNNGraph`.

    Args:
        model (torch.nn.Module): A model with a method :obj:`graphs`, such as
            :class:`~torch_geometric_gsl.nn.models.GSLNet`, one with a method
            :obj:`graph`, such as :class:`~torch_geometric_gsl.nn.conv.LatentGraphConv`,
            or a :class:`~torch_geometric_gsl.nn.sampler.GumbelKNNSampler`.
            Graphs with transition nodes do not join nodes and cannot be stored.
        layer (int, optional): The index of the layer; negative ones count from the
            last. The graph of the first layer depends on the features only. Relations
            missing in a layer come from the last earlier layer that has them. (default:
            :obj:`0`)
        k (int, optional): Evaluates the samplers of the model over the :obj:`k` nearest
            nodes, and keeps the :obj:`k` heaviest edges per node of other graphs.
            (default: :obj:`None`)
        threshold (float, optional): Drops edges with this weight or a smaller one.
            (default: :obj:`0.0`)
        use_edge_index (bool, optional): If :obj:`True`, passes :obj:`data.edge_index`,
            or the edges of each relation, to the model as candidates, with
            :obj:`data.edge_weight` if there is one, as in training.
            (default: :obj:`False`)
        attr (str, optional): The features: an attribute of the nodes.
            (default: :obj:`"x"`)

    Raises:
        TypeError: If the model does not take this kind of :obj:`data`.
        ValueError: If the model has transition nodes, indexed rows or no such layer, or
            :obj:`data` lacks an input of the model.

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
        index = getattr(self.model, 'index_x', None)
        if index is not None:
            raise ValueError(
                f"'model' must have no index (got {index.size(0)} rows, which are not "
                f"the nodes of 'data'): call model.clear_index() first"
            )
        is_typed = bool(_typed_layers(self.model))
        if is_typed:
            expected = 'a torch_geometric.data.HeteroData for a model of several types'
            check_type(data, HeteroData, 'data', expected)
        list_graphs: Any = self._typed_graphs if is_typed else self._graph
        with (
            evaluation(self.model, always_copy=True) as model,
            _limit_eval_k(self.k, model),
        ):
            graphs = list_graphs(model, data)
        for edge_type, graph in graphs.items():
            graph = sorted_graph(graph)
            if self.k is not None:
                is_kept = rank_in_group(graph.edge_weight, graph.edge_index[1]) < self.k
                graph = SampledGraph(*(tensor[..., is_kept] for tensor in graph))
            set_graph(data, graph.prune(self.threshold), edge_type)
        return data

    def _graph(self, model: Any, data: Data) -> dict[None, SampledGraph]:
        """Return the graph of one layer."""
        x = node_features(data, attr=self.attr)
        args: dict[str, Any] = {'batch': data.batch}
        if self.use_edge_index:
            if 'edge_index' not in data:
                raise ValueError(
                    "'data.edge_index' must hold the candidates with "
                    'use_edge_index=True (got None)'
                )
            args |= {'edge_index': data.edge_index, 'edge_weight': data.edge_weight}
        args = {name: value for name, value in args.items() if value is not None}
        if isinstance(model, GumbelKNNSampler):
            graphs = [model(x, **args)]
        elif hasattr(model, 'graphs'):
            graphs = model.graphs(x, **args)
        else:
            graphs = [model.graph(x, **args)]
        self._check_layer(len(graphs))
        graph = SampledGraph(*graphs[self.layer])
        check_edge_index(graph.edge_index, x, x)
        return {None: graph}

    def _typed_graphs(
        self, model: Any, data: HeteroData
    ) -> dict[EdgeType, SampledGraph]:
        """Return the graph of each relation, from the layer or the last earlier one."""
        convs = _typed_layers(model)
        types: list[NodeType] = convs[0].node_types
        x = {t: node_features(data, t, self.attr) for t in types}
        args: dict[str, Any] = {}
        if self.use_edge_index:
            stores = [data[r] for r in convs[0].relations if r in data.edge_types]
            for key in ('edge_index', 'edge_weight'):
                args[f'{key}_dict'] = {s._key: s[key] for s in stores if key in s}
            if not args['edge_index_dict']:
                raise ValueError(
                    "'data' must hold candidates of a relation with "
                    f'use_edge_index=True (got {data.edge_types})'
                )
        batch = {t: data[t].batch for t in types if 'batch' in data[t]}
        if batch:
            args['batch_dict'] = batch
        layers = model.graphs(x, **args)
        layers = [layers] if isinstance(layers, dict) else layers
        self._check_layer(len(layers))
        graphs: dict[EdgeType, SampledGraph] = {}
        for layer_graphs in layers[: self.layer % len(layers) + 1]:
            graphs |= layer_graphs
        return graphs

    def _check_layer(self, num_layers: int) -> None:
        if not -num_layers <= self.layer < num_layers:
            raise ValueError(
                f"'layer' must be one of the model's {num_layers} layers "
                f'(got {self.layer})'
            )

    def __repr__(self) -> str:
        attr = '' if self.attr == 'x' else f', attr={self.attr}'
        return (
            f'{self.__class__.__name__}({self.model}, layer={self.layer}, k={self.k}, '
            f'threshold={self.threshold}{attr})'
        )


@contextmanager
def _limit_eval_k(k: int | None, model: torch.nn.Module) -> Iterator[None]:
    """Evaluate the samplers of a model over their k nearest candidates."""
    samplers = samplers_of(model)
    previous = [sampler.eval_k for sampler in samplers]
    for sampler in samplers:
        sampler.eval_k = min(filter(None, (k, sampler.num_nearest)), default='all')
    try:
        yield
    finally:
        for sampler, eval_k in zip(samplers, previous, strict=True):
            sampler.eval_k = eval_k


def _typed_layers(model: torch.nn.Module) -> list[HeteroLatentGraphConv]:
    """Return the layers of a model of several types; the first has all its types."""
    return [
        module
        for module in model.modules()
        if isinstance(module, HeteroLatentGraphConv)
    ]


def _check_model(model: Any) -> None:
    check_type(model, torch.nn.Module, 'model', 'a torch.nn.Module')
    methods = (getattr(model, name, None) for name in ('graphs', 'graph'))
    if not isinstance(model, GumbelKNNSampler) and not any(map(callable, methods)):
        # The sampler of a layer compares projected rows.
        types = GumbelKNNSampler, LearnedGraphConv
        paths = [
            path
            for path, module in all_modules(model).items()
            if isinstance(module, types)
        ]
        hint = ''
        if paths:
            hint = f': pass model.get_submodule({paths[0]!r}), and data.x as it gets it'
        raise TypeError(
            f"'model' must have a method 'graphs' or 'graph', or be a "
            f'GumbelKNNSampler (got {type(model).__name__}){hint}'
        )
    if any(isinstance(module, TransitionGraphConv) for module in model.modules()):
        raise ValueError(
            f"'model' must learn a graph between nodes, but its edges run from "
            f'transition nodes to nodes; use a model without '
            f"'num_transition_nodes' (got {type(model).__name__})"
        )
