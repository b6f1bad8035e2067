"""Noise-free evaluation: graphs and sums over all pairs or the nearest."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.utils import lexsort

from torch_geometric_gsl._checks import check_messages
from torch_geometric_gsl._warnings import warn_caller
from torch_geometric_gsl.nn.sampler.candidates import (
    LISTED_PAIRS,
    Assignment,
    exclude_loops,
)
from torch_geometric_gsl.nn.sampler.options import Settings
from torch_geometric_gsl.nn.sampler.targets import (
    Generator,
    GraphTargets,
    ListedTargets,
    Targets,
)
from torch_geometric_gsl.ops.aggregate import weighted_sum
from torch_geometric_gsl.ops.dense import dense_graph
from torch_geometric_gsl.ops.edges import Candidates
from torch_geometric_gsl.ops.noise_free import (
    nearest_candidates,
    nearest_graph,
    noise_free_sum,
    noise_free_weights,
    sample_sources,
    sampled_noise_free_sum,
)
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.runtime import disable_compile
from torch_geometric_gsl.typing import SampledGraph

# Larger graphs are not listed in evaluation mode (1.3 GB).
MOST_LISTED = 2**26
# An estimate from fewer sources is too noisy.
LEAST_SAMPLES = 1024


class SampledEvaluationWarning(UserWarning):
    r"""Issued if evaluation samples the sources, as there are too many pairs."""


class EvaluationAssignment(Assignment):
    """Assign targets to groups whose neighbours all have noise-free weights."""

    @property
    def num_required(self) -> int:
        # As many as in training, unless `eval_k` is another number.
        settings = self.settings
        return settings.k if settings.num_nearest == settings.k else 0

    def of_graph(
        self, pairs: PairScores, first_source: int = 0, first_target: int = 0
    ) -> EvaluatedGraph:
        pairs = exclude_loops(pairs, self.settings)
        num_targets = pairs.dst.size(0)
        return EvaluatedGraph(
            pairs, num_targets, first_source, first_target, self.settings
        )

    def of_lists(
        self,
        pairs: PairScores,
        candidates: Candidates,
        prior: Tensor | None = None,
    ) -> list[Targets]:
        listed = self.list_pairs(pairs, candidates, prior)
        if listed is None:
            return []
        edges, sizes, value, score = listed
        rank = score
        if self.settings.num_nearest is not None:
            rank = pairs.ranking.edges(edges, value.detach())
            if prior is not None:  # Break ties of saturated scores by nearness.
                rank = lexsort([rank, score.detach()]).argsort().to(rank.dtype)
        return [EvaluatedList(pairs, edges, sizes, (score, rank), self.settings)]

    def are_listed(self, sizes: list[tuple[int, int]]) -> list[bool]:
        return [num_src * num_dst < LISTED_PAIRS for num_src, num_dst in sizes]


@dataclass(eq=False)
class EvaluatedGraph(GraphTargets):
    """The targets of one graph, with the nearest sources or with all of them."""

    settings: Settings

    def edges(self, generator: Generator) -> SampledGraph:
        k = self.settings.num_nearest
        pairs = self.pairs
        if k is None:
            return self._all_edges()
        graph = nearest_graph(pairs, k, self.settings.tau)
        if pairs.null is None:
            return graph
        # The nearest carry the weight of all candidates, less that of the null one.
        ones = graph.edge_weight.new_ones(pairs.src.size(0), 1)
        share = self._sum_over_all(ones).squeeze(1)
        weight = graph.edge_weight * share[graph.edge_index[1]]
        return SampledGraph(graph.edge_index, weight)

    def sum(self, h: Tensor, generator: Generator) -> Tensor:
        if self.settings.num_nearest is None:
            out = self._sum_over_all(h)
        else:
            graph = self.edges(generator)
            out = weighted_sum(h, *graph, self.pairs.dst.size(0))
        return out if self.selection is None else out[self.selection]

    @property
    def num_samples(self) -> int:
        """Return the number of sources that evaluation sums over."""
        eval_pairs = int(min(self.settings.budget.eval_pairs, 2**62))
        return max(eval_pairs // self.num_targets, LEAST_SAMPLES)

    def _all_edges(self) -> SampledGraph:
        """List the pairs that are summed over: all, or a sample."""
        pairs = self.pairs
        tau = self.settings.tau
        count = self.num_samples
        num_sources = pairs.src.size(0)
        total = self.num_targets
        if total * min(count, num_sources) > MOST_LISTED:
            raise ValueError(
                f"'eval_k' must be a number, such as 96, to list the graph of {total} "
                f'x {num_sources} pairs in evaluation mode: more than {MOST_LISTED} '
                f'edges (got none)'
            )
        if count >= num_sources:
            weight = noise_free_weights(pairs.rows(), tau, pairs.null)
            return dense_graph(weight, pairs.excluded)
        sampled, sample = sample_sources(pairs, tau, count)
        weight = noise_free_weights(sample.rows(), tau, sample.null)
        (source, target), weight = dense_graph(weight)
        edges = SampledGraph(torch.stack([sampled[source], target]), weight)
        _warn(
            f'the graph of {total} x {num_sources} pairs has a sample of {count} '
            f"sources only, as does evaluation: a larger 'eval_pairs' of the budget "
            f'takes all sources'
        )
        if pairs.excluded is None:
            return edges
        keep = edges.edge_index[0] != pairs.excluded[target]
        return SampledGraph(edges.edge_index[:, keep], weight[keep])

    def _sum_over_all(self, h: Tensor) -> Tensor:
        """Sum messages over all sources: exactly, or from a sample."""
        pairs = self.pairs
        tau = self.settings.tau
        count = self.num_samples
        num_sources = pairs.src.size(0)
        if count >= num_sources:
            return noise_free_sum(h, pairs, tau)
        out, error = sampled_noise_free_sum(h, pairs, tau, count)
        _warn(
            f'the sums over {self.num_targets} x {num_sources} pairs are estimated '
            f'from {count} sources with an error of {{:.2g}} (root mean square over '
            f"some targets; the sums have {{:.2g}}): a larger 'eval_pairs' of the "
            f'budget makes them exact',
            error,
            out.detach().square().mean().sqrt(),
        )
        return out


@dataclass(eq=False)
class EvaluatedList(ListedTargets):
    """Targets with listed candidates, with the nearest of them or with all."""

    settings: Settings

    def edges(
        self, edge_index: Tensor, num_targets: int, generator: Generator, *columns: Any
    ) -> SampledGraph:
        score, rank = columns
        return nearest_candidates(
            score,
            edge_index,
            num_targets,
            self.settings.num_nearest,
            self.settings.tau,
            self.pairs.null,
            rank,
        )


@disable_compile  # Reads the values of tensors and frames.
def _warn(message: str, *values: Tensor) -> None:
    numbers = (float(value) for value in values)
    warn_caller(message.format(*numbers), SampledEvaluationWarning)


def exported_sum(
    h: Tensor,
    pairs: PairScores,
    settings: Settings,
    is_training: bool,
    unsupported: dict[str, Any],
) -> Tensor:
    r"""Sum messages as defined, for :func:`torch.export.export`.

    Exported programs hold all pairs in memory, as the number of blocks would depend on
    the rows. :obj:`unsupported` holds arguments, which must be None.
    """
    if is_training:
        raise ValueError(
            "'torch.export' supports evaluation only, without random draws: call "
            "'model.eval()' first"
        )
    for name, value in unsupported.items():
        if value is not None:
            raise ValueError(
                f"'{name}' is not supported by 'torch.export': the number of edges "
                f'would depend on values (got a {type(value).__name__})'
            )
    check_messages(h, pairs.src.size(0), pairs.src.device)
    pairs = exclude_loops(pairs, settings)
    with torch.autocast(h.device.type, enabled=False):
        score = pairs.rows()
        weight = noise_free_weights(score, settings.tau, pairs.null).to(h.dtype)
        # A target without candidates, such as a single node, receives no message.
        weight = weight.masked_fill((score == -math.inf).all(dim=1, keepdim=True), 0.0)
        if settings.num_nearest is not None:
            weight = _nearest_weights(pairs, weight, settings.num_nearest)
        return weight @ h


def _nearest_weights(pairs: PairScores, weight: Tensor, k: int) -> Tensor:
    """Keep the weights of the nearest sources, rescaled to the sum of all."""
    ranks = pairs.ranking.rows()
    nearest = ranks.topk(min(k, ranks.size(1)), dim=1).indices
    sparse = torch.zeros_like(weight).scatter(1, nearest, weight.gather(1, nearest))
    # A null neighbour may take all the weight.
    total = sparse.sum(dim=1, keepdim=True).clamp(min=torch.finfo(sparse.dtype).tiny)
    return sparse * (weight.sum(dim=1, keepdim=True) / total)
