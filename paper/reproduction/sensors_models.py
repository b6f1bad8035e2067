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
from torch_geometric_gsl import (
    DistanceSimilarity,
    GumbelKNNSampler,
    LinearSimilarity,
    SensorGraphConv,
)
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

    def __init__(
        self, graph_name: str, traffic: Traffic, setting: dict[str, Any]
    ) -> None:
        super().__init__()
        self.graph_name = graph_name
        self.traffic = traffic
        n = len(traffic.mean)
        hidden = setting['hidden_channels']
        channels = setting['embedding_channels']
        self.embedding = torch.nn.Parameter(0.1 * torch.randn(n, channels))
        self.dropout = setting['dropout']
        self.first = torch.nn.Linear(WINDOW + channels + 2, hidden)
        names = SEVERAL.get(graph_name, [graph_name])
        self.convs = torch.nn.ModuleList()
        for name in names:
            options: dict[str, Any] = {}
            if name == 'free vectors':
                options = {'num_sensors': n, 'k': setting['draws']}
            self.convs.append(SensorGraphConv(hidden, hidden, **options))
        self.attention = torch.nn.Linear(hidden, 2 * hidden)
        self.lagged = None
        if graph_name in ('lagged series', 'lagged draws', 'both'):
            self.lagged = LaggedGraph(traffic, setting, graph_name == 'lagged draws')
        self.fixed = {name: fixed_graph(name, traffic) for name in names}
        self.last = torch.nn.Linear(hidden, len(HORIZONS))
        self.skip = torch.nn.Linear(WINDOW, len(HORIZONS))

    def graphs(self) -> list[SampledGraph]:
        """Return the graph of each convolution, sampled in training."""
        graphs = []
        for graph_name, conv in zip(self.fixed, self.convs, strict=True):
            if graph_name == 'free vectors':
                graphs.append(conv.graph())  # type: ignore[operator]
            elif graph_name.startswith('lagged') and self.lagged is not None:
                graphs.append(self.lagged())
            else:
                graphs.append(self.fixed[graph_name])
        return graphs

    def forward(self, step: Tensor, targets: Tensor) -> Tensor:
        """Forecast all sensors, which are the targets."""
        window, time = self.traffic.windows(step)
        size = *window.shape[:2], -1
        inputs = self.embedding.expand(size), time.unsqueeze(1).expand(size)
        h = self.first(torch.cat([window, *inputs], dim=2)).relu()
        h = F.dropout(h, self.dropout, self.training)
        messages = [
            self._attend(conv, h)
            if self.graph_name == 'attention'
            else conv(h, graph=graph)
            for conv, graph in zip(self.convs, self.graphs(), strict=True)
        ]
        h = h + torch.stack(messages).sum(dim=0).relu()
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


def fixed_graph(graph_name: str, traffic: Traffic) -> SampledGraph:
    """Return a fixed graph; one without edges if the kind is another."""
    n = len(traffic.mean)
    if graph_name == 'road':
        return road(traffic)
    if graph_name == 'lagged nearest':
        return largest(lagged_correlation(traffic, max(HORIZONS)), NEAREST)
    if graph_name == 'random':
        score = torch.rand(n, n, generator=torch.Generator().manual_seed(0))
        return largest(score, NEAREST)
    if graph_name == 'uniform':
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
    lowest = float('inf')
    improved = 0
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
        if total < lowest:
            lowest = total
            improved = epoch
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
        self,
        graph_name: str,
        traffic: Traffic,
        sources: Tensor,
        setting: dict[str, Any],
    ) -> None:
        super().__init__()
        self.graph_name = graph_name
        self.traffic = traffic
        self.sources = sources
        self.candidates = min(setting['candidates'], len(sources) - 1)
        hidden = setting['hidden_channels']
        self.first = torch.nn.Linear(WINDOW + 2, hidden)
        self.time = torch.nn.Linear(2, hidden)
        self.conv = SensorGraphConv(hidden, hidden)
        self.last = torch.nn.Linear(hidden, len(HORIZONS))
        self.dropout = setting['dropout']
        self.rows = [unit_rows(rows) for rows in traffic.lagged(setting['lag'])]
        self.miles = (traffic.data['pos'] * torch.tensor(MILES)).float()
        similarity: Any = LinearSimilarity(self.rows[0].size(1))
        if graph_name == 'place':
            similarity = DistanceSimilarity(2)
        self.sampler = None
        self.inverse = choose_inverse(traffic, sources)
        if graph_name != 'inverse distance':
            scale = 1.0 if graph_name == 'place' else setting['scale']
            self.sampler = GumbelKNNSampler.paper(
                similarity, setting['draws'], 1.0, scale, train_scale=True
            )

    def graph(self, targets: Tensor) -> SampledGraph:
        """Return the edges from sources to targets, without self-loops."""
        if self.sampler is None:
            return inverse_distance(self.traffic, self.sources, targets, *self.inverse)
        score = -torch.cdist(self.miles[targets], self.miles[self.sources])
        if self.graph_name == 'lagged series':
            score = self.rows[1][targets] @ self.rows[0][self.sources].t()
        edge_index = nearest_others(score, self.sources, targets, self.candidates)
        rows = self.rows if self.graph_name == 'lagged series' else [self.miles] * 2
        pair = rows[0][self.sources], rows[1][targets]
        self.sampler.eval()  # Noise-free weights: there are only few sensors.
        graph: SampledGraph = self.sampler(pair, edge_index=edge_index)
        return graph

    def forward(self, step: Tensor, targets: Tensor) -> Tensor:
        window, time = self.traffic.windows(step)
        time = time.unsqueeze(1)
        window = window[:, self.sources]
        readings = torch.cat([window, time.expand(*window.shape[:2], -1)], dim=2)
        h = F.dropout(self.first(readings).relu(), self.dropout, self.training)
        h_targets = self.time(time).relu().expand(-1, len(targets), -1)
        h = self.conv((h, h_targets), graph=self.graph(targets)).relu()
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
