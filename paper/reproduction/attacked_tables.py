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
