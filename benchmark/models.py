"""The compared models, and plain ones with n x n matrices and a loop over the draws.

The paper's plain model takes the parameters of a GSLNet, so that both compute the same
function: equal outputs in evaluation mode, equal distributions in training mode. The
plain NodeFormer draws the same random features and noise as well.
"""

from __future__ import annotations

import os
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import Linear
from workloads import Workload

from reproduction.baselines import NodeFormer
from reproduction.baselines.nodeformer import (
    NodeFormerLayer,
    orthogonal_directions,
)
from torch_geometric_gsl import GSLNet
from torch_geometric_gsl.ops.noise import log_arrival_times

# The sampler method to which all ratios refer.
OURS = 'race'
IMPLEMENTATIONS = {
    'full': (OURS, 'stream', 'dense', 'nodeformer-1', 'nodeformer-4'),
    'T': (OURS, 'stream', 'dense'),
}
HIDDEN, LAYERS, K, TAU = 32, 2, 5, 0.25
TRANSITION_NODES = 500
NODEFORMER_K, NODEFORMER_FEATURES = 10, 30
GIGABYTE = 1e9

Model = torch.nn.Module


class Limits(NamedTuple):
    """Sizes beyond which an implementation is skipped or compared on fewer nodes.

    Args:
        dense_bytes: Bytes of the matrices of a dense layer.
        stream_pairs: Pairs of nodes that `stream` computes.
        evaluation_pairs: Pairs that an exact evaluation computes.
        training_nodes: Nodes on which training modes are compared.
        seconds: Seconds after which no further round starts.
    """

    dense_bytes: float = GIGABYTE
    stream_pairs: int = 5_000**2
    evaluation_pairs: int = 40_000**2
    training_nodes: int = 1_000
    seconds: float = 90


def build(implementation: str, variant: str, workload: Workload, seed: int) -> Model:
    """Build a model; equal seeds give equal parameters to equal architectures."""
    torch.manual_seed(seed)
    if implementation.startswith('nodeformer-'):
        return node_former(implementation, workload, dropout=0.5)
    is_plain = implementation == 'dense'
    method = OURS if is_plain else implementation
    model = gsl_net(method, variant, workload, dropout=0.5)
    return PlainNet(model, workload.x.size(0)) if is_plain else model


def gsl_net(method: str, variant: str, workload: Workload, dropout: float) -> GSLNet:
    """Build our model with one method of the sampler."""
    is_full = variant == 'full'
    return GSLNet.paper(
        workload.x.size(1),
        HIDDEN,
        LAYERS,
        workload.num_classes,
        num_transition_nodes=None if is_full else TRANSITION_NODES,
        num_nodes=None if is_full else workload.x.size(0),
        dropout=dropout,
        k=K,
        tau=TAU,
        method=method,
    )


def node_former(implementation: str, workload: Workload, dropout: float) -> NodeFormer:
    """Build a NodeFormer; its number of heads is the end of the name."""
    return NodeFormer(
        workload.x.size(1),
        HIDDEN,
        LAYERS,
        workload.num_classes,
        dropout=dropout,
        heads=int(implementation.split('-')[1]),
        k=NODEFORMER_K,
        tau=TAU,
        num_features=NODEFORMER_FEATURES,
    )


def skip_reason(
    implementation: str, variant: str, task: str, num_nodes: int, limits: Limits
) -> str | None:
    """Return the reason to skip a row, or :obj:`None`."""
    pairs = num_nodes * (num_nodes if variant == 'full' else TRANSITION_NODES)
    if implementation == 'dense' and pairs * 4 * (K + 4) >= limits.dense_bytes:
        return f'its matrices take {pairs * 4 * (K + 4) / GIGABYTE:.1f} GB'
    if implementation == 'stream' and pairs > limits.stream_pairs:
        return f'it looks at {pairs:.1e} pairs'
    is_exact = task == 'evaluation' and not implementation.startswith('nodeformer')
    if is_exact and pairs > limits.evaluation_pairs:
        return f'exact evaluation looks at {pairs:.1e} pairs'
    needed = _needed_bytes(implementation, variant, num_nodes)
    available = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
    if needed > 0.6 * available:
        return (
            f'it needs {needed / GIGABYTE:.0f} GB or more, '
            f'this machine has {available / GIGABYTE:.0f} GB'
        )
    return None


def _needed_bytes(implementation: str, variant: str, num_nodes: int) -> float:
    if variant == 'T':  # Two matrices per layer, with their gradients.
        return LAYERS * 2 * 2 * 4 * TRANSITION_NODES * num_nodes
    if implementation.startswith('nodeformer-'):
        heads = int(implementation.split('-')[1])
        width = 2 * NODEFORMER_FEATURES
        # Weights of keys and mixtures of queries in every draw, and their gradients.
        return LAYERS * 2 * 4 * heads * NODEFORMER_K * width * num_nodes
    return 0


class PlainConv(torch.nn.Module):
    """A layer with a NeuralGauSim graph of all nodes, or of transition nodes."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        num_nodes: int,
        num_transition_nodes: int | None,
        *,
        k: int,
        tau: float,
    ) -> None:
        super().__init__()
        self.k, self.tau, self.num_nodes = k, tau, num_nodes
        self.lin = Linear(in_channels, out_channels, bias=False)
        self.lin_root = Linear(in_channels, out_channels, bias=False)
        self.bias = torch.nn.Parameter(torch.zeros(out_channels))
        self.w_b = torch.nn.Parameter(torch.empty(1, out_channels))
        self.w_c = torch.nn.Parameter(torch.empty(1, out_channels))
        self.theta_t: torch.nn.Parameter | None = None
        if num_transition_nodes is not None:
            size = (num_transition_nodes, num_nodes)
            self.theta_t = torch.nn.Parameter(torch.empty(size))
            self.theta_e = torch.nn.Parameter(torch.empty(size))

    def forward(self, x: Tensor) -> Tensor:
        h = self.lin(x)
        z = F.normalize(h)
        sources, messages = z, h
        if self.theta_t is not None:
            sources = F.normalize(self.theta_t @ (z / self.num_nodes))
            messages = self.theta_e @ (h / self.num_nodes)
        b = torch.sigmoid(z @ self.w_b.t())
        c = 0.1 * torch.sigmoid(z @ self.w_c.t())
        phi = torch.exp(-((z @ sources.t() - b) ** 2) / c)
        out: Tensor = self.weights(phi) @ messages + self.lin_root(x) + self.bias
        return out

    def weights(self, phi: Tensor) -> Tensor:
        """Average K relaxed draws; without noise in evaluation mode."""
        if not self.training:
            return torch.softmax(phi / self.tau, dim=-1)
        total = torch.zeros_like(phi)
        for _ in range(self.k):
            gumbel = -torch.empty_like(phi).exponential_().log()
            total = total + torch.softmax((phi + gumbel) / self.tau, dim=-1)
        return total / self.k


class PlainNet(torch.nn.Module):
    """The layers of a GSLNet, with its parameters."""

    def __init__(self, model: GSLNet, num_nodes: int) -> None:
        super().__init__()
        self.dropout = model.dropout.p
        sampler: Any = model.convs[0].sampler
        widths = [model.in_channels]
        widths += [model.hidden_channels] * (model.num_layers - 1)
        widths += [model.out_channels]
        self.convs = torch.nn.ModuleList(
            PlainConv(
                *size,
                num_nodes,
                model.num_transition_nodes,
                k=sampler.k,
                tau=sampler.tau,
            )
            for size in pairwise(widths)
        )
        # The tensors are shared: those of transition nodes are large.
        state = {plain_name(key): value for key, value in model.state_dict().items()}
        self.load_state_dict(state, assign=True)

    def forward(self, x: Tensor) -> Tensor:
        *inner, last = self.convs
        for conv in inner:
            x = F.dropout(F.elu(conv(x)), self.dropout, self.training)
        out: Tensor = last(x)
        return out


def plain_name(name: str) -> str:
    """Convert the name of a parameter of a GSLNet to its name in a `PlainNet`."""
    return name.replace('sampler.similarity.', '')


class PlainNodeFormer(torch.nn.Module):
    """A NodeFormer without dropout, whose sums run over all pairs of nodes."""

    def __init__(self, model: NodeFormer) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        model = self.model
        first_norm, *norms = model.norms
        h = F.elu(first_norm(model.lin_in(x)))
        layers = (m for m in model.modules() if isinstance(m, NodeFormerLayer))
        for layer, norm in zip(layers, norms, strict=True):
            h = norm(self.attend(layer, h, generator) + h)
        out: Tensor = model.lin_out(h)
        return out

    def attend(
        self, layer: NodeFormerLayer, h: Tensor, generator: torch.Generator | None
    ) -> Tensor:
        """Compute the heads of a layer, one after the other."""
        directions = layer.directions
        gumbel = torch.zeros(h.size(0), layer.heads, 1)
        if self.training:
            directions = orthogonal_directions(
                *directions.shape, dtype=h.dtype, device=h.device, generator=generator
            )
            size = (h.size(0), layer.heads, layer.k)
            gumbel = -log_arrival_times(size, h, generator)
        projected = (layer.query(h), layer.key(h), layer.value(h))
        query, key, value = (
            rows.view(h.size(0), layer.heads, -1) for rows in projected
        )
        # For both sides: their product is divided by tau and the root of the width.
        factor = (layer.tau * query.size(-1) ** 0.5) ** -0.5
        heads = []
        for head in range(layer.heads):
            kernel = exponential_kernel(
                factor * query[:, head], factor * key[:, head], directions
            )
            weight = torch.zeros_like(kernel)
            for noise in gumbel[:, head].t():
                drawn = kernel * (noise / layer.tau).exp()
                weight = weight + drawn / drawn.sum(dim=1, keepdim=True)
            heads.append(weight @ value[:, head] / gumbel.size(2))
        out: Tensor = layer.out(torch.cat(heads, dim=1))
        return out


def exponential_kernel(query: Tensor, key: Tensor, directions: Tensor) -> Tensor:
    """Estimate exp(q . k) of all pairs, without the factors that cancel."""
    left, right = (
        torch.exp(x @ directions.t() - x.square().sum(dim=1, keepdim=True) / 2)
        for x in (query, key)
    )
    return left @ right.t()
