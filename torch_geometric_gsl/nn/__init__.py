r"""Modules: similarities, samplers, convolutions, models and losses."""

import warnings
from importlib import import_module
from typing import Any

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


def __getattr__(name: str) -> Any:
    """Find a baseline under its former name; they lie above this package."""
    baselines = import_module('torch_geometric_gsl.baselines')
    if name not in baselines.__all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    warnings.warn(
        f"'{__name__}.{name}' is deprecated: use 'torch_geometric_gsl.{name}'",
        DeprecationWarning,
        stacklevel=2,
    )
    return getattr(baselines, name)
