"""Parts of the table network: the encoder of columns, the sum over neighbours."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch_geometric.nn import Linear

from torch_geometric_gsl._checks import check_count, check_probability
from torch_geometric_gsl.nn.linear import apply_linear
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.nn.similarity.resolver import resolve_similarity
from torch_geometric_gsl.ops.aggregate import neighbour_graph
from torch_geometric_gsl.ops.edges import empty_graph
from torch_geometric_gsl.ops.knn import best_sources
from torch_geometric_gsl.ops.local_random import dropout
from torch_geometric_gsl.ops.neighbours import Neighbours, neighbour_sum
from torch_geometric_gsl.ops.pair_scores import (
    PairScores,
    Sources,
    distances_as_dots,
    is_distance,
)
from torch_geometric_gsl.ops.pool_sum import pool_sum, pool_weights
from torch_geometric_gsl.ops.runtime import is_exporting
from torch_geometric_gsl.typing import Features, SampledGraph

# Bytes of one block of a ranking.
_RANKING_BUDGET = 2**27


class ColumnEncoder(torch.nn.Module):
    r"""Map the columns of a table, and periodic embeddings of them, to hidden units.

    .. math::
        \mathbf{h}_i = \mathbf{W} \, [\mathbf{x}_i, \, \mathrm{ReLU}(\mathbf{U}
        [\cos(2 \pi \mathbf{f}_c x_{ic}), \sin(2 \pi \mathbf{f}_c x_{ic})])
        \textrm{ of each column } c]

    with learned frequencies :math:`\mathbf{f}_c`. The arguments are those of
    :class:`~torch_geometric_gsl.nn.TableNet`; the outputs are its hidden units.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        num_frequencies: int = 32,
        periodic_columns: Sequence[int] | None = None,
        frequency_scale: float = 0.03,
        embedding_channels: int = 12,
    ) -> None:
        super().__init__()
        check_count(num_frequencies, 'num_frequencies', minimum=0)
        check_count(embedding_channels, 'embedding_channels')
        columns = range(in_channels) if periodic_columns is None else periodic_columns
        self.periodic_columns = list(columns) if num_frequencies > 0 else []
        number = len(self.periodic_columns)
        self.periodic: torch.nn.Module | None = None
        if number > 0:
            try:
                from rtdl_num_embeddings import PeriodicEmbeddings
            except ImportError as error:
                raise ImportError(
                    "'num_frequencies' needs rtdl_num_embeddings: pip install "
                    "'rtdl_num_embeddings', or set num_frequencies=0"
                ) from error
            self.periodic = PeriodicEmbeddings(
                number,
                embedding_channels,
                n_frequencies=num_frequencies,
                frequency_init_scale=frequency_scale,
                lite=True,
            )
        width = in_channels + number * embedding_channels
        self.lin = Linear(width, out_channels, weight_initializer='kaiming_uniform')

    def forward(self, x: Tensor) -> Tensor:
        """Compute the hidden units of rows, also sparse CSR without embeddings."""
        if self.periodic is not None:
            columns = self.periodic_columns
            part = x if len(columns) == x.size(1) else x[:, columns]
            x = torch.cat([x, self.periodic(part).flatten(1)], dim=1)
        return apply_linear(self.lin, x)


class TableNeighbours(torch.nn.Module):
    r"""Sum the messages of neighbours, weighted by a softmax of their scores.

    .. math::
        \sum_{j \neq i} \mathrm{softmax}_j(\lambda \, \phi(z_i, z_j)) \, m_j

    In training mode the sum runs over all sources, with dropout, or over relaxed draws
    with :math:`\tau = 1`; in evaluation mode over the :obj:`eval_k` nearest. The
    arguments are those of :class:`~torch_geometric_gsl.nn.TableNet`; the scale
    :math:`\lambda` is learned.
    """

    def __init__(
        self,
        in_channels: int,
        similarity: str | Similarity = 'distance',
        *,
        draws: int | None = None,
        dropout: float = 0.2,
        eval_k: int = 96,
        initial_scale: float = 1.0,
    ) -> None:
        super().__init__()
        if draws is not None:
            check_count(draws, 'draws')
        check_probability(dropout, 'dropout')
        self.draws, self.dropout = draws, dropout
        self.sampler = GumbelKNNSampler(
            resolve_similarity(similarity, in_channels),
            draws or 1,
            1.0,
            scale=initial_scale,
            train_scale=True,
            loop=False,
            eval_k=eval_k,
        )
        # Compared keys, their embeddings, and these in single precision.
        self._prepared: tuple[Tensor, Tensor, Sources] | None = None

    def forward(
        self,
        z: Features,
        message: Tensor,
        given: tuple[Tensor, Tensor] | None = None,
        *,
        generator: torch.Generator | None = None,
        return_graph: bool = False,
    ) -> tuple[Tensor, SampledGraph | None]:
        """Compute the sums of the targets, and optionally their graph.

        With one tensor of keys no row is its own neighbour. Given neighbours come with
        their squared distances.
        """
        if given is not None:
            source, score = given[0], -self.sampler.factor * given[1]
            return self._listed(source, score, message, generator, return_graph)
        if is_exporting():
            total = self.sampler.propagate(z, message, return_graph=return_graph)
            return total, None
        pairs = self._pairs(z)
        k = max(0, pairs.available)
        p, draws = (self.dropout, self.draws) if self.training else (0.0, None)
        num_nearest = self.sampler.num_nearest or k
        if self.training or num_nearest >= k:
            if is_distance(pairs):
                pairs = distances_as_dots(pairs)
            if not return_graph or k == 0:
                total = pool_sum(message, pairs, p, draws, generator=generator)
                return total, empty_graph(total) if return_graph else None
            neighbours, weight = pool_weights(pairs, p, draws, generator=generator)
            total = neighbour_sum(message, weight.to(message.dtype), neighbours)
            edges = torch.stack([neighbours.source, neighbours.target]).long()
            return total, SampledGraph(edges[:, weight > 0], weight[weight > 0])
        source, score = self._nearest(z, pairs, num_nearest)
        return self._listed(source, score, message, generator, return_graph)

    def prepare(self, z: Tensor | None) -> None:
        """Prepare sources for many targets; drop the previous ones."""
        self._prepared = None
        if z is not None and not z.requires_grad:
            pairs = self._pairs((z, z[:0]))
            if is_distance(pairs):
                self._prepared = z, pairs.src, Sources.of(pairs.src).single()

    def _listed(
        self,
        source: Tensor,
        score: Tensor,
        message: Tensor,
        generator: torch.Generator | None = None,
        return_graph: bool = False,
    ) -> tuple[Tensor, SampledGraph | None]:
        """Sum the messages of the sources listed for each target, by their scores."""
        weight = dropout(score.softmax(dim=1), self.dropout, self.training, generator)
        neighbours = Neighbours(source, message.size(0))
        out = neighbour_sum(message, weight.to(message.dtype), neighbours)
        graph = neighbour_graph(source, weight, weight > 0) if return_graph else None
        return out, graph

    def _pairs(self, z: Features) -> PairScores:
        similarity, factor = self.sampler.similarity, self.sampler.factor
        kept, src, _ = self._prepared or (None, None, None)
        if src is not None and z[0] is kept:  # Already checked.
            return similarity.pair_scores((z[1][:0], z[1]), factor)._replace(src=src)
        pairs = similarity.pair_scores(z, factor)
        if isinstance(z, tuple):
            return pairs
        return pairs._replace(excluded=torch.arange(z.size(0), device=z.device))

    def _nearest(self, z: Features, pairs: PairScores, k: int) -> tuple[Tensor, Tensor]:
        """Return the best sources of each target, and their scores."""
        kept, _, sources = self._prepared or (None, None, None)
        with torch.autocast(pairs.src.device.type, enabled=False):
            ranks = pairs.detach()
            if not is_distance(ranks):
                # Single precision would not tell the cosines of near rows apart.
                exact = self.sampler.similarity.exact_scores(z, self.sampler.factor)
                ranks = exact._replace(excluded=pairs.excluded)
            ranks = ranks._replace(memory=_RANKING_BUDGET)
            source = best_sources(ranks, k, sources if z[0] is kept else None)
            score = pairs.pairs(slice(None), Neighbours(source, pairs.src.size(0)))
        return source, score
