"""Node features that come without a graph, and the paper's split.

.. data:: DATASETS

    The names of the data sets that :func:`load_dataset` loads.

.. data:: OBSERVED

    The names of the data sets with edges that :func:`load_observed_edges` loads.
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
