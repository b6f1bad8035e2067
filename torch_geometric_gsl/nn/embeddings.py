"""Embeddings of labels, of columns of tables, and of sensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.nn import Linear, inits

from torch_geometric_gsl._checks import (
    Ends,
    check_absent,
    check_count,
    check_features,
    check_one_type,
    check_parameter_match,
    check_type,
    check_value,
)
from torch_geometric_gsl.nn.linear import apply_linear
from torch_geometric_gsl.typing import Features


class LabelEmbedding(torch.nn.Module):
    r"""Map known labels to messages :math:`y_j W_y + b`, and unknown labels to zeros.

    Labels are classes :math:`(N)`, of which -1 is unknown, or numbers :math:`(N, F_y)`
    or :math:`(N)`, of which NaN is unknown.
    """

    def __init__(self, label_channels: int, out_channels: int) -> None:
        super().__init__()
        check_count(label_channels, 'label_channels')
        check_count(out_channels, 'out_channels')
        self.label_channels = label_channels
        self.lin = Linear(label_channels, out_channels)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        # Of order one for any number of classes: a row has one class.
        inits.uniform(1, self.lin.weight)
        inits.uniform(1, self.lin.bias)

    def forward(self, y: Tensor, num_rows: int | None = None) -> Tensor:
        """Compute the messages of labels; check their number if it is given."""
        return self.project(self.encode(y, num_rows))

    def encode(self, y: Tensor, num_rows: int | None = None) -> Tensor:
        """Return rows (label, 1), with one-hot classes; zeros where unknown."""
        if not isinstance(y, Tensor) or y.dtype == torch.bool or y.is_complex():
            type_name = getattr(y, 'dtype', type(y).__name__)
            raise TypeError(f"'y' must hold classes or numbers (got {type_name})")
        if num_rows is not None and y.shape[:1] != (num_rows,):
            raise ValueError(
                f"'y' must have one label for each of the {num_rows} sources "
                f'(got {list(y.shape)})'
            )
        width = self.label_channels
        has_columns = y.is_floating_point() and (y.dim() == 2 or width > 1)
        shape = [y.size(0), width] if has_columns else [y.numel()]
        if list(y.shape) != shape:
            raise ValueError(f"'y' must have shape {shape} (got {list(y.shape)})")
        if y.is_floating_point():
            values = y.view(-1, width)
            is_known = ~values.isnan().any(dim=1, keepdim=True)
            is_finite = ~values.isinf().any()
            check_value(is_finite, "'y' must be finite, or NaN where unknown")
            values = values.nan_to_num()
        else:
            check_value(
                ((y >= -1) & (y < width)).all(),
                f"'y' must hold classes in 0..{width - 1}, or -1 where unknown",
                got=lambda: '{}..{}'.format(*y.aminmax()),
            )
            values = F.one_hot(y.clamp(min=0).long(), width)
            is_known = (y >= 0).unsqueeze(1)
        code = torch.cat([values, is_known], dim=1) * is_known
        return code.to(self.lin.weight.dtype)

    def project(self, code: Tensor) -> Tensor:
        """Map rows of `encode`, or weighted sums of rows, to messages."""
        values, is_known = code[:, :-1], code[:, -1:]
        return F.linear(values, self.lin.weight) + is_known * self.lin.bias

    def __repr__(self) -> str:
        return f'{type(self).__name__}({self.label_channels}, {self.lin.out_channels})'


class ColumnEncoder(torch.nn.Module):
    r"""Map the columns of a table, and periodic embeddings of them, to hidden units.

    .. math::
        \mathbf{h}_i = \mathbf{W} \, [\mathbf{x}_i, \, \mathbf{U}_c
        [\cos(2 \pi \mathbf{f}_c x_{ic}), \sin(2 \pi \mathbf{f}_c x_{ic})]
        + \mathbf{b}_c \textrm{ of each column } c]

    with learned frequencies :math:`\mathbf{f}_c`. The arguments are those of
    :class:`~torch_geometric_gsl.nn.TableNet`; the outputs are its hidden units.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        num_frequencies: int = 8,
        periodic_columns: Sequence[int] | None = None,
        frequency_scale: float = 0.1,
        embedding_channels: int = 3,
    ) -> None:
        super().__init__()
        check_count(num_frequencies, 'num_frequencies', minimum=0)
        check_count(embedding_channels, 'embedding_channels')
        columns = range(in_channels) if periodic_columns is None else periodic_columns
        columns = list(columns)
        if not {*columns} <= {*range(in_channels)} or len({*columns}) < len(columns):
            raise ValueError(
                f"'periodic_columns' must hold distinct numbers of the {in_channels} "
                f'columns (got {columns})'
            )
        self.periodic_columns = columns if num_frequencies > 0 else []
        num_columns = len(self.periodic_columns)
        self.periodic: torch.nn.Module | None = None
        if num_columns > 0:
            try:
                from rtdl_num_embeddings import PeriodicEmbeddings
            except ImportError as error:
                raise ImportError(
                    "'num_frequencies' needs rtdl_num_embeddings: pip install "
                    "'rtdl_num_embeddings', or set num_frequencies=0"
                ) from error
            self.periodic = PeriodicEmbeddings(
                num_columns,
                embedding_channels,
                n_frequencies=num_frequencies,
                frequency_init_scale=frequency_scale,
                activation=False,
                lite=False,
            )
        width = in_channels + num_columns * embedding_channels
        self.lin = Linear(width, out_channels, weight_initializer='kaiming_uniform')

    def forward(self, x: Tensor) -> Tensor:
        """Compute the hidden units of rows, also sparse CSR without embeddings."""
        if self.periodic is not None:
            columns = self.periodic_columns
            inputs = x if len(columns) == x.size(1) else x[:, columns]
            x = torch.cat([x, self.periodic(inputs).flatten(1)], dim=1)
        return apply_linear(self.lin, x)


def check_windows(x: Any, name: str, num_sensors: int | None = None) -> None:
    """Raise unless :obj:`x` holds windows of the right number of sensors."""
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
    """Embed sensors by free vectors, projected rows, or pooled windows."""

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
            check_absent(z_channels, 'z_channels', "with 'num_sensors'")
            self.weight = torch.nn.Parameter(torch.empty(num_sensors, out_channels))
        elif z_channels is not None:
            check_count(z_channels, 'z_channels')
            self.lin = Linear(z_channels, out_channels)
        else:
            self.lin_window = Linear(in_channels, hidden_channels)
            self.lin = Linear(hidden_channels, out_channels)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.weight is not None:
            torch.nn.init.normal_(self.weight)
        inits.reset(self.lin_window)
        inits.reset(self.lin)

    def forward(self, x: Features | None = None, z: Features | None = None) -> Features:
        """Embed sensors, given windows or rows; a pair gives a pair."""
        if self.z_channels is None and z is not None:
            raise ValueError("'z' needs a layer with 'z_channels' (got None)")
        if self.weight is not None:
            if isinstance(x, tuple | list):
                raise TypeError(
                    "'x' must be a torch.Tensor with 'num_sensors': new sensors have "
                    'no learned vector (got a pair)'
                )
            return self.weight
        windows = Ends.of(x)
        ends = Ends.of(z, 'z') if x is None else windows
        compared = ends.like(z, 'z')
        if not ends.is_pair:
            return self._embed(x, z, 'x')
        src = self._embed(windows.src, compared.src, 'x_src')
        return src, self._embed(windows.dst, compared.dst, 'x_dst')

    def _embed(self, x: Any, z: Any, name: str) -> Tensor:
        """Project rows, or the mean of a hidden layer over windows."""
        if self.lin_window is None:
            check_type(z, Tensor, 'z', f'a tensor with z_channels={self.z_channels}')
            check_features(z, 'z', self.z_channels)
            if x is not None and z.size(0) != x.size(-2):
                raise ValueError(
                    f"'z' must have one row per sensor "
                    f'(got {z.size(0)} for {x.size(-2)} sensors)'
                )
            name = 'z'
            rows = z
        else:
            expected = "a tensor of windows without 'num_sensors' or 'z_channels'"
            check_type(x, Tensor, name, expected)
            check_windows(x, name)
            windows = x.reshape(math.prod(x.shape[:-2]), *x.shape[-2:])
            check_features(windows.flatten(0, 1), name, self.lin_window.in_channels)
            check_parameter_match(x, self.lin_window.weight, name)
            # The mean of no windows is zero.
            total = self.lin_window(windows).relu().sum(dim=0)
            rows = total / max(windows.size(0), 1)
        lin = cast(Linear, self.lin)
        check_parameter_match(rows, lin.weight, name)
        return cast(Tensor, lin(rows))
