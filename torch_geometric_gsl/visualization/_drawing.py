"""Draw the parts of the pictures: a matrix, nodes, boxes, curves, without pyplot."""

from __future__ import annotations

import colorsys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.utils import subgraph
from torch_geometric.utils.num_nodes import maybe_num_nodes

from torch_geometric_gsl.ops.listed import rank_in_group
from torch_geometric_gsl.typing import SampledGraph

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Colours of classes. The first eight are those of Okabe and Ito, which colour-blind
#: people can tell apart; more come from the lists of Kelly and of Trubetskoy.
COLORS = (
    *('#0072B2', '#D55E00', '#009E73', '#CC79A7', '#E69F00', '#56B4E9', '#000000'),
    *('#F0E442', '#882D17', '#875692', '#8DB600', '#BE0032', '#F032E6', '#808000'),
    *('#AAFFC3', '#F99379', '#000075', '#DCBEFF', '#911EB4', '#9A6324'),
)
GREY = '#777777'
_MARKERS = 'os^Dv'
#: How many edges of each node are drawn.
_STRONGEST = 3


def palette(number: int) -> list[str]:
    """Return a colour for each class: more than the usual ones go round the circle."""
    if number <= len(COLORS):
        return list(COLORS)
    colours = []
    for i in range(number):
        # Neighbours in the list lie far from each other on the circle.
        hue, light = (i * 0.618034) % 1, (0.42, 0.62)[i % 2]
        parts = colorsys.hls_to_rgb(hue, light, 0.65)
        colours.append('#' + ''.join(f'{round(255 * part):02x}' for part in parts))
    return colours


def make_axes(given: Any, number: int, width: float, height: float) -> list[Axes]:
    """Return the axes to draw on: those given, or a new figure's, unknown to pyplot."""
    try:
        from matplotlib.axes import Axes
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError('plots need matplotlib: pip install matplotlib') from error
    if given is None:
        figure = Figure(figsize=(width, height), layout='constrained')
        given = figure.subplots(1, number, squeeze=False)[0]
    found = (
        [given]
        if isinstance(given, Axes)
        else list(np.ravel(np.asarray(given, object)))
    )
    kinds = {type(one).__name__ for one in found if not isinstance(one, Axes)}
    what = f'matplotlib axes, {number} in number'
    if kinds:
        raise TypeError(f"'ax' must be {what} (got {' and '.join(kinds)})")
    if len(found) != number:
        raise ValueError(f"'ax' must be {what} (got {len(found)})")
    return found


def beside(ax: Axes, **kwargs: Any) -> None:
    """Put a legend to the right of what is drawn."""
    ax.legend(loc='center left', bbox_to_anchor=(1, 0.5), frameon=False, **kwargs)


def agreed_count(edge_index: Tensor, sizes: Mapping[str, int], least: int = 0) -> int:
    """Count the nodes of edges; raise unless all sizes, by their names, agree."""
    num_nodes = max([least, maybe_num_nodes(edge_index), *sizes.values()])
    for name, size in sizes.items():
        if size != num_nodes:
            raise ValueError(
                f"'{name}' must have one row per node "
                f'(got {size} for {num_nodes} nodes)'
            )
    if num_nodes == 0:
        raise ValueError("'graph' must have nodes (got none)")
    return num_nodes


def draw_adjacency(
    ax: Axes, graph: SampledGraph, label: Tensor, classes: list[str], max_cells: int
) -> None:
    """Draw the matrix of weights, nodes sorted by class, at most that many cells."""
    from matplotlib.colors import PowerNorm
    from matplotlib.ticker import MaxNLocator

    num_nodes = label.numel()
    matrix = cell_matrix(graph, label, min(num_nodes, max_cells))
    # Loops and a few strong edges must not leave the others white.
    apart = matrix[(matrix > 0) & ~torch.eye(len(matrix), dtype=torch.bool)]
    positive = (apart if len(apart) else matrix[matrix > 0]).sort().values
    top = float(positive[int(0.99 * (len(positive) - 1))]) if len(positive) else 1
    image = ax.imshow(
        matrix.numpy(),
        cmap='Blues',
        norm=PowerNorm(0.5, vmin=0, vmax=top, clip=True),
        extent=(0, num_nodes, num_nodes, 0),
        interpolation='nearest',
    )
    what = 'weight' if len(matrix) == num_nodes else 'mean weight of a target'
    rounds = MaxNLocator(4, steps=[1, 2, 5, 10]).tick_values(0, top)
    ticks = [tick for tick in rounds if tick <= top]
    bar = ax.figure.colorbar(image, ax=ax, shrink=0.8, extend='max', ticks=ticks)
    bar.set_label(what)
    ax.set(xlabel='source node', ylabel='target node')
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10], integer=True))
    if len(classes) == 1:
        return
    ends = torch.bincount(label, minlength=len(classes)).cumsum(0).tolist()
    for end in ends[:-1]:
        ax.axhline(end, color=GREY, linewidth=0.8)
        ax.axvline(end, color=GREY, linewidth=0.8)
    middles = [(low + high) / 2 for low, high in pairwise([0, *ends])]
    size = 10 if len(classes) <= 12 else 6
    ax.set_xticks(middles, classes, fontsize=size)
    ax.set_yticks(middles, classes, fontsize=size)
    ax.set(xlabel='source node, by class', ylabel='target node, by class')


def cell_matrix(graph: SampledGraph, label: Tensor, cells: int) -> Tensor:
    """Average the weight that a target of each cell's rows gives to its columns."""
    place = torch.empty_like(label)
    place[label.argsort(stable=True)] = torch.arange(label.numel())
    cell = place * cells // label.numel()
    row, column = cell[graph.edge_index[1]], cell[graph.edge_index[0]]
    matrix = torch.zeros(cells * cells, dtype=torch.double)
    matrix.index_add_(0, row * cells + column, graph.edge_weight.double())
    return matrix.view(cells, cells) / torch.bincount(cell).unsqueeze(1)


def draw_nodes(
    ax: Axes, graph: SampledGraph, label: Tensor, classes: list[str], place: Tensor
) -> None:
    """Draw nodes and edges, those inside a class in its colour."""
    from matplotlib.collections import LineCollection

    (source, target), weight = graph
    colors = palette(len(classes))
    same = (label[source] == label[target]) & (len(classes) > 1)
    width = 0.5 + 1.5 * weight / weight.max() if weight.numel() else weight
    for inside in (False, True):
        edges = graph.edge_index[:, same == inside]
        tints = [colors[i] for i in label[edges[0]].tolist()]
        lines = LineCollection(
            list(place[edges.t()].numpy()),
            colors=tints if inside else '#999999',
            linewidths=width[same == inside].tolist(),
            alpha=0.55 if inside else 0.4,
            zorder=1,
        )
        lines.set_gid('edges inside' if inside else 'edges between')
        ax.add_collection(lines)
    for number, name in enumerate(classes):
        x, y = place[label == number].t().numpy()
        ax.scatter(
            x,
            y,
            s=42,
            linewidths=0.6,
            edgecolors='#333333',
            label=f'class {name}',
            zorder=2,
            color=colors[number],
            # Colours of more than ten classes are not told apart at a glance.
            marker=_MARKERS[number // 10 % len(_MARKERS)],
        )
    ax.margins(0.06)
    if 1 < len(classes) <= 24:
        beside(ax)


def draw_boxes(
    ax: Axes, values: list[Tensor | None], names: list[str], color: str
) -> None:
    """Draw quartiles and the 5th and 95th percentiles of some vectors."""
    ax.boxplot(
        [value.cpu().double().numpy() for value in values if value is not None],
        whis=(5, 95),
        showfliers=False,
        widths=0.5,
        patch_artist=True,
        boxprops={'facecolor': color, 'alpha': 0.35},
        medianprops={'color': 'black', 'linewidth': 2},
    )
    ax.set_xticks(range(1, len(names) + 1), names)
    ax.set_xlabel('layer')
    ax.grid(axis='y', alpha=0.3)


def draw_curve(
    ax: Axes, t: Tensor, lines: Sequence[Tensor], name: str, number: int
) -> None:
    """Draw a curve, and a band between two more if they are given."""
    color = COLORS[number % len(COLORS)]
    dashes = ('-', '--', '-.', ':')[number % 4]
    line, *band = (value.numpy() for value in lines)
    ax.plot(t.numpy(), line, dashes, linewidth=2.2, color=color, label=name)
    if band:
        low, high = band
        label = f'{name}: quartiles of $b$, $c$'
        ax.fill_between(
            t.numpy(), low, high, color=color, alpha=0.18, lw=0, label=label
        )


def select_nodes(
    graph: SampledGraph, num_nodes: int, max_nodes: int, seed: int
) -> tuple[Tensor, SampledGraph]:
    """Select nodes and the strongest edges among them, renumbered by the selection."""
    order = graph.edge_index[1].argsort(stable=True)
    edge_index, weight = graph.edge_index[:, order], graph.edge_weight[order]
    strong = (weight > 0) & (edge_index[0] != edge_index[1])
    edge_index, weight = edge_index[:, strong], weight[strong]
    keep = rank_in_group(weight, edge_index[1]) < _STRONGEST
    edge_index, weight = edge_index[:, keep], weight[keep]
    chosen = torch.ones(num_nodes, dtype=torch.bool)
    if num_nodes > max_nodes:
        generator = torch.Generator().manual_seed(seed)
        first = torch.randperm(num_nodes, generator=generator)
        first = first[: max_nodes // (1 + _STRONGEST)]
        chosen.fill_(False)[first] = True
        chosen[edge_index[0, chosen[edge_index[1]]]] = True
    drawn: Any = subgraph(chosen, edge_index, weight, relabel_nodes=True)
    return chosen.nonzero().view(-1), SampledGraph(*drawn)
