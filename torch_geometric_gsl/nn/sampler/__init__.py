r"""Samplers of neighbours."""

from torch_geometric_gsl.nn.sampler._plan import SampledEvaluationWarning, SamplingPlan
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler

__all__ = ['GumbelKNNSampler', 'SamplingPlan', 'SampledEvaluationWarning']
