"""Node features that come without a graph, and the paper's split.

.. data:: DATASETS

    The names that :func:`load_dataset` knows.

.. data:: OBSERVED

    The addresses of the edges that :func:`load_observed_edges` reads, by name.
"""

from torch_geometric_gsl.datasets.coupled_sensors import CoupledSensors
from torch_geometric_gsl.datasets.hidden_relation import HiddenRelation
from torch_geometric_gsl.datasets.mini_imagenet_features import MiniImageNetFeatures
from torch_geometric_gsl.datasets.observed_edges import OBSERVED, load_observed_edges
from torch_geometric_gsl.datasets.registry import DATASETS, load_dataset
from torch_geometric_gsl.datasets.sklearn_table import SklearnTable
from torch_geometric_gsl.datasets.split import paper_split
from torch_geometric_gsl.datasets.twenty_newsgroups import TwentyNewsgroups

__all__ = [
    'DATASETS',
    'OBSERVED',
    'load_dataset',
    'load_observed_edges',
    'CoupledSensors',
    'HiddenRelation',
    'MiniImageNetFeatures',
    'SklearnTable',
    'TwentyNewsgroups',
    'paper_split',
]
