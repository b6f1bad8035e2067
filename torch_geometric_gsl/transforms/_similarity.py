"""Check and run the similarities of transforms: fixed and without gradient."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from torch_geometric_gsl._checks import check_option
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.nn.similarity.resolver import SIMILARITIES

#: Names of similarities with parameters, which nothing in a transform trains.
UNTRAINED = ('neural_gaussian', 'cosine')


def check_similarity(similarity: object) -> None:
    """Raise unless it is a module, or the name of one without parameters."""
    if not isinstance(similarity, str):
        if not isinstance(similarity, Similarity):
            raise TypeError(
                f"'similarity' must be a name or a Similarity "
                f'(got {type(similarity).__name__})'
            )
        return
    check_option(similarity, SIMILARITIES, 'similarity')
    if similarity in UNTRAINED:
        raise ValueError(
            f"'similarity' must not be the name of a similarity with parameters, "
            f'because they are untrained: pass a (trained) module, or '
            f"'linear', the plain cosine of the rows (got {similarity!r})"
        )


@contextmanager
def evaluation(module: torch.nn.Module) -> Iterator[None]:
    """Set evaluation mode without gradient, and restore the mode of each part."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, mode in modes:
            part.training = mode
