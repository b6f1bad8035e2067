from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.ops import scores
from torch_geometric_gsl.ops.runtime import full_dtype


class UniformSimilarity(Similarity):
    r"""A similarity that tells no nodes apart: the control of the `"Neural Gaussian
    Similarity Modeling for Differential Graph Structure Learning"
    <https://arxiv.org/abs/2312.09498>`_ paper, where a learned graph becomes a
    uniformly random one.

    .. math::
        \phi_{ij} = 0

    where :math:`i` is the target and :math:`j` the candidate neighbour. In training
    mode a sampler then draws neighbours uniformly at random, and in evaluation mode
    all candidates have the same weight. A model whose similarity does no better than
    this one has not learned a graph. No node is nearer than another: the :obj:`eval_k`
    nearest nodes of a sampler are any nodes.

    Args:
        in_channels (int): Size of each input sample.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.

    Example:
        >>> similarity = UniformSimilarity(16)
        >>> similarity(torch.randn(2, 16))
        tensor([[0., 0.],
                [0., 0.]])
    """

    bounds: ClassVar[tuple[float, float]] = (0.0, 0.0)

    def __init__(self, in_channels: int) -> None:
        super().__init__(in_channels)

    @property
    def embedding_channels(self) -> int:
        return 1

    def encode(self, x: Tensor) -> Tensor:
        # A single zero of each node: what is gathered costs least.
        return torch.zeros(x.size(0), 1, dtype=full_dtype(x.dtype), device=x.device)

    def response(self, z: Tensor) -> scores.Response:
        return scores.Identity()
