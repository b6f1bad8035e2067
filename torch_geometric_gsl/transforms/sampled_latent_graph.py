from __future__ import annotations

from typing import Any

import torch
from torch_geometric.data.datapipes import functional_transform

from torch_geometric_gsl._checks import check_count
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.nn.similarity.linear_similarity import LinearSimilarity
from torch_geometric_gsl.transforms._feature_graph import FeatureGraph
from torch_geometric_gsl.typing import Features, SampledGraph


@functional_transform('sampled_latent_graph')
class SampledLatentGraph(FeatureGraph):
    r"""Sample a latent graph from the features of the nodes, as
    :class:`~torch_geometric_gsl.nn.sampler.GumbelKNNSampler` does in training, but
    without gradient (functional name: :obj:`sampled_latent_graph`).

    .. math::
        A_{ij} = \frac{1}{K} \sum_{k=1}^{K} \mathrm{softmax}_j \left(
        \frac{\lambda \phi_{ij} + g_{ij}^{(k)}}{\tau} \right)

    where :math:`\phi_{ij}` is the similarity of candidate :math:`j` for node
    :math:`i` and :math:`g_{ij}^{(k)}` is Gumbel noise. The edges run from neighbours
    to nodes, sorted by node; the weights :obj:`data.edge_weight` of each node sum to
    1, and edges of zero weight, which would only carry gradient, are left out. As
    :obj:`transform` of a data set it samples a new graph at every access, as
    :obj:`pre_transform` one for all. Batches and a former graph are treated as by
    :class:`SimilarityKNNGraph`.

    .. warning::
        The graph is relaxed: it holds about 40 edges a node for :obj:`k=5`, or
        all pairs of a small graph, and most of them weigh almost nothing. A layer
        that ignores :obj:`edge_weight`, such as
        :class:`~torch_geometric.nn.conv.SAGEConv`, counts each in full: use
        :obj:`replace=False`, which draws :obj:`k` distinct neighbours.

    Args:
        k (int, optional): The number of draws :math:`K`. (default: :obj:`5`)
        similarity (str or Similarity, optional): As in :class:`SimilarityKNNGraph`, but
            on one or two columns :obj:`"linear"` and :obj:`"heat_kernel"` are
            the kernel :math:`\exp(-d^2 / 2)` of the distance.
            (default: :obj:`"linear"`)
        tau (float, optional): The temperature :math:`\tau`.
            (default: :obj:`0.25`)
        scale (float, optional): The factor :math:`\lambda` of the similarity.
            (default: :obj:`1.0`)
        seed (int, optional): Seed of a generator that is made anew for every graph:
            the same features give the same graph, alone, in a data set or in a
            batch. If :obj:`None`, noise comes from the global generator.
            (default: :obj:`None`)
        clamp (bool, optional): If :obj:`True`, :math:`K` is the number of candidates
            in a graph that has fewer than :obj:`k`, and a node without candidates
            has no edges. If :obj:`False`, such a graph raises.
            (default: :obj:`True`)
        attr (str, optional): As in :class:`SimilarityKNNGraph`. (default: :obj:`"x"`)
        edge_types (list, optional): As in :class:`SimilarityKNNGraph`.
            (default: :obj:`None`)
        **kwargs (optional): Additional arguments of
            :class:`~torch_geometric_gsl.nn.sampler.GumbelKNNSampler`: :obj:`hard`,
            :obj:`replace`, :obj:`loop`, :obj:`method` or :obj:`budget`.

    Example:
        >>> from torch_geometric.data import Data
        >>> data = Data(x=torch.randn(10, 4))
        >>> SampledLatentGraph(k=3, seed=12)(data)  # Relaxed: all pairs.
        Data(x=[10, 4], edge_index=[2, 100], edge_weight=[100])
        >>> SampledLatentGraph(k=3, replace=False, seed=12)(data)
        Data(x=[10, 4], edge_index=[2, 30], edge_weight=[30])
    """

    def __init__(
        self,
        k: int = 5,
        similarity: str | Similarity = 'linear',
        tau: float = 0.25,
        scale: float = 1.0,
        *,
        seed: int | None = None,
        clamp: bool = True,
        attr: str = 'x',
        edge_types: Any = None,
        **kwargs: Any,
    ) -> None:
        if seed is not None:
            check_count(seed, 'seed', minimum=0)
            if seed >= 2**64:
                raise ValueError(f"'seed' must be less than 2**64 (got {seed})")
            seed = int(seed)  # Generators take no integers of NumPy.
        self.tau = tau
        self.scale = scale
        self.seed = seed
        self.kwargs = kwargs
        sampler = self._sampler(LinearSimilarity(1), k)  # Checks the arguments now.
        super().__init__(k, similarity, sampler.loop, clamp, attr, edge_types)

    def _sampler(self, similarity: Similarity, k: int) -> GumbelKNNSampler:
        return GumbelKNNSampler(similarity, k, self.tau, self.scale, **self.kwargs)

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
