"""Windows of traffic sensors, graphs that are fixed, and ridge regressions."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data

from reproduction.tables_data import data_folder
from torch_geometric_gsl.datasets import load_dataset
from torch_geometric_gsl.typing import SampledGraph

#: The steps of a window, and how many steps ahead of its end forecasts are.
WINDOW, HORIZONS = 12, (3, 6, 12)
#: The shares of time that are for training, and for training and validation.
SHARES = 0.7, 0.8
#: Steps of five minutes in a day.
DAY = 288
#: The neighbours of fixed graphs, and what validation chooses from for a ridge.
NEAREST, PENALTIES = 9, (10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)


class Traffic(NamedTuple):
    """The series of sensors, and their steps for training, validation and test.

    Args:
        speed: Miles an hour, [steps, sensors].
        scaled: The same, of zero mean and unit variance over the training steps.
        mean: The mean of each sensor.
        std: Its deviation.
        train: The last steps of windows whose forecasts end before validation.
        val: Those whose first forecast begins in the steps for validation.
        test: Those whose first forecast begins in the steps for the test.
        cut: The number of training steps.
        data: What the folder holds.
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
        """Return training series of sources, and those of targets some steps later."""
        rows = self.scaled[: self.cut].t().contiguous()
        return rows[:, :-lag], rows[:, lag:]


@functools.lru_cache(maxsize=1)
def load() -> Traffic:
    """Read the series of Los Angeles."""
    folder = data_folder() / 'traffic'
    if not folder.is_dir():
        raise OSError(f"'{folder}' was not found: let 'GSL_DATA' name its folder")
    return prepare(load_dataset(folder))


def prepare(data: Data) -> Traffic:
    """Divide series by time."""
    speed = data['x'].t().contiguous()
    cut, end = (int(len(speed) * share) for share in SHARES)
    std, mean = torch.std_mean(speed[:cut], dim=0)
    step = torch.arange(WINDOW - 1, len(speed) - max(HORIZONS))
    first, last = step + min(HORIZONS), step + max(HORIZONS)
    train, test = step[last < cut], step[first >= end]
    val = step[(first >= cut) & (last < end)]
    scaled = (speed - mean) / std
    return Traffic(speed, scaled, mean, std, train, val, test, cut, data)


def lagged_correlation(traffic: Traffic, lag: int) -> Tensor:
    """Return correlations, targets by sources some steps before them."""
    source, target = (unit_rows(rows) for rows in traffic.lagged(lag))
    score: Tensor = target @ source.t()
    return score


def unit_rows(rows: Tensor) -> Tensor:
    """Return series of zero mean and unit length."""
    rows = rows - rows.mean(dim=1, keepdim=True)
    unit: Tensor = rows / rows.norm(dim=1, keepdim=True)
    return unit


def largest(score: Tensor, k: int) -> SampledGraph:
    """Join each target to the sources of the largest scores, equally weighed."""
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


def ridge(traffic: Traffic, graph: SampledGraph | None) -> tuple[Tensor, Tensor]:
    """Forecast each sensor by a ridge on its window and those of its neighbours.

    Returns validation and test forecasts; of each sensor and horizon the penalty is
    that of the least validation error.
    """
    steps = traffic.train, traffic.val, traffic.test
    windows = [traffic.windows(step)[0].double() for step in steps]
    wanted = [(traffic.targets(step) - traffic.mean[:, None]) for step in steps]
    wanted = [(part / traffic.std[:, None]).double() for part in wanted]
    found = [torch.zeros_like(part) for part in wanted[1:]]
    for sensor in range(len(traffic.mean)):
        columns = [sensor]
        if graph is not None:
            source, target = graph.edge_index
            columns += source[target == sensor].tolist()
        fit, *rest = (part[:, columns].flatten(1) for part in windows)
        y, y_val, _ = (part[:, sensor] for part in wanted)
        least = torch.full((len(HORIZONS),), torch.inf, dtype=torch.double)
        gram, moment = fit.t() @ fit, fit.t() @ y
        for penalty in PENALTIES:
            weight = torch.linalg.solve(gram + penalty * torch.eye(len(gram)), moment)
            error = (rest[0] @ weight - y_val).square().mean(dim=0)
            for h in (error < least).nonzero().flatten():
                least[h] = error[h]
                for part, x in zip(found, rest, strict=True):
                    part[:, sensor, h] = x @ weight[:, h]
    std, mean = traffic.std[:, None], traffic.mean[:, None]
    val, test = ((part * std + mean).float() for part in found)
    return val, test


def errors(forecast: Tensor, target: Tensor) -> dict[str, list[float]]:
    """Return root mean squared and mean absolute errors of each horizon."""
    difference = (forecast - target).double()
    return {
        'rmse': difference.square().mean(dim=(0, 1)).sqrt().tolist(),
        'mae': difference.abs().mean(dim=(0, 1)).tolist(),
    }
