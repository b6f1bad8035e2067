"""Data sets of the paper, without their graphs, and the split of its nodes."""

from reproduction.datasets.registry import (
    DATASETS,
    OBSERVED,
    load_dataset,
    load_observed_edges,
    paper_split,
    raw_folder,
)

__all__ = [
    'DATASETS',
    'OBSERVED',
    'load_dataset',
    'load_observed_edges',
    'paper_split',
    'raw_folder',
]
