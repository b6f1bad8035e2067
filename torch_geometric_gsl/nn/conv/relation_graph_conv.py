from __future__ import annotations

from typing import Any

from torch import Tensor
from torch_geometric.nn import Linear

from torch_geometric_gsl.nn.conv.latent_graph_conv import LatentGraphConv


class RelationGraphConv(LatentGraphConv):
    r"""The :class:`~torch_geometric_gsl.nn.conv.LatentGraphConv` of one relation, whose
    sources, the :obj:`context`, are of another type than its targets. Targets have a
    projection of their own where projections are compared. It has neither a root
    weight nor a bias.

    .. math::
        \mathbf{H}^{\prime} = \mathbf{A} \mathbf{X}_s \mathbf{W}

    Args:
        in_channels (tuple[int, int]): Sizes of the samples of both types, the sources'
            and the targets'; :obj:`-1` derives one from the first input.
        out_channels (int): Size of each output sample.
        **kwargs (optional): Additional arguments of
            :class:`~torch_geometric_gsl.nn.conv.LatentGraphConv`.

    Raises:
        ValueError: If :obj:`compare="input"` compares rows of different widths.

    Example:
        >>> conv = RelationGraphConv((16, 8), 32)
        >>> conv(torch.randn(100, 8), context=torch.randn(50, 16)).shape
        torch.Size([100, 32])
    """

    def __init__(
        self, in_channels: tuple[int, int], out_channels: int, **kwargs: Any
    ) -> None:
        source, target = in_channels
        super().__init__(source, out_channels, root_weight=False, bias=False, **kwargs)
        if self.compare == 'input' and source != target:
            raise ValueError(
                f"'in_channels' must be equal for both types with compare='input' "
                f'(got {source} and {target})'
            )
        self.target_channels = target
        self.lin_target: Linear | None = None
        if self.compare == 'projected':
            self.lin_target = Linear(
                target, out_channels, bias=False, weight_initializer='glorot'
            )

    def reset_parameters(self) -> None:
        r"""Reset all learnable parameters of the module."""
        super().reset_parameters()
        if self.lin_target is not None:
            self.lin_target.reset_parameters()

    def _projection(self, name: str) -> Linear:
        if name == 'context' or self.lin_target is None:
            return self.lin
        return self.lin_target

    def _check_rows(self, x: Tensor, name: str = 'x') -> None:
        # Targets that are not projected are of any width.
        if name == 'context' or self.lin_target is not None:
            super()._check_rows(x, name)

    def _sizes(self) -> str:
        pair = self.in_channels, self.target_channels
        return f'{pair}, {self.out_channels}'
