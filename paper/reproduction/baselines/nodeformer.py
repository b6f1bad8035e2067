"""NodeFormer: attention over all pairs of nodes in linear time."""

from __future__ import annotations

import math
from itertools import repeat
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import Linear
from torch_geometric.nn.inits import reset

from reproduction.baselines._generated_graph import graph_sizes
from torch_geometric_gsl._checks import (
    Ends,
    check_batch,
    check_count,
    check_ends,
    check_generator,
    check_positive,
    check_probability,
)
from torch_geometric_gsl.nn.linear import apply_linear, check_input
from torch_geometric_gsl.nn.models.base import NodeClassifier, resolve_activation
from torch_geometric_gsl.nn.models.row_index import RowIndexMixin
from torch_geometric_gsl.ops.generators import dropout
from torch_geometric_gsl.ops.noise import log_arrival_times
from torch_geometric_gsl.ops.runtime import full_dtype, full_precision
from torch_geometric_gsl.typing import Batch, Features


def orthogonal_directions(
    num_features: int,
    channels: int,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Draw standard normal directions [M, d], orthogonal within blocks of d of them."""

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, dtype=dtype, device=device, generator=generator)

    # In full blocks, so that the signs make each of them uniform on the sphere.
    num_blocks = math.ceil(num_features / channels)
    basis, upper = torch.linalg.qr(normal(num_blocks, channels, channels))
    basis = basis * upper.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
    length = normal(num_features, channels).norm(dim=1, keepdim=True)
    directions: Tensor = basis.mT.flatten(0, 1)[:num_features] * length
    return directions


def feature_exponents(x: Tensor, directions: Tensor) -> Tensor:
    r"""Return the logarithms of positive random features, from the `"Rethinking
    Attention with Performers" <https://arxiv.org/abs/2009.14794>`_ paper.

    .. math::
        \log \varphi_m(x) = w_m \cdot x - \frac{\lVert x \rVert^2}{2}, \qquad
        \mathbb{E}_{w_m} \left[ \varphi_m(x) \, \varphi_m(y) \right] = e^{x \cdot y}

    """
    return x @ directions.t() - x.square().sum(dim=-1, keepdim=True) / 2


def kernel_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    directions: Tensor,
    noise: Tensor | None = None,
) -> Tensor:
    r"""Compute attention by sums over the keys, averaged over draws of noise.

    .. math::
        y_i = \frac{1}{K} \sum_{k=1}^K \frac{\sum_j \kappa(q_i, k_j) \, e^{g_{jk}}
        v_j}{\sum_j \kappa(q_i, k_j) \, e^{g_{jk}}}, \qquad
        \kappa(q, k) = \sum_m \varphi_m(q) \, \varphi_m(k) \approx M e^{q \cdot k}

    where :math:`\varphi_m` are the features of :func:`feature_exponents`. Queries are
    :math:`[n, H, d]`, keys :math:`[N, H, d]`, values :math:`[N, H, c]`, directions
    :math:`[M, d]`, and the noise :math:`g` of the keys :math:`[N, H, K]`.
    """
    if noise is None:
        noise = key.new_zeros(*key.shape[:2], 1)
    left = feature_exponents(query.transpose(0, 1), directions)
    right = feature_exponents(key.transpose(0, 1), directions).mT.contiguous()
    value = value.transpose(0, 1)
    out = torch.zeros((), dtype=value.dtype, device=value.device)
    # Each feature keeps a mean of the values and its mass, and a query mixes the means:
    # the same sums, but of numbers that neither overflow nor all underflow.
    for gumbel in noise.permute(2, 1, 0).unsqueeze(2):
        exponent = right + gumbel
        shift = exponent.detach().amax(dim=-1, keepdim=True)
        weight = (exponent - shift).exp()
        mass = weight.sum(dim=-1, keepdim=True)
        mixture = (left + (mass.log() + shift).mT).softmax(dim=-1)
        out = out + mixture @ ((weight @ value) / mass)
    return (out / noise.size(2)).transpose(0, 1)


class NodeFormerLayer(torch.nn.Module):
    """Attention over all pairs of nodes; each head is as wide as the layer."""

    def __init__(
        self, channels: int, heads: int, k: int, tau: float, num_features: int
    ) -> None:
        super().__init__()
        self.heads = heads
        self.k = k
        self.tau = tau
        self.query, self.key, self.value = (
            torch.nn.Linear(channels, heads * channels) for _ in range(3)
        )
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
        """Attend from rows to sources; :obj:`sizes` are their numbers in each graph."""
        inputs = (self.query, x), (self.key, source), (self.value, source)
        projected = [lin(h).view(h.size(0), self.heads, h.size(1)) for lin, h in inputs]
        dtype = projected[0].dtype
        query, key, value = map(full_precision, projected)
        scale = 1 / (math.sqrt(self.tau) * query.size(-1) ** 0.25)
        directions = self.directions.to(query.dtype)
        noise = None
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
        # Without nodes there is no graph.
        out = torch.cat(heads) if heads else query
        hidden: Tensor = self.out(out.to(dtype).flatten(1))
        return hidden

    def _draw_directions(self, generator: torch.Generator | None) -> Tensor:
        return orthogonal_directions(
            *self.directions.shape,
            dtype=full_dtype(self.directions.dtype),
            device=self.directions.device,
            generator=generator,
        )

    def _draw_noise(self, key: Tensor, generator: torch.Generator | None) -> Tensor:
        size = (*key.shape[:2], self.k)
        return -log_arrival_times(size, key, generator) / self.tau


def context_sizes(
    x: Tensor, context: Tensor, batch: Batch | None
) -> list[tuple[int, int]]:
    """Count the rows and the context rows in each graph of a batch."""
    if batch is None:
        sizes = [(x.size(0), context.size(0))]
    else:
        of_context, of_x, _ = Ends.of((context, x)).like(batch, 'batch')
        check_batch(of_context, context)
        check_batch(of_x, x)
        ids, index = torch.cat([of_x, of_context]).unique(return_inverse=True)
        counts = (
            graph_ids.bincount(minlength=ids.numel()).tolist()
            for graph_ids in index.split([x.size(0), context.size(0)])
        )
        sizes = list(zip(*counts, strict=True))
    if any(rows > 0 and sources == 0 for rows, sources in sizes):
        where = '' if batch is None else ' in each graph of its targets'
        raise ValueError(f"'x_src' must have at least one row{where} (got none)")
    return sizes


class NodeFormer(RowIndexMixin, NodeClassifier):
    r"""The network of the `"NodeFormer: A Scalable Graph Structure Learning
    Transformer for Node Classification" <https://arxiv.org/abs/2306.08385>`_ paper,
    without a given graph.

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

    .. note::
        The relational bias and the edge loss of the paper, which need a given graph,
        are left out. Each training step draws new random features; those of
        evaluation are part of the state. The graph is never formed: there is no method
        :obj:`graphs`. For a pair :obj:`(x_src, x_dst)` :math:`j` runs over the sources.

    Args:
        in_channels (int): Size of each input sample; :obj:`-1` for lazy initialization.
        hidden_channels (int): Size :math:`d` of each hidden sample and of each head.
        num_layers (int): The number of layers of attention.
        out_channels (int): Size of each output sample.
        heads (int, optional): The number of heads. (default: :obj:`4`)
        k (int, optional): The number of draws :math:`K`. (default: :obj:`10`)
        tau (float, optional): The temperature :math:`\tau`. (default: :obj:`0.25`)
        num_features (int, optional): The number of random features :math:`M`.
            (default: :obj:`30`)
        dropout (float, optional): Dropout probability. (default: :obj:`0.5`)
        act (str, Callable or None, optional): The activation of the first hidden
            samples. (default: :obj:`"elu"`)
        task (str, optional): As in GSLNet. (default: :obj:`"classification"`)

    Shapes:
        - **input and output:** as in
          :class:`~reproduction.baselines.KNNGCN`, without edges

    Raises:
        ValueError: If an argument is out of range.

    Example:
        >>> model = NodeFormer(16, 32, num_layers=2, out_channels=7)
        >>> model(torch.randn(100, 16)).shape
        torch.Size([100, 7])
    """

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
        super().__init__()
        widths = in_channels, hidden_channels, num_layers, out_channels
        self._keep_sizes(*widths, task=task)
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
        reset(self.act)
        for module in (self.lin_in, *self.layers, *self.norms, self.lin_out):
            module.reset_parameters()

    def forward(
        self,
        x: Features,
        *,
        batch: Any = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        r"""Run the forward pass; the arguments are those of
        :class:`~torch_geometric_gsl.nn.NodeClassifier`. The targets of a pair
        :obj:`(x_src, x_dst)` attend to the sources, in a :obj:`batch` to those of
        their graph.
        """
        if isinstance(x, tuple | list):
            src, dst, _ = check_ends(x)
        else:
            src = self._indexed(x, batch)
            dst = x
        check_input(dst, self.lin_in)
        check_generator(generator, dst.device)
        if src is None:
            source_sizes = sizes = [(size, size) for size in graph_sizes(dst, batch)]
        else:
            sizes = context_sizes(dst, src, batch)
            source_sizes = [(size, size) for _, size in sizes if size > 0]
        h = self._embed(dst, generator)
        source = h if src is None else self._embed(src, generator)
        for layer, norm in zip(self.layers, list(self.norms)[1:], strict=True):
            if src is not None:
                h = self._drop(norm(layer(h, source, sizes, generator) + h), generator)
            out = layer(source, source, source_sizes, generator)
            source = self._drop(norm(out + source), generator)
            h = source if src is None else h
        if self.training and batch is None:
            self._note_num_trained(x)
        return apply_linear(self.lin_out, h)

    def _embed(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        h = self.act(self.norms[0](apply_linear(self.lin_in, x)))
        return self._drop(h, generator)

    def _drop(self, h: Tensor, generator: torch.Generator | None) -> Tensor:
        return dropout(h, self.dropout, self.training, generator)
