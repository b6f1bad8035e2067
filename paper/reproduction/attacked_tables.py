"""Make tables and a figure of attacked graphs from finished runs."""

from __future__ import annotations

from typing import NamedTuple

#: What :mod:`reproduction.attacked` found.
ATTACKED_RESULTS = 'attacked.json'
#: In place of the method of other experiments: a run trains all of them.
KIND = 'all'


class Kind(NamedTuple):
    """What a run is, for the digest of its results."""

    revision: int = 1


KINDS = {KIND: Kind()}
ADAPTIVE_RESULTS = 'adaptive.json'
#: The networks that are attacked through their own gradients.
ADAPTIVE_ROWS = (
    'gcn',
    'gcn, cosine > 0.1',
    'both',
    'mixture',
    'refined',
    'mlp, taught',
)
