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
    check_positive,
)


class HiddenRelation(InMemoryDataset):
    r"""Graphs whose edges are withheld, and whose targets cannot be told without them.

    Nodes lie at angles :math:`\theta_i` of a circle. Each sees the noisy value of a
    function there, and is to tell the mean of the function at an angle of
    :math:`\delta` to both sides:

    .. math::
        x_i = f(\theta_i) + \epsilon_i, \qquad
        y_i = \frac{1}{2} \left( f(\theta_i + \delta) + f(\theta_i - \delta) \right)

    Each graph has a function of its own, a random Fourier series of variance 1, so
    that neither the position nor the value of a node tells its target: only nodes
    related to it do, whose positions have a cosine of :math:`\cos \delta` with its own.
    Of several angles :math:`\delta` the target is the mean.

    Each graph holds the positions :math:`(\cos \theta_i, \sin \theta_i)` as
    :obj:`pos`, the values as :obj:`x`, the targets as :obj:`y`, and the relation as
    :obj:`true_edge_index`: the pairs whose angles differ by :math:`\delta` up to
    :obj:`width`, sources in the first row. It is symmetric and sorted by target;
    :obj:`true_edge_type` counts the angles. The data are made up anew for each object,
    and never stored.

    Args:
        num_graphs (int, optional): The number of graphs. (default: :obj:`8`)
        num_nodes (int, optional): The number of nodes of each. (default: :obj:`200`)
        delta (float or sequence, optional): The angle of the relation, or several, in
            degrees between 0 and 180. (default: :obj:`40.0`)
        width (float, optional): How far the angle of a true edge may be off, in
            degrees. (default: :obj:`10.0`)
        noise (float, optional): The standard deviation of the noise.
            (default: :obj:`0.3`)
        num_waves (int, optional): The largest frequency of the functions, in waves a
            circle. (default: :obj:`4`)
        seed (int, optional): The seed. (default: :obj:`0`)
        transform (callable, optional): Applied to a graph before every access.
            (default: :obj:`None`)

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range, such as :obj:`delta > 180`.

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
        self.delta = _check_angles(delta)
        super().__init__(None, transform)
        self.width, self.noise, self.num_waves = width, noise, num_waves
        generator = torch.Generator().manual_seed(seed)
        graphs = [self._draw(num_nodes, generator) for _ in range(num_graphs)]
        self.data, self.slices = self.collate(graphs)

    def _draw(self, num_nodes: int, generator: torch.Generator) -> Data:
        """Draw the nodes and the function of a graph."""
        angle = 2 * math.pi * torch.rand(num_nodes, generator=generator)
        weight = torch.randn(2, self.num_waves, generator=generator)
        noise = self.noise * torch.randn(num_nodes, generator=generator)
        radians = [math.radians(delta) for delta in self.delta]
        shifted = [
            _fourier(angle + sign * delta, weight)
            for delta in radians
            for sign in (-1, 1)
        ]
        edge_index, edge_type = self._relation(angle)
        return Data(
            x=(_fourier(angle, weight) + noise).unsqueeze(1),
            y=torch.stack(shifted).mean(dim=0).unsqueeze(1),
            pos=torch.stack([angle.cos(), angle.sin()], dim=1),
            true_edge_index=edge_index,
            true_edge_type=edge_type,
        )

    def _relation(self, angle: Tensor) -> tuple[Tensor, Tensor]:
        """Return the pairs of nodes that are related, and by which angle."""
        gap = (angle.unsqueeze(1) - angle).rad2deg().remainder(360)
        gap = torch.minimum(gap, 360 - gap)  # Of targets (rows) and sources.
        centre = gap.new_tensor(self.delta).view(-1, 1, 1)
        is_related = (gap - centre).abs() <= self.width
        is_related.diagonal(dim1=1, dim2=2).fill_(False)
        target, source, kind = is_related.permute(1, 2, 0).nonzero().unbind(1)
        return torch.stack([source, target]), kind

    def __repr__(self) -> str:
        angles = ', '.join(f'{angle:g}' for angle in self.delta)
        return f'{self.__class__.__name__}({len(self)}, delta={angles})'


def _check_angles(delta: float | Sequence[float]) -> tuple[float, ...]:
    angles = tuple(delta) if isinstance(delta, tuple | list) else (delta,)
    if not angles:
        raise ValueError(f"'delta' must hold an angle (got {delta})")
    for angle in angles:
        check_number(angle, 'delta')
        if not 0 <= angle <= 180:
            raise ValueError(f"'delta' must lie between 0 and 180 (got {angle})")
    return angles


def _fourier(angle: Tensor, weight: Tensor) -> Tensor:
    """Return a series of as many waves as weights [2, F], of variance 1 in the mean."""
    phase = angle.unsqueeze(1) * torch.arange(1, weight.size(1) + 1)
    wave = torch.stack([phase.cos(), phase.sin()], dim=1)
    value: Tensor = (wave * weight).sum(dim=(1, 2)) / math.sqrt(weight.size(1))
    return value
