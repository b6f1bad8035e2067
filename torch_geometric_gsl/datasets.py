"""Synthetic data sets with a latent graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch_geometric.data import Data, InMemoryDataset

from torch_geometric_gsl._checks import (
    at_least,
    check_count,
    check_number,
    check_option,
    check_positive,
    check_probability,
)

__all__ = ['CoupledSensors', 'HiddenRelation']

#: Couplings of a source to a target, all odd functions: values average zero.
COUPLINGS: dict[str, Callable[[Tensor], Tensor]] = {
    'linear': lambda x: x,
    'tanh': lambda x: (2 * x).tanh(),
    'sine': lambda x: (3 * x).sin(),
}
# The smallest number of burn-in steps.
_BURN_IN = 200


class HiddenRelation(InMemoryDataset):
    r"""Synthetic graphs with a latent relation between nodes and without edges.

    Nodes lie at angles :math:`\theta_i` on a circle. The feature of a node is the noisy
    value of a function there; its target is the mean of the function at a distance of
    :math:`\delta` on both sides:

    .. math::
        x_i = f(\theta_i) + \epsilon_i, \qquad
        y_i = \frac{1}{2} \left( f(\theta_i + \delta) + f(\theta_i - \delta) \right)

    Each graph has its own function, a random Fourier series of variance 1, so that
    neither its position nor its value predicts the target of a node: only the nodes at
    an angle of :math:`\delta` do. With several angles the target is the mean.

    Each graph has the positions :math:`(\cos \theta_i, \sin \theta_i)` as
    :obj:`pos`, the values as :obj:`x`, the targets as :obj:`y`, and the relation as
    :obj:`true_edge_index`: the pairs whose angles differ by :math:`\delta` up to
    :obj:`width`, symmetric and sorted by target; :obj:`true_edge_type` is the index of
    the angle. The data are drawn anew for each object, and never stored.

    Args:
        num_graphs (int, optional): The number of graphs. (default: :obj:`8`)
        num_nodes (int, optional): The number of nodes per graph. (default: :obj:`200`)
        delta (float or sequence, optional): The angle of the relation, or several, in
            degrees between 0 and 180. (default: :obj:`40.0`)
        width (float, optional): The largest deviation of a true edge from the angle,
            in degrees. (default: :obj:`10.0`)
        noise (float, optional): The standard deviation of the noise.
            (default: :obj:`0.3`)
        num_waves (int, optional): The largest frequency of the functions, in waves per
            circle. (default: :obj:`4`)
        seed (int, optional): The seed. (default: :obj:`0`)
        transform (callable, optional): Applied to a graph before every access.
            (default: :obj:`None`)

    Example:
        >>> HiddenRelation(delta=60)[0].y.shape
        torch.Size([200, 1])
    """

    def __init__(
        self,
        num_graphs: int = 8,
        num_nodes: int = 200,
        delta: float | Sequence[float] = 40.0,
        width: float = 10.0,
        noise: float = 0.3,
        num_waves: int = 4,
        seed: int = 0,
        transform: Callable[[Data], Data] | None = None,
    ) -> None:
        check_count(num_graphs, 'num_graphs')
        check_count(num_nodes, 'num_nodes')
        check_count(num_waves, 'num_waves')
        check_positive(width, 'width')
        at_least(0, noise, 'noise')
        check_count(seed, 'seed', 0)
        self.delta = tuple(delta) if isinstance(delta, tuple | list) else (delta,)
        for angle in self.delta:
            check_number(angle, 'delta')
        if not self.delta or not 0 <= min(self.delta) <= max(self.delta) <= 180:
            raise ValueError(f"'delta' must lie between 0 and 180 (got {delta})")
        super().__init__(None, transform)
        self.width = width
        self.noise = noise
        self.num_waves = num_waves
        generator = torch.Generator().manual_seed(seed)
        graphs = [self._draw(num_nodes, generator) for _ in range(num_graphs)]
        self.data, self.slices = self.collate(graphs)

    def _draw(self, num_nodes: int, generator: torch.Generator) -> Data:
        """Draw the nodes, the function and the related pairs of a graph."""
        angle = 2 * math.pi * torch.rand(num_nodes, generator=generator)
        weight = torch.randn(2, self.num_waves, generator=generator)
        noise = self.noise * torch.randn(num_nodes, generator=generator)
        shifts = [s * math.radians(delta) for delta in self.delta for s in (-1, 1)]
        shifted = [_fourier(angle + shift, weight) for shift in shifts]
        gap = (angle.unsqueeze(1) - angle).rad2deg().remainder(360)
        gap = torch.minimum(gap, 360 - gap)  # Of targets (rows) and sources.
        centre = gap.new_tensor(self.delta).view(-1, 1, 1)
        is_related = (gap - centre).abs() <= self.width
        is_related.diagonal(dim1=1, dim2=2).fill_(False)
        target, source, relation = is_related.permute(1, 2, 0).nonzero().unbind(1)
        return Data(
            x=(_fourier(angle, weight) + noise).unsqueeze(1),
            y=torch.stack(shifted).mean(dim=0).unsqueeze(1),
            pos=torch.stack([angle.cos(), angle.sin()], dim=1),
            true_edge_index=torch.stack([source, target]),
            true_edge_type=relation,
        )

    def __repr__(self) -> str:
        angles = ', '.join(f'{angle:g}' for angle in self.delta)
        return f'{self.__class__.__name__}({len(self)}, delta={angles})'


def _fourier(angle: Tensor, weight: Tensor) -> Tensor:
    """Evaluate a Fourier series with weights [2, waves], of mean variance 1."""
    phase = angle.unsqueeze(1) * torch.arange(1, weight.size(1) + 1)
    wave = torch.stack([phase.cos(), phase.sin()], dim=1)
    return (wave * weight).sum(dim=(1, 2)) / math.sqrt(weight.size(1))


class CoupledSensors(InMemoryDataset):
    r"""Time series of sensors coupled by a latent graph.

    The series follow a vector autoregression on a sparse directed random graph:

    .. math::
        x_i(t) = a \, x_i(t - 1) + \sum_{j \in \mathcal{S}_i} c_{ij} f \left( x_j(t -
        \ell_{ij}) \right) + \sigma \left( \epsilon_i(t) + \gamma_i d_{g(i)}(t) \right)

    where :math:`\mathcal{S}_i` are the sources of sensor :math:`i`, :math:`c_{ij} > 0`
    the couplings, which sum to :obj:`strength`, :math:`\ell_{ij}` their lags and
    :math:`\epsilon` the noise of each sensor. The function :math:`f` is the identity,
    :math:`\tanh(2 x)`, or :math:`\sin(3 x)`, which linear methods hardly detect.

    Sensors of a group :math:`g` share an unobserved driver :math:`d_g`, as neighbouring
    sensors share their weather: they correlate without a coupling. So correlations
    mislead: simultaneous ones, and also lagged ones if the driver has memory
    (:obj:`driver_persistence`).

    Each graph has its own couplings and series. It has the series as :obj:`x`, a row
    per sensor, the couplings as :obj:`true_edge_index`, sorted by target, with
    :obj:`true_edge_weight` :math:`c_{ij}` and :obj:`true_edge_lag`, and the groups as
    :obj:`group`. The data are drawn anew for each object, and never stored.

    Args:
        num_graphs (int, optional): The number of graphs. (default: :obj:`1`)
        num_sensors (int, optional): Number of sensors per graph. (default: :obj:`20`)
        num_steps (int, optional): The length of the series. (default: :obj:`3000`)
        num_sources (int, optional): The number of sources of each sensor.
            (default: :obj:`2`)
        coupling (str, optional): The function :math:`f`, :obj:`"linear"`,
            :obj:`"tanh"` or :obj:`"sine"`. (default: :obj:`"tanh"`)
        strength (float, optional): The sum of the couplings of each sensor.
            (default: :obj:`0.6`)
        persistence (float, optional): The autoregressive coefficient :math:`a`; its sum
            with :obj:`strength` must be less than 1, for stable series.
            (default: :obj:`0.3`)
        max_lag (int, optional): The largest lag; each coupling has a random lag.
            (default: :obj:`1`)
        noise (float, optional): The standard deviation :math:`\sigma` of the noise.
            (default: :obj:`0.5`)
        driver (float, optional): The mean of the loads :math:`\gamma_i` of the drivers,
            which deviate by at most half of it. (default: :obj:`1.0`)
        num_groups (int, optional): The number of groups. (default: :obj:`3`)
        driver_persistence (float, optional): The autocorrelation of a driver at lag 1.
            (default: :obj:`0.0`)
        seed (int, optional): The seed. (default: :obj:`0`)
        transform (callable, optional): Applied to a graph before every access.
            (default: :obj:`None`)

    Example:
        >>> dataset = CoupledSensors(num_steps=100)
        >>> dataset[0].x.shape
        torch.Size([20, 100])
        >>> x, y = dataset.windows(4)
        >>> x.shape, y.shape
        (torch.Size([96, 4, 20, 1]), torch.Size([96, 1, 20, 1]))
    """

    def __init__(
        self,
        num_graphs: int = 1,
        num_sensors: int = 20,
        num_steps: int = 3000,
        num_sources: int = 2,
        coupling: str = 'tanh',
        strength: float = 0.6,
        persistence: float = 0.3,
        max_lag: int = 1,
        noise: float = 0.5,
        driver: float = 1.0,
        num_groups: int = 3,
        driver_persistence: float = 0.0,
        seed: int = 0,
        transform: Callable[[Data], Data] | None = None,
    ) -> None:
        counts = {'num_graphs': num_graphs, 'num_steps': num_steps, 'max_lag': max_lag}
        counts |= {'num_groups': num_groups, 'num_sources': num_sources}
        for name, count in counts.items():
            check_count(count, name)
        check_count(num_sensors, 'num_sensors', num_sources + 1)
        check_count(seed, 'seed', 0)
        check_option(coupling, COUPLINGS, 'coupling')
        at_least(0, noise, 'noise')
        at_least(0, driver, 'driver')
        check_probability(strength, 'strength')
        check_probability(persistence, 'persistence')
        check_probability(driver_persistence, 'driver_persistence')
        if strength + persistence >= 1:
            raise ValueError(
                f"'strength' and 'persistence' must sum to less than 1, or series "
                f'may diverge (got {strength} and {persistence})'
            )
        super().__init__(None, transform)
        self.num_sensors = num_sensors
        self.num_steps = num_steps
        self.num_sources = num_sources
        self.coupling = coupling
        self.strength = strength
        self.persistence = persistence
        self.max_lag = max_lag
        self.noise = noise
        self.driver = driver
        self.num_groups = num_groups
        self.driver_persistence = driver_persistence
        generator = torch.Generator().manual_seed(seed)
        graphs = [self._draw(generator) for _ in range(num_graphs)]
        self.data, self.slices = self.collate(graphs)

    def windows(
        self, window: int, horizon: int = 1, index: int = 0
    ) -> tuple[Tensor, Tensor]:
        r"""Cut the series of a graph into windows, with the steps after each.

        Args:
            window (int): The number of steps per window.
            horizon (int, optional): The number of steps to predict. (default: :obj:`1`)
            index (int, optional): The index of the graph. (default: :obj:`0`)

        Returns:
            tuple[torch.Tensor, torch.Tensor]: The windows, of shape [windows, time,
            sensors, 1], in order of time, and the steps after them, as views of the
            series.
        """
        check_count(window, 'window')
        check_count(horizon, 'horizon')
        if window + horizon > self.num_steps:
            raise ValueError(
                f"'window' and 'horizon' must fit into num_steps={self.num_steps} "
                f'(got {window} and {horizon})'
            )
        series: Tensor = self[index].x  # type: ignore[union-attr]
        cut = series.unfold(1, window + horizon, 1).permute(1, 2, 0).unsqueeze(-1)
        return cut[:, :window], cut[:, window:]

    def _draw(self, generator: torch.Generator) -> Data:
        """Draw the couplings and the series of a graph."""
        size = self.num_sensors, self.num_sources
        order = torch.rand(size[0], size[0], generator=generator)
        order.fill_diagonal_(2.0)  # A sensor is not its own source.
        source = order.argsort(dim=1)[:, : self.num_sources].sort(dim=1).values
        weight = 0.5 + torch.rand(size, generator=generator)
        weight = self.strength * weight / weight.sum(dim=1, keepdim=True)
        lag = torch.randint(1, self.max_lag + 1, size, generator=generator)
        group = torch.randint(self.num_groups, size[:1], generator=generator)
        burn_in = max(_BURN_IN, 20 * self.max_lag)
        shocks = self._shocks(self.num_steps + burn_in, group, generator)
        x = self._simulate(source, weight, lag, shocks)[burn_in:]
        target = torch.arange(size[0]).repeat_interleave(self.num_sources)
        return Data(
            x=x.t().contiguous(),
            group=group,
            true_edge_index=torch.stack([source.flatten(), target]),
            true_edge_weight=weight.flatten(),
            true_edge_lag=lag.flatten(),
        )

    def _shocks(self, steps: int, group: Tensor, generator: torch.Generator) -> Tensor:
        """Draw the noise and the drivers of each sensor, [steps, sensors]."""
        load = self.driver * (0.5 + torch.rand(self.num_sensors, generator=generator))
        noise = torch.randn(steps, self.num_sensors, generator=generator)
        driver = torch.randn(steps, self.num_groups, generator=generator)
        driver[1:] *= math.sqrt(1 - self.driver_persistence**2)
        for step in range(1, steps):
            driver[step] += self.driver_persistence * driver[step - 1]
        return self.noise * (noise + load * driver[:, group])

    def _simulate(
        self, source: Tensor, weight: Tensor, lag: Tensor, shocks: Tensor
    ) -> Tensor:
        """Simulate the autoregression from zeros."""
        x = torch.zeros_like(shocks)
        act = COUPLINGS[self.coupling]
        x[: self.max_lag] = shocks[: self.max_lag]
        for step in range(self.max_lag, x.size(0)):
            received = (weight * act(x[step - lag, source])).sum(dim=1)
            x[step] = self.persistence * x[step - 1] + received + shocks[step]
        return x

    def __repr__(self) -> str:
        return (
            f'{self.__class__.__name__}({len(self)}, num_sensors={self.num_sensors}, '
            f'coupling={self.coupling!r})'
        )
