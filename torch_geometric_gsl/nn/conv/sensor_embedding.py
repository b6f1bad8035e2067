"""Embeddings of sensors."""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor
from torch_geometric.nn import Linear

from torch_geometric_gsl._checks import (
    as_pair,
    check_absent,
    check_count,
    check_features,
    check_one_type,
    check_parameter_match,
    check_type,
)
from torch_geometric_gsl.typing import Features


def check_windows(x: Any, name: str, num_sensors: int | None = None) -> None:
    """Raise unless :obj:`x` holds windows of as many sensors."""
    check_one_type(x)
    check_type(x, Tensor, name, 'a torch.Tensor')
    if x.layout != torch.strided or x.dim() < 2:
        raise ValueError(
            f"'{name}' must be dense, of shape [*, num_sensors, channels] "
            f'(got {list(x.shape)}, {x.layout})'
        )
    if num_sensors is not None and x.size(-2) != num_sensors:
        raise ValueError(
            f"'{name}' must have num_sensors={num_sensors} sensors (got {x.size(-2)})"
        )


class SensorEmbedding(torch.nn.Module):
    r"""Embed sensors by free vectors, projected rows, or reduced windows.

    Example:
        >>> embed = SensorEmbedding(1, 4, 8)
        >>> embed(torch.randn(16, 20, 1)).shape
        torch.Size([20, 8])
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        num_sensors: int | None = None,
        z_channels: int | None = None,
    ) -> None:
        super().__init__()
        self.z_channels = z_channels
        self.weight: torch.nn.Parameter | None = None
        self.lin_window: Linear | None = None
        self.lin: Linear | None = None
        if num_sensors is not None:
            check_count(num_sensors, 'num_sensors')
            check_absent(z_channels, 'z_channels', "beside 'num_sensors'")
            size = num_sensors, out_channels
            self.weight = torch.nn.Parameter(torch.empty(size))
        elif z_channels is not None:
            check_count(z_channels, 'z_channels')
            self.lin = Linear(z_channels, out_channels)
        else:
            self.lin_window = Linear(in_channels, hidden_channels)
            self.lin = Linear(hidden_channels, out_channels)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        r"""Reset all learnable parameters of the module."""
        if self.weight is not None:
            torch.nn.init.normal_(self.weight)
        for lin in (self.lin_window, self.lin):
            if lin is not None:
                lin.reset_parameters()

    def forward(self, x: Features | None = None, z: Features | None = None) -> Features:
        r"""Return the embeddings of sensors, given windows or rows; of a pair a pair.

        Args:
            x (torch.Tensor or tuple[torch.Tensor, torch.Tensor], optional): The windows
                :math:`(*, n, F_{in})`. (default: :obj:`None`)
            z (torch.Tensor or tuple[torch.Tensor, torch.Tensor], optional): The rows
                :math:`(n, F_z)`. (default: :obj:`None`)
        """
        if self.z_channels is None and z is not None:
            raise ValueError("'z' needs a layer with 'z_channels' (got None)")
        if self.weight is not None:
            if isinstance(x, tuple | list):
                raise TypeError(
                    "'x' must be a torch.Tensor where each sensor has a vector: others "
                    'have none (got a pair)'
                )
            return self.weight
        is_pair = isinstance(z if x is None else x, tuple | list)
        if z is not None and isinstance(z, tuple | list) != is_pair:
            what = 'a pair' if is_pair else 'a tensor'
            raise TypeError(f"'z' must be {what} like 'x' (got a {type(z).__name__})")
        embed = self._reduce if self.z_channels is None else self._project
        (x_src, x_dst), (z_src, z_dst) = as_pair(x), as_pair(z, 'z')
        if not is_pair:
            return embed(x_src, z_src, 'x')
        return embed(x_src, z_src, 'x_src'), embed(x_dst, z_dst, 'x_dst')

    def _reduce(self, x: Any, z: None, name: str) -> Tensor:
        """Return the mean over windows of a hidden layer, projected."""
        check_windows(x, name)
        lin, lin_window = cast(Linear, self.lin), cast(Linear, self.lin_window)
        rows = x.reshape(math.prod(x.shape[:-2]), *x.shape[-2:])
        check_features(rows.flatten(0, 1), name, lin_window.in_channels)
        check_parameter_match(x, lin_window.weight, name)
        # The mean of no windows is zero.
        mean = lin_window(rows).relu().sum(dim=0) / max(rows.size(0), 1)
        return cast(Tensor, lin(mean))

    def _project(self, x: Any, z: Any, name: str) -> Tensor:
        """Return the projection of the rows of sensors."""
        lin = cast(Linear, self.lin)
        check_features(z, 'z', lin.in_channels)
        check_parameter_match(z, lin.weight, 'z')
        if x is not None and z.size(0) != x.size(-2):
            raise ValueError(
                f"'z' must have one row per sensor "
                f'(got {z.size(0)} for {x.size(-2)} sensors)'
            )
        return cast(Tensor, lin(z))
