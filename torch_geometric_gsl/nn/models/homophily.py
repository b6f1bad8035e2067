"""Compare the learned graph of labelled nodes with chance, and warn."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from torch_geometric_gsl._warnings import warn_caller
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.shared_module import evaluation
from torch_geometric_gsl.ops.edges import chance_share
from torch_geometric_gsl.typing import Features

# Training losses before the graph is compared with chance.
WARMUP_LOSSES = 50
# Labelled nodes that are compared with each other, at most.
MAX_LABELLED = 256


class HomophilyWarning(UserWarning):
    r"""Issued once per model if its first graph joins labelled nodes of one class no
    more often than chance would.

    A model issues it in a call of :obj:`loss` in training mode, after 50 calls.
    """


@torch.no_grad()
def label_homophily(
    sampler: GumbelKNNSampler, x: Features, y: Tensor, *sampler_args: Any
) -> tuple[float, float]:
    r"""Return the share of the weight, among labelled nodes, of neighbours with the
    label of the target, in evaluation mode without self-loops, and that of all pairs.

    Args:
        sampler (GumbelKNNSampler): The sampler.
        x (torch.Tensor): What it compares.
        y (torch.Tensor): The class of each node, -1 if unknown.
        *sampler_args (optional): Its other arguments.
    """
    is_labelled = y >= 0
    label = y.clamp(min=0).long()
    with evaluation(sampler, always_copy=True) as twin:
        vars(twin).update(loop=False, _draw_hooks={})
        messages = F.one_hot(label).float() * is_labelled.unsqueeze(1)
        weight = twin.propagate(x, messages, *sampler_args)[is_labelled]
    hits = weight.gather(1, label[is_labelled].unsqueeze(1))
    return float(hits.sum() / weight.sum()), chance_share(y[is_labelled])


def warn_if_at_chance(
    sampler: GumbelKNNSampler, x: Tensor, y: Tensor, labelled: Tensor
) -> None:
    """Warn if the graph of some labelled nodes is at chance."""
    if sampler.similarity.is_constant:
        return  # A control, which shall be uniform.
    nodes = torch.arange(x.size(0), device=x.device)[labelled]
    # Evenly, as rows may be sorted by class.
    nodes = nodes[:: -(-nodes.numel() // MAX_LABELLED)]
    share, chance = label_homophily(sampler, x[nodes], y[nodes])
    # No two nodes share a label where chance is 0, and all do where it is 1.
    if share <= chance and 0 < chance < 1:
        warn_caller(
            f'the learned graph joins labelled nodes of one class no more often than '
            f'chance ({share:.2f}, by chance {chance:.2f}): try '
            f"similarity='linear', and compare with a net on the nearest rows, "
            f"'SimilarityKNNGraph(10)', and with an MLP",
            HomophilyWarning,
        )
