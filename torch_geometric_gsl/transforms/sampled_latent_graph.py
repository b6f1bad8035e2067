from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform

from torch_geometric_gsl._checks import check_count
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.nn.similarity.linear_similarity import LinearSimilarity
from torch_geometric_gsl.nn.similarity.resolver import resolve_similarity
from torch_geometric_gsl.transforms._graph_data import (
    graph_by_graph,
    node_features,
    set_graph,
)
from torch_geometric_gsl.transforms._similarity import (
    check_similarity,
    evaluation,
)
from torch_geometric_gsl.typing import SampledGraph


@functional_transform('sampled_latent_graph')
class SampledLatentGraph(BaseTransform):
    r"""Samples a latent graph from the features :obj:`data.x`, as
    :class:`~torch_geometric_gsl.nn.sampler.GumbelKNNSampler` does in training, but
    without gradient (functional name: :obj:`sampled_latent_graph`).

    .. math::
        A_{ij} = \frac{1}{K} \sum_{k=1}^{K} \mathrm{softmax}_j \left(
        \frac{\lambda \phi_{ij} + g_{ij}^{(k)}}{\tau} \right)

    where :math:`\phi_{ij}` is the similarity of candidate :math:`j` for node
    :math:`i` and :math:`g_{ij}^{(k)}` is Gumbel noise. The edges run from neighbours
    to nodes, sorted by node; the weights :obj:`data.edge_weight` of each node sum to
    1, and edges of zero weight, which would only carry gradient, are left out. In a
    batch no edge joins two examples. As :obj:`transform` of a data set it samples a
    new graph at every access, as :obj:`pre_transform` one for all.

    .. note::
        A graph that :obj:`data` already has is kept: :obj:`edge_index`,
        :obj:`adj_t` and the attributes of its edges get the prefix
        :obj:`observed_`, such as :obj:`observed_edge_index` and
        :obj:`observed_edge_attr`. If there is an observed graph of that name
        already, the graph between is dropped. Use
        :class:`~torch_geometric_gsl.transforms.DropObservedGraph` before if you do
        not need it.

    Args:
        similarity (str or Similarity, optional): The name of a similarity without
            parameters (:obj:`"linear"`, the cosine of the features,
            :obj:`"difference"`, :obj:`"gaussian"` or :obj:`"heat_kernel"`), or a
            module, used in evaluation mode and without gradient.
            (default: :obj:`"linear"`)
        k (int, optional): The number of draws :math:`K`. (default: :obj:`5`)
        tau (float, optional): The temperature :math:`\tau`.
            (default: :obj:`0.25`)
        scale (float, optional): The factor :math:`\lambda` of the similarity.
            (default: :obj:`1.0`)
        seed (int, optional): Seed of a generator that is made anew for every graph:
            the same features give the same graph, alone, in a data set or in a
            batch, and all graphs share their noise. It lies in
            :math:`[0, 2^{64})`. If :obj:`None`, noise comes from the global
            generator. (default: :obj:`None`)
        **kwargs (optional): Additional arguments of
            :class:`~torch_geometric_gsl.nn.sampler.GumbelKNNSampler`: :obj:`hard`,
            :obj:`replace`, :obj:`loop`, :obj:`method`, :obj:`num_arrivals` or
            :obj:`memory_budget`, but not :obj:`sample_in_eval`: a transform always
            samples.

    Raises:
        TypeError: If an argument has the wrong type or is unknown,
            :obj:`sample_in_eval` is given, :obj:`data` is heterogeneous, or
            :obj:`data.x` is not a floating-point tensor.
        ValueError: If an argument is out of range, the named similarity has
            parameters, :obj:`data.x` is missing, or a graph has too few nodes.

    Example:
        >>> from torch_geometric.data import Data
        >>> transform = SampledLatentGraph(k=3, replace=False, seed=12)
        >>> transform(Data(x=torch.randn(10, 4)))
        Data(x=[10, 4], edge_index=[2, 30], edge_weight=[30])
    """

    def __init__(
        self,
        similarity: str | Similarity = 'linear',
        k: int = 5,
        tau: float = 0.25,
        scale: float = 1.0,
        *,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        check_similarity(similarity)
        if seed is not None:
            check_count(seed, 'seed', minimum=0)
            if seed >= 2**64:
                raise ValueError(f"'seed' must be less than 2**64 (got {seed})")
            seed = int(seed)  # Generators take no integers of NumPy.
        if 'sample_in_eval' in kwargs:
            raise TypeError(
                f"'sample_in_eval' must not be given, because the transform always "
                f'samples (got {kwargs["sample_in_eval"]!r})'
            )
        self.similarity = similarity
        self.k = k
        self.tau = tau
        self.scale = scale
        self.seed = seed
        self.kwargs = kwargs
        self._sampler(LinearSimilarity(1))  # Checks the arguments now.

    def _sampler(self, similarity: Similarity) -> GumbelKNNSampler:
        return GumbelKNNSampler(
            similarity,
            self.k,
            self.tau,
            self.scale,
            sample_in_eval=True,
            **self.kwargs,
        )

    def forward(self, data: Data) -> Data:
        x = node_features(data)
        similarity = resolve_similarity(self.similarity, x.size(1))
        sampler = self._sampler(similarity)

        def sample(part: Tensor) -> SampledGraph:
            generator = None
            if self.seed is not None:
                generator = torch.Generator(part.device).manual_seed(self.seed)
            graph: SampledGraph = sampler(part, generator=generator)
            return graph.prune()

        with evaluation(sampler):
            graph = graph_by_graph(x, data.batch, sample, k=self.k, loop=sampler.loop)
        set_graph(data, graph)
        return data

    def __repr__(self) -> str:
        extra = ''.join(f', {key}={value}' for key, value in self.kwargs.items())
        return (
            f'{self.__class__.__name__}(similarity={self.similarity}, k={self.k}, '
            f'tau={self.tau}, scale={self.scale}, seed={self.seed}{extra})'
        )
