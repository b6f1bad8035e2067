from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torch_geometric_gsl._checks import (
    check_count,
    check_features,
    check_graph,
    check_node_labels,
)
from torch_geometric_gsl.ops.graph_stats import chance_share, same_label_share
from torch_geometric_gsl.typing import SampledGraph
from torch_geometric_gsl.visualization._drawing import (
    agreed_count,
    draw_adjacency,
    draw_nodes,
    make_axes,
    select_nodes,
)
from torch_geometric_gsl.visualization._layout import lay_out
from torch_geometric_gsl.visualization._values import read_values

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_graph(
    graph: SampledGraph | tuple[Tensor, Tensor],
    y: Any = None,
    pos: Tensor | None = None,
    *,
    ax: Axes | None = None,
    max_nodes: int = 150,
    seed: int = 0,
) -> Axes:
    r"""Draw the nodes of a learned graph and their strongest edges.

    Edges inside a class have its colour, those between classes are grey: a graph that
    joins equal classes is colourful. Of more than :obj:`max_nodes` nodes, a quarter of
    that number is drawn at random, and with each come its three strongest neighbours.

    Args:
        graph (SampledGraph or tuple[torch.Tensor, torch.Tensor]): A graph on one set
            of nodes.
        y (torch.Tensor or Sequence, optional): The labels of the nodes, integers or
            texts. (default: :obj:`None`)
        pos (torch.Tensor, optional): Positions :math:`[n, 2]` of the nodes, or
            features :math:`[n, d]`, of which the two principal components of the
            nodes shown are drawn. If :obj:`None`, edges pull their nodes
            together (a force-directed layout). (default: :obj:`None`)
        ax (matplotlib.axes.Axes, optional): The axes to draw on. If :obj:`None`, a
            figure is made, which pyplot does not know. (default: :obj:`None`)
        max_nodes (int, optional): The number of nodes to draw at the most.
            (default: :obj:`150`)
        seed (int, optional): The seed of the choice of nodes and of the layout.
            (default: :obj:`0`)

    Returns:
        matplotlib.axes.Axes: The axes, with the share of the weight that joins one
        class in its title.

    Raises:
        ImportError: If matplotlib is not installed.
        TypeError: If an input has the wrong type or dtype.
        ValueError: If an input has the wrong shape, or there are fewer labels or
            positions than nodes, or the graph has no nodes.

    Example:
        >>> edge_index = torch.tensor([[0, 1, 2], [1, 2, 0]])
        >>> ax = plot_graph((edge_index, torch.ones(3)), torch.tensor([0, 0, 1]))
        >>> ax.figure.savefig(getfixture('tmp_path') / 'graph.png')
        >>> ax.get_title().splitlines()[0]
        '3 nodes and their strongest edges'
    """
    check_count(max_nodes, 'max_nodes', minimum=4)
    plain, num_nodes, label, classes = _read(graph, y, pos)
    nodes, strongest = select_nodes(plain, num_nodes, max_nodes, seed)
    place, settings = lay_out(strongest.edge_index, nodes, pos, seed)
    (axes,) = make_axes(ax, 1, 7.2, 5)
    draw_nodes(axes, strongest, label[nodes], classes, place)
    text = f'{num_nodes:,} nodes and their strongest edges'
    if nodes.numel() < num_nodes:
        text = f'{nodes.numel()} of {text}'
    axes.set(title=f'{text}{_joined(plain, label, y is not None)}', **settings)
    return axes


def plot_adjacency(
    graph: SampledGraph | tuple[Tensor, Tensor],
    y: Any = None,
    *,
    ax: Axes | None = None,
    max_cells: int = 150,
) -> Axes:
    r"""Draw the weighted adjacency matrix of a learned graph, one row per target.

    Nodes are sorted by class: a graph that joins equal classes has dark blocks on the
    diagonal. Of more than :obj:`max_cells` nodes, neighbouring rows and columns share
    a cell, which shows the mean weight that a target of its rows gives to its columns.

    Args:
        graph (SampledGraph or tuple[torch.Tensor, torch.Tensor]): A graph on one set
            of nodes.
        y (torch.Tensor or Sequence, optional): The labels of the nodes, integers or
            texts. (default: :obj:`None`)
        ax (matplotlib.axes.Axes, optional): The axes to draw on. If :obj:`None`, a
            figure is made, which pyplot does not know. (default: :obj:`None`)
        max_cells (int, optional): The number of cells in each direction to draw at the
            most. (default: :obj:`150`)

    Returns:
        matplotlib.axes.Axes: The axes, with a colour bar beside it.

    Raises:
        ImportError: If matplotlib is not installed.
        TypeError: If an input has the wrong type or dtype.
        ValueError: If an input has the wrong shape, or there are fewer labels than
            nodes, or the graph has no nodes.

    Example:
        >>> edge_index = torch.tensor([[0, 1, 2], [1, 2, 0]])
        >>> ax = plot_adjacency((edge_index, torch.ones(3)), torch.tensor([0, 0, 1]))
        >>> ax.get_ylabel()
        'target node, by class'
    """
    check_count(max_cells, 'max_cells')
    plain, _, label, classes = _read(graph, y, None)
    (axes,) = make_axes(ax, 1, 6, 5)
    draw_adjacency(axes, plain, label, classes, max_cells)
    axes.set_title(f'{label.numel():,} nodes, {plain.edge_weight.numel():,} edges')
    return axes


def _read(
    graph: SampledGraph | tuple[Tensor, Tensor], y: Any, pos: Tensor | None
) -> tuple[SampledGraph, int, Tensor, list[str]]:
    """Return the graph, its number of nodes, their classes and the names of these."""
    plain = check_graph(graph)
    names = None
    if y is not None:
        y = read_values(y, 'y')
        if isinstance(y, list):  # Classes without a name are one of their own.
            texts = [str(text) for text in y]
            names = sorted(set(texts))
            y = torch.tensor([names.index(text) for text in texts], dtype=torch.long)
        check_node_labels(y, plain)
    plain = SampledGraph(plain.edge_index.cpu(), plain.edge_weight.cpu())
    if pos is not None:
        check_features(pos, 'pos')
        if pos.layout != torch.strided:
            raise ValueError(f"'pos' must be dense (got {pos.layout})")
    sizes = {k: v.size(0) for k, v in {'y': y, 'pos': pos}.items() if v is not None}
    num_nodes = agreed_count(plain.edge_index, sizes)
    if y is None:
        return plain, num_nodes, torch.zeros(num_nodes, dtype=torch.long), ['']
    values, label = y.unique(return_inverse=True)
    if names is None:
        names = [str(value) for value in values.tolist()]
    return plain, num_nodes, label, names


def _joined(graph: SampledGraph, label: Tensor, is_known: bool) -> str:
    """Tell the share of the weight between nodes that joins one class, in a line."""
    edge_index, weight = graph
    apart = edge_index[0] != edge_index[1]
    if not is_known or not bool(weight[apart].any()):
        return ''
    share = same_label_share(edge_index[:, apart], weight[apart], label, label)
    return (
        f'\n{100 * share:.3g} % of the weight joins equal classes '
        f'({100 * chance_share(label):.0f} % by chance)'
    )
