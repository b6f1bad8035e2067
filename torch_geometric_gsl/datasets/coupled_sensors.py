from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch_geometric.data import Data, InMemoryDataset

from torch_geometric_gsl._checks import (
    at_least,
    check_count,
    check_option,
    check_probability,
)

#: How a source acts on a target, all odd functions, so that values average zero.
COUPLINGS: dict[str, Callable[[Tensor], Tensor]] = {
    'linear': lambda x: x,
    'tanh': lambda x: (2 * x).tanh(),
    'sine': lambda x: (3 * x).sin(),
}
# The least number of steps until the start is forgotten.
_BURN_IN = 200


class CoupledSensors(InMemoryDataset):
    r"""Time series of sensors that act on each other along a graph, which is withheld.

    The series are those of a vector autoregression on a sparse directed random graph:

    .. math::
        x_i(t) = a \, x_i(t - 1) + \sum_{j \in \mathcal{S}_i} c_{ij} f \left( x_j(t -
        \ell_{ij}) \right) + \sigma \left( \epsilon_i(t) + \gamma_i d_{g(i)}(t) \right)

    where :math:`\mathcal{S}_i` are the sources of sensor :math:`i`, :math:`c_{ij} > 0`
    the couplings, whose sum is :obj:`strength`, :math:`\ell_{ij}` their lags and
    :math:`\epsilon` the noise of each sensor. The function :math:`f` is the identity,
    :math:`\tanh(2 x)`, or :math:`\sin(3 x)`, which linear methods hardly see. For
    :math:`a` and :obj:`strength` below 1 in sum the series are stable.

    Sensors of a group :math:`g` have a driver :math:`d_g` in common, which nobody
    measures, as neighbouring sensors have their weather: they move together without
    acting on each other. So correlations mislead, at the same time if the driver has no
    memory, and across times if it has one (:obj:`driver_persistence`): then the past of
    one sensor of a group does foretell the others, a little, without a coupling.

    Each graph has couplings and series of its own. It holds the series as :obj:`x`, a
    row for each sensor, the couplings as :obj:`true_edge_index`, sources in the first
    row, sorted by target, with :obj:`true_edge_weight` :math:`c_{ij}` and
    :obj:`true_edge_lag`, and the groups as :obj:`group`. :meth:`windows` cuts the
    series into windows and what follows them. The data are made up anew for each
    object, and never stored.

    Args:
        num_graphs (int, optional): The number of graphs. (default: :obj:`1`)
        num_sensors (int, optional): The number of sensors of each.
            (default: :obj:`20`)
        num_steps (int, optional): The length of the series. (default: :obj:`3000`)
        num_sources (int, optional): The number of sources of each sensor.
            (default: :obj:`2`)
        coupling (str, optional): The function :math:`f`, :obj:`"linear"`,
            :obj:`"tanh"` or :obj:`"sine"`. (default: :obj:`"tanh"`)
        strength (float, optional): The sum of the couplings of each sensor.
            (default: :obj:`0.6`)
        persistence (float, optional): The share :math:`a` of its last value that a
            sensor keeps. (default: :obj:`0.3`)
        max_lag (int, optional): The largest lag; each coupling has one at random.
            (default: :obj:`1`)
        noise (float, optional): The standard deviation :math:`\sigma` of the noise.
            (default: :obj:`0.5`)
        driver (float, optional): The mean of the loads :math:`\gamma_i` of the drivers,
            which lie within a half of it. (default: :obj:`1.0`)
        num_groups (int, optional): The number of groups. (default: :obj:`3`)
        driver_persistence (float, optional): The correlation of a driver with its last
            value. (default: :obj:`0.0`)
        seed (int, optional): The seed. (default: :obj:`0`)
        transform (callable, optional): Applied to a graph before every access.
            (default: :obj:`None`)

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range, or the series would not be stable.

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
        check_count(num_sensors, 'num_sensors', 2)
        check_count(seed, 'seed', 0)
        check_option(coupling, COUPLINGS, 'coupling')
        at_least(0, noise, 'noise')
        at_least(0, driver, 'driver')
        shares = {'strength': strength, 'persistence': persistence}
        for name, share in (
            shares | {'driver_persistence': driver_persistence}
        ).items():
            check_probability(share, name)
        if num_sources >= num_sensors:
            raise ValueError(
                f"'num_sources' must be less than num_sensors={num_sensors} "
                f'(got {num_sources})'
            )
        if strength + persistence >= 1:
            raise ValueError(
                f"'strength' and 'persistence' must be less than 1 in sum, or series "
                f'may grow without end (got {strength} and {persistence})'
            )
        super().__init__(None, transform)
        self.num_sensors, self.num_steps = num_sensors, num_steps
        self.num_sources, self.coupling = num_sources, coupling
        self.strength, self.persistence, self.max_lag = strength, persistence, max_lag
        self.noise, self.driver, self.num_groups = noise, driver, num_groups
        self.driver_persistence = driver_persistence
        generator = torch.Generator().manual_seed(seed)
        graphs = [self._draw(generator) for _ in range(num_graphs)]
        self.data, self.slices = self.collate(graphs)

    def windows(
        self, window: int, horizon: int = 1, index: int = 0
    ) -> tuple[Tensor, Tensor]:
        r"""Cut the series of a graph into windows, and what follows each.

        Args:
            window (int): The number of steps of a window.
            horizon (int, optional): The number of steps to foretell.
                (default: :obj:`1`)
            index (int, optional): Which graph. (default: :obj:`0`)

        Returns:
            tuple[torch.Tensor, torch.Tensor]: The windows, of the shape [windows, time,
            sensors, 1], in the order of time, and what follows them. They are views of
            the series, of which nothing is copied.

        Raises:
            TypeError: If an argument has the wrong type.
            ValueError: If the series are shorter than a window and what follows.
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
        order.fill_diagonal_(2.0)  # A sensor is no source of its own.
        source = order.argsort(dim=1)[:, : self.num_sources].sort(dim=1).values
        weight = 0.5 + torch.rand(size, generator=generator)
        weight = self.strength * weight / weight.sum(dim=1, keepdim=True)
        lag = torch.randint(1, self.max_lag + 1, size, generator=generator)
        group = torch.randint(self.num_groups, size[:1], generator=generator)
        shocks = self._shocks(group, generator)
        x = self._simulate(source, weight, lag, shocks)
        target = torch.arange(size[0]).repeat_interleave(self.num_sources)
        return Data(
            x=x.t().contiguous(),
            group=group,
            true_edge_index=torch.stack([source.flatten(), target]),
            true_edge_weight=weight.flatten(),
            true_edge_lag=lag.flatten(),
        )

    @property
    def _burn_in(self) -> int:
        """Return how many steps pass before the first one that is kept."""
        return max(_BURN_IN, 20 * self.max_lag)

    def _shocks(self, group: Tensor, generator: torch.Generator) -> Tensor:
        """Draw what each sensor receives from outside, [steps, sensors]."""
        steps = self.num_steps + self._burn_in
        load = self.driver * (0.5 + torch.rand(self.num_sensors, generator=generator))
        own = torch.randn(steps, self.num_sensors, generator=generator)
        driver = torch.randn(steps, self.num_groups, generator=generator)
        kept = self.driver_persistence
        driver[1:] *= math.sqrt(1 - kept**2)
        for step in range(1, steps):
            driver[step] += kept * driver[step - 1]
        return self.noise * (own + load * driver[:, group])

    def _simulate(
        self, source: Tensor, weight: Tensor, lag: Tensor, shocks: Tensor
    ) -> Tensor:
        """Run the autoregression from zeros, and drop its beginning."""
        x, act = torch.zeros_like(shocks), COUPLINGS[self.coupling]
        x[: self.max_lag] = shocks[: self.max_lag]
        for step in range(self.max_lag, x.size(0)):
            received = (weight * act(x[step - lag, source])).sum(dim=1)
            x[step] = self.persistence * x[step - 1] + received + shocks[step]
        return x[self._burn_in :]

    def __repr__(self) -> str:
        return (
            f'{self.__class__.__name__}({len(self)}, num_sensors={self.num_sensors}, '
            f'coupling={self.coupling!r})'
        )
