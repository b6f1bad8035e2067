r"""Describe a learned graph or model in numbers."""

from torch_geometric_gsl.diagnostics.describe import (
    HomophilyWarning,
    UniformSamplingWarning,
    describe_graph,
    describe_model,
)
from torch_geometric_gsl.diagnostics.summaries import (
    GraphSummary,
    LayerSummary,
    ModelSummary,
)

__all__ = [
    'describe_graph',
    'describe_model',
    'GraphSummary',
    'LayerSummary',
    'ModelSummary',
    'HomophilyWarning',
    'UniformSamplingWarning',
]
