"""Build the compared implementations, and skip those too large to run."""

from __future__ import annotations

import os
from typing import NamedTuple

import torch
from plain import PlainNet
from workloads import Workload

from reproduction.baselines import NodeFormer
from torch_geometric_gsl import GSLNet

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
