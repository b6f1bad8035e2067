r"""Modules: similarities, samplers, convolutions and models."""

from torch_geometric_gsl.nn.conv import LatentGraphConv, TransitionGraphConv
from torch_geometric_gsl.nn.models import GSLNet, NodeClassifier
from torch_geometric_gsl.nn.sampler import (
    GumbelKNNSampler,
    SampledEvaluationWarning,
    SamplingPlan,
)
from torch_geometric_gsl.nn.similarity import (
    CosineSimilarity,
    DifferenceSimilarity,
    EncodedPair,
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
    'EncodedPair',
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
    'SampledEvaluationWarning',
    'LatentGraphConv',
    'TransitionGraphConv',
    'NodeClassifier',
    'GSLNet',
]
