r"""Modules: similarities, samplers, convolutions and models."""

# ruff: noqa: F403, F405

from torch_geometric_gsl.nn.conv import *
from torch_geometric_gsl.nn.models import *
from torch_geometric_gsl.nn.points import knn_graph, radius_graph
from torch_geometric_gsl.nn.sampler import *
from torch_geometric_gsl.nn.similarity import *

__all__ = [
    'Similarity',
    'LinearSimilarity',
    'DifferenceSimilarity',
    'GaussianSimilarity',
    'NeuralGaussianSimilarity',
    'DistanceSimilarity',
    'HeatKernelSimilarity',
    'CosineSimilarity',
    'MixtureSimilarity',
    'DirectedSimilarity',
    'UniformSimilarity',
    'resolve_similarity',
    'GumbelKNNSampler',
    'Budget',
    'SamplingPlan',
    'NeighbourDistribution',
    'SampledEvaluationWarning',
    'TruncatedRaceWarning',
    'LatentGraphConv',
    'SensorGraphConv',
    'TransitionGraphConv',
    'HeteroLatentGraphConv',
    'KNNEdgeConv',
    'NodeClassifier',
    'TableNet',
    'GSLNet',
    'knn_graph',
    'radius_graph',
]
