from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.nn.inits import glorot

from torch_geometric_gsl._checks import check_absent, check_count
from torch_geometric_gsl.distributed.row_shard import RowShard
from torch_geometric_gsl.nn.conv.learned_graph_conv import LearnedGraphConv, check_shard
from torch_geometric_gsl.nn.conv.transition_nodes import (
    FREE,
    KeepsAnchors,
    check_all_rows,
    check_fixed,
    check_transition,
    sum_rows,
)
from torch_geometric_gsl.nn.sampler.plan import SamplingPlan
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.ops.scores import unit_rows
from torch_geometric_gsl.typing import SampledGraph


class TransitionGraphConv(KeepsAnchors, LearnedGraphConv):
    r"""The graph convolution on a learned transition graph from the `"Neural
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
    :math:`\mathbf{R}` are scaled to unit norm, too. With fixed :math:`s`, time and
    memory grow linearly in :math:`n`. With :obj:`add_self_loops`, the mean of
    :math:`\mathbf{X} \mathbf{W}` and the first term takes the place of that term.

    The projections :math:`\mathbf{W}_t, \mathbf{W}_e \in \mathbb{R}^{s \times n}`
    belong to the nodes of one data set: the layer is transductive. A matrix
    :math:`\mathbf{W}_e \mathbf{X}` as wide as the input is never formed.

    Two forms with no parameter that depends on :math:`n`, which are not in the paper,
    replace :math:`\mathbf{R}` and the messages :math:`\mathbf{W}_e ( \mathbf{X}
    \mathbf{W} )`:

    .. math::
        \mathbf{r}_j = \frac{\mathbf{u}_j}{\lVert \mathbf{u}_j \rVert_2}, \quad
        \mathbf{V} \in \mathbb{R}^{s \times F_{out}} \quad
        (\texttt{free}), \qquad\qquad
        \mathbf{r}_j = \frac{\mathbf{W}^{\top} \mathbf{a}_j}{\lVert \mathbf{W}^{\top}
        \mathbf{a}_j \rVert_2}, \quad
        \mathbf{V} = \mathbf{A} \mathbf{W} \quad (\texttt{anchors})

    with learned vectors :math:`\mathbf{u}_j` (:obj:`transition_nodes`) and
    :math:`\mathbf{V}` (:obj:`messages`), or with the rows :math:`\mathbf{a}_j` of
    anchors :math:`\mathbf{A} \in \mathbb{R}^{s \times F_{in}}`, which
    :meth:`choose_anchors` takes from the data once. A row's output in evaluation mode
    depends on no other row of the call, and :math:`b` rows cost
    :math:`\mathcal{O}(b s)`, and :math:`\mathcal{O}(s)` more for the projection of
    anchors: these forms serve mini-batches and new rows. With :obj:`"anchors"` the
    layer is a :class:`~torch_geometric_gsl.nn.conv.LatentGraphConv` whose context is
    :math:`\mathbf{A}`.

    .. note::
        The parameters :obj:`theta_t` and :obj:`theta_e` hold
        :math:`n \mathbf{W}_t` and :math:`n \mathbf{W}_e`. An optimizer such as Adam
        moves every entry by about its learning rate, and :math:`n` entries add up
        in a transition node: without the factor one step moves it by :math:`n`
        learning rates, and training diverges on a few thousand nodes.

    Args:
        in_channels (int): Size of each input sample, or :obj:`-1` to derive the size
            from the first input to the forward method.
        out_channels (int): Size of each output sample.
        num_nodes (int, optional): The number of nodes :math:`n`, with
            :obj:`transition="projected"` only. (default: :obj:`None`)
        num_transition_nodes (int, optional): The number of transition nodes
            :math:`s`. (default: :obj:`500`)
        similarity (str or Similarity, optional): The similarity of two nodes, by
            name or as a module of :obj:`out_channels` input channels, whose
            parameters are reset with those of the layer: load trained ones into it
            afterwards. (default: :obj:`"neural_gaussian"`)
        k (int, optional): The number of draws :math:`K`. (default: :obj:`5`)
        tau (float, optional): The temperature :math:`\tau`. (default: :obj:`0.25`)
        similarity_kwargs (dict, optional): Arguments of a similarity that is given by
            name, such as :obj:`{"c_scale": 0.2}`. (default: :obj:`None`)
        root_weight (bool, optional): If :obj:`False`, the layer does not add
            :math:`\mathbf{X} \mathbf{W}_{\textrm{root}}`. The graph is nearly
            uniform, so that without it all nodes get nearly the same output.
            (default: :obj:`True`)
        add_self_loops (bool, optional): If :obj:`True`, half of what a node aggregates
            is its own :math:`\mathbf{x}_i \mathbf{W}`, the other half that of its
            transition nodes. :meth:`graph` does not return the loops, which the paper
            does not have. (default: :obj:`False`)
        bias (bool, optional): If :obj:`False`, the layer does not learn a bias.
            (default: :obj:`True`)
        transition (str, optional): How transition nodes come about: from projections
            of the :math:`n` nodes (:obj:`"projected"`, the paper), as learned vectors
            (:obj:`"free"`), or as rows of the data that are kept (:obj:`"anchors"`).
            (default: :obj:`"projected"`)
        **kwargs (optional): Additional arguments of
            :class:`~torch_geometric_gsl.nn.sampler.GumbelKNNSampler`, such as
            :obj:`scale`, :obj:`hard` or :obj:`method`.

    Shapes:
        - **input:** node features :math:`(n, F_{in})`, dense or sparse CSR, context
          *(optional)*: :math:`(n, F_{in})`, or :math:`(s, F_{in})` with anchors
        - **output:** node features :math:`(n, F_{out})`

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range or has no meaning for the form of the
            transition nodes, or there are no anchors yet.

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
        similarity: str | Similarity = 'neural_gaussian',
        k: int = 5,
        tau: float = 0.25,
        *,
        similarity_kwargs: dict[str, Any] | None = None,
        root_weight: bool = True,
        add_self_loops: bool = False,
        bias: bool = True,
        transition: str = 'projected',
        **kwargs: Any,
    ) -> None:
        check_transition(transition, num_nodes)
        if transition == 'projected':
            check_count(num_nodes, 'num_nodes')
        check_count(num_transition_nodes, 'num_transition_nodes')
        for name in ('compare', 'embedding_channels', 'observed', 'label_channels'):
            check_absent(kwargs.get(name), name, 'with transition nodes')
        super().__init__(
            in_channels,
            out_channels,
            similarity,
            k,
            tau,
            similarity_kwargs=similarity_kwargs,
            root_weight=root_weight,
            add_self_loops=add_self_loops,
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
        self._await_anchors()
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
        r"""Return the projection :math:`\mathbf{W}_t` that places transition nodes."""
        return self.theta_t / self.theta_t.size(1)

    @property
    def w_e(self) -> Tensor:
        r"""Return the projection :math:`\mathbf{W}_e` that gathers their messages."""
        return self.theta_e / self.theta_e.size(1)

    def forward(
        self,
        x: Tensor,
        *,
        context: Tensor | None = None,
        shard: RowShard | None = None,
        generator: torch.Generator | None = None,
        return_graph: bool = False,
    ) -> Tensor | tuple[Tensor, SampledGraph]:
        r"""Run the forward pass.

        Args:
            x (torch.Tensor): The node features, dense or sparse CSR.
            context (torch.Tensor, optional): The :math:`n` rows of which the transition
                nodes are made, where :obj:`x` holds others; rows that are the anchors
                of this call. (default: :obj:`None`)
            shard (RowShard, optional): The block of rows of this rank, if several
                processes share the nodes: :obj:`x` holds these rows. Parameters are
                whole on all ranks. (default: :obj:`None`)
            generator (torch.Generator, optional): Source of randomness.
                (default: :obj:`None`)
            return_graph (bool, optional): If :obj:`True`, returns the graph from
                transition nodes that this call summed over as well.
                (default: :obj:`False`)
        """
        h, source = self._projections(x, context, shard)
        pair = self._compared(source, h, shard)
        messages = self._messages(source, h, shard)
        graph: SampledGraph | None = None
        if return_graph:
            rows = None if shard is None else shard.rows
            graph = self.sampler(pair, rows=rows, generator=generator)
        out = self._summed(pair, messages, shard, generator, graph)
        out = self._finish(x, h, out)
        return out if graph is None else (out, graph)

    def graph(
        self,
        x: Tensor,
        *,
        context: Tensor | None = None,
        shard: RowShard | None = None,
        generator: torch.Generator | None = None,
    ) -> SampledGraph:
        r"""Return the bipartite graph from transition nodes to nodes.

        Args:
            x (torch.Tensor): The node features, dense or sparse CSR.
            context (torch.Tensor, optional): As in :meth:`forward`.
                (default: :obj:`None`)
            shard (RowShard, optional): As in :meth:`forward`; edges have the numbers of
                the targets among those of all ranks. (default: :obj:`None`)
            generator (torch.Generator, optional): Source of randomness.
                (default: :obj:`None`)

        Returns:
            SampledGraph: The edges and their weights, sorted by target.
        """
        h, source = self._projections(x, context, shard)
        pair = self._compared(source, h, shard)
        rows = None if shard is None else shard.rows
        graph: SampledGraph = self.sampler(pair, rows=rows, generator=generator)
        return graph

    def plan(
        self,
        x: Tensor,
        *,
        context: Tensor | None = None,
        shard: RowShard | None = None,
    ) -> SamplingPlan:
        r"""Return the training-time sampling plan.

        Args:
            x (torch.Tensor): The node features, dense or sparse CSR.
            context (torch.Tensor, optional): As in :meth:`forward`.
                (default: :obj:`None`)
            shard (RowShard, optional): As in :meth:`forward`. (default: :obj:`None`)

        Returns:
            SamplingPlan: The method, its numbers, and why.
        """
        h, source = self._projections(x, context, shard)
        return self.sampler.plan(self._compared(source, h, shard))

    def _projections(
        self, x: Tensor, context: Tensor | None, shard: RowShard | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the projections of the rows, and of those behind transition nodes."""
        rows, name = (x, 'x') if context is None else (context, 'context')
        is_own = self.transition != 'projected'  # And the same on all ranks.
        check_shard(shard, x, context=None if is_own else context)
        if self.transition == 'free':
            check_absent(context, 'context', FREE)
            return self._project(x), None
        if self.transition == 'anchors':
            rows = self._anchor_rows(context)
            name = 'anchors' if context is None else name
        if self.num_nodes is not None:
            check_fixed(rows, self.num_nodes, name)
        h = self._project(x)
        source = h if rows is x else self._project(rows, name)
        if self.num_nodes is not None:
            check_all_rows(rows, self.num_nodes, name, shard)
        return h, source

    def _compared(
        self, source: Tensor | None, h: Tensor, shard: RowShard | None
    ) -> tuple[Tensor, Tensor]:
        """Return the transition nodes, and the rows that are compared with them."""
        nodes = self._nodes(source, h, shard)
        if shard is None:
            return nodes, h
        if self.sampler.weighs_targets(shard.total, nodes.size(0)):
            # How a target draws depends on the others, but no gradient does.
            rows = shard.gather(h.detach()).split(shard.sizes)
            before, after = rows[: shard.rank], rows[shard.rank + 1 :]
            return nodes, torch.cat([*before, h, *after])
        return nodes, F.pad(h, (0, 0, shard.first, shard.total - shard.rows[1]))

    def _nodes(
        self, source: Tensor | None, h: Tensor, shard: RowShard | None
    ) -> Tensor:
        """Return the transition nodes, to be compared with rows like those given."""
        if source is None:
            return unit_rows(self.transition_nodes).to(h.dtype)
        if self.transition == 'anchors':
            return source
        return unit_rows(sum_rows(self.theta_t, unit_rows(source), shard))

    def _messages(
        self, source: Tensor | None, h: Tensor, shard: RowShard | None
    ) -> Tensor:
        """Return what the transition nodes send to rows like those given."""
        if source is None:
            return self.messages.to(h.dtype)
        if self.transition == 'anchors':
            return source
        return sum_rows(self.theta_e, source, shard)

    def _sizes(self) -> str:
        text = super()._sizes()
        if self.num_nodes is not None:
            text += f', num_nodes={self.num_nodes}'
        text += f', num_transition_nodes={self.num_transition_nodes}'
        if self.transition != 'projected':
            text += f', transition={self.transition!r}'
        return text
