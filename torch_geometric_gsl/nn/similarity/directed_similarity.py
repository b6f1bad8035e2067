from __future__ import annotations

import torch
from torch import Tensor

from torch_geometric_gsl._checks import Ends, check_ends, check_type
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.ops import scores
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.typing import Features


class DirectedSimilarity(Similarity):
    r"""A similarity with separate embeddings of a node as a source and as a target, as
    in the `"Graph WaveNet for Deep Spatial-Temporal Graph Modeling"
    <https://arxiv.org/abs/1906.00121>`_ paper.

    .. math::
        \phi_{ij} = \phi \left( \mathbf{x}^{\textrm{dst}}_i,
        \mathbf{x}^{\textrm{src}}_j \right), \qquad
        \mathbf{x}_i = \left[ \mathbf{x}^{\textrm{src}}_i \, \Vert \,
        \mathbf{x}^{\textrm{dst}}_i \right]

    where :math:`i` is the target, :math:`j` the candidate neighbour and :math:`\phi`
    another similarity: it compares the first half of the source's features with the
    second half of the target's. Scores need not be symmetric, and a node need not be
    nearest to itself.

    Args:
        similarity (Similarity): The similarity :math:`\phi`, with half the channels.

    Shapes:
        - **input:** node features :math:`(N, 2 F)` or a pair of them, for :math:`N`
          sources and :math:`n` targets, edges :math:`(2, |\mathcal{E}|)` *(optional)*
        - **output:** :math:`(n, N)`, or :math:`(|\mathcal{E}|)` if edges are given

    Raises:
        ValueError: If :obj:`similarity` is directed itself.

    Example:
        >>> from torch_geometric_gsl import LinearSimilarity
        >>> similarity = DirectedSimilarity(LinearSimilarity(2))
        >>> similarity(torch.tensor([[1.0, 0.0, 0.0, 1.0], [0.0, 1.0, 0.0, 1.0]]))
        tensor([[0., 1.],
                [0., 1.]])
    """

    def __init__(self, similarity: Similarity) -> None:
        check_type(similarity, Similarity, 'similarity', 'a Similarity')
        if isinstance(similarity, DirectedSimilarity):
            raise ValueError(
                f"'similarity' must not be directed itself (got {similarity})"
            )
        super().__init__(2 * similarity.in_channels)
        self.similarity = similarity
        # Instance attributes: they depend on the wrapped similarity.
        self.bounds = similarity.bounds  # type: ignore[misc]
        self.comparison = similarity.comparison  # type: ignore[misc]

    def reset_parameters(self) -> None:
        self.similarity.reset_parameters()

    @property
    def embedding_channels(self) -> int:
        return self.similarity.embedding_channels

    def response(self, z: Tensor) -> scores.Response:
        return self.similarity.response(z)

    def pair_scores(
        self, x: Features | Ends, scale: float | Tensor = 1.0
    ) -> PairScores:
        src, dst, _ = check_ends(x, self.in_channels)
        for rows in (src, dst):
            if rows.layout != torch.strided:
                raise ValueError(f"'x' must be dense (got {rows.layout})")
        half = self.similarity.in_channels
        ends = Ends(src[:, :half], dst[:, half:], is_pair=True)
        return self.similarity.pair_scores(ends, scale)

    def __repr__(self) -> str:
        return f'{self.__class__.__name__}({self.similarity})'
