"""Transforms that learn nothing: they drop a graph, or store features otherwise."""

from __future__ import annotations

from torch_geometric.data import Data, HeteroData
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform

from torch_geometric_gsl._warnings import silence_csr_warning
from torch_geometric_gsl.transforms._graphs import (
    COUNTS,
    OBSERVED,
    check_data,
    forget_slices,
    graph_keys,
    move_graph,
    node_features,
)


@functional_transform('drop_observed_graph')
class DropObservedGraph(BaseTransform):
    r"""Remove the graph of :obj:`data` and leave its nodes (functional name:
    :obj:`drop_observed_graph`).

    It drops :obj:`edge_index`, :obj:`adj`, :obj:`adj_t`, every attribute with
    one entry per edge, such as :obj:`edge_attr`, and the graph that another
    transform has kept with the prefix :obj:`observed_`. Labels of links
    (:obj:`edge_label`, :obj:`edge_label_index`) stay. Where the graph has as many
    edges as nodes, or its edges alone determine the number of nodes, attributes go
    only if their name contains :obj:`edge`; in the second case the number is stored as
    :obj:`data.num_nodes`. A batch cannot be taken apart afterwards.

    Use it before the transforms that give :obj:`data` another graph, not after.

    Example:
        >>> from torch_geometric.data import Data
        >>> edge_index = torch.tensor([[0, 1], [1, 0]])
        >>> data = Data(x=torch.randn(3, 4), edge_index=edge_index)
        >>> DropObservedGraph()(data)
        Data(x=[3, 4])
    """

    def forward(self, data: Data | HeteroData) -> Data | HeteroData:
        if not isinstance(data, HeteroData):
            check_data(data)
            store = data.stores[0]
            if graph_keys(store) and not COUNTS & {*store.keys()}:
                num_nodes = data.num_nodes
                move_graph(store, None)
                data.num_nodes = num_nodes
        for store in data.edge_stores:
            move_graph(store, None)
            for key in list(store.keys()):
                if key.startswith(OBSERVED):
                    del store[key]
            if isinstance(data, HeteroData) and not store.keys():
                del data[store._key]
        forget_slices(data)
        return data


@functional_transform('to_sparse_features')
class ToSparseFeatures(BaseTransform):
    r"""Store the features :obj:`data.x` as a sparse CSR tensor (functional name:
    :obj:`to_sparse_features`).

    Bag-of-words features are mostly zeros, and the cost of a product
    :math:`\mathbf{X} \mathbf{W}` of sparse features is proportional to their entries.
    Layers that begin with such a product take them:
    :class:`~torch_geometric_gsl.nn.conv.LatentGraphConv`,
    :class:`~torch_geometric_gsl.nn.conv.TransitionGraphConv` and
    :class:`~torch_geometric_gsl.nn.models.GSLNet`.

    .. note::
        Examples with sparse features make a batch, which
        :meth:`~torch_geometric.data.Batch.to_data_list` cannot take apart again.

    Example:
        >>> from torch_geometric.data import Data
        >>> data = ToSparseFeatures()(Data(x=torch.eye(3)))
        >>> data.x.layout, data.x.values()
        (torch.sparse_csr, tensor([1., 1., 1.]))
    """

    def forward(self, data: Data) -> Data:
        x = node_features(data)
        silence_csr_warning()
        data.x = x.to_sparse_csr()
        return data
