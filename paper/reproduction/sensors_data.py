"""Windows of traffic sensors, fixed graphs, and ridge regressions."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import dense_to_sparse

from reproduction.tables_data import data_folder
from torch_geometric_gsl.typing import SampledGraph

#: Steps of a window.
WINDOW = 12
#: Steps from the end of a window to its forecasts.
HORIZONS = (3, 6, 12)
#: Fractions of time for training, and for training and validation together.
SHARES = 0.7, 0.8
#: Steps of five minutes in a day.
DAY = 288
#: Neighbours in fixed graphs.
NEAREST = 9
#: Ridge penalties from which validation selects.
PENALTIES = (10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4, 1e5)


class Traffic(NamedTuple):
    """The series of sensors, and their steps for training, validation and test.

    Args:
        speed: Miles an hour, [steps, sensors].
        scaled: The same, of zero mean and unit variance over the training steps.
        mean: The mean of each sensor.
        std: Its standard deviation.
        train: The last steps of windows whose forecasts end before validation.
        val: Those whose forecasts are in the steps for validation.
        test: Those whose forecasts are in the steps for the test.
        cut: The number of training steps.
        data: The content of the folder.
    """

    speed: Tensor
    scaled: Tensor
    mean: Tensor
    std: Tensor
    train: Tensor
    val: Tensor
    test: Tensor
    cut: int
    data: Data

    def windows(self, step: Tensor) -> tuple[Tensor, Tensor]:
        """Return windows [b, sensors, lags], the last step first, and time of day."""
        lags = step.unsqueeze(1) - torch.arange(WINDOW)
        angle = 2 * math.pi * (step % DAY) / DAY
        time = torch.stack([angle.sin(), angle.cos()], dim=1)
        return self.scaled[lags].transpose(1, 2), time

    def targets(self, step: Tensor) -> Tensor:
        """Return the speeds to forecast, [b, sensors, horizons]."""
        return self.speed[step.unsqueeze(1) + torch.tensor(HORIZONS)].transpose(1, 2)

    def lagged(self, lag: int) -> tuple[Tensor, Tensor]:
        """Return training series of sources, and those of targets `lag` steps later."""
        rows = self.scaled[: self.cut].t().contiguous()
        return rows[:, :-lag], rows[:, lag:]


@functools.lru_cache(maxsize=1)
def load() -> Traffic:
    """Read the series of Los Angeles."""
    folder = data_folder() / 'traffic'
    if not folder.is_dir():
        raise OSError(f"'{folder}' was not found: let 'GSL_DATA' name its folder")
    return prepare(read_folder(folder))


def read_folder(folder: Path) -> Data:
    """Read the series of sensors, their weighted road graph, and their places.

    A line of the weights has those of the edges that leave a sensor; loops are dropped.
    """
    lines = (folder / 'los_speed.csv').read_text(encoding='ascii').splitlines()
    series = np.loadtxt(lines[1:], delimiter=',')
    weight = torch.from_numpy(np.loadtxt(folder / 'los_adj.csv', delimiter=','))
    edge_index, edge_weight = dense_to_sparse(weight.float().fill_diagonal_(0))
    path = folder / 'metr_la_sensor_locations.csv'
    locations = np.loadtxt(path, delimiter=',', skiprows=1)
    location_of = {int(sensor): degrees for _, sensor, *degrees in locations.tolist()}
    sensors = [int(name) for name in lines[0].split(',')]
    return Data(
        x=torch.from_numpy(series).float().t().contiguous(),
        edge_index=edge_index,
        edge_weight=edge_weight,
        pos=torch.tensor(
            [location_of[sensor] for sensor in sensors], dtype=torch.float64
        ),
    )


def prepare(data: Data) -> Traffic:
    """Split series by time."""
    speed = data['x'].t().contiguous()
    cut, end = (int(len(speed) * share) for share in SHARES)
    std, mean = torch.std_mean(speed[:cut], dim=0)
    step = torch.arange(WINDOW - 1, len(speed) - max(HORIZONS))
    nearest, farthest = step + min(HORIZONS), step + max(HORIZONS)
    train, test = step[farthest < cut], step[nearest >= end]
    val = step[(nearest >= cut) & (farthest < end)]
    scaled = (speed - mean) / std
    return Traffic(speed, scaled, mean, std, train, val, test, cut, data)


def lagged_correlation(traffic: Traffic, lag: int) -> Tensor:
    """Return correlations [targets, sources]; sources are `lag` steps earlier."""
    source, target = (unit_rows(rows) for rows in traffic.lagged(lag))
    score: Tensor = target @ source.t()
    return score


def unit_rows(rows: Tensor) -> Tensor:
    """Return series of zero mean and unit length."""
    rows = rows - rows.mean(dim=1, keepdim=True)
    unit: Tensor = rows / rows.norm(dim=1, keepdim=True)
    return unit


def largest(score: Tensor, k: int) -> SampledGraph:
    """Connect each target to its k sources of largest score, with equal weights."""
    score = score.clone().fill_diagonal_(-torch.inf)
    source = score.topk(k, dim=1).indices.sort(dim=1).values
    target = torch.arange(len(score)).repeat_interleave(k)
    edge_index = torch.stack([source.flatten(), target])
    return SampledGraph(edge_index, torch.full((edge_index.size(1),), 1 / k))


def road(traffic: Traffic) -> SampledGraph:
    """Return the road graph, the weights of each sensor summing to one."""
    edge_index, weight = traffic.data['edge_index'], traffic.data['edge_weight']
    order = (edge_index[1] * len(traffic.mean) + edge_index[0]).argsort()
    edge_index, weight = edge_index[:, order], weight[order]
    total = torch.zeros(len(traffic.mean)).index_add_(0, edge_index[1], weight)
    return SampledGraph(edge_index, weight / total[edge_index[1]])


def plain_forecast(name: str, traffic: Traffic, step: Tensor) -> Tensor:
    """Forecast the last reading, or the training mean of the time of day."""
    if name == 'last reading':
        speed = traffic.speed[step].unsqueeze(2)
        return speed.expand(-1, -1, len(HORIZONS))
    hour = torch.arange(traffic.cut) % DAY
    near = (torch.arange(DAY).unsqueeze(1) - hour + DAY // 2) % DAY - DAY // 2
    weight = (near.abs() <= WINDOW // 2).float()
    weight = weight / weight.sum(dim=1, keepdim=True)
    profile = weight @ traffic.speed[: traffic.cut]
    ahead = (step.unsqueeze(1) + torch.tensor(HORIZONS)) % DAY
    return profile[ahead].transpose(1, 2)


def ridge(traffic: Traffic, graph: SampledGraph | None) -> tuple[Tensor, Tensor]:
    """Forecast each sensor by ridge regression on its window, those of its neighbours,
    and the time of day.

    Returns validation and test forecasts; each horizon has the penalty of the least
    validation error over all sensors.
    """
    steps = traffic.train, traffic.val, traffic.test
    windows = [traffic.windows(step) for step in steps]
    std, mean = traffic.std[:, None], traffic.mean[:, None]
    y = ((traffic.targets(traffic.train) - mean) / std).double()
    forecasts: list[list[Tensor]] = [
        [],
        [],
    ]  # [sensors] of [penalties, steps, horizons]
    for sensor in range(len(mean)):
        columns = [sensor]
        if graph is not None:
            source, target = graph.edge_index
            columns += source[target == sensor].tolist()
        fit, *held_out = (
            torch.cat([window[:, columns].flatten(1), time], dim=1).double()
            for window, time in windows
        )
        gram, moment = fit.t() @ fit, fit.t() @ y[:, sensor]
        penalty = torch.tensor(PENALTIES).double().view(-1, 1, 1)
        weight = torch.linalg.solve(gram + penalty * torch.eye(len(gram)), moment)
        for of_split, x in zip(forecasts, held_out, strict=True):
            of_split.append(x @ weight)
    val, test = (torch.stack(f, dim=2).float() * std + mean for f in forecasts)
    error = (val - traffic.targets(traffic.val)) / std
    best = error.square().mean(dim=(1, 2)).argmin(dim=0)
    every = torch.arange(len(HORIZONS))
    val, test = (speed.permute(0, 3, 1, 2)[best, every] for speed in (val, test))
    return val.permute(1, 2, 0), test.permute(1, 2, 0)


def errors(forecast: Tensor, target: Tensor) -> dict[str, list[float]]:
    """Return root mean squared and mean absolute errors of each horizon."""
    difference = (forecast - target).double()
    return {
        'rmse': difference.square().mean(dim=(0, 1)).sqrt().tolist(),
        'mae': difference.abs().mean(dim=(0, 1)).tolist(),
    }
