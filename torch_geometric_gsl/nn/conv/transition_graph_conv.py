from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn.inits import glorot
from typing_extensions import Unpack

from torch_geometric_gsl._checks import check_count, check_num_nodes
from torch_geometric_gsl.distributed.row_shard import RowShard
from torch_geometric_gsl.nn.conv.learned_graph_conv import (
    AnchorMixin,
    LearnedGraphConv,
    check_transition,
    rank_options,
)
from torch_geometric_gsl.nn.sampler.options import SamplerOptions, check_options
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.ops.runtime import full_precision, is_exporting
from torch_geometric_gsl.ops.scores import unit_rows
from torch_geometric_gsl.typing import Features, SampledGraph


class TransitionGraphConv(AnchorMixin, LearnedGraphConv):
    r"""Graph convolution on a learned transition graph, from the `"Neural
    Gaussian Similarity Modeling for Differential Graph Structure Learning"
    <https://arxiv.org/abs/2312.09498>`_ paper.

    .. math::
        \mathbf{H}^{\prime} = \mathbf{A}_t \left( \mathbf{W}_e ( \mathbf{X}
        \mathbf{W} ) \right) + \mathbf{X} \mathbf{W}_{\textrm{root}} + \mathbf{b},
        \qquad \mathbf{R} = \mathbf{W}_t \mathbf{Z}

    where :math:`\mathbf{A}_t \in \mathbb{R}^{n \times s}` is the graph that
    :class:`~torch_geometric_gsl.nn.sampler.GumbelKNNSampler` samples from the
    similarities :math:`\phi(z_i, r_j)` of the :math:`n` nodes to the :math:`s`
    transition nodes. :math:`\mathbf{Z}` holds the rows of
    :math:`\mathbf{X} \mathbf{W}` scaled to unit norm, and the rows of
    :math:`\mathbf{R}` are scaled to unit norm, too; a similarity of distances compares
    them with the rows of :math:`\mathbf{X} \mathbf{W}` as they are. With fixed
    :math:`s`, time and memory grow linearly in :math:`n`.

    The projections :math:`\mathbf{W}_t, \mathbf{W}_e \in \mathbb{R}^{s \times n}`
    have a column per node of one data set: the layer is transductive.

    Two forms, not in the paper, have no parameter that depends on :math:`n`. They
    replace :math:`\mathbf{R}` and the messages :math:`\mathbf{W}_e ( \mathbf{X}
    \mathbf{W} )`:

    .. math::
        \mathbf{r}_j = \frac{\mathbf{u}_j}{\lVert \mathbf{u}_j \rVert_2}, \quad
        \mathbf{V} \in \mathbb{R}^{s \times F_{out}} \quad
        (\texttt{free}), \qquad\qquad
        \mathbf{r}_j = \mathbf{W}^{\top} \mathbf{a}_j, \quad
        \mathbf{V} = \mathbf{A} \mathbf{W} \quad (\texttt{anchors})

    with learned vectors :math:`\mathbf{u}_j` (:obj:`transition_nodes`) and
    :math:`\mathbf{V}` (:obj:`messages`), or with the rows :math:`\mathbf{a}_j` of
    anchors :math:`\mathbf{A} \in \mathbb{R}^{s \times F_{in}}`, which
    :meth:`choose_anchors` takes from the data once: the layer is then a
    :class:`~torch_geometric_gsl.nn.conv.LatentGraphConv` with the sources
    :math:`\mathbf{A}`. In evaluation mode the output of a row depends on no other row
    of the call, and :math:`b` rows cost :math:`\mathcal{O}(b s)`: use these forms for
    mini-batches and new rows.

    In a pair :obj:`(x_src, x_dst)` the sources form the transition nodes: the
    :math:`n` nodes, or the anchors of this call. The targets are any rows.

    .. note::
        The parameters :obj:`theta_t` and :obj:`theta_e` hold :math:`n \mathbf{W}_t` and
        :math:`n \mathbf{W}_e`: without the factor, a step of an optimizer such as Adam
        moves a transition node by :math:`n` learning rates, and training diverges.

    Args:
        in_channels (int): Size of each input sample; :obj:`-1` for lazy initialization.
        out_channels (int): Size of each output sample.
        num_nodes (int, optional): The number of nodes :math:`n`, with
            :obj:`transition="projected"` only. (default: :obj:`None`)
        num_transition_nodes (int, optional): The number of transition nodes
            :math:`s`. (default: :obj:`500`)
        similarity (str or Similarity, optional): The similarity of a node and a
            transition node, by name or as a module of :obj:`out_channels` input
            channels. (default: :obj:`"mixture"`)
        k, tau, similarity_kwargs, root_weight, bias (optional): As in
            :class:`~torch_geometric_gsl.nn.conv.LatentGraphConv`.
        transition (str, optional): The form of the transition nodes,
            :obj:`"projected"` (the paper), :obj:`"free"` or :obj:`"anchors"`.
            (default: :obj:`"projected"`)
        **kwargs (optional): Further options of the sampler, such as :obj:`scale`.

    Shapes:
        - **input:** node features :math:`(n, F_{in})`, dense or sparse CSR, or a pair
          whose first part has :math:`n` rows, or :math:`s` rows with anchors
        - **output:** node features :math:`(n, F_{out})` of the targets

    Raises:
        ValueError: If an argument is not supported with this form of transition nodes,
            or no anchors are chosen.

    Example:
        >>> conv = TransitionGraphConv(16, 32, num_nodes=100, num_transition_nodes=10)
        >>> conv(torch.randn(100, 16)).shape
        torch.Size([100, 32])
        >>> options = {'num_transition_nodes': 10, 'transition': 'anchors'}
        >>> conv = TransitionGraphConv(16, 32, **options)
        >>> conv.choose_anchors(torch.randn(100, 16))(torch.randn(7, 16)).shape
        torch.Size([7, 32])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        num_nodes: int | None = None,
        num_transition_nodes: int = 500,
        similarity: str | Similarity = 'mixture',
        k: int = 5,
        tau: float = 0.5,
        *,
        similarity_kwargs: dict[str, Any] | None = None,
        root_weight: bool = True,
        bias: bool = True,
        transition: str = 'projected',
        **kwargs: Unpack[SamplerOptions],
    ) -> None:
        check_transition(transition, num_nodes, num_transition_nodes)
        check_count(num_transition_nodes, 'num_transition_nodes')
        check_options(type(self), kwargs, SamplerOptions.__annotations__)
        super().__init__(
            in_channels,
            out_channels,
            similarity,
            k,
            tau,
            similarity_kwargs=similarity_kwargs,
            root_weight=root_weight,
            bias=bias,
            **kwargs,
        )
        self.num_nodes = num_nodes
        self.num_transition_nodes = num_transition_nodes
        self.transition = transition
        if num_nodes is not None:
            size = num_transition_nodes, num_nodes
            self.theta_t = torch.nn.Parameter(torch.empty(size))
            self.theta_e = torch.nn.Parameter(torch.empty(size))
        elif transition == 'free':
            size = num_transition_nodes, out_channels
            self.transition_nodes = torch.nn.Parameter(torch.empty(size))
            self.messages = torch.nn.Parameter(torch.empty(size))
        self._init_anchors()
        self._reset_transition()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self._reset_transition()

    def _reset_transition(self) -> None:
        if self.transition == 'projected':
            for theta in (self.theta_t, self.theta_e):
                glorot(theta)
                with torch.no_grad():
                    theta.mul_(theta.size(1))
        elif self.transition == 'free':
            for rows in (self.transition_nodes, self.messages):
                torch.nn.init.normal_(rows, std=self.out_channels**-0.5)

    @property
    def w_t(self) -> Tensor:
        r"""Return the projection :math:`\mathbf{W}_t` of nodes to transition nodes."""
        return self.theta_t / self.theta_t.size(1)

    @property
    def w_e(self) -> Tensor:
        r"""Return the projection :math:`\mathbf{W}_e` of their messages."""
        return self.theta_e / self.theta_e.size(1)

    def forward(
        self,
        x: Features,
        *,
        generator: torch.Generator | None = None,
        shard: RowShard | None = None,
        return_graph: bool = False,
    ) -> Tensor | tuple[Tensor, SampledGraph]:
        r"""Run the forward pass, with the arguments of
        :meth:`~torch_geometric_gsl.nn.conv.LatentGraphConv.forward`. The graph leads
        from transition nodes to targets.
        """
        if self.transition == 'free' and isinstance(x, tuple | list):
            raise TypeError(
                "'x' must be a torch.Tensor with transition='free', which learns its "
                'sources (got a pair)'
            )
        x_src, x_dst, is_pair = self._check_rows(x)
        if self.transition == 'anchors' and not is_pair:
            x_src = self._required_anchors()
        is_dynamic = is_exporting() and isinstance(x_src.size(0), torch.SymInt)
        if is_dynamic and self.transition == 'projected':
            raise ValueError(
                f"'x' must have a fixed number of rows for 'torch.export': only "
                f"'x_dst' of a pair may be dynamic (got num_nodes={self.num_nodes})"
            )
        h = self._project(x_dst, self.lin)
        options = {} if shard is None else rank_options(shard, x_dst)
        if self.transition == 'free':
            nodes = unit_rows(self.transition_nodes).to(h.dtype)
            messages = self.messages.to(h.dtype)
        else:
            source = h if x_src is x_dst else self._project(x_src, self.lin)
            # All processes have all sources of a pair.
            source_shard = shard if x_src is x_dst else None
            nodes, messages = self._nodes(source, source_shard)
        options |= {'generator': generator, 'return_graph': return_graph}
        out: Any = self.sampler.propagate((nodes, h), messages, **options)
        if not return_graph:
            return self._add_root(x_dst, out)
        out, graph = out
        return self._add_root(x_dst, out), graph

    def _nodes(self, h: Tensor, shard: RowShard | None) -> tuple[Tensor, Tensor]:
        """Return the transition nodes and their messages, given projected sources."""
        if self.transition == 'anchors':
            return h, h
        nodes = unit_rows(project_nodes(self.theta_t, unit_rows(h), shard))
        return nodes, project_nodes(self.theta_e, h, shard)

    def _sizes(self) -> str:
        text = super()._sizes()
        if self.num_nodes is not None:
            text += f', num_nodes={self.num_nodes}'
        text += f', num_transition_nodes={self.num_transition_nodes}'
        if self.transition != 'projected':
            text += f', transition={self.transition!r}'
        return text


def project_nodes(theta: Tensor, h: Tensor, shard: RowShard | None = None) -> Tensor:
    """Project the rows of all nodes, or of a shard, to transition nodes.

    Rows [n, m] are summed with weights [s, n] in full precision, for small summands.
    """
    num_nodes = theta.size(1)
    if shard is None:
        check_num_nodes(h, num_nodes)
    elif shard.total != num_nodes:
        raise ValueError(
            f"'shard' must have num_nodes={num_nodes} rows on all ranks together "
            f'(got {shard.total})'
        )
    else:
        theta = theta[:, slice(*shard.rows)]
    with torch.autocast(h.device.type, enabled=False):
        messages = full_precision(h) / num_nodes
        out = theta.to(messages.dtype) @ messages
        return (out if shard is None else shard.sum(out)).to(h.dtype)
