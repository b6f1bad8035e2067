r"""Modules: similarities, samplers, convolutions and models."""

from torch_geometric_gsl.nn.conv import LatentGraphConv, TransitionGraphConv
from torch_geometric_gsl.nn.models import (
    IDGL,
    KNNGCN,
    KNNLINKX,
    SLAPS,
    GSLNet,
    IDGLAnchor,
    MLPClassifier,
    NodeClassifier,
    NodeFormer,
)
from torch_geometric_gsl.nn.sampler import (
    GumbelKNNSampler,
    NeighbourDistribution,
    SampledEvaluationWarning,
    SamplingPlan,
    TruncatedRaceWarning,
)
from torch_geometric_gsl.nn.similarity import (
    CosineSimilarity,
    DifferenceSimilarity,
    GaussianSimilarity,
    HeatKernelSimilarity,
    LinearSimilarity,
    NeuralGaussianSimilarity,
    Similarity,
    UniformSimilarity,
    resolve_similarity,
)

__all__ = [
    'Similarity',
    'LinearSimilarity',
    'DifferenceSimilarity',
    'GaussianSimilarity',
    'NeuralGaussianSimilarity',
    'HeatKernelSimilarity',
    'CosineSimilarity',
    'UniformSimilarity',
    'resolve_similarity',
    'GumbelKNNSampler',
    'SamplingPlan',
    'NeighbourDistribution',
    'SampledEvaluationWarning',
    'TruncatedRaceWarning',
    'LatentGraphConv',
    'TransitionGraphConv',
    'NodeClassifier',
    'GSLNet',
    'KNNGCN',
    'KNNLINKX',
    'SLAPS',
    'IDGL',
    'IDGLAnchor',
    'NodeFormer',
    'MLPClassifier',
]
