"""A network on propagated features, trained for consistency of random passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.utils import degree, softmax

from reproduction.baselines.given_graph import sparse_linear
from reproduction.self_supervision import consistency_loss
from torch_geometric_gsl import (
    GumbelKNNSampler,
    LinearSimilarity,
    Similarity,
    UniformSimilarity,
)
from torch_geometric_gsl.ops.aggregate import weighted_sum
from torch_geometric_gsl.transforms.feature_graphs import nearest_neighbours

#: Types of weights of the neighbours.
GRAPHS = ('nearest', 'uniform', 'drawn')


class ConsistentNet(torch.nn.Module):
    r"""Two layers on the mean of features after 0 to `order` propagation steps.

    A pass drops nodes at random (as in GRAND), and samples one graph for all its steps.
    A consistency loss between the passes is added to the loss of the labels.

    Args:
        in_channels: The number of features.
        hidden_channels: The number of hidden units.
        out_channels: The number of classes.
        graph: `nearest` averages the nearest nodes, `uniform` samples among them
            uniformly, `drawn` samples by their cosines with a learned scale.
        num_candidates: The number of nearest nodes.
        order: The number of propagation steps.
        k: The number of draws.
        initial_scale: The initial value of the learned scale.
        weight: The weight of the consistency loss.
        warm_up: The number of training steps until this weight is reached.
        temperature: The temperature that sharpens the mean of both passes.
        dropout: Dropout probability of hidden units.
        node_dropout: Dropout probability of nodes.
    """

    candidates: Tensor | None
    scores: Tensor | None

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        graph: str,
        num_candidates: int,
        order: int,
        k: int = 5,
        initial_scale: float = 10.0,
        weight: float = 1.5,
        warm_up: int = 70,
        temperature: float = 0.3,
        dropout: float = 0.5,
        node_dropout: float = 0.5,
    ) -> None:
        super().__init__()
        if graph not in GRAPHS:
            raise ValueError(f"'graph' must be one of {GRAPHS} (got {graph!r})")
        self.first = sparse_linear(in_channels, hidden_channels, bias=False)
        self.bias = torch.nn.Parameter(torch.zeros(hidden_channels))
        self.second = sparse_linear(hidden_channels, out_channels)
        self.sampler = None
        if graph != 'nearest':
            similarity: Similarity = LinearSimilarity(in_channels)
            options: dict[str, Any] = {'k': k, 'tau': 1.0, 'loop': False}
            if graph == 'drawn':
                options |= {'scale': initial_scale, 'train_scale': True}
            else:
                similarity = UniformSimilarity(in_channels)
            self.sampler = GumbelKNNSampler.paper(similarity, **options)
        self.num_candidates = num_candidates
        self.order = order
        self.weight = weight
        self.warm_up = warm_up
        self.temperature = temperature
        self.dropout = dropout
        self.node_dropout = node_dropout
        self.num_steps = 0
        self.candidates = None
        self.scores = None

    def forward(self, x: Tensor) -> Tensor:
        neighbours = self._neighbours(x)
        h = self.first(x)
        if self.training:
            is_kept = torch.rand(h.size(0), 1, device=h.device) >= self.node_dropout
            h = h * is_kept / (1 - self.node_dropout)
        total = h
        for _ in range(self.order):
            h = (h + neighbours(h)) / 2
            total = total + h
        h = F.relu(total / (self.order + 1) + self.bias)
        out: Tensor = self.second(F.dropout(h, self.dropout, self.training))
        return out

    def _neighbours(self, x: Tensor) -> Callable[[Tensor], Tensor]:
        """Return the mean over neighbours; training samples one graph for it."""
        if self.candidates is None:
            self.candidates = nearest_neighbours(x, self.num_candidates).edge_index
        edge_index = self.candidates
        if self.sampler is None:
            weight = 1 / degree(edge_index[1], x.size(0), x.dtype)[edge_index[1]]
        elif self.training:
            edge_index, weight = self.sampler(x, edge_index)
        else:  # All candidates, without noise.
            if self.scores is None:
                self.scores = self.sampler.similarity(x, edge_index)
            score = self.sampler.factor * self.scores / self.sampler.tau
            weight = softmax(score, edge_index[1], num_nodes=x.size(0))

        def neighbours(h: Tensor) -> Tensor:
            return weighted_sum(h, edge_index, weight, x.size(0))

        return neighbours

    def loss(self, x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
        """Compute the loss of the labels plus the consistency loss of two passes."""
        outs = [self(x), self(x)]
        labels = [F.cross_entropy(out[mask], y[mask]) for out in outs]
        weight = self.weight * min(1.0, self.num_steps / self.warm_up)
        self.num_steps += 1
        agreement = consistency_loss(outs, self.temperature)
        return torch.stack(labels).mean() + weight * agreement
