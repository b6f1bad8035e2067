from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torch_geometric_gsl._checks import check_count, check_positive, check_type
from torch_geometric_gsl._graph_checks import check_graph, check_node_labels
from torch_geometric_gsl.diagnostics.summaries import LayerSummary, ModelSummary
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.nn.similarity.cosine_similarity import CosineSimilarity
from torch_geometric_gsl.nn.similarity.neural_gaussian_similarity import (
    NeuralGaussianSimilarity,
)
from torch_geometric_gsl.nn.similarity.uniform_similarity import UniformSimilarity
from torch_geometric_gsl.ops.graph_stats import (
    chance_share,
    distribution,
    same_label_share,
)
from torch_geometric_gsl.ops.scores import gaussian
from torch_geometric_gsl.typing import SampledGraph
from torch_geometric_gsl.visualization._drawing import (
    COLORS,
    GREY,
    count_nodes,
    draw_adjacency,
    draw_boxes,
    draw_curve,
    draw_nodes,
    new_figure,
    select_nodes,
)
from torch_geometric_gsl.visualization._layout import lay_out

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_graph(
    graph: SampledGraph | tuple[Tensor, Tensor],
    y: Tensor | None = None,
    pos: Tensor | None = None,
    *,
    max_nodes: int = 150,
    seed: int = 0,
) -> Figure:
    r"""Draw a learned graph, so that one sees whether neighbours share classes.

    Left the weighted adjacency matrix, one row per target, with the nodes sorted by
    class: a graph that joins equal classes has dark blocks on the diagonal. Of more
    than :obj:`max_nodes` nodes, neighbouring rows and columns share a cell, which
    shows the mean weight that a target of its rows gives to its columns.

    Right some nodes and their strongest edges: edges inside a class have its colour,
    those between classes are grey. Of more than :obj:`max_nodes` nodes, a quarter of
    that number is drawn at random, and with each come its three strongest
    neighbours.

    Args:
        graph (SampledGraph or tuple[torch.Tensor, torch.Tensor]): A graph on one set
            of nodes.
        y (torch.Tensor, optional): The labels of the nodes. (default: :obj:`None`)
        pos (torch.Tensor, optional): Positions :math:`[n, 2]` of the nodes, or
            features :math:`[n, d]`, of which the two principal components of the
            nodes shown are drawn. If :obj:`None`, edges pull their nodes
            together (a force-directed layout). (default: :obj:`None`)
        max_nodes (int, optional): The number of nodes, or of cells of the matrix in
            each direction, to draw at the most. (default: :obj:`150`)
        seed (int, optional): The seed of the choice of nodes and of the layout.
            (default: :obj:`0`)

    Returns:
        matplotlib.figure.Figure: The figure, with the share of the weight that joins
        one class in its title.

    Raises:
        ImportError: If matplotlib is not installed.
        TypeError: If an input has the wrong type or dtype.
        ValueError: If an input has the wrong shape, or there are fewer labels or
            positions than nodes, or the graph has no nodes.

    Example:
        >>> edge_index = torch.tensor([[0, 1, 2], [1, 2, 0]])
        >>> figure = plot_graph((edge_index, torch.ones(3)), torch.tensor([0, 0, 1]))
        >>> len(figure.axes)  # Matrix, colour bar, nodes.
        3
    """
    check_count(max_nodes, 'max_nodes', minimum=4)
    plain = check_graph(graph)
    if y is not None:
        check_type(y, Tensor, 'y', 'a torch.Tensor')
        check_node_labels(y, plain)
        y = y.cpu()
    plain = SampledGraph(plain.edge_index.cpu(), plain.edge_weight.cpu())
    num_nodes = count_nodes(plain.edge_index, y, pos)
    label = torch.zeros(num_nodes, dtype=torch.long)
    classes = ['']
    if y is not None:
        values, label = y.unique(return_inverse=True)
        classes = [str(value) for value in values.tolist()]
    figure = new_figure(11.5, 5)
    left, right = figure.subplots(1, 2)
    draw_adjacency(left, plain, label, classes, max_nodes)
    nodes, strongest = select_nodes(plain, num_nodes, max_nodes, seed)
    place, axes = lay_out(strongest.edge_index, nodes, pos, seed)
    draw_nodes(right, strongest, label[nodes], classes, place)
    right.set(**axes)
    figure.suptitle(_title(plain, num_nodes, y), fontsize=12)
    return figure


def plot_similarity_curves(
    similarities: Mapping[str, Similarity | LayerSummary]
    | Iterable[Similarity | LayerSummary],
    *,
    scale: float = 1.0,
) -> Figure:
    r"""Draw similarities over the cosine :math:`t \in [-1, 1]` of two nodes.

    Left the similarity :math:`\phi(t)`. Right the sampling weight
    :math:`e^{\lambda \phi(t)}`, divided by its mean over :math:`t`: how often a
    candidate is drawn, relative to uniform sampling, if the cosines of the candidates
    spread evenly.

    The bells of a trained
    :class:`~torch_geometric_gsl.nn.similarity.NeuralGaussianSimilarity` differ from
    node to node. The line is the bell of the median :math:`b` and :math:`c`; the band
    holds every bell whose :math:`b` and :math:`c` lie between their quartiles.

    Args:
        similarities (Mapping or Iterable): Similarities, by name if it is a mapping.
            For a neural Gaussian similarity a layer of
            :func:`~torch_geometric_gsl.diagnostics.describe_model`, which knows
            :math:`b` and :math:`c`.
        scale (float, optional): The factor :math:`\lambda` of the similarity.
            (default: :obj:`1.0`)

    Returns:
        matplotlib.figure.Figure: The figure.

    Raises:
        ImportError: If matplotlib is not installed.
        TypeError: If an input has the wrong type.
        ValueError: If there are no similarities, or one is no function of the cosine.

    Example:
        >>> from torch_geometric_gsl.nn.similarity import GaussianSimilarity
        >>> figure = plot_similarity_curves({'GauSim': GaussianSimilarity(16)})
        >>> [ax.get_ylabel() for ax in figure.axes]
        ['similarity', 'sampling weight relative to uniform']
    """
    check_positive(scale, 'scale')
    if isinstance(similarities, Mapping):
        named = list(similarities.items())
    else:
        named = [
            (getattr(item, 'name', type(item).__name__), item) for item in similarities
        ]
    if not named:
        raise ValueError("'similarities' must not be empty")
    t = torch.linspace(-1, 1, 801, dtype=torch.double)
    curves = [(name, _curve(item, t)) for name, item in named]
    figure = new_figure(10.5, 4.6)
    left, right = figure.subplots(1, 2, sharex=True)
    for number, (name, lines) in enumerate(curves):
        draw_curve(left, t, lines, name, number)
        uniform = (scale * lines[0]).exp().mean()
        weights = [(scale * line).exp() / uniform for line in lines]
        draw_curve(right, t, weights, name, number)
    right.axhline(1, color=GREY, linewidth=1)
    right.set_ylim(bottom=0)
    for ax in (left, right):
        ax.set_xlabel('cosine $t$ of the two nodes')
        ax.set_xlim(-1, 1)
        ax.grid(alpha=0.3)
    left.set_ylabel('similarity')
    left.set_title(r'Similarity $\phi(t)$')
    right.set_ylabel('sampling weight relative to uniform')
    right.set_title(rf'Sampling weight $e^{{\lambda \phi(t)}}$, $\lambda = {scale:g}$')
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc='outside lower center', ncols=4)
    return figure


def plot_gaussian_parameters(summary: ModelSummary) -> Figure:
    r"""Draw the centres :math:`b` and widths :math:`c` of each layer's bells.

    Boxes hold the middle half of the nodes with a line at the median, whiskers reach
    from the 5th to the 95th percentile, and what lies outside is not drawn. A dashed
    line marks the fixed bell of
    :class:`~torch_geometric_gsl.nn.similarity.GaussianSimilarity`.

    Args:
        summary (ModelSummary): The result of
            :func:`~torch_geometric_gsl.diagnostics.describe_model`.

    Returns:
        matplotlib.figure.Figure: The figure.

    Raises:
        ImportError: If matplotlib is not installed.
        TypeError: If :obj:`summary` has the wrong type.
        ValueError: If no layer has a neural Gaussian similarity.

    Example:
        >>> from torch_geometric_gsl.diagnostics import describe_model
        >>> from torch_geometric_gsl.nn.models import GSLNet
        >>> model = GSLNet(16, 32, num_layers=2, out_channels=7, scale=50.0)
        >>> summary = describe_model(model, torch.randn(100, 16))
        >>> len(plot_gaussian_parameters(summary).axes)
        2
    """
    check_type(summary, ModelSummary, 'summary', 'a ModelSummary')
    layers = [layer for layer in summary.layers if layer.b is not None]
    if not layers:
        raise ValueError(
            "'summary' must hold a layer with a neural Gaussian similarity "
            f'(got {[layer.sampler for layer in summary.layers]})'
        )
    figure = new_figure(max(8, 4 + 1.2 * len(layers)), 4.5)
    left, right = figure.subplots(1, 2)
    names = [layer.name.removesuffix('.sampler') for layer in layers]
    draw_boxes(left, [layer.b for layer in layers], names, COLORS[0])
    draw_boxes(right, [layer.c for layer in layers], names, COLORS[1])
    left.set_ylim(0, 1)
    left.set_ylabel('centre $b$ (cosine)')
    left.axhline(0.5, color=GREY, linestyle='--', linewidth=1.2)
    right.set_ylim(bottom=0)
    right.set_ylabel('width $c$ (squared cosine)')
    fixed = right.axhline(0.02 * math.e, color=GREY, linestyle='--', linewidth=1.2)
    figure.legend([fixed], ['GauSim, fixed'], loc='outside lower center')
    return figure


def _curve(item: Similarity | LayerSummary, t: Tensor) -> tuple[Tensor, ...]:
    """Evaluate a similarity over the cosine, for bells with the ends of their band."""
    if isinstance(item, LayerSummary):
        if item.b is None or item.c is None:
            raise ValueError(
                f"'similarities' must be layers with a neural Gaussian similarity, or "
                f'similarities (got the layer {item.sampler})'
            )
        (low_b, b, high_b), (low_c, c, high_c) = (
            distribution(value)[1:4] for value in (item.b, item.c)
        )
        # The highest bell at t has the nearest centre, the lowest the farthest.
        ends = torch.minimum(gaussian(t, low_b, low_c), gaussian(t, high_b, low_c))
        return gaussian(t, b, c), ends, gaussian(t, t.clamp(low_b, high_b), high_c)
    if not isinstance(item, Similarity):
        raise TypeError(
            f"'similarities' must hold Similarity or LayerSummary objects "
            f'(got {type(item).__name__})'
        )
    if isinstance(item, NeuralGaussianSimilarity):
        raise ValueError(
            "a neural Gaussian similarity has one bell per node: 'similarities' must "
            f'hold the layer of describe_model instead (got {item})'
        )
    if isinstance(item, UniformSimilarity):  # It compares nothing.
        return (torch.zeros_like(t),)
    if item.comparison == 'dot' and not isinstance(item, CosineSimilarity):
        return (item.response(t)(t).detach(),)
    if getattr(item, 'normalize', False):
        return (item.response(t)(2 - 2 * t).detach(),)
    raise ValueError(
        f"'similarities' must be functions of the cosine of two embeddings, which "
        f'{item} is not'
    )


def _title(graph: SampledGraph, num_nodes: int, y: Tensor | None) -> str:
    edge_index, weight = graph
    text = f'{num_nodes} nodes, {weight.numel()} edges'
    apart = edge_index[0] != edge_index[1]
    if y is None or not bool(weight[apart].any()):
        return text
    share = same_label_share(edge_index[:, apart], weight[apart], y, y)
    return (
        f'{text}: {100 * share:.0f} % of the weight between nodes joins one class '
        f'({100 * chance_share(y):.0f} % by chance)'
    )
