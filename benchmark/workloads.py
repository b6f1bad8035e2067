"""Load real data sets, and draw seeded synthetic ones of any size."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple, cast

import torch
from torch import Tensor

from torch_geometric_gsl.datasets import load_dataset
from torch_geometric_gsl.datasets.registry import raw_folder

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
