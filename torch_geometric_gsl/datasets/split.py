from __future__ import annotations

import copy

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import index_to_mask

from torch_geometric_gsl._checks import check_count, check_number


def paper_split(
    data: Data, seed: int = 0, train: float = 0.5, val: float = 0.25
) -> Data:
    r"""Split the nodes at random into 50 % training, 25 % validation and 25 %
    test nodes, as in the `"Neural Gaussian Similarity Modeling for
    Differential Graph Structure Learning" <https://arxiv.org/abs/2312.09498>`_
    paper.

    Of :math:`N` nodes, :math:`\lfloor \textrm{train} \cdot N \rfloor` are for
    training and :math:`\lfloor \textrm{val} \cdot N \rfloor` for validation;
    all others are test nodes. The global random state is neither read nor
    changed, and a seed gives the same split on every device.

    Args:
        data (torch_geometric.data.Data): The graph, or the bare nodes.
        seed (int, optional): The seed of the split. (default: :obj:`0`)
        train (float, optional): The share of training nodes.
            (default: :obj:`0.5`)
        val (float, optional): The share of validation nodes.
            (default: :obj:`0.25`)

    Returns:
        A shallow copy of :obj:`data` with new :obj:`train_mask`,
        :obj:`val_mask` and :obj:`test_mask`; :obj:`data` itself is untouched.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> data = paper_split(Data(x=torch.randn(10, 3)), seed=1)
        >>> [int(mask.sum()) for mask in (data.train_mask, data.val_mask,
        ...                               data.test_mask)]
        [5, 2, 3]
    """
    if not isinstance(data, Data):
        raise TypeError(f"'data' must be a Data object (got {type(data).__name__})")
    if data.num_nodes is None:
        raise ValueError("'data' must have nodes (got neither 'x' nor 'num_nodes')")
    check_count(seed, 'seed', minimum=0)
    if seed >= 2**64:
        raise ValueError(f"'seed' must be less than 2**64 (got {seed})")
    for share, name in ((train, 'train'), (val, 'val')):
        check_number(share, name)
        if not 0 < share < 1:
            raise ValueError(f"'{name}' must lie in (0, 1) (got {share})")
    if train + val >= 1:
        raise ValueError(f"'train' + 'val' must be less than 1 (got {train + val})")
    num_nodes = int(data.num_nodes)
    # Rounding first keeps 0.29 * 100 = 28.999... from losing a node.
    sizes = [int(round(share * num_nodes, 6)) for share in (train, val)]
    sizes.append(num_nodes - sum(sizes))
    if min(sizes) < 1:
        raise ValueError(
            f"'data' has too few nodes for three sets (got {num_nodes}, "
            f'which gives {sizes})'
        )
    generator = torch.Generator().manual_seed(int(seed))
    order = torch.randperm(num_nodes, generator=generator)
    values = data.to_dict().values()
    device = next((v.device for v in values if isinstance(v, Tensor)), None)
    out = copy.copy(data)
    for name, nodes in zip(('train', 'val', 'test'), order.split(sizes), strict=True):
        out[f'{name}_mask'] = index_to_mask(nodes, num_nodes).to(device)
    return out
