from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn.inits import glorot

from torch_geometric_gsl._checks import check_count, check_num_nodes
from torch_geometric_gsl.nn.conv.latent_graph_conv import LearnedGraphConv
from torch_geometric_gsl.nn.sampler.plan import SamplingPlan
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.ops.runtime import full_precision, is_exporting
from torch_geometric_gsl.ops.scores import unit_rows
from torch_geometric_gsl.typing import SampledGraph


class TransitionGraphConv(LearnedGraphConv):
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
        num_nodes (int): The number of nodes :math:`n`.
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
        **kwargs (optional): Additional arguments of
            :class:`~torch_geometric_gsl.nn.sampler.GumbelKNNSampler`, such as
            :obj:`scale`, :obj:`hard` or :obj:`method`.

    Shapes:
        - **input:** node features :math:`(n, F_{in})`, dense or sparse CSR
        - **output:** node features :math:`(n, F_{out})`

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.

    Example:
        >>> conv = TransitionGraphConv(16, 32, num_nodes=100, num_transition_nodes=10)
        >>> conv(torch.randn(100, 16)).shape
        torch.Size([100, 32])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        num_nodes: int,
        num_transition_nodes: int = 500,
        similarity: str | Similarity = 'neural_gaussian',
        k: int = 5,
        tau: float = 0.25,
        *,
        similarity_kwargs: dict[str, Any] | None = None,
        root_weight: bool = True,
        add_self_loops: bool = False,
        bias: bool = True,
        **kwargs: Any,
    ) -> None:
        check_count(num_nodes, 'num_nodes')
        check_count(num_transition_nodes, 'num_transition_nodes')
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
            compare='projected',
            embedding_channels=None,
            observed='candidates',
            **kwargs,
        )
        self.num_nodes = num_nodes
        self.num_transition_nodes = num_transition_nodes
        self.theta_t = torch.nn.Parameter(torch.empty(num_transition_nodes, num_nodes))
        self.theta_e = torch.nn.Parameter(torch.empty(num_transition_nodes, num_nodes))
        self._reset_projections()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self._reset_projections()

    def _reset_projections(self) -> None:
        for theta in (self.theta_t, self.theta_e):
            glorot(theta)
            with torch.no_grad():
                theta.mul_(self.num_nodes)

    @property
    def w_t(self) -> Tensor:
        r"""Return the projection :math:`\mathbf{W}_t` that places transition nodes."""
        return self.theta_t / self.num_nodes

    @property
    def w_e(self) -> Tensor:
        r"""Return the projection :math:`\mathbf{W}_e` that gathers their messages."""
        return self.theta_e / self.num_nodes

    def forward(
        self,
        x: Tensor,
        *,
        context: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        r"""Run the forward pass.

        Args:
            x (torch.Tensor): The node features, dense or sparse CSR.
            context (torch.Tensor, optional): The :math:`n` rows of which the transition
                nodes are made, where :obj:`x` holds others. (default: :obj:`None`)
            generator (torch.Generator, optional): Source of randomness.
                (default: :obj:`None`)
        """
        source, transition = self._transition(x, context)
        messages = self._gather(self.theta_e, source)
        h = source if context is None else self._project(x)
        out = self.sampler.propagate((transition, h), messages, generator=generator)
        return self._finish(x, h, out)

    def graph(
        self,
        x: Tensor,
        *,
        context: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> SampledGraph:
        r"""Return the bipartite graph from transition nodes to nodes.

        Args:
            x (torch.Tensor): The node features, dense or sparse CSR.
            context (torch.Tensor, optional): The rows of which the transition nodes are
                made, where :obj:`x` holds others. (default: :obj:`None`)
            generator (torch.Generator, optional): Source of randomness.
                (default: :obj:`None`)

        Returns:
            SampledGraph: The edges and their weights, sorted by target.
        """
        h, transition = self._transition(x, context)
        h = h if context is None else self._project(x)
        graph: SampledGraph = self.sampler((transition, h), generator=generator)
        return graph

    def plan(self, x: Tensor) -> SamplingPlan:
        r"""Return the training-time sampling plan.

        Args:
            x (torch.Tensor): The node features, dense or sparse CSR.

        Returns:
            SamplingPlan: The method, its numbers, and why.
        """
        h, transition = self._transition(x)
        return self.sampler.plan((transition, h))

    def _transition(
        self, x: Tensor, context: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the projected nodes of the data set and the transition nodes."""
        name = 'x' if context is None else 'context'
        nodes = x if context is None else context
        if is_exporting() and isinstance(nodes.size(0), torch.SymInt):
            raise ValueError(
                f"'{name}' must have a fixed number of rows for 'torch.export', the "
                f"nodes that the transition nodes belong to: only that of 'x' may "
                f"change, where a 'context' is given (got num_nodes={self.num_nodes} "
                f'and a dynamic dimension)'
            )
        h = self._project(nodes, name)
        check_num_nodes(nodes, self.num_nodes, name=name)
        return h, unit_rows(self._gather(self.theta_t, unit_rows(h)))

    def _gather(self, theta: Tensor, h: Tensor) -> Tensor:
        """Sum over all nodes, in full precision: their parts are small."""
        with torch.autocast(h.device.type, enabled=False):
            full = full_precision(h)
            return (theta.to(full.dtype) @ (full / self.num_nodes)).to(h.dtype)

    def _sizes(self) -> str:
        nodes = f'num_nodes={self.num_nodes}'
        transition = f'num_transition_nodes={self.num_transition_nodes}'
        return f'{super()._sizes()}, {nodes}, {transition}'
