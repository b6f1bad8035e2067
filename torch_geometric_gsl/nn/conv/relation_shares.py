"""Several relations of one layer: their shares, and how they begin apart."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch_geometric.nn import Linear
from torch_geometric.nn.inits import zeros

from torch_geometric_gsl._checks import (
    check_features,
    check_option,
    check_parameter_match,
)
from torch_geometric_gsl.nn.linear import apply_linear
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.nn.similarity.directed_similarity import DirectedSimilarity
from torch_geometric_gsl.nn.similarity.gaussian_similarity import (
    NeuralGaussianSimilarity,
)

#: What the shares of the relations depend on.
SHARES = ('global', 'node')


class RelationShares(torch.nn.Module):
    r"""Weigh relations by learned shares :math:`\alpha` that sum to 1.

    .. math::
        \alpha = \mathrm{softmax}(\beta) \quad \textrm{or} \quad
        \alpha_i = \mathrm{softmax}(\mathbf{x}_i \mathbf{W} + \beta)

    They begin equal.

    Example:
        >>> RelationShares(16, 2)()
        tensor([0.5000, 0.5000], grad_fn=<SoftmaxBackward0>)
    """

    def __init__(
        self, in_channels: int, num_relations: int, kind: str = 'global'
    ) -> None:
        super().__init__()
        check_option(kind, SHARES, 'shares')
        if kind == 'node' and in_channels == -1:
            raise ValueError("'in_channels' must be known with shares='node' (got -1)")
        self.kind = kind
        self.logits: torch.nn.Parameter | None = None
        self.lin: Linear | None = None
        if kind == 'node':
            self.lin = Linear(in_channels, num_relations)
        else:
            self.logits = torch.nn.Parameter(torch.empty(num_relations))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        r"""Reset all learnable parameters of the module."""
        for parameter in self.parameters():
            zeros(parameter)

    def forward(self, x: Tensor | None = None) -> Tensor:
        r"""Return the shares :math:`[R]`, or those of each row :math:`[n, R]`."""
        if self.logits is not None:
            return self.logits.softmax(dim=0)
        lin, rows = cast(Linear, self.lin), cast(Tensor, x)
        check_features(rows, 'x', lin.in_channels)
        check_parameter_match(rows, lin.weight)
        return apply_linear(lin, rows).softmax(dim=1)


def one_each(value: Any, number: int, name: str) -> list[Any]:
    """Return a value for each relation: those of a list, or one and copies of it."""
    if not isinstance(value, tuple | list):
        return [value, *(copy.deepcopy(value) for _ in range(number - 1))]
    if len(value) != number:
        raise ValueError(
            f"'{name}' must have one entry per relation "
            f'(got {len(value)} for {number} relations)'
        )
    return list(value)


def begin_apart(similarities: Sequence[Similarity]) -> None:
    """Let the parameters of several similarities differ that begin as constants."""
    if len(similarities) == 1:
        return
    for number, similarity in enumerate(map(_inner, similarities)):
        if (
            isinstance(similarity, NeuralGaussianSimilarity)
            and similarity.bias_b is not None
        ):
            lowest = similarity.lowest_centre
            step = (1 - lowest) / len(similarities)
            similarity.begin_at(lowest + (number + 0.5) * step)
        if similarity.feature_weight is not None:
            torch.nn.init.normal_(similarity.feature_weight, 1.0, 0.1)


def check_apart(similarities: Sequence[Similarity]) -> None:
    """Raise if several similarities of the same rows are one, or learn nothing."""
    if len({id(_inner(similarity)) for similarity in similarities}) < len(similarities):
        raise ValueError(
            "'similarity' must have a module of its own for each relation (got one "
            'module twice)'
        )
    fixed = [
        repr(similarity)
        for similarity in similarities
        if next(similarity.parameters(), None) is None
    ]
    if len(set(fixed)) < len(fixed):
        raise ValueError(
            f"'similarity' must tell relations apart: equal ones without parameters "
            f"would stay equal, so give each its own 'similarity_kwargs' (got {fixed})"
        )


def _inner(similarity: Similarity) -> Similarity:
    """Return the similarity that has the parameters of another one."""
    if isinstance(similarity, DirectedSimilarity):
        return similarity.similarity
    return similarity
