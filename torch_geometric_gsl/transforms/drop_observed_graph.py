from __future__ import annotations

from torch_geometric.data import Data, HeteroData
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform

from torch_geometric_gsl.transforms._graph_data import (
    OBSERVED,
    check_data,
    graph_keys,
    move_graph,
)
from torch_geometric_gsl.transforms._typed_graph_data import drop_typed_graphs


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
            drop_typed_graphs(data)
            return data
        check_data(data)
        num_nodes = None
        if graph_keys(data) and not {'x', 'pos', 'num_nodes'} & set(data.keys()):
            num_nodes = data.num_nodes
            if 'ptr' in data:
                data._num_nodes = data.ptr.diff().tolist()  # One for each example.
        move_graph(data, None)
        if num_nodes is not None:
            data.num_nodes = num_nodes
        for key in data.keys():  # noqa: SIM118 (iterating over data yields pairs)
            if key.startswith(OBSERVED):
                del data[key]
        return data
