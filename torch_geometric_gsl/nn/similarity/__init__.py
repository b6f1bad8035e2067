r"""Similarities between nodes."""

from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.nn.similarity.directed_similarity import DirectedSimilarity
from torch_geometric_gsl.nn.similarity.distance_similarity import (
    DistanceSimilarity,
    HeatKernelSimilarity,
)
from torch_geometric_gsl.nn.similarity.gaussian_similarity import (
    GaussianSimilarity,
    MixtureSimilarity,
    NeuralGaussianSimilarity,
)
from torch_geometric_gsl.nn.similarity.linear_similarity import (
    CosineSimilarity,
    DifferenceSimilarity,
    LinearSimilarity,
    UniformSimilarity,
)
from torch_geometric_gsl.nn.similarity.resolver import resolve_similarity

__all__ = [
    'LinearSimilarity',
    'DifferenceSimilarity',
    'GaussianSimilarity',
    'NeuralGaussianSimilarity',
    'HeatKernelSimilarity',
    'DistanceSimilarity',
    'CosineSimilarity',
    'MixtureSimilarity',
    'DirectedSimilarity',
    'UniformSimilarity',
    'Similarity',
    'resolve_similarity',
]
