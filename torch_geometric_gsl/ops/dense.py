r"""The relaxation of the paper, written as its definition: all pairs, O(n^2)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torch_geometric_gsl.ops.noise import arrival_times, clone_generator
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.relax import Arrivals
from torch_geometric_gsl.ops.runtime import (
    MEMORY_BUDGET,
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
    memory_budget: int = MEMORY_BUDGET,
    null: Tensor | None = None,
) -> Tensor:
    r"""Average :math:`K` relaxed draws of a neighbour for each row.

    .. math::
        A_{ij} = \frac{1}{K} \sum_{k=1}^{K}
        \mathrm{softmax}_j \left( \frac{s_{ij} + g_{ij}^{(k)}}{\tau} \right),
        \qquad g_{ij}^{(k)} \sim \mathrm{Gumbel}(0, 1)

    where :math:`s_{ij}` are unnormalised log-probabilities: the normaliser of
    :math:`\pi_{ij}` cancels. The noise is drawn in the order (row, draw, column)
    by blocks of rows, drawn again in the backward pass, and never stored, so no
    tensor of :math:`K n N` entries exists.

    Args:
        score (torch.Tensor): Scores :math:`[n, N]`; :math:`-\infty` excludes.
        k (int): The number of draws :math:`K`.
        tau (float): The temperature :math:`\tau`.
        hard (bool, optional): If :obj:`True`, each draw is one-hot in the forward
            pass and relaxed in the backward pass. (default: :obj:`False`)
        generator (torch.Generator, optional): The generator. (default: :obj:`None`)
        memory_budget (int, optional): Bytes of a block. (default: :obj:`2**25`)
        null (torch.Tensor, optional): The score of the null neighbour, which takes
            part, and whose weights are left out. (default: :obj:`None`)
    """
    weight: Tensor = _RelaxedWeights.apply(  # type: ignore[no-untyped-call]
        with_null(score, null), k, tau, hard, generator, memory_budget
    )
    return weight[:, : score.size(1)]


def with_null(score: Tensor, null: Tensor | None) -> Tensor:
    """Append the score of the null neighbour to each row, if there is one."""
    if null is None:
        return score
    return torch.cat([score, null.to(score).expand(score.size(0), 1)], dim=1)


@disable_compile
@torch.no_grad()
def perturbed_arrivals(
    pairs: PairScores,
    k: int,
    num_arrivals: int,
    *,
    generator: torch.Generator | None = None,
    memory_budget: int = MEMORY_BUDGET,
) -> Arrivals:
    r"""Find the largest perturbed scores of each draw, with noise for every pair.

    The noise is that of :func:`relaxed_weights` under the same seed, and arguments are
    those of :func:`~torch_geometric_gsl.ops.scan.stream_arrivals`.
    """
    dst, num_columns = pairs.dst, pairs.src.size(0)
    noise = dst.new_empty(dst.size(0), k, num_arrivals)
    source = torch.empty_like(noise, dtype=torch.long)
    horizon = noise.new_empty(noise.shape[:2])
    bytes_per_row = 2 * (k + 1) * num_columns * noise.element_size()
    for rows in row_blocks(dst.size(0), bytes_per_row, memory_budget):
        score = pairs.rows(rows).unsqueeze(1)
        time = arrival_times(
            (score.size(0), k, num_columns),
            dtype=score.dtype,
            device=score.device,
            generator=generator,
        )
        # In logarithms, so that no scale overflows: the earliest has the largest.
        gumbel = time.log_().neg_()
        value, found = (gumbel + score).topk(num_arrivals, dim=-1)
        source[rows], noise[rows] = found, gumbel.gather(-1, found)
        horizon[rows] = -value[..., -1]
    return Arrivals(source, noise, horizon)


class _RelaxedWeights(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        score: Tensor,
        k: int,
        tau: float,
        hard: bool,
        generator: torch.Generator | None,
        memory_budget: int,
    ) -> Tensor:
        ctx.save_for_backward(score)
        ctx.args = (k, tau, memory_budget)
        ctx.twin = clone_generator(generator, score.device)
        weight = torch.empty_like(score)
        for rows in _blocks(score, k, memory_budget):
            draws = _draw(score[rows], k, tau, generator)
            if hard:
                first = draws.argmax(dim=-1, keepdim=True)
                one_hot = torch.zeros_like(draws).scatter_(-1, first, 1)
                draws = torch.where(draws.isnan(), draws, one_hot)
            weight[rows] = draws.mean(dim=1)
        return weight

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (score,) = ctx.saved_tensors
        k, tau, memory_budget = ctx.args
        # A copy, so that the graph can be walked a second time (retain_graph).
        twin = clone_generator(ctx.twin, score.device)
        grad_score = torch.empty_like(score)
        for rows in _blocks(score, k, memory_budget):
            draws = _draw(score[rows], k, tau, twin)
            inner = torch.einsum('rkn,rn->rk', draws, grad[rows]).unsqueeze(-1)
            local = draws * (grad[rows].unsqueeze(1) - inner)
            grad_score[rows] = local.sum(dim=1) / (k * tau)
        return grad_score, None, None, None, None, None


def _blocks(score: Tensor, k: int, memory_budget: int) -> list[slice]:
    # Four temporaries of one block live at a time.
    bytes_per_row = 4 * k * score.size(1) * score.element_size()
    return row_blocks(score.size(0), bytes_per_row, memory_budget)


def _draw(
    score: Tensor, k: int, tau: float, generator: torch.Generator | None
) -> Tensor:
    size = (score.size(0), k, score.size(1))
    time = arrival_times(
        size, dtype=score.dtype, device=score.device, generator=generator
    )
    return torch.softmax((score.unsqueeze(1) - time.log_()).div_(tau), dim=-1)
