from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch_geometric.nn import Linear
from torch_geometric.nn.inits import reset

from torch_geometric_gsl._checks import check_count
from torch_geometric_gsl.nn.linear import apply_linear


class ColumnEncoder(torch.nn.Module):
    r"""Map the columns of a table, and periodic embeddings of them, to hidden units.

    .. math::
        \mathbf{h}_i = \mathbf{W} \, [\mathbf{x}_i, \, \mathrm{ReLU}(\mathbf{U}
        [\cos(2 \pi \mathbf{f}_c x_{ic}), \sin(2 \pi \mathbf{f}_c x_{ic})])
        \textrm{ of each column } c]

    with learned frequencies :math:`\mathbf{f}_c`. The arguments are those of
    :class:`~torch_geometric_gsl.nn.TableNet`, whose hidden units are the outputs.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        num_frequencies: int = 32,
        periodic_columns: Sequence[int] | None = None,
        frequency_scale: float = 0.03,
        embedding_channels: int = 12,
    ) -> None:
        super().__init__()
        check_count(num_frequencies, 'num_frequencies', minimum=0)
        check_count(embedding_channels, 'embedding_channels')
        columns = range(in_channels) if periodic_columns is None else periodic_columns
        self.periodic_columns = list(columns) if num_frequencies > 0 else []
        number = len(self.periodic_columns)
        self.periodic: torch.nn.Module | None = None
        if number > 0:
            try:
                from rtdl_num_embeddings import PeriodicEmbeddings
            except ImportError as error:
                raise ImportError(
                    "'num_frequencies' needs rtdl_num_embeddings: pip install "
                    "'rtdl_num_embeddings', or num_frequencies=0"
                ) from error
            self.periodic = PeriodicEmbeddings(
                number,
                embedding_channels,
                n_frequencies=num_frequencies,
                frequency_init_scale=frequency_scale,
                lite=True,
            )
        width = in_channels + number * embedding_channels
        self.lin = Linear(width, out_channels, weight_initializer='kaiming_uniform')

    def reset_parameters(self) -> None:
        """Reset all learnable parameters of the module."""
        for module in self.children():
            reset(module)

    def forward(self, x: Tensor) -> Tensor:
        """Return the hidden units of rows, without embeddings also of sparse CSR."""
        if self.periodic is not None:
            columns = self.periodic_columns
            part = x if len(columns) == x.size(1) else x[:, columns]
            x = torch.cat([x, self.periodic(part).flatten(1)], dim=1)
        return apply_linear(self.lin, x)
