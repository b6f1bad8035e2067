from __future__ import annotations

from torch_geometric.nn import Linear

from torch_geometric_gsl.nn.models.base import NodeClassifier
from torch_geometric_gsl.nn.models.layers import layer_sizes
from torch_geometric_gsl.nn.models.tasks import resolve_task


class Baseline(NodeClassifier):
    r"""Base class of the baselines: the sizes of their layers, checked and printed."""

    #: The options that the representation shows beside the sizes.
    shown: tuple[str, ...] = ()

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        *,
        task: str = 'classification',
    ) -> None:
        super().__init__()
        self.sizes = layer_sizes(in_channels, hidden_channels, num_layers, out_channels)
        self.in_channels = in_channels
        self.hidden_channels = hidden_channels
        self.num_layers = num_layers
        self.out_channels = out_channels
        resolve_task(task, out_channels)
        self.task = task

    def __repr__(self) -> str:
        options = ''.join(f', {name}={getattr(self, name)}' for name in self.shown)
        if self.task != 'classification':
            options += f', task={self.task!r}'
        return (
            f'{self.__class__.__name__}({self.in_channels}, {self.hidden_channels}, '
            f'num_layers={self.num_layers}, out_channels={self.out_channels}{options})'
        )


def plain_linear(size: tuple[int, int]) -> Linear:
    """Make a projection without a bias."""
    return Linear(*size, bias=False, weight_initializer='glorot')
