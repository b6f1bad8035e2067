r"""The relaxation as defined in the paper, of all pairs or listed candidates."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.utils import softmax

from torch_geometric_gsl.ops.edges import expand_ranges, rank_in_group
from torch_geometric_gsl.ops.generators import clone_generator
from torch_geometric_gsl.ops.noise import log_arrival_times
from torch_geometric_gsl.ops.pair_scores import PairScores, with_null
from torch_geometric_gsl.ops.relax import Arrivals, DrawOptions
from torch_geometric_gsl.ops.runtime import (
    MEMORY_BUDGET,
    HandWritten,
    disable_compile,
    once_differentiable,
    row_blocks,
)
from torch_geometric_gsl.typing import SampledGraph


def dense_graph(weight: Tensor, excluded: Tensor | None = None) -> SampledGraph:
    r"""List all pairs of a matrix of weights :math:`[n, N]` as edges.

    The source :obj:`excluded` of each target is left out.
    """
    edges = torch.ones_like(weight, dtype=torch.bool)
    if excluded is not None:
        edges.scatter_(1, excluded.unsqueeze(1), False)
    target, source = edges.nonzero(as_tuple=True)
    return SampledGraph(torch.stack([source, target]), weight[edges])


@disable_compile
def relaxed_weights(
    score: Tensor,
    k: int,
    tau: float,
    *,
    hard: bool = False,
    generator: torch.Generator | None = None,
    memory: int = MEMORY_BUDGET,
    null: Tensor | None = None,
) -> Tensor:
    r"""Average :math:`K` relaxed draws of a neighbour for each row.

    .. math::
        A_{ij} = \frac{1}{K} \sum_{k=1}^{K}
        \mathrm{softmax}_j \left( \frac{s_{ij} + g_{ij}^{(k)}}{\tau} \right),
        \qquad g_{ij}^{(k)} \sim \mathrm{Gumbel}(0, 1)

    where :math:`s_{ij}` are unnormalised log-probabilities: the normaliser of
    :math:`\pi_{ij}` cancels. The noise is drawn in the order (row, draw, column) by
    blocks of rows, redrawn in the backward pass, and never stored, so no tensor of
    :math:`K n N` entries exists. Scores are :math:`[n, N]`; :math:`-\infty` excludes.
    With :obj:`hard` draws are one-hot in the forward pass and relaxed in the backward
    pass. The null neighbour takes part; its weights are not returned.
    """
    twin = clone_generator(generator, score.device)
    weight: Tensor = _RelaxedWeights.apply(  # type: ignore[no-untyped-call]
        with_null(score, null), k, tau, hard, generator, twin, memory
    )
    return weight[:, : score.size(1)]


@disable_compile
@torch.no_grad()
def perturbed_arrivals(
    pairs: PairScores,
    k: int,
    num_arrivals: int,
    *,
    generator: torch.Generator | None = None,
) -> Arrivals:
    r"""Find the largest perturbed scores of each draw, with noise for every pair.

    The noise is that of :func:`relaxed_weights` with the same seed; the arguments are
    those of :func:`~torch_geometric_gsl.ops.scan.stream_arrivals`.
    """
    dst = pairs.dst
    num_sources = pairs.src.size(0)
    noise = dst.new_empty(dst.size(0), k, num_arrivals)
    source = torch.empty_like(noise, dtype=torch.long)
    horizon = noise.new_empty(noise.shape[:2])
    bytes_per_row = 2 * (k + 1) * num_sources * noise.element_size()
    for rows in row_blocks(dst.size(0), bytes_per_row, pairs.memory):
        score = pairs.rows(rows).unsqueeze(1)
        size = score.size(0), k, num_sources
        gumbel = log_arrival_times(size, score, generator).neg_()
        value, index = (gumbel + score).topk(num_arrivals, dim=-1)
        source[rows] = index
        noise[rows] = gumbel.gather(-1, index)
        horizon[rows] = -value[..., -1]
    return Arrivals(source, noise, horizon)


class _RelaxedWeights(HandWritten):
    @staticmethod
    def forward(
        score: Tensor,
        k: int,
        tau: float,
        hard: bool,
        generator: torch.Generator | None,
        twin: torch.Generator,
        memory: int,
    ) -> Tensor:
        weight = torch.empty_like(score)
        for rows in _blocks(score, k, memory):
            draws = _draw(score[rows], k, tau, generator)
            if hard:
                winner = draws.argmax(dim=-1, keepdim=True)
                one_hot = torch.zeros_like(draws).scatter_(-1, winner, 1)
                draws = torch.where(draws.isnan(), draws, one_hot)
            weight[rows] = draws.mean(dim=1)
        return weight

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        score, k, tau, _, _, ctx.twin, memory = inputs
        ctx.save_for_backward(score)
        ctx.args = (k, tau, memory)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (score,) = ctx.saved_tensors
        k, tau, memory = ctx.args
        # A copy, for a second backward pass (retain_graph).
        twin = clone_generator(ctx.twin, score.device)
        grad_score = torch.empty_like(score)
        for rows in _blocks(score, k, memory):
            draws = _draw(score[rows], k, tau, twin)
            inner = torch.einsum('rkn,rn->rk', draws, grad[rows]).unsqueeze(-1)
            local = draws * (grad[rows].unsqueeze(1) - inner)
            grad_score[rows] = local.sum(dim=1) / (k * tau)
        return grad_score, None, None, None, None, None, None


def _blocks(score: Tensor, k: int, memory: int) -> list[slice]:
    # Four temporaries of a block exist at a time.
    bytes_per_row = 4 * k * score.size(1) * score.element_size()
    return row_blocks(score.size(0), bytes_per_row, memory)


def _draw(
    score: Tensor, k: int, tau: float, generator: torch.Generator | None
) -> Tensor:
    size = (score.size(0), k, score.size(1))
    log_time = log_arrival_times(size, score, generator)
    return torch.softmax((score.unsqueeze(1) - log_time).div_(tau), dim=-1)


@disable_compile
def candidate_graph(
    score: Tensor,
    edge_index: Tensor,
    num_targets: int,
    options: DrawOptions,
    *,
    generator: torch.Generator | None = None,
    null: Tensor | None = None,
) -> SampledGraph:
    r"""Sample a graph among listed candidates, with noise for each.

    There is one score per candidate edge; :math:`-\infty` excludes. Edges are sorted by
    target, without duplicates. The noise has the order (target, draw, candidate) of
    :func:`relaxed_weights`, so that a seed gives the weights of the definition. The
    null neighbour takes part; its edges are not returned.
    """
    if null is not None:
        null_source = int(edge_index[0].max()) + 1  # An index that is no source.
        edges = _append_null(score, edge_index, num_targets, null, null_source)
        graph = candidate_graph(*edges, num_targets, options, generator=generator)
        keep = graph.edge_index[0] != null_source
        return SampledGraph(graph.edge_index[:, keep], graph.edge_weight[keep])
    if options.replace and _is_matrix(score, edge_index[1], num_targets):
        weight = relaxed_weights(
            score.view(num_targets, -1),
            options.k,
            options.tau,
            hard=options.hard,
            generator=generator,
        )
        return SampledGraph(edge_index, weight.flatten())
    draws = options.num_races
    degree = torch.bincount(edge_index[1], minlength=num_targets)
    start = (degree.cumsum(0) - degree).repeat_interleave(draws)
    draw, edge = expand_ranges(start, degree.repeat_interleave(draws))
    log_time = log_arrival_times(edge.shape, score, generator)
    value = score.index_select(0, edge) - log_time
    keep = value != -torch.inf
    if not options.replace:
        keep &= rank_in_group(value.detach(), draw) < options.k
    if not keep.all():
        edge, draw, value = edge[keep], draw[keep], value[keep]
    weight = softmax(value / options.tau, draw, num_nodes=num_targets * draws)
    if options.hard:
        chosen = torch.full_like(value, 1 / options.k)
        if options.replace:
            chosen = (rank_in_group(value.detach(), draw) == 0).to(value)
        weight = straight_through(chosen, weight)
    # Summed by position: sorting all draws would take most of the time.
    total = torch.zeros_like(score).index_add(0, edge, weight / draws)
    drawn = torch.zeros_like(score, dtype=torch.bool).index_fill_(0, edge, True)
    if not drawn.all():
        edge_index, total = edge_index[:, drawn], total[drawn]
    return SampledGraph(edge_index, total)


def straight_through(hard: Tensor, soft: Tensor) -> Tensor:
    """Return the value of one tensor with the gradient, and the NaNs, of another.

    Not hard + soft - soft.detach(), which leaves rounding errors in the zeros.
    """
    value: Tensor = _StraightThrough.apply(hard, soft)  # type: ignore[no-untyped-call]
    return value


class _StraightThrough(HandWritten):
    @staticmethod
    def forward(forward: Tensor, backward: Tensor) -> Tensor:
        return torch.where(backward.isnan(), backward, forward)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        return None, grad


def _append_null(
    score: Tensor, edge_index: Tensor, num_targets: int, null: Tensor, null_source: int
) -> tuple[Tensor, Tensor]:
    """Append an edge from the null neighbour to each target that has candidates."""
    target = torch.bincount(edge_index[1], minlength=num_targets).nonzero().squeeze(1)
    edges = torch.stack([torch.full_like(target, null_source), target])
    edges = torch.cat([edge_index, edges], dim=1)
    score = torch.cat([score, null.to(score).expand(target.numel())])
    order = edges[1].argsort(stable=True)
    return score[order], edges[:, order]


def _is_matrix(score: Tensor, target: Tensor, num_targets: int) -> bool:
    """Return whether all targets have the same number of candidates, none excluded."""
    if num_targets == 0 or target.numel() == 0 or target.numel() % num_targets:
        return False
    rows = target.view(num_targets, -1)
    every = torch.arange(num_targets, device=target.device).unsqueeze(1)
    return bool((rows == every).all() & torch.isfinite(score).all())
