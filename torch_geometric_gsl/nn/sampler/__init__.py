r"""Samplers of neighbours."""

from torch_geometric_gsl.nn.sampler.distribution import NeighbourDistribution
from torch_geometric_gsl.nn.sampler.evaluation import SampledEvaluationWarning
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.sampler.options import Budget
from torch_geometric_gsl.nn.sampler.plan import SamplingPlan, TruncatedRaceWarning

__all__ = [
    'GumbelKNNSampler',
    'Budget',
    'SamplingPlan',
    'NeighbourDistribution',
    'SampledEvaluationWarning',
    'TruncatedRaceWarning',
]
