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

    with learned frequencies :math:`\mathbf{f}_c`, from the `"On Embeddings for
    Numerical Features in Tabular Deep Learning" <https://arxiv.org/abs/2203.05556>`_
    paper.

    Args:
        in_channels (int): The number of columns.
        out_channels (int): The number of hidden units.
        num_frequencies (int, optional): The number of frequencies of each column; 0 for
            no periodic embeddings. (default: :obj:`32`)
        periodic_columns (list[int], optional): The columns that are embedded; all if
            :obj:`None`. (default: :obj:`None`)
        frequency_scale (float, optional): The deviation of the frequencies at the
            start. (default: :obj:`0.03`)
        embedding_channels (int, optional): Size of the embedding of a column.
            (default: :obj:`12`)

    Shapes:
        - **input:** columns :math:`(N, F_{in})`, without embeddings also sparse CSR
        - **output:** :math:`(N, F_{out})`

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.
        ImportError: If there are embeddings, and rtdl_num_embeddings is missing.

    Example:
        >>> ColumnEncoder(3, 8, num_frequencies=0)(torch.randn(5, 3)).shape
        torch.Size([5, 8])
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
        self.periodic = _periodic(
            len(self.periodic_columns),
            embedding_channels,
            num_frequencies,
            frequency_scale,
        )
        width = in_channels + len(self.periodic_columns) * embedding_channels
        self.lin = Linear(width, out_channels, weight_initializer='kaiming_uniform')

    def reset_parameters(self) -> None:
        r"""Reset all learnable parameters of the module."""
        for module in self.children():
            reset(module)

    def forward(self, x: Tensor) -> Tensor:
        r"""Run the forward pass.

        Args:
            x (torch.Tensor): The columns.
        """
        if self.periodic is not None:
            columns = self.periodic_columns
            part = x if len(columns) == x.size(1) else x[:, columns]
            x = torch.cat([x, self.periodic(part).flatten(1)], dim=1)
        return apply_linear(self.lin, x)


def _periodic(
    num_columns: int, channels: int, num_frequencies: int, scale: float
) -> torch.nn.Module | None:
    if num_columns == 0:
        return None
    try:
        from rtdl_num_embeddings import PeriodicEmbeddings
    except ImportError as error:
        raise ImportError(
            "'num_frequencies' needs rtdl_num_embeddings: pip install "
            "'rtdl_num_embeddings', or num_frequencies=0"
        ) from error
    module: torch.nn.Module = PeriodicEmbeddings(
        num_columns,
        channels,
        n_frequencies=num_frequencies,
        frequency_init_scale=scale,
        lite=True,
    )
    return module
