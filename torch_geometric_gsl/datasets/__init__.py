"""Node features that come without a graph, and the paper's split.

.. data:: DATASETS

    The names that :func:`load_dataset` knows.

.. data:: OBSERVED

    The names of the edges that :func:`load_observed_edges` reads.
"""

from torch_geometric_gsl.datasets.coupled_sensors import CoupledSensors
from torch_geometric_gsl.datasets.hidden_relation import HiddenRelation
from torch_geometric_gsl.datasets.registry import (
    DATASETS,
    OBSERVED,
    load_dataset,
    load_observed_edges,
)
from torch_geometric_gsl.datasets.split import paper_split

__all__ = [
    'DATASETS',
    'OBSERVED',
    'load_dataset',
    'load_observed_edges',
    'CoupledSensors',
    'HiddenRelation',
    'paper_split',
]
