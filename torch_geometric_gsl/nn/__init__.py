r"""Modules: similarities, samplers, convolutions, models and losses."""

# ruff: noqa: F403, F405

from torch_geometric_gsl.nn.conv import *
from torch_geometric_gsl.nn.models import *
from torch_geometric_gsl.nn.points import knn_graph, radius_graph
from torch_geometric_gsl.nn.sampler import *
from torch_geometric_gsl.nn.self_supervision import *
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
    'leave_one_out_loss',
    'LatentGraphConv',
    'SensorGraphConv',
    'TransitionGraphConv',
    'HeteroLatentGraphConv',
    'KNNEdgeConv',
    'NodeClassifier',
    'TableNet',
    'GSLNet',
    'GraphDenoising',
    'GraphContrast',
    'consistency_loss',
    'knn_graph',
    'radius_graph',
]
