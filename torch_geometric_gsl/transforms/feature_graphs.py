"""Graphs of nearest or sampled neighbours under a fixed similarity of features."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.utils import scatter, to_undirected

from torch_geometric_gsl._checks import (
    Ends,
    check_absent,
    check_count,
    check_ends,
    check_flag,
    check_option,
    check_seed,
)
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.sampler.options import Budget, check_options
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.nn.similarity.distance_similarity import HeatKernelSimilarity
from torch_geometric_gsl.nn.similarity.linear_similarity import LinearSimilarity
from torch_geometric_gsl.nn.similarity.resolver import (
    WEIGHTS,
    nearness,
    resolve_similarity,
)
from torch_geometric_gsl.ops.runtime import MEMORY_BUDGET
from torch_geometric_gsl.ops.sparse_rows import SparseRows
from torch_geometric_gsl.transforms._graphs import FeatureGraph
from torch_geometric_gsl.typing import Features, SampledGraph

#: The options of a sampler without parameters and evaluation.
_OPTIONS = ('hard', 'replace', 'loop', 'method', 'budget')


@torch.no_grad()
def nearest_neighbours(
    x: Features,
    k: int,
    batch: Any = None,
    *,
    similarity: str = 'linear',
    loop: bool = False,
    memory_budget: int = MEMORY_BUDGET,
) -> SampledGraph:
    r"""Join each node to the nodes with the largest cosine, weighted by a similarity,
    or, on one or two columns, to those at the smallest distance, as
    :class:`SimilarityKNNGraph` does.

    Args:
        x (torch.Tensor or tuple): The node features, dense or sparse CSR, or a pair
            :obj:`(x_src, x_dst)`.
        k (int): The number of neighbours; a node with fewer candidates is joined to
            all of them.
        batch (torch.Tensor or tuple, optional): Sorted graph ids, a pair for a pair.
            (default: :obj:`None`)
        similarity (str, optional): The weights, :obj:`"linear"` (the cosine) or
            :obj:`"heat_kernel"` (of unit rows). (default: :obj:`"linear"`)
        loop (bool, optional): If :obj:`True`, has self-loops. (default: :obj:`False`)
        memory_budget (int, optional): Bytes of a block of rows. (default: :obj:`2**25`)
    """
    src, dst, is_pair = check_ends(x)
    check_option(similarity, WEIGHTS, 'similarity')
    metric = nearness(dst.size(1))
    if isinstance(metric, HeatKernelSimilarity):
        src, dst = src.to_dense(), dst.to_dense()
    checked = Ends(src, dst, is_pair)
    edge_index = _nearest(checked, k, metric, batch, loop, memory_budget)
    source, target = edge_index
    if isinstance(metric, HeatKernelSimilarity):
        distance = metric.exact_scores(checked).compare_edges(edge_index)
        largest = scatter(distance, target, 0, dst.size(0), reduce='max')
        weight = torch.exp(-distance / largest.where(largest > 0, 1)[target])
        return SampledGraph(edge_index, weight.to(dst.dtype))
    weighting = resolve_similarity(similarity, dst.size(1))
    if dst.layout == torch.strided:
        return SampledGraph(edge_index, weighting(checked, edge_index))
    weight = metric(checked, edge_index)
    if weighting.comparison != 'dot':
        # A unit row has squared length 1, a row of zeros 0.
        src_norm, dst_norm = (
            SparseRows.unit(rows).norm().round() for rows in (src, dst)
        )
        square = src_norm.to(weight)[source] + dst_norm.to(weight)[target] - 2 * weight
        square = square.clamp(min=0)
        weight = weighting.response(square)(square)
    return SampledGraph(edge_index, weight.to(dst.dtype))


def _nearest(
    x: Features | Ends,
    k: int,
    similarity: Similarity,
    batch: Any = None,
    loop: bool = False,
    memory_budget: int = MEMORY_BUDGET,
) -> Tensor:
    """Return the edges to the k most similar nodes, which evaluation keeps."""
    check_count(k, 'k')
    budget = Budget(memory=memory_budget)
    options: dict[str, Any] = {'eval_k': k, 'loop': loop, 'train_scale': False}
    sampler = GumbelKNNSampler(similarity, budget=budget, **options)
    edge_index: Tensor = sampler.eval()(x, batch=batch)[0]
    return edge_index


@functional_transform('similarity_knn_graph')
class SimilarityKNNGraph(FeatureGraph):
    r"""Join each node to the :obj:`k` nodes with the most similar features (functional
    name: :obj:`similarity_knn_graph`).

    .. math::
        \mathcal{N}(i) = \mathrm{top}_k \{ \phi_{ij} : j \in \mathcal{V} \},
        \qquad w_{ij} = \phi_{ij}

    where :math:`\phi_{ij}` is the similarity of candidate :math:`j` for node :math:`i`.
    The search is exact, in blocks of rows. Known similarities are ranked by the cosine
    or the distance itself, even if :math:`\phi_{ij}` underflows to zero. On one or two
    columns, where the cosine is not informative, :obj:`"linear"` and
    :obj:`"heat_kernel"` rank by the distance :math:`d_{ij}`, and :math:`w_{ij} =
    \exp(-d_{ij}^2 / \max_{j \in \mathcal{N}(i)} d_{ij}^2)`. The edges run from
    neighbours to nodes, sorted by node, with the similarities in
    :obj:`data.edge_weight`. No edge joins two examples of a batch. Sparse CSR features
    require the cosine or a projection.

    A graph already in :obj:`data` is kept under names with a prefix, such as
    :obj:`observed_edge_index`, or deleted if such names exist.

    .. warning::
        Weights may be negative, also with the default similarity. Layers that normalise
        by the degree, such as :class:`~torch_geometric.nn.conv.GCNConv`, then return
        NaN. Use :obj:`similarity="heat_kernel"`, whose weights lie in :math:`[0, 1]`,
        or clamp: :obj:`data.edge_weight = data.edge_weight.clamp(min=0)`.

    Args:
        k (int, optional): The number of neighbours. (default: :obj:`5`)
        similarity (str or Similarity, optional): The name of a similarity without
            parameters (:obj:`"linear"`, the cosine of the features,
            :obj:`"difference"`, :obj:`"gaussian"` or :obj:`"heat_kernel"`), or a
            module, in evaluation mode, without gradients. (default: :obj:`"linear"`)
        loop (bool, optional): If :obj:`True`, has self-loops. (default: :obj:`False`)
        force_undirected (bool, optional): If :obj:`True`, adds the reverse of every
            edge; edges of both directions get the mean weight. (default: :obj:`False`)
        clamp (bool, optional): If :obj:`True`, nodes with fewer than :obj:`k`
            candidates are joined to all of them. If :obj:`False`, they raise an error.
            (default: :obj:`True`)
        memory_budget (int, optional): Bytes of a block of rows. (default: :obj:`2**25`)
        attr (str, optional): The features: an attribute of the nodes, such as
            :obj:`"pos"`. Positions are compared by their distances with
            :obj:`HeatKernelSimilarity(3, normalize=False)`. (default: :obj:`"x"`)
        edge_types (list, optional): For a :class:`~torch_geometric.data.HeteroData`
            object: the edge types :obj:`(source, name, target)` that get a graph
            between two types of equal width; others stay. (default: :obj:`None`)

    Raises:
        TypeError: If :obj:`data` is heterogeneous without :obj:`edge_types`.
        ValueError: If the named similarity has parameters, the features are missing, a
            graph has too few nodes and :obj:`clamp` is :obj:`False`.

    Example:
        >>> from torch_geometric.data import Data
        >>> x = torch.tensor([[1.0, 0.0, 0.0], [4.0, 3.0, 0.0], [0.0, 1.0, 0.0]])
        >>> data = SimilarityKNNGraph(k=1)(Data(x=x))
        >>> data.edge_index
        tensor([[1, 0, 1],
                [0, 1, 2]])
        >>> data.edge_weight
        tensor([0.8000, 0.8000, 0.6000])
    """

    def __init__(
        self,
        k: int = 5,
        similarity: str | Similarity = 'linear',
        *,
        loop: bool = False,
        force_undirected: bool = False,
        clamp: bool = True,
        memory_budget: int = MEMORY_BUDGET,
        attr: str = 'x',
        edge_types: Any = None,
    ) -> None:
        check_count(k, 'k')
        check_flag(loop, 'loop')
        check_flag(force_undirected, 'force_undirected')
        check_count(memory_budget, 'memory_budget')
        super().__init__(k, similarity, loop, clamp, attr, edge_types)
        if any(source != target for source, _, target in self.edge_types or []):
            between = 'for edges between two types'
            check_absent(force_undirected or None, 'force_undirected', between)
        self.force_undirected = force_undirected
        self.memory_budget = memory_budget

    def build(self, x: Features, k: int, similarity: Similarity) -> SampledGraph:
        options: dict[str, Any] = {'loop': self.loop}
        options['memory_budget'] = self.memory_budget
        if self.similarity in WEIGHTS:
            graph = nearest_neighbours(x, k, similarity=self.similarity, **options)
        else:
            edge_index = _nearest(x, k, similarity, **options)
            graph = SampledGraph(edge_index, similarity(x, edge_index))
        if not self.force_undirected or isinstance(x, tuple):
            return graph
        undirected = to_undirected(*graph, num_nodes=x.size(0), reduce='mean')
        return SampledGraph(*undirected)

    def __repr__(self) -> str:
        return (
            f'{self.__class__.__name__}(k={self.k}, similarity={self.similarity}, '
            f'loop={self.loop}, force_undirected={self.force_undirected}, '
            f'clamp={self.clamp}{self.extra_repr()})'
        )


@functional_transform('sampled_latent_graph')
class SampledLatentGraph(FeatureGraph):
    r"""Sample a latent graph from the node features, as
    :class:`~torch_geometric_gsl.nn.sampler.GumbelKNNSampler` does in training, but
    without gradients (functional name: :obj:`sampled_latent_graph`).

    The edges run from neighbours to nodes, sorted by node; the weights
    :obj:`data.edge_weight` of each node sum to 1, and edges of weight zero, which would
    only carry gradient, are dropped. As :obj:`transform` of a data set it samples a new
    graph at every access, as :obj:`pre_transform` only once. Batches and existing
    graphs are handled as in :class:`SimilarityKNNGraph`.

    .. warning::
        The graph is relaxed: it has about 80 edges per node for :obj:`k=5`, or all
        pairs of a small graph, most with a weight near zero. For layers without
        :obj:`edge_weight`, such as :class:`~torch_geometric.nn.conv.SAGEConv`, set
        :obj:`replace=False` to draw :obj:`k` neighbours.

    Args:
        k (int, optional): The number of draws :math:`K`. (default: :obj:`5`)
        similarity (str or Similarity, optional): As in :class:`SimilarityKNNGraph`, but
            on one or two columns :obj:`"linear"` and :obj:`"heat_kernel"` are the
            kernel :math:`\exp(-d^2 / 2)` of the distance. (default: :obj:`"linear"`)
        tau (float, optional): The temperature :math:`\tau`. (default: :obj:`0.5`)
        scale (float, optional): The factor of the similarity; draws are almost uniform
            at 1. (default: :obj:`20.0`)
        seed (int, optional): Seed of a new generator for every graph: equal features
            give equal graphs, also within a data set or a batch. If :obj:`None`, the
            global generator is used. (default: :obj:`None`)
        clamp (bool, optional): If :obj:`True`, :math:`K` is at most the number of
            candidates in a graph, and nodes without candidates have no edges. If
            :obj:`False`, too few candidates raise an error. (default: :obj:`True`)
        attr (str, optional): As in :class:`SimilarityKNNGraph`. (default: :obj:`"x"`)
        edge_types (list, optional): As in :class:`SimilarityKNNGraph`. (default:
            :obj:`None`)
        **kwargs (optional): Additional arguments of
            :class:`~torch_geometric_gsl.nn.sampler.GumbelKNNSampler`: :obj:`hard`,
            :obj:`replace`, :obj:`loop`, :obj:`method` or :obj:`budget`.

    Example:
        >>> from torch_geometric.data import Data
        >>> data = Data(x=torch.randn(10, 4))
        >>> SampledLatentGraph(k=3, scale=1.0, seed=12)(data)  # Relaxed: all pairs.
        Data(x=[10, 4], edge_index=[2, 90], edge_weight=[90])
        >>> SampledLatentGraph(k=3, replace=False, seed=12)(data)
        Data(x=[10, 4], edge_index=[2, 30], edge_weight=[30])
    """

    def __init__(
        self,
        k: int = 5,
        similarity: str | Similarity = 'linear',
        tau: float = 0.5,
        scale: float = 20.0,
        *,
        seed: int | None = None,
        clamp: bool = True,
        attr: str = 'x',
        edge_types: Any = None,
        **kwargs: Any,
    ) -> None:
        if seed is not None:
            check_seed(seed)
            seed = int(seed)  # Generators do not accept NumPy integers.
        check_options(type(self), kwargs, _OPTIONS)
        self.tau = tau
        self.scale = scale
        self.seed = seed
        self.kwargs = kwargs
        sampler = self._sampler(LinearSimilarity(1), k)  # Check the arguments early.
        super().__init__(k, similarity, sampler.loop, clamp, attr, edge_types)

    def _sampler(self, similarity: Similarity, k: int) -> GumbelKNNSampler:
        options = {'scale': self.scale, 'train_scale': False, **self.kwargs}
        return GumbelKNNSampler(similarity, k, self.tau, **options)

    def build(self, x: Features, k: int, similarity: Similarity) -> SampledGraph:
        generator = None
        if self.seed is not None:
            device = (x[0] if isinstance(x, tuple) else x).device
            generator = torch.Generator(device).manual_seed(self.seed)
        graph: SampledGraph = self._sampler(similarity, k)(x, generator=generator)
        return graph.prune()

    def __repr__(self) -> str:
        extra = ''.join(f', {key}={value}' for key, value in self.kwargs.items())
        return (
            f'{self.__class__.__name__}(k={self.k}, similarity={self.similarity}, '
            f'tau={self.tau}, scale={self.scale}, seed={self.seed}, '
            f'clamp={self.clamp}{self.extra_repr()}{extra})'
        )
