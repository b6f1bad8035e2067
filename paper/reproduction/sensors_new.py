"""Forecast sensors that a network has not seen, from the windows of others."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from reproduction.sensors_data import (
    HORIZONS,
    WINDOW,
    Traffic,
    unit_rows,
)
from torch_geometric_gsl import (
    DistanceSimilarity,
    GumbelKNNSampler,
    LinearSimilarity,
    SensorGraphConv,
)
from torch_geometric_gsl.typing import SampledGraph

#: Number of held-out sensors.
HELD_OUT = 10
#: Neighbours and powers of the distance from which validation selects.
INVERSE = tuple((k, power) for k in (1, 3, 9, 32) for power in (1.0, 2.0))
#: Miles per degree to the north, and to the east at the latitude of Los Angeles.
MILES = 69.0, 57.3


class NewSensors(torch.nn.Module):
    """Network that forecasts targets only from the windows of sources.

    The training series of a target is known as context: its mean, its deviation, and
    its similarity to the sources. Its later readings are not known, and no weight of
    the network belongs to one sensor.
    """

    def __init__(
        self, kind: str, traffic: Traffic, sources: Tensor, setting: dict[str, Any]
    ) -> None:
        super().__init__()
        self.kind, self.traffic, self.sources = kind, traffic, sources
        self.candidates = min(setting['candidates'], len(sources) - 1)
        hidden = setting['hidden_channels']
        size = hidden, hidden
        self.first = torch.nn.Linear(WINDOW + 2, hidden)
        self.time = torch.nn.Linear(2, hidden)
        self.conv = SensorGraphConv(*size)
        self.last = torch.nn.Linear(hidden, len(HORIZONS))
        self.dropout = setting['dropout']
        self.rows = [unit_rows(rows) for rows in traffic.lagged(setting['lag'])]
        self.miles = (traffic.data['pos'] * torch.tensor(MILES)).float()
        similarity: Any = LinearSimilarity(self.rows[0].size(1))
        if kind == 'place':
            similarity = DistanceSimilarity(2)
        self.sampler = None
        self.inverse = choose_inverse(traffic, sources)
        if kind != 'inverse distance':
            scale = 1.0 if kind == 'place' else setting['scale']
            self.sampler = GumbelKNNSampler.paper(
                similarity, setting['draws'], 1.0, scale, train_scale=True
            )

    def graph(self, targets: Tensor) -> SampledGraph:
        """Return the edges from sources to targets, without self-loops."""
        if self.sampler is None:
            return inverse_distance(self.traffic, self.sources, targets, *self.inverse)
        score = -torch.cdist(self.miles[targets], self.miles[self.sources])
        if self.kind == 'lagged series':
            score = self.rows[1][targets] @ self.rows[0][self.sources].t()
        edge_index = nearest_others(score, self.sources, targets, self.candidates)
        rows = self.rows if self.kind == 'lagged series' else [self.miles] * 2
        pair = rows[0][self.sources], rows[1][targets]
        self.sampler.eval()  # Noise-free weights: there are only few sensors.
        graph: SampledGraph = self.sampler(pair, edge_index=edge_index)
        return graph

    def forward(self, step: Tensor, targets: Tensor) -> Tensor:
        window, time = self.traffic.windows(step)
        time = time.unsqueeze(1)
        window = window[:, self.sources]
        told = torch.cat([window, time.expand(*window.shape[:2], -1)], dim=2)
        h = F.dropout(self.first(told).relu(), self.dropout, self.training)
        own = self.time(time).relu().expand(-1, len(targets), -1)
        h = self.conv((h, own), graph=self.graph(targets)).relu()
        out = self.last(F.dropout(h, self.dropout, self.training))
        std, mean = self.traffic.std[targets], self.traffic.mean[targets]
        speed: Tensor = out * std.unsqueeze(1) + mean.unsqueeze(1)
        return speed


def nearest_others(score: Tensor, sources: Tensor, targets: Tensor, k: int) -> Tensor:
    """Connect each target to its k sources of largest score, without self-loops."""
    is_same = targets.unsqueeze(1) == sources
    k = min(k, len(sources) - 1)
    source = score.masked_fill(is_same, -torch.inf).topk(k, dim=1).indices
    source = source.sort(dim=1).values
    target = torch.arange(len(targets)).repeat_interleave(k)
    return torch.stack([source.flatten(), target])


def inverse_distance(
    traffic: Traffic, sources: Tensor, targets: Tensor, k: int, power: float
) -> SampledGraph:
    """Weight the nearest sources of each target by a power of inverse distance."""
    miles = (traffic.data['pos'] * torch.tensor(MILES)).float()
    distance = torch.cdist(miles[targets], miles[sources])
    edge_index = nearest_others(-distance, sources, targets, k)
    source, target = edge_index
    weight = distance[target, source].clamp(min=0.01) ** -power
    total = torch.zeros(len(targets)).index_add_(0, target, weight)
    return SampledGraph(edge_index, weight / total[target])


def last_values(
    traffic: Traffic,
    step: Tensor,
    sources: Tensor,
    targets: Tensor,
    k: int,
    power: float,
) -> Tensor:
    """Average the last speeds of the nearest sources, by inverse distance."""
    (source, target), weight = inverse_distance(traffic, sources, targets, k, power)
    speed = traffic.speed[step][:, sources[source]] * weight
    mixed = torch.zeros(len(step), len(targets)).index_add_(1, target, speed)
    return mixed.unsqueeze(2).expand(-1, -1, len(HORIZONS))


def choose_inverse(traffic: Traffic, sources: Tensor) -> tuple[int, float]:
    """Return the number of neighbours and the power that predict each source best from
    the others in validation.
    """
    target = traffic.targets(traffic.val)[:, sources]

    def error(choice: tuple[int, float]) -> float:
        speed = last_values(traffic, traffic.val, sources, sources, *choice)
        return float((speed - target).square().mean())

    return min(INVERSE, key=error)
