"""What stands for a sensor where sensors are compared."""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor
from torch_geometric.nn import Linear

from torch_geometric_gsl._checks import (
    check_absent,
    check_count,
    check_features,
    check_one_type,
    check_option,
    check_parameter_match,
    check_type,
    split_pair,
)
from torch_geometric_gsl.typing import Features

#: What a similarity may compare.
COMPARED = ('free', 'embedding', 'windows')


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
    r"""The embeddings of sensors: free vectors, given ones, or reduced windows.

    Args:
        compare (str): Which of them, :obj:`"free"`, :obj:`"embedding"` or
            :obj:`"windows"`.
        in_channels (int): The number of channels of the windows.
        embedding_channels (int): The width of given embeddings, and of the hidden layer
            of the reduction.
        out_channels (int): The width of the result.
        num_sensors (int, optional): The number of sensors that have free vectors.
            (default: :obj:`None`)

    Example:
        >>> embed = SensorEmbedding('windows', 1, 4, 8)
        >>> embed(torch.randn(16, 20, 1)).shape
        torch.Size([20, 8])
    """

    def __init__(
        self,
        compare: str,
        in_channels: int,
        embedding_channels: int,
        out_channels: int,
        num_sensors: int | None = None,
    ) -> None:
        super().__init__()
        check_option(compare, COMPARED, 'compare')
        self.compare = compare
        self.weight: torch.nn.Parameter | None = None
        self.lin_window: Linear | None = None
        self.lin: Linear | None = None
        if compare == 'free':
            check_count(num_sensors, 'num_sensors')
            size = cast(int, num_sensors), out_channels
            self.weight = torch.nn.Parameter(torch.empty(size))
        else:
            check_absent(num_sensors, 'num_sensors', f'with compare={compare!r}')
            self.lin = Linear(embedding_channels, out_channels)
        if compare == 'windows':
            self.lin_window = Linear(in_channels, embedding_channels)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        r"""Reset all learnable parameters of the module."""
        if self.weight is not None:
            torch.nn.init.normal_(self.weight)
        for lin in (self.lin_window, self.lin):
            if lin is not None:
                lin.reset_parameters()

    def forward(
        self,
        x: Tensor | None = None,
        context: Tensor | None = None,
        embedding: Features | None = None,
    ) -> Features:
        r"""Return the embeddings of the sensors; with a context, a pair.

        Args:
            x (torch.Tensor, optional): The windows :math:`(*, n, F_{in})`.
                (default: :obj:`None`)
            context (torch.Tensor, optional): The windows of the sensors that are the
                neighbours of those. (default: :obj:`None`)
            embedding (torch.Tensor, optional): What is known of the sensors, a pair
                with that of their neighbours first. (default: :obj:`None`)
        """
        if self.compare != 'embedding':
            check_absent(embedding, 'embedding', f'with compare={self.compare!r}')
        if self.weight is not None:
            check_absent(
                context, 'context', "with compare='free': new sensors have no vector"
            )
            return self.weight
        if self.compare == 'windows':
            z = self._reduce(x, 'x')
            return z if context is None else (self._reduce(context, 'context'), z)
        if context is None and isinstance(embedding, Tensor | None):
            return self._project(embedding, x)
        of_context, of_x = split_pair(embedding, 'embedding')
        return self._project(of_context, context), self._project(of_x, x)

    def _reduce(self, x: Any, name: str) -> Tensor:
        """Return the mean over windows of a hidden layer, projected."""
        check_windows(x, name)
        lin, lin_window = cast(Linear, self.lin), cast(Linear, self.lin_window)
        rows = x.reshape(math.prod(x.shape[:-2]), *x.shape[-2:])
        check_features(rows.flatten(0, 1), name, lin_window.in_channels)
        check_parameter_match(x, lin_window.weight, name)
        # No windows, no mean: zeros, for there is nothing to answer either.
        mean = lin_window(rows).relu().sum(dim=0) / max(rows.size(0), 1)
        return cast(Tensor, lin(mean))

    def _project(self, embedding: Any, x: Tensor | None) -> Tensor:
        """Return the projection of what is known of sensors."""
        if embedding is None:
            raise ValueError("'embedding' must be given (got None)")
        lin = cast(Linear, self.lin)
        check_features(embedding, 'embedding', lin.in_channels)
        check_parameter_match(embedding, lin.weight, 'embedding')
        if x is not None and embedding.size(0) != x.size(-2):
            raise ValueError(
                f"'embedding' must have one row per sensor "
                f'(got {embedding.size(0)} for {x.size(-2)} sensors)'
            )
        return cast(Tensor, lin(embedding))
