"""Load or draw the embeddings by which a sharp graph compares nodes."""

from __future__ import annotations

import re

import torch
import torch.nn.functional as F
import workloads
from torch import Tensor
from torch_geometric.nn import Linear
from workloads import REAL

from torch_geometric_gsl.nn.linear import apply_linear

CHANNELS = 32
# Training of the two-layer net whose first layer embeds the nodes.
STEPS, RATE, DECAY, DROPOUT = 100, 0.01, 5e-4, 0.5
# Mean norm of the noise that is added to the unit centre of a cluster.
NOISE = 0.5
SIZES = (10_000, 100_000, 1_000_000)
# Small ones first: an interrupted run has most of the table.
DEFAULT = [
    *(f'{name}-{form}' for name in ('citeseer', '20news') for form in ('raw', 'z')),
    *('clustered-10000', 'noise-10000', 'pubmed-raw', 'pubmed-z', 'physics-z'),
    *('clustered-100000', 'physics-raw', 'clustered-1000000'),
]
QUICK = ['clustered-1000', 'noise-1000']


def parse(name: str) -> tuple[str, int, float]:
    """Split a name into family, size and noise; the size of a real data set is 0."""
    family, _, form = name.rpartition('-')
    if family in REAL and form in ('raw', 'z'):
        return family, 0, 0.0
    match = re.fullmatch(r'(?:(clustered)|noise)-([1-9]\d*)(?(1)(?:@(\d\.\d+))?)', name)
    if match is None or int(match[2]) < 1_000:
        raise ValueError(
            f"'workloads' must be among NAME-raw and NAME-z with a NAME of "
            f'{", ".join(REAL)}, clustered-N, clustered-N@NOISE and noise-N with a '
            f'number of nodes N of at least 1000 (got {name!r})'
        )
    return match[1] or 'noise', int(match[2]), float(match[3] or NOISE)


def missing_reason(name: str) -> str | None:
    """Return the reason why a data set cannot be read here, or :obj:`None`."""
    return workloads.missing_reason(parse(name)[0])


def load(name: str, seed: int) -> tuple[Tensor, bool]:
    """Return the embeddings of nodes, and whether they are learned and need gradients.

    Real data sets have their features (`raw`), or `X W` of a two-layer net trained on
    half of the labels (`z`). Synthetic embeddings are unit rows: around centres (the
    square root of the number of nodes), or without structure.
    """
    family, size, noise = parse(name)
    if family in REAL:
        workload = workloads.load(family, seed)
        if name.endswith('-z'):
            return train(workload, seed), True
        x = workload.x
        return (x if x.layout == torch.strided else x.to_dense()), False
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, CHANNELS, generator=generator)
    if family == 'clustered':
        count = round(size**0.5)
        centre = F.normalize(torch.randn(count, CHANNELS, generator=generator))
        number = torch.randint(count, (size,), generator=generator)
        x = centre[number] + noise / CHANNELS**0.5 * x
    return F.normalize(x), True


def train(workload: workloads.Workload, seed: int) -> Tensor:
    """Train a two-layer net for a hundred steps of Adam and return its `X W`."""
    torch.manual_seed(seed)
    x, y = workload.x, workload.y
    first = Linear(x.size(1), CHANNELS, bias=False, weight_initializer='glorot')
    last = Linear(CHANNELS, workload.num_classes)
    labelled = torch.randperm(y.numel())[: y.numel() // 2]
    parameters = [*first.parameters(), *last.parameters()]
    optimizer = torch.optim.Adam(parameters, RATE, weight_decay=DECAY)
    for _ in range(STEPS):
        optimizer.zero_grad()
        hidden = F.dropout(apply_linear(first, x).relu(), DROPOUT)
        F.cross_entropy(last(hidden)[labelled], y[labelled]).backward()
        optimizer.step()
    return apply_linear(first, x).detach()
