from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor
from torch_geometric.utils import sort_edge_index
from typing_extensions import Unpack

from torch_geometric_gsl._checks import (
    Ends,
    check_absent,
    check_count,
    check_edge_index,
    check_flag,
    check_two,
    check_type,
)
from torch_geometric_gsl.nn.conv.learned_graph_conv import LearnedGraphConv
from torch_geometric_gsl.nn.embeddings import SensorEmbedding, check_windows
from torch_geometric_gsl.nn.linear import check_input
from torch_geometric_gsl.nn.sampler.options import ForwardedOptions, check_options
from torch_geometric_gsl.nn.shared_module import keep_state
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.nn.similarity.directed_similarity import DirectedSimilarity
from torch_geometric_gsl.nn.similarity.resolver import resolve_similarity
from torch_geometric_gsl.ops.aggregate import weighted_sum
from torch_geometric_gsl.ops.runtime import check_not_batched
from torch_geometric_gsl.typing import Features, SampledGraph, is_sorted_by_target


class SensorGraphConv(LearnedGraphConv):
    r"""Graph convolution on a learned graph of sensors, shared by all windows of a
    batch, after the `"Graph WaveNet for Deep Spatial-Temporal Graph Modeling"
    <https://arxiv.org/abs/1906.00121>`_ paper.

    .. math::
        \mathbf{H}^{\prime}_{b} = \mathbf{A} \mathbf{X}_{b} \mathbf{W} +
        \mathbf{X}_{b} \mathbf{W}_{\textrm{root}} + \mathbf{b}

    where :math:`\mathbf{X}_b` holds the readings of the :math:`n` sensors in window
    :math:`b`, or at one of its times, and :math:`\mathbf{A}` is the graph of the
    sensors, drawn once per call by
    :class:`~torch_geometric_gsl.nn.sampler.GumbelKNNSampler` from their embeddings
    :math:`\mathbf{Z}`. In evaluation mode it has the noise-free weights
    :math:`A_{ij} = \mathrm{softmax}_j(\lambda \phi_{ij} / \tau)`.

    :math:`\mathbf{Z}` is one of:

    * with :obj:`num_sensors`, a learned vector per sensor: fits any graph, but no new
      sensors;
    * with :obj:`z_channels`, a projection of rows :obj:`z` of the call, such as the
      coordinates of the sensors;
    * otherwise a learned summary of the windows, :math:`\mathbf{z}_i = \mathbf{U} \,
      \mathrm{mean}_b \, \mathrm{ReLU}(\mathbf{V} \mathbf{x}_{b,i} + \mathbf{v}) +
      \mathbf{u}`, the mean over all windows and times of the call. It processes sensors
      independently: it separates levels and shapes, but not correlated sensors.

    Edges are directed: each sensor has separate embeddings as a source and as a
    target (:class:`~torch_geometric_gsl.nn.similarity.DirectedSimilarity`),
    unless :obj:`directed=False`.

    To reuse a draw in several steps or layers, draw it with :meth:`graph` and pass it
    as :obj:`layer(x, graph=graph)`. Pass new sensors as a pair :obj:`(x_src, x_dst)`
    as in :class:`~torch_geometric_gsl.nn.conv.LatentGraphConv`, unless each sensor
    has a learned vector.

    Args:
        in_channels (int): Size of each input sample; :obj:`-1` for lazy initialization.
        out_channels (int): Size of each output sample.
        num_sensors (int, optional): The number of sensors :math:`n`, for one learned
            vector each. (default: :obj:`None`)
        embedding_channels (int, optional): The width of an embedding, as a source and
            as a target. Learned vectors need more: use 64 for fifty sensors. (default:
            :obj:`32`)
        similarity (str or Similarity, optional): The similarity of a source and a
            target, by name or as a module of :obj:`embedding_channels` input channels.
            (default: :obj:`"linear"`)
        k (optional): As in :class:`~torch_geometric_gsl.nn.conv.LatentGraphConv`.
        tau (float, optional): The temperature :math:`\tau`. (default: :obj:`1.0`)
        scale (float, optional): The factor :math:`\lambda` of the similarity.
            (default: :obj:`5.0`)
        train_scale (bool, optional): If :obj:`False`, the factor is not learned.
            (default: :obj:`True`)
        z_channels (int, optional): The width of rows :obj:`z`. (default: :obj:`None`)
        directed (bool, optional): If :obj:`False`, a sensor has one embedding: scores
            are symmetric, weights are not. (default: :obj:`True`)
        similarity_kwargs, root_weight, bias (optional): As in
            :class:`~torch_geometric_gsl.nn.conv.LatentGraphConv`.
        loop (bool, optional): If :obj:`True`, a sensor is its own candidate.
            (default: :obj:`False`)
        method (str, optional): The sampling method; :obj:`"dense"` takes time and
            memory :math:`O(n^2)`. (default: :obj:`"dense"`)
        **kwargs (optional): Further options of the sampler, such as :obj:`null_score`.

    Shapes:
        - **input:** windows :math:`(*, n, F_{in})` with any leading dimensions, such as
          batch and time, compared rows :math:`(n, F_z)` *(optional)*; each may be a
          pair, of sources and targets
        - **output:** :math:`(*, n, F_{out})` of the targets

    Example:
        >>> conv = SensorGraphConv(1, 16, num_sensors=20)
        >>> conv(torch.randn(8, 12, 20, 1)).shape  # 8 windows of 12 steps
        torch.Size([8, 12, 20, 16])
        >>> graph = conv.graph()
        >>> conv(torch.randn(8, 20, 1), graph=graph).shape
        torch.Size([8, 20, 16])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        num_sensors: int | None = None,
        embedding_channels: int = 32,
        similarity: str | Similarity = 'linear',
        k: int = 5,
        tau: float = 1.0,
        *,
        scale: float = 5.0,
        train_scale: bool = True,
        z_channels: int | None = None,
        directed: bool = True,
        similarity_kwargs: dict[str, Any] | None = None,
        root_weight: bool = True,
        bias: bool = True,
        loop: bool = False,
        method: str = 'dense',
        **kwargs: Unpack[ForwardedOptions],
    ) -> None:
        check_flag(directed, 'directed')
        check_count(embedding_channels, 'embedding_channels')
        check_options(type(self), kwargs, ForwardedOptions.__annotations__)
        options = similarity_kwargs or {}
        compared = resolve_similarity(similarity, embedding_channels, **options)
        compared = DirectedSimilarity(compared) if directed else compared
        super().__init__(
            in_channels,
            out_channels,
            compared,
            k,
            tau,
            root_weight=root_weight,
            bias=bias,
            z_channels=compared.in_channels,
            scale=scale,
            train_scale=train_scale,
            loop=loop,
            method=method,
            **kwargs,
        )
        self.z_channels = z_channels
        self.num_sensors = num_sensors
        self.embedding_channels = embedding_channels
        self.embed = SensorEmbedding(
            in_channels,
            embedding_channels,
            compared.in_channels,
            num_sensors=num_sensors,
            z_channels=z_channels,
        )
        with keep_state(similarity):
            # Not a subclass's reset: its parameters do not exist yet.
            SensorGraphConv.reset_parameters(self)

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self.embed.reset_parameters()

    def forward(
        self,
        x: Features,
        *,
        graph: SampledGraph | None = None,
        z: Features | None = None,
        generator: torch.Generator | None = None,
        return_graph: bool = False,
    ) -> Tensor | tuple[Tensor, SampledGraph]:
        r"""Run the forward pass.

        Args:
            x (torch.Tensor or tuple[torch.Tensor, torch.Tensor]): The readings of the
                sensors, :math:`(*, n, F_{in})`, or a pair of sources and targets in the
                same windows.
            graph (SampledGraph, optional): A graph of the sensors, such as that of
                :meth:`graph`, instead of a new draw. (default: :obj:`None`)
            z (torch.Tensor or tuple[torch.Tensor, torch.Tensor], optional): The
                compared rows, with :obj:`z_channels`; a pair for a pair. (default:
                :obj:`None`)
            generator (torch.Generator, optional): Source of randomness.
                (default: :obj:`None`)
            return_graph (bool, optional): If :obj:`True`, also returns the graph that
                this call summed over. (default: :obj:`False`)
        """
        check_not_batched(self, (x, z), self.parameters())
        x_src, x_dst, is_pair = Ends.of(x)
        rows, source = self._project_windows(x_dst, 'x_dst' if is_pair else 'x')
        if is_pair:
            _, source = self._project_windows(x_src, 'x_src')
            if x_src.shape[:-2] != x_dst.shape[:-2]:
                raise ValueError(
                    f"'x_src' must have the same windows as 'x_dst' (got "
                    f'{list(x_src.shape)} for {list(x_dst.shape)})'
                )
        if graph is not None:
            check_absent(z, 'z', "with a 'graph'")
            out = _sum_over(graph, source, x_dst.size(-2))
        else:
            options: dict[str, Any]
            options = {'generator': generator, 'return_graph': return_graph}
            out = self.sampler.propagate(self.embed(x, z), source, **options)
            out, graph = out if return_graph else (out, None)
        size = rows.size(0), self.out_channels
        out = self._add_root(rows, out.view(size))
        # Keep sensors first in memory, as the next such layer expects.
        shape = x_dst.size(-2), *x_dst.shape[:-2], self.out_channels
        out = out.view(shape).movedim(0, -2)
        return (out, graph) if return_graph else out  # type: ignore[return-value]

    def graph(
        self,
        x: Features | None = None,
        *,
        z: Features | None = None,
        generator: torch.Generator | None = None,
    ) -> SampledGraph:
        r"""Draw the graph of the sensors, for several calls.

        The arguments are those of :meth:`forward`; windows are required if they are
        compared. Sources and targets of a pair must be different sensors.
        """
        return cast(SampledGraph, self.sampler(self.embed(x, z), generator=generator))

    def _project_windows(self, x: Tensor, name: str) -> tuple[Tensor, Tensor]:
        """Compute a row per sensor and window, and messages [n, windows * F]."""
        check_windows(x, name, self.num_sensors)
        rows = x.movedim(-2, 0).reshape(-1, x.size(-1))
        check_input(rows, self.lin, name)
        h = self._project(rows, self.lin)
        return rows, h.view(x.size(-2), math.prod(x.shape[:-2]) * self.out_channels)

    def _sizes(self) -> str:
        text = super()._sizes()
        for name in ('num_sensors', 'z_channels'):
            if (value := getattr(self, name)) is not None:
                text += f', {name}={value}'
        return text


def _sum_over(graph: SampledGraph, source: Tensor, num_targets: int) -> Tensor:
    """Sum messages over a given graph."""
    check_two(graph, 'graph', 'a pair (edge_index, edge_weight)')
    edge_index, weight = graph
    check_edge_index(edge_index, source, source.new_empty(num_targets, 0), 'graph')
    check_type(weight, Tensor, 'graph[1]', 'a torch.Tensor')
    if weight.shape != edge_index.shape[1:]:
        raise ValueError(
            f"'graph' must have one weight per edge (got {list(weight.shape)} for "
            f'{edge_index.size(1)} edges)'
        )
    if not is_sorted_by_target(edge_index):
        edge_index, weight = sort_edge_index(edge_index, weight, sort_by_row=False)
    return weighted_sum(source, edge_index, weight, num_targets)
