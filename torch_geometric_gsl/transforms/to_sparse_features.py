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

    Bag-of-words features are mostly zeros, and a product
    :math:`\mathbf{X} \mathbf{W}` of sparse features costs as much as they have
    entries. Layers that begin with such a product take them:
    :class:`~torch_geometric_gsl.nn.conv.LatentGraphConv`,
    :class:`~torch_geometric_gsl.nn.conv.TransitionGraphConv` and
    :class:`~torch_geometric_gsl.nn.models.GSLNet`. Similarities without a projection
    do not: let graphs of the features be built first.

    .. note::
        Examples with sparse features make a batch, in a data loader, too. A batch
        cannot be taken apart again by :meth:`~torch_geometric.data.Batch.to_data_list`,
        because PyTorch cannot select rows of a CSR tensor: do so before.

    Raises:
        TypeError: If :obj:`data` is heterogeneous, or :obj:`data.x` is not a
            floating-point tensor.
        ValueError: If :obj:`data.x` is missing or neither dense nor sparse CSR.

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
