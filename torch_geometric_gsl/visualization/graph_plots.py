"""Draw a learned graph: its nodes and edges, or its adjacency matrix."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch_geometric.utils import subgraph

from torch_geometric_gsl._checks import (
    check_count,
    check_features,
    check_graph,
    check_node_labels,
    check_type,
)
from torch_geometric_gsl.ops.edges import chance_share, rank_in_group, same_label_share
from torch_geometric_gsl.typing import SampledGraph
from torch_geometric_gsl.visualization._colours import palette, read_values
from torch_geometric_gsl.visualization._layout import (
    agreed_count,
    check_one_set,
    principal_components,
    spring_layout,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARKERS = 'os^Dv'
_GREY = '#777777'
# The number of edges drawn per node.
_STRONGEST = 3


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

    Edges within a class have its colour, others are grey. With more than
    :obj:`max_nodes` nodes, draws a random quarter of that number, with the three
    strongest neighbours of each.

    Args:
        graph (SampledGraph or tuple[torch.Tensor, torch.Tensor]): A graph on one set
            of nodes.
        y (torch.Tensor or Sequence, optional): The labels of the nodes, integers or
            strings. (default: :obj:`None`)
        pos (torch.Tensor, optional): Positions :math:`[n, 2]` of the nodes, or features
            :math:`[n, d]`, which are projected on the two principal components of the
            nodes shown. If :obj:`None`, uses a force-directed layout. (default:
            :obj:`None`)
        ax (matplotlib.axes.Axes, optional): The axes to draw on. If :obj:`None`,
            creates a figure outside of pyplot. (default: :obj:`None`)
        max_nodes (int, optional): The largest number of nodes to draw.
            (default: :obj:`150`)
        seed (int, optional): The seed of the choice of nodes and of the layout.
            (default: :obj:`0`)

    Returns:
        matplotlib.axes.Axes: The axes; the title has the share of the weight within
        classes.

    Example:
        >>> edge_index = torch.tensor([[0, 1, 2], [1, 2, 0]])
        >>> ax = plot_graph((edge_index, torch.ones(3)), torch.tensor([0, 0, 1]))
        >>> ax.figure.savefig(getfixture('tmp_path') / 'graph.png')
        >>> ax.get_title().splitlines()[0]
        '3 nodes and their strongest edges'
    """
    check_count(max_nodes, 'max_nodes', minimum=4)
    graph, label, classes = _read_labels(graph, y, pos)
    nodes, strongest = _select_nodes(graph, label.numel(), max_nodes, seed)
    if pos is None:
        position = spring_layout(strongest.edge_index, nodes.numel(), seed)
        axis_label = 'force-directed layout (no units)'
        settings: dict[str, Any] = {'xticks': [], 'yticks': [], 'xlabel': axis_label}
    else:
        position = pos.detach().cpu()[nodes].double()
        axis = 'position'
        if position.size(1) != 2:
            position = principal_components(position)
            axis = 'principal component'
        settings = {'xlabel': f'{axis} 1', 'ylabel': f'{axis} 2'}
    axes = _make_axes(ax, 7.2)
    _draw_nodes(axes, strongest, label[nodes], classes, position)
    title = f'{label.numel():,} nodes and their strongest edges'
    if nodes.numel() < label.numel():
        title = f'{nodes.numel()} of {title}'
    if y is not None:
        title += _class_share(graph, label)
    axes.set(title=title, **settings)
    return axes


def plot_adjacency(
    graph: SampledGraph | tuple[Tensor, Tensor],
    y: Any = None,
    *,
    ax: Axes | None = None,
    max_cells: int = 150,
) -> Axes:
    r"""Draw the weighted adjacency matrix of a learned graph, one row per target.

    Nodes are sorted by class: weight within classes appears as dark blocks on the
    diagonal. With more than :obj:`max_cells` nodes, neighbouring rows and columns share
    a cell: the sum over its columns, averaged over its rows.

    Args:
        graph (SampledGraph or tuple[torch.Tensor, torch.Tensor]): As in
            :func:`plot_graph`.
        y (torch.Tensor or Sequence, optional): As in :func:`plot_graph`.
            (default: :obj:`None`)
        ax (matplotlib.axes.Axes, optional): As in :func:`plot_graph`.
            (default: :obj:`None`)
        max_cells (int, optional): The largest number of cells in each direction.
            (default: :obj:`150`)

    Returns:
        matplotlib.axes.Axes: The axes, with a colour bar beside it.

    Example:
        >>> edge_index = torch.tensor([[0, 1, 2], [1, 2, 0]])
        >>> ax = plot_adjacency((edge_index, torch.ones(3)), torch.tensor([0, 0, 1]))
        >>> ax.get_ylabel()
        'target node, by class'
    """
    check_count(max_cells, 'max_cells')
    graph, label, classes = _read_labels(graph, y, None)
    axes = _make_axes(ax, 6)
    _draw_matrix(axes, _cells(graph, label, max_cells), label.numel())
    if len(classes) > 1:
        _mark_classes(axes, label, classes)
    axes.set_title(f'{label.numel():,} nodes, {graph.edge_weight.numel():,} edges')
    return axes


def _read_labels(
    graph: SampledGraph | tuple[Tensor, Tensor], y: Any, pos: Tensor | None
) -> tuple[SampledGraph, Tensor, list[str]]:
    """Return the graph, the class of each node and the names of the classes."""
    check_one_set(graph)
    graph = check_graph(graph)
    names = None
    if y is not None:
        y = read_values(y, 'y')
        if isinstance(y, list):  # Nodes without a class form a separate one.
            texts = [str(text) for text in y]
            names = sorted(set(texts))
            y = torch.tensor([names.index(text) for text in texts], dtype=torch.long)
        check_node_labels(y, graph)
    graph = SampledGraph(graph.edge_index.cpu(), graph.edge_weight.cpu())
    if pos is not None:
        check_features(pos, 'pos')
        if pos.layout != torch.strided:
            raise ValueError(f"'pos' must be dense (got {pos.layout})")
    sizes = {k: v.size(0) for k, v in {'y': y, 'pos': pos}.items() if v is not None}
    num_nodes = agreed_count(graph.edge_index, sizes)
    if y is None:
        return graph, torch.zeros(num_nodes, dtype=torch.long), ['']
    values, label = y.unique(return_inverse=True)
    return graph, label, names or [str(value) for value in values.tolist()]


def _select_nodes(
    graph: SampledGraph, num_nodes: int, max_nodes: int, seed: int
) -> tuple[Tensor, SampledGraph]:
    """Select nodes and the strongest edges among them, with new indices."""
    order = graph.edge_index[1].argsort(stable=True)
    edge_index, weight = graph.edge_index[:, order], graph.edge_weight[order]
    is_drawn = (weight > 0) & (edge_index[0] != edge_index[1])
    edge_index, weight = edge_index[:, is_drawn], weight[is_drawn]
    is_strongest = rank_in_group(weight, edge_index[1]) < _STRONGEST
    edge_index, weight = edge_index[:, is_strongest], weight[is_strongest]
    mask = torch.ones(num_nodes, dtype=torch.bool)
    if num_nodes > max_nodes:
        generator = torch.Generator().manual_seed(seed)
        seeds = torch.randperm(num_nodes, generator=generator)
        seeds = seeds[: max_nodes // (1 + _STRONGEST)]
        mask.fill_(False)[seeds] = True
        mask[edge_index[0, mask[edge_index[1]]]] = True
    induced: Any = subgraph(mask, edge_index, weight, relabel_nodes=True)
    return mask.nonzero().view(-1), SampledGraph(*induced)


def _draw_nodes(
    ax: Axes, graph: SampledGraph, label: Tensor, classes: list[str], position: Tensor
) -> None:
    """Draw nodes and edges, those within a class in its colour."""
    from matplotlib.collections import LineCollection

    (source, target), weight = graph
    colors = palette(len(classes))
    is_inside = (label[source] == label[target]) & (len(classes) > 1)
    width = 0.5 + 1.5 * weight / weight.max() if weight.numel() else weight
    for inside in (False, True):
        edges = graph.edge_index[:, is_inside == inside]
        tints = [colors[i] for i in label[edges[0]].tolist()]
        lines = LineCollection(
            list(position[edges.t()].numpy()),
            colors=tints if inside else '#999999',
            linewidths=width[is_inside == inside].tolist(),
            alpha=0.55 if inside else 0.4,
            zorder=1,
        )
        lines.set_gid('edges inside' if inside else 'edges between')
        ax.add_collection(lines)
    for index, name in enumerate(classes):
        x, y = position[label == index].t().numpy()
        ax.scatter(
            x,
            y,
            s=42,
            linewidths=0.6,
            edgecolors='#333333',
            label=f'class {name}',
            zorder=2,
            color=colors[index],
            # Colours of more than ten classes are hard to distinguish.
            marker=_MARKERS[index // 10 % len(_MARKERS)],
        )
    ax.margins(0.06)
    if 1 < len(classes) <= 24:
        # To the right of the drawing.
        ax.legend(loc='center left', bbox_to_anchor=(1, 0.5), frameon=False)


def _class_share(graph: SampledGraph, label: Tensor) -> str:
    """Return a line of the title with the share of the weight within classes."""
    edge_index, weight = graph
    is_edge = edge_index[0] != edge_index[1]
    if not bool(weight[is_edge].any()):
        return ''
    share = same_label_share(edge_index[:, is_edge], weight[is_edge], label, label)
    return (
        f'\n{100 * share:.3g} % of the weight joins equal classes '
        f'({100 * chance_share(label):.0f} % by chance)'
    )


def _cells(graph: SampledGraph, label: Tensor, max_cells: int) -> Tensor:
    """Sum weights over the columns of each cell, averaged over its rows."""
    cells = min(label.numel(), max_cells)
    rank = torch.empty_like(label)
    rank[label.argsort(stable=True)] = torch.arange(label.numel())
    cell = rank * cells // label.numel()
    row, column = cell[graph.edge_index[1]], cell[graph.edge_index[0]]
    matrix = torch.zeros(cells * cells, dtype=torch.double)
    matrix.index_add_(0, row * cells + column, graph.edge_weight.double())
    return matrix.view(cells, cells) / torch.bincount(cell).unsqueeze(1)


def _draw_matrix(ax: Axes, matrix: Tensor, num_nodes: int) -> None:
    """Draw a matrix of weights and its colour bar."""
    from matplotlib.colors import PowerNorm
    from matplotlib.ticker import MaxNLocator

    # Loops and a few strong edges must not leave the others white.
    off_diagonal = matrix[(matrix > 0) & ~torch.eye(len(matrix), dtype=torch.bool)]
    positive = (off_diagonal if len(off_diagonal) else matrix[matrix > 0]).sort().values
    top = float(positive[int(0.99 * (len(positive) - 1))]) if len(positive) else 1
    image = ax.imshow(
        matrix.numpy(),
        cmap='Blues',
        norm=PowerNorm(0.5, vmin=0, vmax=top, clip=True),
        extent=(0, num_nodes, num_nodes, 0),
        interpolation='nearest',
    )
    title = 'weight' if len(matrix) == num_nodes else 'mean weight of a target'
    candidates = MaxNLocator(4, steps=[1, 2, 5, 10]).tick_values(0, top)
    ticks = [tick for tick in candidates if tick <= top]
    bar = ax.figure.colorbar(image, ax=ax, shrink=0.8, extend='max', ticks=ticks)
    bar.set_label(title)
    ax.set(xlabel='source node', ylabel='target node')
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10], integer=True))


def _mark_classes(ax: Axes, label: Tensor, classes: list[str]) -> None:
    """Draw lines between the classes; label them on both axes."""
    ends = torch.bincount(label, minlength=len(classes)).cumsum(0).tolist()
    for end in ends[:-1]:
        ax.axhline(end, color=_GREY, linewidth=0.8)
        ax.axvline(end, color=_GREY, linewidth=0.8)
    middles = [(low + high) / 2 for low, high in pairwise([0, *ends])]
    size = 10 if len(classes) <= 12 else 6
    ax.set_xticks(middles, classes, fontsize=size)
    ax.set_yticks(middles, classes, fontsize=size)
    ax.set(xlabel='source node, by class', ylabel='target node, by class')


def _make_axes(ax: Any, width: float) -> Axes:
    """Return the given axes, or those of a new figure outside of pyplot."""
    try:
        from matplotlib.axes import Axes
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError('plots need matplotlib: pip install matplotlib') from error
    if ax is None:
        return Figure(figsize=(width, 5), layout='constrained').subplots()
    check_type(ax, Axes, 'ax', 'matplotlib axes')
    axes: Axes = ax
    return axes
