from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch_geometric_gsl._checks import check_option, check_type
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.nn.similarity.distance_similarity import (
    DistanceSimilarity,
    HeatKernelSimilarity,
)
from torch_geometric_gsl.nn.similarity.gaussian_similarity import (
    GaussianSimilarity,
    MixtureSimilarity,
    NeuralGaussianSimilarity,
)
from torch_geometric_gsl.nn.similarity.linear_similarity import (
    CosineSimilarity,
    DifferenceSimilarity,
    LinearSimilarity,
    UniformSimilarity,
)

#: Similarities by the names that ``similarity=`` accepts.
SIMILARITIES: dict[str, type[Similarity]] = {
    'linear': LinearSimilarity,
    'difference': DifferenceSimilarity,
    'gaussian': GaussianSimilarity,
    'neural_gaussian': NeuralGaussianSimilarity,
    'heat_kernel': HeatKernelSimilarity,
    'distance': DistanceSimilarity,
    'cosine': CosineSimilarity,
    'mixture': MixtureSimilarity,
}
# The control has no projection, no gradient and no nearest nodes.
NAMED: dict[str, Callable[..., Similarity]] = {
    **SIMILARITIES,
    'uniform': UniformSimilarity,
}
#: Similarities that can weigh an edge, of the cosine in three columns and more.
WEIGHTS = ('linear', 'heat_kernel')
#: Other similarities based on the cosine.
ANGULAR = ('difference', 'gaussian', 'neural_gaussian', 'cosine')


def resolve_similarity(
    similarity: str | Similarity, in_channels: int, **kwargs: Any
) -> Similarity:
    r"""Create a similarity by name; return a module unchanged.

    Args:
        similarity (str or Similarity): :obj:`"linear"`, :obj:`"difference"`,
            :obj:`"gaussian"`, :obj:`"neural_gaussian"`, :obj:`"heat_kernel"`,
            :obj:`"distance"`, :obj:`"cosine"`, :obj:`"mixture"`, :obj:`"uniform"`, or
            a module.
        in_channels (int): Size of each input sample.
        **kwargs (optional): Arguments of the named similarity.

    Example:
        >>> resolve_similarity('gaussian', 16)
        GaussianSimilarity(16, b=0.5, c=0.05437)
    """
    if isinstance(similarity, str):
        check_option(similarity, NAMED, 'similarity')
        return NAMED[similarity](in_channels, **kwargs)
    check_type(similarity, Similarity, 'similarity', 'a name or a Similarity')
    if kwargs:
        raise ValueError(
            f"'similarity_kwargs' need a similarity given by name (got "
            f'{sorted(kwargs)} with a {type(similarity).__name__})'
        )
    if similarity.in_channels != in_channels:
        raise ValueError(
            f"'similarity' must have in_channels={in_channels}, the width of the rows "
            f'that are compared (got {similarity.in_channels})'
        )
    return similarity


def nearness(num_columns: int) -> Similarity:
    """Return the cosine, or the distance in few columns, which ranks better there."""
    if num_columns > 2:
        return LinearSimilarity(num_columns)
    return HeatKernelSimilarity(num_columns, normalize=False)


def near_similarity(similarity: Any, num_columns: int) -> Similarity:
    """Resolve a similarity; in few columns a name of a cosine means a distance.

    Raises:
        ValueError: If the similarity needs angles and there is one column.
    """
    if similarity in WEIGHTS and num_columns < 3:
        return nearness(num_columns)
    if similarity in ANGULAR and num_columns == 1:
        raise ValueError(
            f"'similarity' must use distances if rows have one column, where "
            f"cosines are 1 or -1: 'linear', 'heat_kernel' or 'distance' (got "
            f'{similarity!r})'
        )
    return resolve_similarity(similarity, num_columns)
