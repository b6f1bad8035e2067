from __future__ import annotations

import math
from itertools import repeat
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import Linear

from torch_geometric_gsl._checks import (
    check_count,
    check_generator,
    check_pair,
    check_positive,
    check_probability,
)
from torch_geometric_gsl.baselines._base import Baseline
from torch_geometric_gsl.baselines.nodeformer.attention import (
    kernel_attention,
    orthogonal_directions,
)
from torch_geometric_gsl.nn.linear import apply_linear
from torch_geometric_gsl.nn.models.layers import (
    check_input,
    reset_activation,
    resolve_activation,
)
from torch_geometric_gsl.nn.models.row_index import IndexesRows
from torch_geometric_gsl.nn.nearest_neighbours import context_sizes, graph_sizes
from torch_geometric_gsl.ops.local_random import dropout
from torch_geometric_gsl.ops.noise import arrival_times
from torch_geometric_gsl.ops.runtime import full_dtype, full_precision
from torch_geometric_gsl.typing import Features


class NodeFormerLayer(torch.nn.Module):
    """Attention of all pairs of nodes, in which each head is as wide as the layer."""

    def __init__(
        self, channels: int, heads: int, k: int, tau: float, num_features: int
    ) -> None:
        super().__init__()
        self.heads = heads
        self.k = k
        self.tau = tau
        self.query = torch.nn.Linear(channels, heads * channels)
        self.key = torch.nn.Linear(channels, heads * channels)
        self.value = torch.nn.Linear(channels, heads * channels)
        self.out = torch.nn.Linear(heads * channels, channels)
        self.directions: Tensor
        self.register_buffer('directions', torch.empty(num_features, channels))

    def reset_parameters(self) -> None:
        for lin in (self.query, self.key, self.value, self.out):
            lin.reset_parameters()
        self.directions.copy_(self._draw_directions(None))

    def forward(
        self,
        x: Tensor,
        source: Tensor,
        sizes: list[tuple[int, int]],
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Attend from rows to sources, whose numbers in each graph are :obj:`sizes`."""
        parts = (
            self._heads(self.query, x),
            *(self._heads(lin, source) for lin in (self.key, self.value)),
        )
        dtype = parts[0].dtype
        with torch.autocast(x.device.type, enabled=False):
            query, key, value = map(full_precision, parts)
            scale = 1 / (math.sqrt(self.tau) * query.size(-1) ** 0.25)
            directions, noise = self.directions.to(query.dtype), None
            if self.training:
                directions = self._draw_directions(generator)
                noise = self._draw_noise(key, generator)
            rows, sources = ([size[i] for size in sizes] for i in (0, 1))
            graphs = zip(
                (scale * query).split(rows),
                (scale * key).split(sources),
                value.split(sources),
                repeat(None) if noise is None else noise.split(sources),
                strict=False,
            )
            heads = [kernel_attention(q, k, v, directions, g) for q, k, v, g in graphs]
            # Of no nodes there is no graph.
            out = torch.cat(heads) if heads else query
        hidden: Tensor = self.out(out.to(dtype).flatten(1))
        return hidden

    def _heads(self, lin: torch.nn.Linear, x: Tensor) -> Tensor:
        heads: Tensor = lin(x).view(x.size(0), self.heads, x.size(1))
        return heads

    def _draw_directions(self, generator: torch.Generator | None) -> Tensor:
        return orthogonal_directions(
            *self.directions.shape,
            dtype=full_dtype(self.directions.dtype),
            device=self.directions.device,
            generator=generator,
        )

    def _draw_noise(self, key: Tensor, generator: torch.Generator | None) -> Tensor:
        size = (*key.shape[:2], self.k)
        time = arrival_times(
            size, dtype=key.dtype, device=key.device, generator=generator
        )
        return -time.log_() / self.tau


class NodeFormer(IndexesRows, Baseline):
    r"""The network of the `"NodeFormer: A Scalable Graph Structure Learning
    Transformer for Node Classification" <https://arxiv.org/abs/2306.08385>`_ paper,
    where no graph is given.

    .. math::
        \mathbf{h}^{\prime}_i = \mathrm{Dropout} \left( \mathrm{LayerNorm} \left(
        \mathbf{h}_i + \mathbf{W} \big\Vert_p \frac{1}{K} \sum_{k=1}^K \sum_j
        \mathrm{softmax}_j \left( \frac{ \mathbf{q}_{pi} \cdot \mathbf{k}_{pj} /
        \sqrt{d} + g_{pjk} }{\tau} \right) \mathbf{v}_{pj} + \mathbf{b} \right) \right)

    where :math:`\mathbf{q}_{pi}, \mathbf{k}_{pi}, \mathbf{v}_{pi} \in \mathbb{R}^d`
    are affine functions of :math:`\mathbf{h}_i` in each head :math:`p`, as wide as the
    layer, and :math:`g_{pjk}` is Gumbel noise of key :math:`j` in draw :math:`k`, in
    training mode only. The exponentials of the inner products are estimated from
    :math:`M` positive orthogonal random features, so that time and memory are linear
    in the number of nodes and no graph is ever stored. The first hidden features are
    :math:`\mathrm{Dropout}(\mathrm{ELU}(\mathrm{LayerNorm}(\mathbf{X}
    \mathbf{W}_{\textrm{in}} + \mathbf{b}_{\textrm{in}})))`, and the logits are an
    affine function of the last ones.

    Of a pair :obj:`(x_src, x_dst)` :math:`j` runs over the sources alone, so that what
    a new row gets depends on no other one.

    .. note::
        The relational bias and the edge loss of the paper, which need a given graph,
        are left out. Random features are drawn anew in each step of training; those of
        evaluation are part of the state. The graph is never formed: there is no method
        :obj:`graphs`.

    Args:
        in_channels (int): Size of each input sample, or :obj:`-1` to derive the size
            from the first input to the forward method.
        hidden_channels (int): Size :math:`d` of each hidden sample and of each head.
        num_layers (int): The number of layers of attention.
        out_channels (int): Size of each output sample.
        heads (int, optional): The number of heads. (default: :obj:`4`)
        k (int, optional): The number of draws :math:`K`. (default: :obj:`10`)
        tau (float, optional): The temperature :math:`\tau`.
            (default: :obj:`0.25`)
        num_features (int, optional): The number of random features :math:`M`.
            (default: :obj:`30`)
        dropout (float, optional): Dropout probability of the hidden samples.
            (default: :obj:`0.5`)
        act (str, Callable or None, optional): The activation of the first hidden
            samples, or :obj:`None` for none. (default: :obj:`"elu"`)
        task (str, optional): The task, as in :class:`~torch_geometric_gsl.nn.GSLNet`.
            (default: :obj:`"classification"`)

    Shapes:
        - **input:** node features :math:`(|\mathcal{V}|, F_{in})`, dense or sparse
          CSR, batch vector :math:`(|\mathcal{V}|)` *(optional)*, context
          :math:`(|\mathcal{V}_c|, F_{in})` *(optional)*
        - **output:** node features :math:`(|\mathcal{V}|, F_{out})`

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.

    Example:
        >>> model = NodeFormer(16, 32, num_layers=2, out_channels=7)
        >>> model(torch.randn(100, 16)).shape
        torch.Size([100, 7])
    """

    shown = ('heads', 'k', 'tau')

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        *,
        heads: int = 4,
        k: int = 10,
        tau: float = 0.25,
        num_features: int = 30,
        dropout: float = 0.5,
        act: Any = 'elu',
        task: str = 'classification',
    ) -> None:
        super().__init__(
            in_channels, hidden_channels, num_layers, out_channels, task=task
        )
        check_count(heads, 'heads')
        check_count(k, 'k')
        check_positive(tau, 'tau')
        check_count(num_features, 'num_features')
        check_probability(dropout, 'dropout')
        self.heads = heads
        self.k = k
        self.tau = float(tau)
        self.num_features = num_features
        self.dropout = dropout
        self.act = resolve_activation(act)
        self.lin_in = Linear(in_channels, hidden_channels)
        self.layers = torch.nn.ModuleList(
            NodeFormerLayer(hidden_channels, heads, k, self.tau, num_features)
            for _ in range(num_layers)
        )
        self.norms = torch.nn.ModuleList(
            torch.nn.LayerNorm(hidden_channels) for _ in range(num_layers + 1)
        )
        self.lin_out = Linear(hidden_channels, out_channels)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        r"""Reset all learnable parameters of the module, and draw the random
        features of evaluation mode.
        """
        reset_activation(self.act)
        for module in (self.lin_in, *self.layers, *self.norms, self.lin_out):
            module.reset_parameters()

    def forward(
        self,
        x: Features,
        *,
        batch: Any = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        r"""Run the forward pass.

        Args:
            x (torch.Tensor or tuple[torch.Tensor, torch.Tensor]): The node features,
                dense or sparse CSR, or a pair :obj:`(x_src, x_dst)`, whose targets
                attend to the sources.
            batch (torch.Tensor or tuple, optional): Sorted graph ids of the nodes, a
                pair for a pair: no node attends to another graph.
                (default: :obj:`None`)
            generator (torch.Generator, optional): Source of randomness of the
                attention and of dropout; the global one if :obj:`None`.
                (default: :obj:`None`)
        """
        src, dst = (
            check_pair(x)
            if isinstance(x, tuple | list)
            else (self._indexed(x, batch), x)
        )
        check_input(dst, self.lin_in)
        check_generator(generator, dst.device)
        if src is None:
            own = sizes = [(size, size) for size in graph_sizes(dst, batch)]
        else:
            sizes = context_sizes(dst, src, batch)
            own = [(size, size) for _, size in sizes if size > 0]
        h = self._embed(dst, generator)
        source = h if src is None else self._embed(src, generator)
        for layer, norm in zip(self.layers, list(self.norms)[1:], strict=True):
            if src is not None:
                h = self._drop(norm(layer(h, source, sizes, generator) + h), generator)
            out = layer(source, source, own, generator)
            source = self._drop(norm(out + source), generator)
            h = source if src is None else h
        return apply_linear(self.lin_out, h)

    def _embed(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        h = self.act(self.norms[0](apply_linear(self.lin_in, x)))
        return self._drop(h, generator)

    def _drop(self, h: Tensor, generator: torch.Generator | None) -> Tensor:
        return dropout(h, self.dropout, self.training, generator)
