"""Scores between two sets of nodes, on demand."""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import itemgetter
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from torch_geometric_gsl.ops import scores
from torch_geometric_gsl.ops.edges import Candidates
from torch_geometric_gsl.ops.neighbours import (
    Neighbours,
    compare_listed,
    pair_distances,
    pair_dots,
)
from torch_geometric_gsl.ops.runtime import MEMORY_BUDGET, plain_tensor, row_blocks
from torch_geometric_gsl.ops.sparse_rows import SparseRows

# The functions that compare targets with listed sources.
_PAIRS = {'dot': pair_dots, 'squared_distance': pair_distances}
#: The comparisons of a similarity.
COMPARISONS = tuple(_PAIRS)
# Rows that determine the centre: more take longer to sort and hardly move it.
_CENTRED = 64


class PairScores(NamedTuple):
    r"""The scores :math:`s_{ij} = \lambda \phi(v_{ij})` of targets and sources.

    No matrix of all pairs is stored: rows, listed pairs and tiles are computed on
    request.

    Example:
        >>> pairs = PairScores(torch.eye(2), torch.eye(2), scores.Identity())
        >>> pairs.rows(slice(0, 1))
        tensor([[1., 0.]])
    """

    dst: Tensor  # Embeddings of the targets [n, m].
    src: Tensor  # Embeddings of the sources [N, m].
    response: scores.Response  # The response of each target.
    comparison: str = 'dot'  # Or 'squared_distance'.
    scale: float | Tensor = 1.0  # The factor.
    lower: float | Tensor = -math.inf  # Bounds of the scores.
    upper: float | Tensor = math.inf
    excluded: Tensor | None = None  # The source excluded for each target [n].
    candidates: Candidates | None = None  # Those of each target; else all sources.
    null: Tensor | None = None  # The score of the null neighbour.
    first_target: int = 0  # The index of the first target; noise depends on it.
    memory: int = MEMORY_BUDGET  # Bytes of a block of rows, which change no result.

    def rows(self, rows: slice = slice(None)) -> Tensor:
        r"""Score all sources for a block of targets; :math:`-\infty` excludes."""
        value = compare_all(self.comparison, self.dst[rows], self.src)
        score = self.respond(rows, value)
        return score if self.excluded is None else exclude(score, self.excluded[rows])

    def best(self, k: int) -> tuple[Tensor, Tensor]:
        """Return the best scores of each target, and their sources."""
        score = self.dst.new_empty(self.dst.size(0), k)
        source = torch.empty_like(score, dtype=torch.long)
        bytes_per_row = 3 * self.src.size(0) * self.dst.element_size()
        for rows in row_blocks(score.size(0), bytes_per_row, self.memory):
            score[rows], source[rows] = self.rows(rows).topk(k, dim=1)
        return score, source

    def compare(self, rows: slice, neighbours: Neighbours) -> Tensor:
        """Compare each target of a block with the sources that it lists."""
        dst = self.dst[rows]
        if isinstance(dst, SparseRows):
            return dst.pair_dots(self.src, neighbours)
        return _PAIRS[self.comparison](dst, self.src, neighbours)

    def respond(self, rows: slice | Tensor, value: Tensor) -> Tensor:
        """Map the compared values of a block of targets to scores.

        A vector has one value per target, a matrix one row per target.
        """
        params = []
        for param in self.response.params:
            values = param[rows]
            params.append(values.unsqueeze(-1) if value.dim() > 1 else values)
        score = self.response.value(value, *params)
        if isinstance(self.scale, float) and self.scale == 1:
            return score
        return self.scale * score

    def listed(self, source: Tensor, rows: slice = slice(None)) -> Tensor:
        """Score the sources :math:`[n, q]` that the targets of a block list."""
        num_sources = self.src.size(0)
        neighbours = Neighbours(source, num_sources, memory=self.memory)
        return self.respond(rows, self.compare(rows, neighbours))

    def compare_edges(self, edge_index: Tensor) -> Tensor:
        """Compare the pairs of a list of edges, in any order."""
        compare: Callable[..., Tensor] = _PAIRS[self.comparison]
        if self.is_sparse:
            compare = SparseRows.pair_dots
        source, target = edge_index
        return compare_listed(
            compare, self.dst, self.src, source, target, memory=self.memory
        )

    def edges(self, edge_index: Tensor, value: Tensor | None = None) -> Tensor:
        """Score the pairs of a list of edges; nothing is excluded.

        Their result of :meth:`compare_edges` may be given as :obj:`value`.
        """
        if value is None:
            value = self.compare_edges(edge_index)
        return self.respond(edge_index[1], value)

    def weights(self, rows: slice, columns: slice, tau: float) -> Tensor:
        r"""Return :math:`e^{(s_{ij} - s_{\max}) / \tau}` of all pairs of two blocks."""
        dst, src = self.dst[rows], self.src[columns]
        value = compare_all(self.comparison, dst, src)
        params = (param[rows].unsqueeze(1) for param in self.response.params)
        score = self.response.value(value, *params)
        return (score * (self.scale / tau)).sub_(self.upper / tau).exp_()

    def take(
        self, target: Tensor | slice, candidates: Candidates | None = None
    ) -> PairScores:
        """Return the scores of some targets, which keep their candidates by default."""
        if candidates is None and self.candidates is not None:
            start, size, source = self.candidates
            candidates = Candidates(start[target], size[target], source)
        return self._replace(
            dst=self.dst[target],
            response=self.response.map(itemgetter(target)),
            excluded=None if self.excluded is None else self.excluded[target],
            candidates=candidates,
        )

    def detach(self) -> PairScores:
        """Return the scores without gradients."""
        fields = self._asdict()
        for name in ('dst', 'src', 'scale', 'lower', 'upper', 'null'):
            value = fields[name]
            if isinstance(value, Tensor):
                fields[name] = plain_tensor(value)
            elif isinstance(value, SparseRows):
                fields[name] = value.detach()
        if self.dst is self.src:
            fields['dst'] = fields['src']
        fields['response'] = self.response.map(plain_tensor)
        return PairScores(**fields)

    def split(self, sizes: list[int]) -> list[PairScores]:
        """Return the scores of blocks of these numbers of targets."""
        # Split, not sliced: the gradient of each slice would cover all targets.
        columns = self.dst, *self.response.params, self.excluded
        blocks = [[x] * len(sizes) if x is None else x.split(sizes) for x in columns]
        return [
            self._replace(
                dst=dst, response=type(self.response)(*params), excluded=excluded
            )
            for dst, *params, excluded in zip(*blocks, strict=True)
        ]

    def block(self, rows: slice) -> PairScores:
        """Return the scores of consecutive targets, which keep their noise."""
        sizes = [rows.start, rows.stop - rows.start, self.dst.size(0) - rows.stop]
        return self.split(sizes)[1]._replace(
            first_target=self.first_target + rows.start
        )

    def select(self, source: Tensor) -> PairScores:
        """Restrict the scores to some distinct sources."""
        excluded = self.excluded
        if excluded is not None:
            position = excluded.new_full((self.src.size(0),), -1)
            position[source] = torch.arange(source.size(0), device=source.device)
            excluded = position[excluded]
        return self._replace(src=self.src[source], excluded=excluded)

    @property
    def ranking(self) -> PairScores:
        """Return scores of the same order that do not saturate, without gradients."""
        ranked = self.detach()
        return ranked._replace(
            response=ranked.response.ranking, scale=1.0, lower=-math.inf, upper=math.inf
        )

    @property
    def is_sparse(self) -> bool:
        """Return whether the embeddings are sparse rows."""
        return isinstance(self.src, SparseRows)

    @property
    def has_clusters(self) -> bool:
        """Return whether clusters of the sources bound the scores."""
        return self.response.has_interval and not self.is_sparse

    @property
    def num_candidates(self) -> int:
        """Return the number of candidates of the target with the most."""
        return self.src.size(0) if self.candidates is None else self.candidates.max_size

    @property
    def available(self) -> int:
        """Return the largest number of candidates of a target."""
        return self.num_candidates - int(self.excluded is not None)


def compare_all(comparison: str, dst: Tensor, src: Tensor) -> Tensor:
    """Compare all targets with all sources, also group by group."""
    if isinstance(dst, SparseRows):
        return dst.dots(src)
    if comparison == 'dot':
        return dst @ src.mT
    return scores.squared_distance_matrix(dst, src)


def compare_groups(comparison: str, dst: Tensor, src: Tensor, group: int) -> Tensor:
    r"""Compare each group of targets with separate sources, :math:`[n, S]`.

    Sources are :math:`[B, S, m]`; the last group of targets may have fewer.
    """
    missing = src.size(0) * group - dst.size(0)
    grouped = F.pad(dst, (0, 0, 0, missing)).unflatten(0, (-1, group))
    value: Tensor = (
        grouped @ src.mT
        if comparison == 'dot'
        else scores.squared_distance_matrix(grouped, src)
    )
    return value.flatten(0, 1)[: dst.size(0)]


def exclude(score: Tensor, excluded: Tensor, source: Tensor | None = None) -> Tensor:
    r"""Set the scores of the excluded source of each target to :math:`-\infty`.

    Scores are those of :obj:`source`, or of all sources in their order.
    """
    if source is None:
        source = torch.arange(score.size(-1), device=score.device)
    return score.masked_fill(source == excluded.unsqueeze(-1), -torch.inf)


def with_null(score: Tensor, null: Tensor | None) -> Tensor:
    """Append the score of the null neighbour to each row, if there is one."""
    if null is None:
        return score
    return torch.cat([score, null.to(score).expand(score.size(0), 1)], dim=1)


def centre_of(rows: Tensor) -> Tensor:
    """Return the approximate median of each column, robust to outliers."""
    if rows.size(0) == 0:
        return rows.new_zeros(rows.size(1))
    sample = rows.detach()[:: -(-rows.size(0) // _CENTRED)]
    # Sorted, as medians on a GPU are not deterministic to PyTorch; NaN comes last.
    median = sample.sort(dim=0).values[(sample.size(0) - 1) // 2]
    return median.nan_to_num(0.0, 0.0, 0.0)


class Sources(NamedTuple):
    """Sources whose squared distances are computed by products of centred rows."""

    rows: Tensor  # The rows (z - c, -|z - c|^2).
    centre: Tensor  # A row c amid the sources, to reduce rounding errors.

    @classmethod
    def of(cls, z: Tensor) -> Sources:
        """Prepare the embeddings of sources."""
        centre = centre_of(z)
        z = z - centre
        return cls(torch.cat([z, -z.square().sum(dim=1, keepdim=True)], dim=1), centre)

    def single(self) -> Sources:
        """Return the rows in single precision."""
        return self._replace(rows=self.rows.float())

    def targets(self, z: Tensor) -> Tensor:
        r"""Return the rows :math:`(2 (z_i - c), 1)` of targets."""
        z = 2 * (z - self.centre)
        rows = torch.cat([z, z.new_ones(z.size(0), 1)], dim=1)
        return rows.to(self.rows.dtype)


def is_distance(pairs: PairScores) -> bool:
    """Return whether scores are negative squared distances, not a user's formula."""
    is_negative = type(pairs.response) is scores.Negative
    return is_negative and pairs.comparison == 'squared_distance'


def distances_as_dots(pairs: PairScores, sources: Sources | None = None) -> PairScores:
    r"""Return inner products equal to negative squared distances up to a constant per
    target.

    Weights and ranks are the same, since :math:`-\lVert z_i - z_j \rVert^2 = 2 z_i
    \cdot z_j - \lVert z_j \rVert^2 - \lVert z_i \rVert^2`, and matrix products compute
    them. The pairs are those of :func:`is_distance`.
    """
    sources = Sources.of(pairs.src) if sources is None else sources
    return pairs._replace(
        # The scale of a few targets costs less than that of all pairs.
        dst=pairs.scale * sources.targets(pairs.dst),
        src=sources.rows,
        response=scores.Identity(),
        comparison='dot',
        scale=1.0,
        lower=-math.inf,
        upper=math.inf,
    )
