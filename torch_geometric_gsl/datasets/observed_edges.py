"""The graphs that come with data sets, which `load_dataset` withholds."""

from __future__ import annotations

from typing import cast

from torch import Tensor
from torch_geometric.utils import remove_self_loops, to_undirected

from torch_geometric_gsl._checks import check_count, check_option
from torch_geometric_gsl.datasets.registry import read_raw

#: The data sets that come with edges which :func:`load_observed_edges` reads.
OBSERVED: tuple[str, ...] = ('CiteSeer', 'PubMed', 'Chameleon', 'Squirrel')


def load_observed_edges(
    name: str, num_nodes: int, root: str = 'data', *, allow_pickle: bool = False
) -> Tensor:
    r"""Return the graph that a data set comes with, which
    :func:`~torch_geometric_gsl.datasets.load_dataset` withholds.

    It is refined, or compared with a learned one. It is read from the raw files of the
    features, which are downloaded if they are absent.

    Args:
        name (str): :obj:`"CiteSeer"`, :obj:`"PubMed"`, :obj:`"Chameleon"` or
            :obj:`"Squirrel"`.
        num_nodes (int): The number of nodes of the data set.
        root (str, optional): The folder of raw files that is searched after the one
            that the environment variable :obj:`GSL_DATA` names.
            (default: :obj:`"data"`)
        allow_pickle (bool, optional): Whether to read raw files of unknown bytes. Those
            that are pickles execute what they hold. (default: :obj:`False`)

    Returns:
        torch.Tensor: The edges :math:`[2, |\mathcal{E}|]` in both directions, each
        once, sorted, without loops.

    Raises:
        OSError: If a file is damaged, unknown, or cannot be downloaded.
        TypeError: If an argument has the wrong type.
        ValueError: If :obj:`name` is unknown, or the data set has other nodes.

    Example:
        >>> data = load_dataset('CiteSeer')  # doctest: +SKIP
        >>> load_observed_edges('CiteSeer', data.num_nodes).shape  # doctest: +SKIP
        torch.Size([2, 9104])
    """
    check_option(name, OBSERVED, 'name')
    check_count(num_nodes, 'num_nodes')
    data = read_raw(name, root, allow_pickle)
    if num_nodes != data.num_nodes:
        raise ValueError(
            f"'num_nodes' must be {data.num_nodes} for '{name}' (got {num_nodes})"
        )
    edge_index, _ = remove_self_loops(cast(Tensor, data.edge_index))
    undirected: Tensor = to_undirected(edge_index, num_nodes=num_nodes)
    return undirected
