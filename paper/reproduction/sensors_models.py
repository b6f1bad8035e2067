"""A small forecaster of sensors, on fixed or learned graphs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from reproduction.sensors_data import (
    HORIZONS,
    NEAREST,
    WINDOW,
    Traffic,
    errors,
    lagged_correlation,
    largest,
    road,
    unit_rows,
)
from torch_geometric_gsl import GumbelKNNSampler, LinearSimilarity, SensorGraphConv
from torch_geometric_gsl.typing import SampledGraph

#: Every number that results depend on.
SETTING: dict[str, Any] = {
    'hidden_channels': 64,
    'embedding_channels': 16,
    'dropout': 0.2,
    'lr': 3e-3,
    'weight_decay': 1e-4,
    'batch_size': 64,
    'epochs': 60,
    'patience': 12,
    # Below this error, in miles an hour, the loss is quadratic.
    'beta': 3.0,
    # Candidates per new sensor, and the lag at which series are compared.
    'candidates': 32,
    'lag': 12,
    'scale': 10.0,
    'draws': 4,
    'revision': 1,
}


#: Forecasters with two convolutions, and their graphs.
SEVERAL = {
    'both': ['road', 'lagged series'],
    'both, fixed': ['road', 'lagged nearest'],
}


class LaggedGraph(torch.nn.Module):
    """A graph by the cosine of lagged series, with a learned scale."""

    def __init__(
        self, traffic: Traffic, setting: dict[str, Any], is_drawn: bool = False
    ) -> None:
        super().__init__()
        self.is_drawn = is_drawn
        source, target = traffic.lagged(setting['lag'])
        score = lagged_correlation(traffic, setting['lag'])
        candidates = largest(score, len(score) - 1)  # All but the sensor itself.
        self.register_buffer('source', unit_rows(source), persistent=False)
        self.register_buffer('target', unit_rows(target), persistent=False)
        self.register_buffer('edges', candidates.edge_index, persistent=False)
        similarity = LinearSimilarity(source.size(1))
        self.sampler = GumbelKNNSampler.paper(
            similarity, setting['draws'], 1.0, setting['scale'], train_scale=True
        )

    def forward(self) -> SampledGraph:
        self.sampler.train(self.is_drawn and self.training)
        graph: SampledGraph
        graph = self.sampler((self.source, self.target), edge_index=self.edges)
        return graph


class Forecaster(torch.nn.Module):
    """Network that forecasts from the windows of a sensor and of its neighbours."""

    def __init__(self, kind: str, traffic: Traffic, setting: dict[str, Any]) -> None:
        super().__init__()
        self.kind, self.traffic = kind, traffic
        n, hidden = len(traffic.mean), setting['hidden_channels']
        own = setting['embedding_channels']
        self.embedding = torch.nn.Parameter(0.1 * torch.randn(n, own))
        self.dropout = setting['dropout']
        self.first = torch.nn.Linear(WINDOW + own + 2, hidden)
        size = hidden, hidden
        kinds = SEVERAL.get(kind, [kind])
        self.convs = torch.nn.ModuleList()
        for one in kinds:
            options: dict[str, Any] = {}
            if one == 'free vectors':
                options = {'num_sensors': n, 'k': setting['draws']}
            self.convs.append(SensorGraphConv(*size, **options))
        self.attention = torch.nn.Linear(hidden, 2 * hidden)
        self.lagged = None
        if kind in ('lagged series', 'lagged draws', 'both'):
            self.lagged = LaggedGraph(traffic, setting, kind == 'lagged draws')
        self.fixed = {one: fixed_graph(one, traffic) for one in kinds}
        self.last = torch.nn.Linear(hidden, len(HORIZONS))
        self.skip = torch.nn.Linear(WINDOW, len(HORIZONS))

    def graphs(self) -> list[SampledGraph]:
        """Return the graph of each convolution, sampled in training."""
        found = []
        for kind, conv in zip(self.fixed, self.convs, strict=True):
            if kind == 'free vectors':
                found.append(conv.graph())  # type: ignore[operator]
            elif kind.startswith('lagged') and self.lagged is not None:
                found.append(self.lagged())
            else:
                found.append(self.fixed[kind])
        return found

    def forward(self, step: Tensor, targets: Tensor) -> Tensor:
        """Forecast all sensors, which are the targets."""
        window, time = self.traffic.windows(step)
        size = *window.shape[:2], -1
        told = self.embedding.expand(size), time.unsqueeze(1).expand(size)
        h = self.first(torch.cat([window, *told], dim=2)).relu()
        h = F.dropout(h, self.dropout, self.training)
        parts = [
            self._attend(conv, h) if self.kind == 'attention' else conv(h, graph=graph)
            for conv, graph in zip(self.convs, self.graphs(), strict=True)
        ]
        h = h + torch.stack(parts).sum(dim=0).relu()
        out = self.last(F.dropout(h, self.dropout, self.training)) + self.skip(window)
        speed: Tensor = out * self.traffic.std[:, None] + self.traffic.mean[:, None]
        return speed

    def _attend(self, conv: Any, h: Tensor) -> Tensor:
        """Sum over all sensors, with attention weights for each window."""
        query, key = self.attention(h).chunk(2, dim=2)
        score = query @ key.transpose(1, 2) / h.size(2) ** 0.5
        near: Tensor = score.softmax(dim=2) @ conv.lin(h)
        out: Tensor = near + conv.lin_root(h) + conv.bias
        return out


def fixed_graph(kind: str, traffic: Traffic) -> SampledGraph:
    """Return a fixed graph; one without edges if the kind is another."""
    n = len(traffic.mean)
    if kind == 'road':
        return road(traffic)
    if kind == 'lagged nearest':
        return largest(lagged_correlation(traffic, max(HORIZONS)), NEAREST)
    if kind == 'random':
        score = torch.rand(n, n, generator=torch.Generator().manual_seed(0))
        return largest(score, NEAREST)
    if kind == 'uniform':
        return largest(torch.zeros(n, n), n - 1)
    return SampledGraph(torch.empty(2, 0, dtype=torch.long), torch.empty(0))


def fit(
    model: torch.nn.Module,
    traffic: Traffic,
    steps: tuple[Tensor, Tensor, Tensor],
    sensors: list[Tensor],
    setting: dict[str, Any],
) -> dict[str, dict[str, list[float]]]:
    """Train on some sensors; return validation and test errors at the best epoch."""
    options = {'lr': setting['lr'], 'weight_decay': setting['weight_decay']}
    optimizer = torch.optim.AdamW(model.parameters(), **options)
    train, val, test = steps
    least, improved = float('inf'), 0
    best: dict[str, Tensor] = {}
    for epoch in range(setting['epochs']):
        model.train()
        for step in train[torch.randperm(len(train))].split(setting['batch_size']):
            optimizer.zero_grad()
            target = traffic.targets(step)[:, sensors[0]]
            speed = model(step, sensors[0])
            F.smooth_l1_loss(speed, target, beta=setting['beta']).backward()
            optimizer.step()
        total = sum(map(sum, evaluate(model, traffic, val, sensors[1]).values()))
        if total < least:
            least, improved = total, epoch
            best = {name: value.clone() for name, value in model.state_dict().items()}
        elif epoch - improved >= setting['patience']:
            break
    model.load_state_dict(best)
    return {
        'val': evaluate(model, traffic, val, sensors[1]),
        'test': evaluate(model, traffic, test, sensors[2]),
    }


@torch.no_grad()
def evaluate(
    model: torch.nn.Module, traffic: Traffic, step: Tensor, sensors: Tensor
) -> dict[str, list[float]]:
    """Return the errors of a network in evaluation mode."""
    speed = model.eval()(step, sensors)
    return errors(speed, traffic.targets(step)[:, sensors])
