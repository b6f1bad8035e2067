"""Read graphs that Metattack has changed, with their features, labels and splits.

The files are those of Pro-GNN (https://github.com/ChandlerBang/Pro-GNN) and of
Metattack (https://github.com/danielzuegner/gnn-meta-attack), in the folder `attacked`
below the one that `GSL_DATA` names. Nothing in them is executed.
"""

from __future__ import annotations

import functools
import json
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import connected_components
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import normalize
from torch import Tensor

from reproduction.attacked_tables import ATTACKED
from reproduction.datasets import load_dataset, load_observed_edges
from reproduction.tables_data import data_folder
from torch_geometric_gsl.nn.similarity import LinearSimilarity
from torch_geometric_gsl.transforms.feature_graphs import nearest_neighbours
from torch_geometric_gsl.typing import SampledGraph

#: The data sets, by the names of their files.
DATASETS = {
    'CiteSeer': 'citeseer',
    'Cora-ML': 'cora_ml',
    'Polblogs': 'polblogs',
    'PubMed': 'pubmed',
}


class AttackedGraph(NamedTuple):
    """A graph that an attacker has changed, with unchanged features.

    Args:
        x: The features as sparse CSR, unit rows.
        compared: The unit rows that are compared; the features if there are any.
        y: The classes.
        nearest: The nearest rows of each node, weighted by their cosine.
        edge_index: The given edges, both ways, sorted by target.
    """

    x: Tensor
    compared: Tensor
    y: Tensor
    nearest: SampledGraph
    edge_index: Tensor

    @property
    def cosine(self) -> Tensor:
        """Return the cosine of the ends of each given edge."""
        rows = self.compared
        cosine: Tensor = LinearSimilarity(rows.size(1))(rows, self.edge_index)
        return cosine

    @property
    def jaccard(self) -> Tensor:
        """Return the Jaccard index of the features of both ends of each given edge."""
        rows = self.compared
        arrays = (rows.values(), rows.col_indices(), rows.crow_indices())
        matrix = sp.csr_matrix(tuple(map(np.asarray, arrays)), rows.shape) > 0
        matrix = matrix.astype(np.float32)
        size = np.asarray(matrix.sum(axis=1)).ravel()
        source, target = self.edge_index.numpy()
        common = matrix[source].multiply(matrix[target]).sum(axis=1)
        common = np.asarray(common).ravel()
        either = np.maximum(size[source] + size[target] - common, 1)
        return torch.from_numpy((common / either).astype(np.float32))


class Split(NamedTuple):
    """The nodes for training, validation and test."""

    train: Tensor
    val: Tensor
    test: Tensor


def load(dataset: str, rate: int, k: int) -> AttackedGraph:
    """Return a data set at a rate of attack.

    Nodes without features have one-hot features, and the rows of the changed graph are
    compared: nodes with similar neighbours are similar.
    """
    adjacency, words, y = _load_clean(dataset)
    if rate:
        name = f'meta/{DATASETS[dataset]}_meta_adj_{rate / 100:g}.npz'
        adjacency = _undirected(_read(name, _read_matrix))
    target, source = adjacency.nonzero()
    edge_index = torch.from_numpy(np.stack([source, target])).long()
    classes = torch.from_numpy(y)
    if words is not None:
        x, nearest = _rows_and_nearest(dataset, k)
        return AttackedGraph(x, x, classes, nearest, edge_index)
    loops = sp.identity(len(y), dtype=np.float32, format='csr')
    compared = _tensor(_unit_rows(adjacency + loops))
    nearest = nearest_neighbours(compared, k)
    return AttackedGraph(_tensor(loops), compared, classes, nearest, edge_index)


@functools.lru_cache(maxsize=8)
def _rows_and_nearest(dataset: str, k: int) -> tuple[Tensor, SampledGraph]:
    _, words, _ = _load_clean(dataset)
    rows = _tensor(_unit_rows(words))
    return rows, nearest_neighbours(rows, k)


@functools.lru_cache(maxsize=4)
def _load_clean(dataset: str) -> tuple[Any, Any, Any]:
    """Return the adjacency, the features or `None`, and the classes."""
    if dataset == 'PubMed':
        data = load_dataset(dataset)
        y = data['y'].numpy()
        edges = load_observed_edges(dataset).numpy()
        ones = np.ones(edges.shape[1])
        adjacency = _undirected(sp.csr_matrix((ones, edges[::-1]), 2 * [len(y)]))
        x = data['x']
        words = (
            sp.csr_matrix(
                (x.values().numpy(), x.col_indices().numpy(), x.crow_indices().numpy()),
                tuple(x.shape),
            )
            if x.layout == torch.sparse_csr
            else sp.csr_matrix(x.numpy())
        )
        return adjacency, words, y
    arrays = _read(f'{DATASETS[dataset]}.npz', _read_arrays)
    adjacency = _undirected(_matrix(arrays, 'adj'))
    words = _matrix(arrays, 'attr') if 'attr_data' in arrays else None
    _, component = connected_components(adjacency, directed=False)
    keep = np.flatnonzero(component == np.bincount(component).argmax())
    words = None if words is None else words[keep].astype(np.float32)
    return adjacency[keep][:, keep], words, arrays['labels'][keep].astype(np.int64)


def split_of(dataset: str, split_name: str, num_nodes: int, seed: int) -> Split:
    """Return the split that was attacked, or a random one of the same sizes."""
    if split_name == ATTACKED:
        file = f'splits/{DATASETS[dataset]}_prognn_splits.json'
        rows = _read(file, lambda path: json.loads(path.read_text()))
        return Split(*(torch.tensor(rows[f'idx_{name}']) for name in Split._fields))
    order = np.random.RandomState(seed).permutation(num_nodes)
    tenth = num_nodes // 10
    splits = np.split(order, [tenth, 2 * tenth])
    return Split(*(torch.from_numpy(rows) for rows in splits))


def _read(name: str, read: Any) -> Any:
    path = data_folder() / 'attacked' / name
    if not path.is_file():
        raise OSError(f"'{path}' was not found: let 'GSL_DATA' name its folder")
    try:
        return read(path)
    except (KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise OSError(f"'{path}' is damaged: {error}") from error


def _read_arrays(path: Path) -> dict[str, Any]:
    """Return the arrays of numbers; other arrays of the file are never unpickled."""
    suffixes = ('data', 'indices', 'indptr', 'shape')
    names = [f'{matrix}_{suffix}' for matrix in ('adj', 'attr') for suffix in suffixes]
    with path.open('rb') as content, np.load(content, allow_pickle=False) as file:
        present = [name for name in (*names, 'labels') if name in file.files]
        return {name: file[name] for name in present}


def _read_matrix(path: Path) -> Any:
    with path.open('rb') as content:
        return sp.load_npz(content)


def _matrix(arrays: dict[str, Any], name: str) -> Any:
    data, indices, indptr, shape = (
        arrays[f'{name}_{suffix}'] for suffix in ('data', 'indices', 'indptr', 'shape')
    )
    return sp.csr_matrix((data, indices, indptr), shape)


def _undirected(adjacency: Any) -> Any:
    """Return a matrix with ones for edges of either direction, without self-loops."""
    both = ((adjacency + adjacency.T) > 0).astype(np.float32).tolil()
    both.setdiag(0)
    return both.tocsr()


def _unit_rows(words: Any) -> Any:
    """Return unit rows; words that only occur or not are weighted by TF-IDF."""
    if np.all(words.data == 1):
        return TfidfTransformer().fit_transform(words).astype(np.float32)
    return normalize(words).astype(np.float32)


def _tensor(matrix: Any) -> Tensor:
    matrix = matrix.tocsr()
    matrix.sort_indices()
    indices = (matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64))
    offsets, columns = (torch.from_numpy(index) for index in indices)
    values = torch.from_numpy(matrix.data.astype(np.float32))
    return torch.sparse_csr_tensor(offsets, columns, values, matrix.shape)
