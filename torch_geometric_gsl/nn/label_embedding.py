from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.nn import Linear, inits

from torch_geometric_gsl._checks import check_count, check_value


class LabelEmbedding(torch.nn.Module):
    r"""Turn labels that are known into messages: :math:`y_j W_y + b`, and zero where a
    label is unknown.

    Args:
        label_channels (int): The number of classes, or of columns of numbers.
        out_channels (int): Size of each message.

    Shapes:
        - **input:** classes :math:`(N)`, of which -1 is unknown, or numbers
          :math:`(N, F_y)` or :math:`(N)`, of which NaN is unknown
        - **output:** messages :math:`(N, F_{out})`

    Raises:
        TypeError: If the labels are neither integers nor numbers.
        ValueError: If they have the wrong shape, or are no classes.

    Example:
        >>> embedding = LabelEmbedding(3, 8)
        >>> message = embedding(torch.tensor([2, -1, 0]))
        >>> message.shape, bool(message[1].any())
        (torch.Size([3, 8]), False)
    """

    def __init__(self, label_channels: int, out_channels: int) -> None:
        super().__init__()
        check_count(label_channels, 'label_channels')
        check_count(out_channels, 'out_channels')
        self.label_channels = label_channels
        self.lin = Linear(label_channels, out_channels)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        r"""Reset all learnable parameters of the module."""
        # Of order one, whatever the number of classes: a row has one of them.
        inits.uniform(1, self.lin.weight)
        inits.uniform(1, self.lin.bias)

    def forward(self, y: Tensor, num_rows: int | None = None) -> Tensor:
        r"""Run the forward pass.

        Args:
            y (torch.Tensor): The labels.
            num_rows (int, optional): The number of labels that there must be.
                (default: :obj:`None`)
        """
        return self.project(self.encode(y, num_rows))

    def encode(self, y: Tensor, num_rows: int | None = None) -> Tensor:
        r"""Return labels as rows :math:`(y_j, 1)`, classes one-hot, and zero where a
        label is unknown, for the arguments of :meth:`forward`.
        """
        if not isinstance(y, Tensor) or y.dtype == torch.bool or y.is_complex():
            kind = getattr(y, 'dtype', type(y).__name__)
            raise TypeError(f"'y' must hold classes or numbers (got {kind})")
        if num_rows is not None and y.shape[:1] != (num_rows,):
            raise ValueError(
                f"'y' must have one label for each of the {num_rows} sources "
                f'(got {list(y.shape)})'
            )
        width = self.label_channels
        if y.is_floating_point():
            shape = (y.size(0), width) if y.dim() == 2 or width > 1 else (y.size(0),)
            _check_shape(y, shape)
            number = y.view(-1, width)
            is_known = ~number.isnan().any(dim=1, keepdim=True)
            number = number.nan_to_num()
        else:
            _check_shape(y, (y.numel(),))
            check_value(
                ((y >= -1) & (y < width)).all(),
                f"'y' must hold classes of 0..{width - 1}, or -1 where unknown",
                got=lambda: '{}..{}'.format(*y.aminmax()),
            )
            number = F.one_hot(y.clamp(min=0).long(), width)
            is_known = (y >= 0).unsqueeze(1)
        code = torch.cat([number, is_known], dim=1) * is_known
        return code.to(self.lin.weight.dtype)

    def project(self, code: Tensor) -> Tensor:
        r"""Turn rows of :meth:`encode`, or weighted sums of them, into messages."""
        number, is_known = code[:, :-1], code[:, -1:]
        return F.linear(number, self.lin.weight) + is_known * self.lin.bias

    def __repr__(self) -> str:
        return f'{type(self).__name__}({self.label_channels}, {self.lin.out_channels})'


def _check_shape(y: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(y.shape) != shape:
        raise ValueError(f"'y' must have shape {list(shape)} (got {list(y.shape)})")
