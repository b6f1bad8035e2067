"""Compare the homophily of a sampler's graph with chance, given some labels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from torch_geometric_gsl._warnings import warn_caller
from torch_geometric_gsl.nn.models.layers import evaluation
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.ops.graph_stats import chance_share
from torch_geometric_gsl.typing import Features

# The number of losses in training after which a net compares this number of labelled
# rows with each other.
LOOK_AFTER, LOOK_AT = 50, 256


class HomophilyWarning(UserWarning):
    r"""Issued once per model if its first graph joins labelled nodes of one class no
    more often than chance would.

    A model issues it in a call of :obj:`loss` in training mode, after 50 calls.
    """


@torch.no_grad()
def label_share(
    sampler: GumbelKNNSampler, x: Features, y: Tensor, *given: Any
) -> tuple[float, float]:
    r"""Return the share of the weight, among labelled nodes, of neighbours with the
    label of the target, in evaluation mode without self-loops, and that of all pairs.

    Args:
        sampler (GumbelKNNSampler): The sampler.
        x (torch.Tensor): What it compares.
        y (torch.Tensor): The class of each node, -1 if unknown.
        *given (optional): Its other arguments.
    """
    known = y >= 0
    label = y.clamp(min=0).long()
    with evaluation(sampler, has_options=True) as twin:
        vars(twin).update(loop=False, _draw_hooks={})
        messages = one_hot(label).float() * known.unsqueeze(1)
        weight = twin.propagate(x, messages, *given)[known]
    same = weight.gather(1, label[known].unsqueeze(1))
    return float(same.sum() / weight.sum()), chance_share(y[known])


def warn_at_chance(
    sampler: GumbelKNNSampler, x: Tensor, y: Tensor, choice: Tensor
) -> None:
    """Warn if the graph of some labelled nodes is at chance."""
    if sampler.similarity.bounds[0] == sampler.similarity.bounds[1]:
        return  # A control, which shall be uniform.
    nodes = torch.arange(x.size(0), device=x.device)[choice]
    # Evenly, as rows may be sorted by class.
    nodes = nodes[:: -(-nodes.numel() // LOOK_AT)]
    share, chance = label_share(sampler, x[nodes], y[nodes])
    # No two nodes share a label where chance is 0, and all do where it is 1.
    if share <= chance and 0 < chance < 1:
        warn_caller(
            f'the learned graph joins labelled nodes of one class no more often than '
            f'chance ({share:.2f}, by chance {chance:.2f}): try '
            f"similarity='linear', and compare with a net on the nearest rows, "
            f"'SimilarityKNNGraph(10)', and with an MLP",
            HomophilyWarning,
        )
