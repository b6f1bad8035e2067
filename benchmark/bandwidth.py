"""Measure how fast the machine moves memory, which bounds the time of a step."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from models import HIDDEN, K

from torch_geometric_gsl import GSLNet, LatentGraphConv

COPIED_BYTES = 2**28
GATHERED_ROWS = 2**20
ROWS_PER_BAG = 16
# Of each kept row: its inner product and sum, then in the backward pass an inner
# product, a sum and two transposed sums.
KEPT_PASSES = 6


class LayerPlan(NamedTuple):
    """The rows that one layer gathers: P proposals and M arrivals of each draw."""

    width: int
    num_proposals: int
    num_arrivals: int


def streaming_bandwidth(repeats: int = 5) -> float:
    """Return the bytes per second, read and written, of a copy beyond all caches."""
    source = torch.ones(COPIED_BYTES // 4)
    target = torch.empty_like(source)
    seconds = _best(lambda: target.copy_(source), repeats)
    return 2 * COPIED_BYTES / seconds


def gather_rate(num_nodes: int, width: int = HIDDEN, repeats: int = 5) -> float:
    """Return the rows per second of sums over random rows of a table [N, width]."""
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(num_nodes, width, generator=generator)
    shape = (GATHERED_ROWS // ROWS_PER_BAG, ROWS_PER_BAG)
    index = torch.randint(num_nodes, shape, generator=generator)
    seconds = _best(lambda: F.embedding_bag(index, table, mode='sum'), repeats)
    return index.numel() / seconds


def layer_plans(model: GSLNet, num_nodes: int) -> list[LayerPlan]:
    """Return the plan of each layer."""
    plans = []
    convs = (m for m in model.modules() if isinstance(m, LatentGraphConv))
    for conv in convs:
        plan = conv.sampler.plan(torch.ones(num_nodes, conv.out_channels))
        if plan.num_proposals is None or plan.num_arrivals is None:
            raise ValueError(f"'model' must race (got {plan.method!r})")
        size = plan.num_proposals, plan.num_arrivals
        plans.append(LayerPlan(conv.out_channels, *size))
    return plans


def gathered_rows(plan: LayerPlan, num_nodes: int) -> int:
    """Count the rows that a forward and a backward pass of a layer gather."""
    return num_nodes * K * (plan.num_proposals + KEPT_PASSES * plan.num_arrivals)


def moved_bytes(plans: list[LayerPlan], num_nodes: int) -> int:
    """Return the bytes of these rows, of all layers."""
    return sum(4 * plan.width * gathered_rows(plan, num_nodes) for plan in plans)


def gather_seconds(plans: list[LayerPlan], num_nodes: int) -> float:
    """Return the seconds that sums over as many random rows take, of all layers."""
    return sum(
        gathered_rows(plan, num_nodes) / gather_rate(num_nodes, plan.width)
        for plan in plans
    )


def _best(step: Callable[[], object], repeats: int) -> float:
    seconds = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    return min(seconds[1:])
