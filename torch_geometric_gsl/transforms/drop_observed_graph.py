from __future__ import annotations

import torch
from torch_geometric.data import Data
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform

from torch_geometric_gsl.transforms._graph_data import (
    OBSERVED,
    check_data,
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
    the number of nodes, it is stored as :obj:`data.num_nodes`.

    Use it before the transforms that give :obj:`data` another graph, not after.

    Raises:
        TypeError: If :obj:`data` is heterogeneous.

    Example:
        >>> from torch_geometric.data import Data
        >>> edge_index = torch.tensor([[0, 1], [1, 0]])
        >>> data = Data(x=torch.randn(3, 4), edge_index=edge_index)
        >>> DropObservedGraph()(data)
        Data(x=[3, 4])
    """

    def forward(self, data: Data) -> Data:
        check_data(data)
        sizes = None
        if graph_keys(data) and not {'x', 'pos', 'num_nodes'} & set(data.keys()):
            sizes = self._sizes(data)
        move_graph(data, None)
        if sizes is not None:
            if hasattr(data, '_slice_dict'):
                data._num_nodes = sizes  # One for each example of the batch.
            data.num_nodes = sum(sizes)
        for key in data.keys():  # noqa: SIM118 (iterating over data yields pairs)
            if key.startswith(OBSERVED):
                del data[key]
        return data

    @staticmethod
    def _sizes(data: Data) -> list[int] | None:
        """Count the nodes of each example, by the edges if need be."""
        if hasattr(data, '_slice_dict') and data.batch is not None:
            counts = torch.bincount(data.batch, minlength=data.num_graphs)
            sizes: list[int] = counts.tolist()
            return sizes
        return None if data.num_nodes is None else [data.num_nodes]
