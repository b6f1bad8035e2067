r"""Types of arguments and results, and helpers for edges."""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.utils.num_nodes import maybe_num_nodes

if TYPE_CHECKING:
    from torch_sparse import SparseTensor

#: Node features of one set of nodes, or of sources and targets.
Features: TypeAlias = Tensor | tuple[Tensor, Tensor]
#: A vector of graph ids, or one for the sources and one for the targets.
Batch: TypeAlias = Tensor | tuple[Tensor, Tensor]


class SampledGraph(NamedTuple):
    r"""A weighted graph in PyG's source-to-target order, sorted by target.

    It unpacks into the two arguments that PyG's convolutions take:
    ``edge_index, edge_weight = sampler(x)``.

    .. warning::
        A graph that is sampled in training has many more than :obj:`k` edges per target
        (:attr:`edges_per_target`), most with a weight near zero. A layer that takes
        only :obj:`edge_index` ignores them and never trains the similarity, whose
        gradients flow through :obj:`edge_weight`. For exactly :obj:`k` distinct
        neighbours, sample with :obj:`replace=False`.

    Args:
        edge_index (torch.Tensor): The edges :math:`[2, |E|]`: row 0 holds the
            sources, row 1 the targets.
        edge_weight (torch.Tensor): One weight per edge, :math:`[|E|]`; the
            weights of each target sum to 1.

    Example:
        >>> from torch_geometric_gsl import GumbelKNNSampler, LinearSimilarity
        >>> x = torch.randn(1000, 16)
        >>> relaxed = GumbelKNNSampler(LinearSimilarity(16), k=5)(x)
        >>> relaxed.edges_per_target > 30
        True
        >>> GumbelKNNSampler(LinearSimilarity(16), k=5, replace=False)(x)
        SampledGraph(edge_index=[2, 5000], edge_weight=[5000], edges_per_target=5.0)
    """

    edge_index: Tensor
    edge_weight: Tensor

    @property
    def edges_per_target(self) -> float:
        """Return the mean number of edges of the targets that have any, or 0."""
        num_targets: int = self.edge_index[1].unique().numel()
        return self.edge_index.size(1) / max(num_targets, 1)

    def prune(self, threshold: float = 0.0) -> SampledGraph:
        r"""Keep the edges whose weight exceeds :obj:`threshold`.

        Weights are not normalised again. Use it before a layer that ignores weights:
        relaxed and straight-through graphs have edges that only carry gradient.

        Args:
            threshold (float, optional): Drops edges with this weight or a smaller one.
                (default: :obj:`0.0`)

        Example:
            >>> graph = SampledGraph(torch.tensor([[0, 1], [1, 1]]),
            ...                      torch.tensor([1.0, 0.0]))
            >>> graph.prune().edge_index.tolist()
            [[0], [1]]
        """
        keep = self.edge_weight.detach() > threshold
        return type(self)(self.edge_index[:, keep], self.edge_weight[keep])

    def neighbours(self, node: int) -> tuple[Tensor, Tensor]:
        r"""Return the sources of one target and their weights, heaviest first.

        Both are empty if no edge leads to the node. The graphs of a model are
        :obj:`model.eval().graphs(x)`, that of a layer :obj:`conv.eval().graph(x)`.

        Args:
            node (int): The target, at most the largest node of the edges.

        Example:
            >>> graph = SampledGraph(torch.tensor([[0, 2, 1], [1, 1, 2]]),
            ...                      torch.tensor([0.25, 0.75, 1.0]))
            >>> sources, weights = graph.neighbours(1)
            >>> sources.tolist(), weights.tolist()
            ([2, 0], [0.75, 0.25])
        """
        ends = self.edge_index[1] if isinstance(self, PairGraph) else self.edge_index
        num_nodes = maybe_num_nodes(ends)
        if not 0 <= index(node) < num_nodes:
            raise ValueError(
                f"'node' must be at least 0 and less than {num_nodes} (got {node})"
            )
        edges = (self.edge_index[1] == node).nonzero().view(-1)
        weight = self.edge_weight[edges]
        order = weight.detach().argsort(descending=True, stable=True)
        return self.edge_index[0, edges[order]], weight[order]

    def to_adj_t(self, size: tuple[int, int]) -> SparseTensor:
        r"""Return the transposed adjacency as a :obj:`torch_sparse` tensor.

        Args:
            size (tuple[int, int]): The number of sources and of targets.

        Returns:
            torch_sparse.SparseTensor: The weights, one row per target.

        Raises:
            ImportError: If :obj:`torch-sparse` is not installed.
            ValueError: If :obj:`size` is too small for the nodes of the edges.
        """
        for row, name in ((0, 'sources'), (1, 'targets')):
            if size[row] < (num_nodes := maybe_num_nodes(self.edge_index[row])):
                raise ValueError(
                    f"'size' must count at least {num_nodes} {name} (got {size})"
                )
        try:
            from torch_sparse import SparseTensor
        except ImportError as error:
            raise ImportError(
                "'adj_t' needs torch-sparse: "
                'pip install --no-build-isolation torch-scatter torch-sparse'
            ) from error
        return SparseTensor(
            row=self.edge_index[1],
            col=self.edge_index[0],
            value=self.edge_weight,
            sparse_sizes=(size[1], size[0]),
            is_sorted=is_sorted_by_target(self.edge_index),
            trust_data=True,
        )

    def __repr__(self) -> str:
        edge_index, edge_weight = self
        # Meta and fake tensors have no values to count targets by.
        if type(edge_index) is not Tensor or edge_index.is_meta:
            return f'{self.__class__.__name__}({edge_index!r}, {edge_weight!r})'
        return (
            f'{self.__class__.__name__}(edge_index={list(edge_index.shape)}, '
            f'edge_weight={list(edge_weight.shape)}, '
            f'edges_per_target={self.edges_per_target:.1f})'
        )


class PairGraph(SampledGraph):
    r"""A weighted graph from sources to targets that are other nodes, of a call with a
    pair :obj:`(x_src, x_dst)`: node 0 of :obj:`edge_index[0]` is not that of
    :obj:`edge_index[1]`.

    Args:
        edge_index (torch.Tensor): The edges :math:`[2, |E|]`: row 0 holds the
            sources, row 1 the targets, each numbered from 0.
        edge_weight (torch.Tensor): One weight per edge, :math:`[|E|]`.

    Example:
        >>> from torch_geometric_gsl import GumbelKNNSampler, LinearSimilarity
        >>> sampler = GumbelKNNSampler(LinearSimilarity(16), k=5, replace=False)
        >>> sampler((torch.randn(100, 16), torch.randn(3, 16)))
        PairGraph(edge_index=[2, 15], edge_weight=[15], edges_per_target=5.0)
    """

    __slots__ = ()


def is_sorted_by_target(edge_index: Tensor) -> bool:
    """Return whether edges are sorted by target and then by source."""
    source, target = edge_index
    ahead = target[1:] > target[:-1]
    tie = (target[1:] == target[:-1]) & (source[1:] >= source[:-1])
    return bool(torch.all(ahead | tie))


def plain_edges(edge_index: Tensor) -> Tensor:
    """Return edges as a tensor, without the metadata of PyG's :class:`EdgeIndex`."""
    return edge_index.as_tensor() if isinstance(edge_index, EdgeIndex) else edge_index
