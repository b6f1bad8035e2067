from __future__ import annotations

from torch_geometric.data import Data
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform

from torch_geometric_gsl._warnings import silence_csr_warning
from torch_geometric_gsl.transforms._graphs import node_features


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
