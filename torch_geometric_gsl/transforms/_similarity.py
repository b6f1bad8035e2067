"""Similarities in transforms: fixed, without gradient, within a memory budget."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from torch_geometric_gsl._checks import check_option
from torch_geometric_gsl.nn.similarity.base import EncodedPair, Similarity
from torch_geometric_gsl.nn.similarity.resolver import SIMILARITIES
from torch_geometric_gsl.ops.chunking import row_blocks
from torch_geometric_gsl.typing import Features

#: Names of similarities with parameters, which nothing in a transform trains.
UNTRAINED = ('neural_gaussian', 'cosine')


def check_similarity(similarity: object) -> None:
    """Raises unless it is a module, or the name of one without parameters."""
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
    """Evaluation mode without gradient; afterwards each part has its old mode."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, mode in modes:
            part.training = mode


class ChunkedSimilarity(Similarity):
    """Scores listed pairs by blocks: raw features are wide, and pairs many."""

    def __init__(self, similarity: Similarity, memory_budget: int) -> None:
        super().__init__(similarity.in_channels)
        self.similarity = similarity
        self.memory_budget = memory_budget

    def encode_pair(self, x: Features) -> EncodedPair:
        return self.similarity.encode_pair(x)

    def response(self, value: Tensor, *params: Tensor) -> Tensor:
        return self.similarity.response(value, *params)

    def score_rows(self, pair: EncodedPair, rows: slice = slice(None)) -> Tensor:
        return self.similarity.score_rows(pair, rows)

    def score_pairs(self, pair: EncodedPair, source: Tensor, target: Tensor) -> Tensor:
        source, target = torch.broadcast_tensors(source, target)
        shape = source.shape
        source, target = source.reshape(-1), target.reshape(-1)
        # Two gathered rows and their product or difference live at a time.
        bytes_per_pair = 4 * pair.src.size(1) * pair.src.element_size()
        score = pair.src.new_empty(source.numel())
        for part in row_blocks(source.numel(), bytes_per_pair, self.memory_budget):
            score[part] = self.similarity.score_pairs(pair, source[part], target[part])
        return score.view(shape)
