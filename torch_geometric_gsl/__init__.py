r"""Graph structure learning for PyTorch Geometric."""

from torch_geometric_gsl.baselines import (
    IDGL,
    KNNGCN,
    KNNLINKX,
    SLAPS,
    IDGLAnchor,
    MLPClassifier,
    NodeFormer,
)
from torch_geometric_gsl.nn import (
    CosineSimilarity,
    DifferenceSimilarity,
    GaussianSimilarity,
    GSLNet,
    GumbelKNNSampler,
    HeatKernelSimilarity,
    LatentGraphConv,
    LinearSimilarity,
    NeighbourDistribution,
    NeuralGaussianSimilarity,
    NodeClassifier,
    SampledEvaluationWarning,
    SamplingPlan,
    Similarity,
    TransitionGraphConv,
    TruncatedRaceWarning,
    UniformSimilarity,
    resolve_similarity,
)
from torch_geometric_gsl.typing import SampledGraph

__version__ = '0.1.0'

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
    'SampledGraph',
    '__version__',
]
