r"""Modules: similarities, samplers, convolutions, models and losses."""

from torch_geometric_gsl.nn.conv import (
    HeteroLatentGraphConv,
    LatentGraphConv,
    MultiplexLatentGraphConv,
    SensorGraphConv,
    TransitionGraphConv,
)
from torch_geometric_gsl.nn.models import GSLNet, HeteroGSLNet, NodeClassifier, TableNet
from torch_geometric_gsl.nn.sampler import (
    Budget,
    GumbelKNNSampler,
    NeighbourDistribution,
    SampledEvaluationWarning,
    SamplingPlan,
    TruncatedRaceWarning,
    leave_one_out_loss,
)
from torch_geometric_gsl.nn.self_supervision import (
    GraphContrast,
    GraphDenoising,
    consistency_loss,
)
from torch_geometric_gsl.nn.similarity import (
    CosineSimilarity,
    DifferenceSimilarity,
    DirectedSimilarity,
    DistanceSimilarity,
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
    'DistanceSimilarity',
    'HeatKernelSimilarity',
    'CosineSimilarity',
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
    'MultiplexLatentGraphConv',
    'SensorGraphConv',
    'TransitionGraphConv',
    'HeteroLatentGraphConv',
    'NodeClassifier',
    'TableNet',
    'GSLNet',
    'HeteroGSLNet',
    'GraphDenoising',
    'GraphContrast',
    'consistency_loss',
]
