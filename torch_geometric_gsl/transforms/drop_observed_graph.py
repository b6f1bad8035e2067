from __future__ import annotations

from typing import Any

from torch_geometric.data import Data, HeteroData
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform

from torch_geometric_gsl.transforms._graphs import (
    COUNTS,
    OBSERVED,
    check_data,
    forget_slices,
    graph_keys,
    move_graph,
)


@functional_transform('drop_observed_graph')
class DropObservedGraph(BaseTransform):
    r"""Remove the graph of :obj:`data` and leave its nodes (functional name:
    :obj:`drop_observed_graph`).

    It drops :obj:`edge_index`, :obj:`adj`, :obj:`adj_t`, every attribute with
    one entry per edge, such as :obj:`edge_attr`, and the graph that another
    transform has kept with the prefix :obj:`observed_`. Labels of links
    (:obj:`edge_label`, :obj:`edge_label_index`) stay. Where the graph has as many
    edges as nodes, or nothing but its edges tells the number of nodes, attributes go
    only if their name contains :obj:`edge`. If nothing but the graph told
    the number of nodes, it is stored as :obj:`data.num_nodes`. A batch cannot be taken
    apart afterwards.

    Use it before the transforms that give :obj:`data` another graph, not after.

    Raises:
        TypeError: If :obj:`data` is neither a :class:`~torch_geometric.data.Data` nor
            a :class:`~torch_geometric.data.HeteroData` object.

    Example:
        >>> from torch_geometric.data import Data
        >>> edge_index = torch.tensor([[0, 1], [1, 0]])
        >>> data = Data(x=torch.randn(3, 4), edge_index=edge_index)
        >>> DropObservedGraph()(data)
        Data(x=[3, 4])
    """

    def forward(self, data: Data | HeteroData) -> Data | HeteroData:
        if isinstance(data, HeteroData):
            for edge_type in data.edge_types:
                _drop(data[edge_type])
                if not data[edge_type].keys():
                    del data[edge_type]
            forget_slices(data)
            return data
        check_data(data)
        store = data.stores[0]
        if graph_keys(store) and not COUNTS & {*store.keys()}:
            num_nodes = data.num_nodes
            _drop(store)
            data.num_nodes = num_nodes
        _drop(store)
        forget_slices(data)
        return data


def _drop(store: Any) -> None:
    move_graph(store, None)
    for key in list(store.keys()):
        if key.startswith(OBSERVED):
            del store[key]
