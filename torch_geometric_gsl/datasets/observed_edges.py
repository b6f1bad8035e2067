"""The graphs that come with data sets, which `load_dataset` withholds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch_geometric.datasets import Planetoid, WikipediaNetwork
from torch_geometric.utils import remove_self_loops, to_undirected

from torch_geometric_gsl._checks import check_count, check_option
from torch_geometric_gsl._damage import damaged
from torch_geometric_gsl.datasets._io.safe_pickle import Function, read_pickle
from torch_geometric_gsl.datasets.registry import raw_folder

# What the pickles of Planetoid ask for; nothing in a file is executed.
_NAMES = {
    ('collections', 'defaultdict'): Function(lambda *args: {}),
    ('__builtin__', 'list'): Function(lambda *args: []),
}
_WIKIPEDIA = f'{WikipediaNetwork.processed_url}/new_data'
#: Where the edges of each data set are.
OBSERVED = {
    'CiteSeer': f'{Planetoid.url}/ind.citeseer.graph',
    'PubMed': f'{Planetoid.url}/ind.pubmed.graph',
    'Chameleon': f'{_WIKIPEDIA}/chameleon/out1_graph_edges.txt',
    'Squirrel': f'{_WIKIPEDIA}/squirrel/out1_graph_edges.txt',
}


def load_observed_edges(name: str, num_nodes: int, root: str = 'data') -> Tensor:
    r"""Return the graph that a data set comes with, which
    :func:`~torch_geometric_gsl.datasets.load_dataset` withholds.

    It is refined, or compared with a learned one. The file is read where the raw
    features lie, and downloaded there if it is absent; nothing in it is executed.

    Args:
        name (str): :obj:`"CiteSeer"`, :obj:`"PubMed"`, :obj:`"Chameleon"` or
            :obj:`"Squirrel"`.
        num_nodes (int): The number of nodes of the data set.
        root (str, optional): The folder of raw files that is searched after the one
            that the environment variable :obj:`GSL_DATA` names.
            (default: :obj:`"data"`)

    Returns:
        torch.Tensor: The edges :math:`[2, |\mathcal{E}|]` in both directions, each
        once, sorted, without loops.

    Raises:
        OSError: If the file is damaged or cannot be downloaded, or the features have
            never been loaded.
        TypeError: If an argument has the wrong type.
        ValueError: If :obj:`name` is unknown.

    Example:
        >>> data = load_dataset('CiteSeer')  # doctest: +SKIP
        >>> load_observed_edges('CiteSeer', data.num_nodes).shape  # doctest: +SKIP
        torch.Size([2, 9104])
    """
    check_option(name, OBSERVED, 'name')
    check_count(num_nodes, 'num_nodes')
    url, folder = OBSERVED[name], raw_folder(name, root)
    if folder is None:
        raise OSError(f"'{name}' must have raw files: load its features first")
    path = folder / url.rpartition('/')[2]
    if not path.is_file():
        torch.hub.download_url_to_file(url, str(path))
    edges = _read_lists(path) if path.suffix == '.graph' else _read_lines(path)
    if edges.min() < 0 or edges.max() >= num_nodes:
        raise damaged(path, f'its nodes must lie in 0..{num_nodes - 1}')
    edge_index, _ = remove_self_loops(edges)
    undirected: Tensor = to_undirected(edge_index, num_nodes=num_nodes)
    return undirected


def _read_lists(path: Path) -> Tensor:
    """Read the neighbours of each node from a pickle."""
    found = read_pickle(path, _NAMES)
    if type(found) is not dict:
        raise damaged(path, 'it holds no neighbours of nodes')
    try:
        pairs = [(node, other) for node, others in found.items() for other in others]
        return torch.from_numpy(np.array(pairs, dtype=np.int64).T.copy())
    except (OverflowError, TypeError, ValueError) as error:
        raise damaged(path, error) from error


def _read_lines(path: Path) -> Tensor:
    """Read an edge from each line but the first."""
    try:
        pairs = np.loadtxt(path, dtype=np.int64, skiprows=1, ndmin=2)
        if pairs.shape[1] != 2:
            raise ValueError(f'its lines hold {pairs.shape[1]} numbers')
    except (OverflowError, ValueError) as error:
        raise damaged(path, error) from error
    return torch.from_numpy(pairs.T.copy())
