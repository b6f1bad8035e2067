"""Draw similarities over the cosine, and the parameters of trained ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from torch_geometric_gsl._checks import check_positive, check_type
from torch_geometric_gsl.diagnostics.summaries import LayerSummary, ModelSummary
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.nn.similarity.gaussian_similarity import (
    NeuralGaussianSimilarity,
)
from torch_geometric_gsl.nn.similarity.linear_similarity import (
    CosineSimilarity,
    UniformSimilarity,
)
from torch_geometric_gsl.ops.graph_stats import distribution
from torch_geometric_gsl.ops.scores import Gaussian
from torch_geometric_gsl.visualization._drawing import COLORS, GREY, beside, make_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_similarity_curves(
    similarities: Mapping[str, Similarity | LayerSummary]
    | Iterable[Similarity | LayerSummary],
    *,
    scale: float = 1.0,
    ax: Sequence[Axes] | None = None,
) -> np.ndarray:
    r"""Draw similarities over the cosine :math:`t \in [-1, 1]` of two nodes.

    The left plot shows the similarity :math:`\phi(t)`, the right one the sampling
    weight :math:`e^{\lambda \phi(t)}` over its mean: the frequency of a candidate
    relative to uniform sampling, if the cosines are spread evenly.

    The bells of a trained
    :class:`~torch_geometric_gsl.nn.similarity.NeuralGaussianSimilarity` differ from
    node to node. The line is the bell of the median :math:`b` and :math:`c`; the band
    holds every bell whose :math:`b` and :math:`c` lie between their quartiles.

    Args:
        similarities (Mapping or Iterable): Similarities, by name if it is a mapping.
            For a neural Gaussian similarity pass a layer of
            :func:`~torch_geometric_gsl.diagnostics.describe_model`, with :math:`b` and
            :math:`c`.
        scale (float, optional): The factor :math:`\lambda` of the similarity.
            (default: :obj:`1.0`)
        ax (Sequence[matplotlib.axes.Axes], optional): The two axes to draw on. If
            :obj:`None`, creates a figure outside of pyplot. (default: :obj:`None`)

    Returns:
        numpy.ndarray: The two :class:`matplotlib.axes.Axes`.

    Raises:
        ValueError: If there are no similarities, or one is not a function of the
        cosine.

    Example:
        >>> from torch_geometric_gsl.nn.similarity import GaussianSimilarity
        >>> axes = plot_similarity_curves({'GauSim': GaussianSimilarity(16)})
        >>> [ax.get_ylabel() for ax in axes]
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
    left, right = axes = make_axes(ax, 2, 12, 4.2)
    for number, (name, lines) in enumerate(curves):
        _draw_curve(left, t, lines, name, number)
        uniform = (scale * lines[0]).exp().mean()
        weights = [(scale * line).exp() / uniform for line in lines]
        _draw_curve(right, t, weights, name, number)
    right.axhline(1, color=GREY, linewidth=1)
    right.set_ylim(bottom=0)
    for one in axes:
        one.set(xlabel='cosine $t$ of the two nodes', xlim=(-1, 1))
        one.set_xticks([-1, -0.5, 0, 0.5, 1])
        one.grid(alpha=0.3)
    left.set_ylabel('similarity')
    left.set_title(r'Similarity $\phi(t)$')
    right.set_ylabel('sampling weight relative to uniform')
    right.set_title(rf'Sampling weight $e^{{\lambda \phi(t)}}$, $\lambda = {scale:g}$')
    beside(right)
    return np.array(axes, dtype=object)


def plot_gaussian_parameters(
    summary: ModelSummary, *, ax: Sequence[Axes] | None = None
) -> np.ndarray:
    r"""Draw the centres :math:`b` and widths :math:`c` of each layer's bells.

    Boxes show quartiles and the median of the nodes, whiskers the 5th and 95th
    percentiles. A dashed line marks the fixed bell of
    :class:`~torch_geometric_gsl.nn.similarity.GaussianSimilarity`.

    Args:
        summary (ModelSummary): The result of
            :func:`~torch_geometric_gsl.diagnostics.describe_model`.
        ax (Sequence[matplotlib.axes.Axes], optional): As in
            :func:`plot_similarity_curves`. (default: :obj:`None`)

    Returns:
        numpy.ndarray: The two :class:`matplotlib.axes.Axes`, of :math:`b` and of
        :math:`c`.

    Raises:
        ValueError: If no layer has a neural Gaussian similarity.

    Example:
        >>> from torch_geometric_gsl.diagnostics import describe_model
        >>> from torch_geometric_gsl.nn.models import GSLNet
        >>> model = GSLNet(16, 32, num_layers=2, out_channels=7, scale=50.0)
        >>> summary = describe_model(model, torch.randn(100, 16))
        >>> axes = plot_gaussian_parameters(summary)
        >>> axes[0].figure.savefig(getfixture('tmp_path') / 'parameters.png')
    """
    check_type(summary, ModelSummary, 'summary', 'a ModelSummary')
    layers = [layer for layer in summary.layers if layer.b is not None]
    if not layers:
        raise ValueError(
            "'summary' must hold a layer with a neural Gaussian similarity "
            f'(got {[layer.sampler for layer in summary.layers]})'
        )
    left, right = axes = make_axes(ax, 2, max(9, 5 + 1.2 * len(layers)), 4.5)
    names = [layer.name.removesuffix('.sampler') for layer in layers]
    _draw_boxes(left, [layer.b for layer in layers], names, COLORS[0])
    _draw_boxes(right, [layer.c for layer in layers], names, COLORS[1])
    left.set_ylim(0, 1)
    left.set_ylabel('centre $b$ (cosine)')
    left.axhline(0.5, color=GREY, linestyle='--', linewidth=1.2)
    right.set_ylim(bottom=0)
    right.set_ylabel('width $c$ (squared cosine)')
    fixed = right.axhline(0.02 * math.e, color=GREY, linestyle='--', linewidth=1.2)
    beside(right, handles=[fixed], labels=['GauSim, fixed'])
    return np.array(axes, dtype=object)


def _curve(item: Similarity | LayerSummary, t: Tensor) -> tuple[Tensor, ...]:
    """Evaluate a similarity over the cosine, for bells with the limits of the band."""
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
        gaussian = Gaussian.value
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
        f"'similarities' must be functions of the cosine of embeddings (got {item})"
    )


def _draw_boxes(
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


def _draw_curve(
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
