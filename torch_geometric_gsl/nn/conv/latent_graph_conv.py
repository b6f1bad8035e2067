from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torch_geometric_gsl._checks import Ends, check_compared, check_parameter_match
from torch_geometric_gsl.distributed.row_shard import RowShard
from torch_geometric_gsl.nn.conv.learned_graph_conv import (
    LearnedGraphConv,
    check_serves_as_z,
    rank_options,
)
from torch_geometric_gsl.nn.sampler.options import paper_options
from torch_geometric_gsl.typing import Batch, Features, SampledGraph


class LatentGraphConv(LearnedGraphConv):
    r"""Graph convolution on a learned graph of all nodes, from the `"Neural
    Gaussian Similarity Modeling for Differential Graph Structure Learning"
    <https://arxiv.org/abs/2312.09498>`_ paper.

    .. math::
        \mathbf{H}^{\prime} = \mathbf{A} \mathbf{X} \mathbf{W} +
        \mathbf{X} \mathbf{W}_{\textrm{root}} + \mathbf{b}

    where :math:`\mathbf{A}` is the graph that
    :class:`~torch_geometric_gsl.nn.sampler.GumbelKNNSampler` samples from the
    similarities of the rows of :math:`\mathbf{X} \mathbf{W}` in training mode, and the
    noise-free weights :math:`A_{ij} = \mathrm{softmax}_j(\lambda \phi_{ij} / \tau)`
    over all nodes, or the :obj:`eval_k` nearest, in evaluation mode. The rows of
    :math:`\mathbf{A}` sum to 1, less the weight of a null neighbour. With
    :obj:`z_channels` the similarity compares rows :obj:`z` of the call, or
    :math:`\mathbf{X}` itself if there are none: use it if the features are informative
    and a wide projection overfits.

    Given edges are the candidates, which the layer prunes and weighs. To add a learned
    graph of all nodes to a given one, add the outputs of two layers, such as
    :obj:`GCNConv(16, 32)(x, edge_index) + LatentGraphConv(16, 32)(x)`.

    With :obj:`label_channels` neighbours also send their labels, as messages
    :math:`\mathbf{x}_j \mathbf{W} + y_j \mathbf{W}_y + \mathbf{b}_y`. A row never sees
    its own label, which requires :obj:`loop=False`, or a pair of sources and targets.
    Pass labels only to the last of several layers: those of an earlier one return
    through neighbours.

    A pair :obj:`(x_src, x_dst)` separates the sources from the targets, such as
    training rows from new rows: new rows attend to the sources only, and the output of
    one does not depend on the others. Sources and targets of different widths have
    separate projections, given :obj:`in_channels` as a pair.

    Args:
        in_channels (int or tuple[int, int]): Size of each input sample, or of source
            and target samples; :obj:`-1` derives a size from the first input to the
            forward method.
        out_channels (int): Size of each output sample.
        similarity (str or Similarity, optional): The similarity of two nodes, by
            name or as a module of :obj:`out_channels` input channels, which keeps its
            state. :obj:`"mixture"` without arguments becomes :obj:`"distance"` where
            one column is compared, or two of the input. (default: :obj:`"mixture"`)
        k (int, optional): The number of draws :math:`K`. (default: :obj:`5`)
        tau (float, optional): The temperature :math:`\tau`. (default: :obj:`0.5`)
        similarity_kwargs (dict, optional): Arguments of a similarity given by name,
            such as :obj:`{"c_scale": 0.2}`. (default: :obj:`None`)
        root_weight (bool, optional): If :obj:`False`, the layer does not add
            :math:`\mathbf{X} \mathbf{W}_{\textrm{root}}`; on a nearly uniform graph all
            nodes then have nearly the same output. (default: :obj:`True`)
        bias (bool, optional): If :obj:`False`, the layer does not learn a bias.
            (default: :obj:`True`)
        z_channels (int, optional): The width of the compared rows, and of a similarity
            given as a module; :obj:`-1` is the width of the input. If :obj:`None`,
            projections are compared. (default: :obj:`None`)
        label_channels (int, optional): The number of classes, or of numeric columns, of
            the labels that neighbours send. (default: :obj:`None`)
        **kwargs (optional): Additional arguments of
            :class:`~torch_geometric_gsl.nn.sampler.GumbelKNNSampler`, such as
            :obj:`hard` or :obj:`method`. The defaults of a layer are
            :obj:`scale=20.0`, :obj:`train_scale=True` and :obj:`loop=False`.

    Shapes:
        - **input:** node features :math:`(|\mathcal{V}|, F_{in})`, dense or sparse
          CSR, candidate edges :math:`(2, |\mathcal{E}_c|)` *(optional)*, batch vector
          :math:`(|\mathcal{V}|)` *(optional)*, compared rows
          :math:`(|\mathcal{V}|, F_z)` *(optional)*; each but the edges may be a pair
          of sources and targets
        - **output:** node features :math:`(|\mathcal{V}|, F_{out})` of the targets

    Example:
        >>> conv = LatentGraphConv(16, 32)
        >>> conv(torch.randn(100, 16)).shape
        torch.Size([100, 32])
        >>> # Prune and weigh given edges by the cosine of the features.
        >>> options = {'z_channels': -1, 'scale': 20.0, 'null_score': 5.0}
        >>> conv = LatentGraphConv(16, 32, 'linear', **options)
        >>> conv(torch.randn(100, 16), torch.randint(100, (2, 400))).shape
        torch.Size([100, 32])
        >>> # Three new rows, with the others as neighbours.
        >>> conv((torch.randn(100, 16), torch.randn(3, 16))).shape
        torch.Size([3, 32])
    """

    _has_two_widths = True

    @classmethod
    def paper(cls, *args: Any, **kwargs: Any) -> LatentGraphConv:
        r"""Return the layer as printed in the paper, with the constructor's arguments:
        neural Gaussian similarity, draws with loops at :obj:`tau=0.25` and
        :obj:`scale=1`, and sums over all nodes in evaluation mode.
        """
        return cls(*args, **paper_options(cls, args, kwargs))

    def forward(
        self,
        x: Features,
        edge_index: Tensor | None = None,
        edge_weight: Tensor | None = None,
        batch: Batch | None = None,
        *,
        y: Tensor | None = None,
        z: Features | None = None,
        generator: torch.Generator | None = None,
        shard: RowShard | None = None,
        return_graph: bool = False,
    ) -> Tensor | tuple[Tensor, SampledGraph]:
        r"""Run the forward pass.

        Args:
            x (torch.Tensor or tuple[torch.Tensor, torch.Tensor]): The node features,
                dense or sparse CSR, or a pair :obj:`(x_src, x_dst)`.
            edge_index (torch.Tensor, optional): If given, only these edges are
                candidates. (default: :obj:`None`)
            edge_weight (torch.Tensor, optional): Their non-negative weights, whose
                logarithms are added to the scores. (default: :obj:`None`)
            batch (torch.Tensor or tuple, optional): Sorted graph ids, a pair for a
                pair. (default: :obj:`None`)
            y (torch.Tensor, optional): The labels of the sources: classes, -1 where
                unknown, or numbers, NaN where unknown. (default: :obj:`None`)
            z (torch.Tensor or tuple[torch.Tensor, torch.Tensor], optional): The rows
                that the similarity compares, a pair for a pair. (default: :obj:`None`)
            generator (torch.Generator, optional): Source of randomness.
                (default: :obj:`None`)
            shard (RowShard, optional): The rows of this process, if several share the
                rows: all arguments are those of these rows, and so is the output.
                Edges and graph ids are not supported. (default: :obj:`None`)
            return_graph (bool, optional): If :obj:`True`, also returns the graph that
                this call summed over. (default: :obj:`False`)
        """
        ends = self._check_rows(x)
        h = self._project(ends.src, self.lin)
        message = h
        if self.label is not None or y is not None:
            message = self._add_labels(ends, h, y)
        out: Any = self.sampler.propagate(
            self._compared(ends, h, z),
            message,
            edge_index=edge_index,
            edge_weight=edge_weight,
            batch=batch,
            generator=generator,
            return_graph=return_graph,
            **({} if shard is None else rank_options(shard, ends.dst)),
        )
        if not return_graph:
            return self._add_root(ends.dst, out)
        out, graph = out
        return self._add_root(ends.dst, out), graph

    def _add_labels(self, ends: Ends, h: Tensor, y: Tensor | None) -> Tensor:
        """Add the labels to the messages of the sources."""
        if self.label is None:
            raise ValueError("'y' needs a layer with 'label_channels' (got None)")
        if y is None:
            raise ValueError("'y' must be given with 'label_channels' (got None)")
        if ends.src is ends.dst if ends.is_pair else self.sampler.loop:
            form = 'a pair of the same rows' if ends.is_pair else 'loop=True'
            raise ValueError(
                "'y' needs loop=False, or a pair (x_src, x_dst) of different rows: a "
                f'row must not see its own label (got {form})'
            )
        labels: Tensor = self.label(y, h.size(0))
        return h + labels.to(h.dtype)

    def _compared(self, ends: Ends, h: Tensor, z: Features | None) -> Ends:
        """Return the rows that the similarity compares, which are finite."""
        if self.z_channels is None:
            if z is not None:
                raise ValueError("'z' needs a layer with 'z_channels' (got None)")
            dst = h
            if ends.is_pair:
                dst = self._project(ends.dst, self.lin_dst or self.lin)
            return Ends(h, dst, ends.is_pair)
        if z is None:
            check_serves_as_z(ends, self.z_channels)
            return ends
        compared = ends.like(z, 'z')
        sets = [(compared.src, ends.src)]
        if ends.is_pair:
            sets.append((compared.dst, ends.dst))
        for rows, nodes in sets:
            check_compared(rows, self.z_channels, nodes)
            check_parameter_match(rows, self.lin.weight, 'z')
        return compared
