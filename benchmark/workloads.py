"""Load real data sets and embeddings of nodes, and draw synthetic ones of any size."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.nn import Linear

from reproduction.datasets import load_dataset, raw_folder
from torch_geometric_gsl.nn.linear import apply_linear

ROOT = str(Path(__file__).resolve().parent.parent / 'data')
REAL = {
    'citeseer': 'CiteSeer',
    'pubmed': 'PubMed',
    '20news': '20News',
    'physics': 'Physics',
}
SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000)
DEFAULT = [
    *('citeseer', 'pubmed', 'physics'),
    *(f'synthetic-{size}' for size in SIZES),
]
QUICK = ['words-2000', 'words-10000']
CHANNELS, CLASSES = 128, 10
# As in CiteSeer: words of the vocabulary, and words per document.
WORDS, WORDS_PER_NODE = 3_703, 32
# The channels of embeddings by which a sharp graph compares nodes.
WIDTH = 32
# Training of the two-layer net whose first layer embeds the nodes.
STEPS, RATE, DECAY, DROPOUT = 100, 0.01, 5e-4, 0.5
# Mean norm of the noise that is added to the unit centre of a cluster.
NOISE = 0.5
# Small ones first: an interrupted run has most of the table.
EMBEDDINGS = [
    *(f'{name}-{form}' for name in ('citeseer', '20news') for form in ('raw', 'z')),
    *('clustered-10000', 'noise-10000', 'pubmed-raw', 'pubmed-z', 'physics-z'),
    *('clustered-100000', 'physics-raw', 'clustered-1000000'),
]
QUICK_EMBEDDINGS = ['clustered-1000', 'noise-1000']
# Of `make_table`.
NUM_WAVES, LENGTH, TABLE_NOISE = 200, 0.05, 0.2
Array = NDArray[np.float64]


class Workload(NamedTuple):
    """Node features, dense or sparse CSR, and their labels."""

    name: str
    x: Tensor
    y: Tensor

    @property
    def num_classes(self) -> int:
        return int(self.y.max()) + 1

    def subset(self, size: int, seed: int = 0) -> Workload:
        """Draw a random subset of nodes; return all in order if there are not more."""
        if size >= self.x.size(0):
            return self
        generator = torch.Generator().manual_seed(seed)
        nodes = torch.randperm(self.x.size(0), generator=generator)[:size]
        y = self.y[nodes]
        y[0] = self.num_classes - 1  # Keeps the number of classes.
        if self.x.layout == torch.strided:
            return Workload(self.name, self.x[nodes], y)
        rows = self.x.to_sparse_coo().index_select(0, nodes)
        return Workload(self.name, rows.coalesce().to_sparse_csr(), y)


def parse(name: str) -> tuple[str, int]:
    """Split a name into family and size; the size of a real data set is 0."""
    if name in REAL:
        return name, 0
    match = re.fullmatch(r'(synthetic|words)-([1-9]\d*)', name)
    if match is None or int(match[2]) < 1_000:
        raise ValueError(
            f"'workloads' must be among {', '.join(REAL)}, synthetic-N and words-N "
            f'with a number of nodes N of at least 1000 (got {name!r})'
        )
    return match[1], int(match[2])


def name_for(parse: Callable[[str], Any]) -> Callable[[str], str]:
    """Return a type of arguments: names that are parsed before any measurement."""

    def read(name: str) -> str:
        try:
            parse(name)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error
        return name

    return read


def missing_reason(name: str) -> str | None:
    """Return the reason why a data set cannot be read here, or :obj:`None`."""
    if name in REAL and raw_folder(REAL[name], ROOT) is None:
        return "no raw files: 'GSL_DATA' names the folder that holds them"
    return None


def load(name: str, seed: int) -> Workload:
    """Read or draw the features and labels of a workload."""
    family, size = parse(name)
    if family in REAL:
        data = load_dataset(REAL[name], ROOT)
        x, y = cast('tuple[Tensor, Tensor]', (data.x, data.y))
        return Workload(name, x, y)
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(CLASSES, (size,), generator=generator)
    y[0] = CLASSES - 1
    if family == 'synthetic':
        return Workload(name, torch.randn(size, CHANNELS, generator=generator), y)
    return Workload(name, _words(size, generator), y)


def _words(size: int, generator: torch.Generator) -> Tensor:
    """Draw sparse rows of distinct words, one from each section of the vocabulary."""
    stretch = WORDS // WORDS_PER_NODE
    shape = (size, WORDS_PER_NODE)
    word = torch.randint(stretch, shape, generator=generator)
    word += stretch * torch.arange(WORDS_PER_NODE)
    return torch.sparse_csr_tensor(
        torch.arange(0, word.numel() + 1, WORDS_PER_NODE),
        word.flatten(),
        torch.full((word.numel(),), 1 / WORDS_PER_NODE),
        (size, WORDS),
    )


def parse_embeddings(name: str) -> tuple[str, int, float]:
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


def load_embeddings(name: str, seed: int) -> tuple[Tensor, bool]:
    """Return the embeddings of nodes, and whether they are learned and need gradients.

    Real data sets have their features (`raw`), or `X W` of a two-layer net trained on
    half of the labels (`z`). Synthetic embeddings are unit rows: around centres (the
    square root of the number of nodes), or without structure.
    """
    family, size, noise = parse_embeddings(name)
    if family in REAL:
        workload = load(family, seed)
        if name.endswith('-z'):
            return train(workload, seed), True
        x = workload.x
        return (x if x.layout == torch.strided else x.to_dense()), False
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, WIDTH, generator=generator)
    if family == 'clustered':
        count = round(size**0.5)
        centre = F.normalize(torch.randn(count, WIDTH, generator=generator))
        cluster = torch.randint(count, (size,), generator=generator)
        x = centre[cluster] + noise / WIDTH**0.5 * x
    return F.normalize(x), True


def train(workload: Workload, seed: int) -> Tensor:
    """Train a two-layer net for a hundred steps of Adam and return its `X W`."""
    torch.manual_seed(seed)
    x, y = workload.x, workload.y
    projection = Linear(x.size(1), WIDTH, bias=False, weight_initializer='glorot')
    classifier = Linear(WIDTH, workload.num_classes)
    labelled = torch.randperm(y.numel())[: y.numel() // 2]
    parameters = [*projection.parameters(), *classifier.parameters()]
    optimizer = torch.optim.Adam(parameters, RATE, weight_decay=DECAY)
    for _ in range(STEPS):
        optimizer.zero_grad()
        hidden = F.dropout(apply_linear(projection, x).relu(), DROPOUT)
        F.cross_entropy(classifier(hidden)[labelled], y[labelled]).backward()
        optimizer.step()
    return apply_linear(projection, x).detach()


def make_table(num_rows: int, seed: int) -> tuple[Array, Array]:
    """Draw columns and target, from the same distribution for any number of rows."""
    law, random = np.random.default_rng(0), np.random.default_rng([seed, num_rows])
    frequency = law.normal(0, 1 / LENGTH, (2, NUM_WAVES))
    phase = law.uniform(0, 2 * math.pi, NUM_WAVES)
    position, x = random.random((num_rows, 2)), random.normal(size=(num_rows, 6))
    field = np.zeros(num_rows)
    # Wave by wave, so that a million rows take little memory.
    for wave, shift in zip(frequency.T, phase, strict=True):
        field += math.sqrt(2 / NUM_WAVES) * np.cos(position @ wave + shift)
    y = field + np.tanh(2 * x[:, 0]) + 0.5 * x[:, 1] * x[:, 2] + 0.5 * (x[:, 3] > 0)
    return np.hstack([position, x]), y + TABLE_NOISE * random.normal(size=num_rows)
