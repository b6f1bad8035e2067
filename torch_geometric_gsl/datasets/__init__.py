"""Data sets of node features without a graph, and the split of the paper.

.. data:: DATASETS

    The names of the data sets that :func:`load_dataset` loads.

.. data:: OBSERVED

    The names of the data sets whose edges :func:`load_observed_edges` loads.
"""

from torch_geometric_gsl.datasets.registry import (
    DATASETS,
    OBSERVED,
    load_dataset,
    load_observed_edges,
    paper_split,
)
from torch_geometric_gsl.datasets.synthetic import CoupledSensors, HiddenRelation

__all__ = [
    'DATASETS',
    'OBSERVED',
    'load_dataset',
    'load_observed_edges',
    'CoupledSensors',
    'HiddenRelation',
    'paper_split',
]
