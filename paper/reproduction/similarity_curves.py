"""Draw similarities over the cosine."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle

import torch
from matplotlib.figure import Figure

from reproduction.experiments import Choice
from reproduction.store import Store
from torch_geometric_gsl import (
    DifferenceSimilarity,
    GaussianSimilarity,
    HeatKernelSimilarity,
    LinearSimilarity,
    Similarity,
)

# Of Okabe and Ito, safe for colour-blind people.
COLORS = ('#0072B2', '#D55E00', '#009E73', '#CC79A7', '#E69F00', '#56B4E9')
DASHES = ('-', '--', '-.', ':')


def curves(store: Store, choice: Choice) -> dict[str, Figure]:
    """Draw sampling probability over similarity: Figure 2 and the appendix's two."""
    bells: dict[str, Similarity] = {
        f'GauSim, b = {b}, c = {c:.3f}': GaussianSimilarity(1, b=b, c=c)
        for b, c in ((0.5, 0.02 * 2.718281828), (0.25, 0.1), (0.75, 0.1), (0.5, 0.5))
    }
    plain: dict[str, Similarity] = {
        'LinSim': LinearSimilarity(1),
        'DiffSim': DifferenceSimilarity(1),
    }
    heat = {f'heat, t = {t}': HeatKernelSimilarity(1, t=t) for t in (0.3, 0.5, 1.0)}
    return {
        'curves': plot_similarity_curves(plain | bells),
        'curves_heat': plot_similarity_curves(heat),
    }


def plot_similarity_curves(similarities: Mapping[str, Similarity]) -> Figure:
    r"""Draw similarities :math:`\phi(t)` over the cosine :math:`t` of two unit rows.

    The right plot shows the sampling weight :math:`e^{\phi(t)}` over its mean: the
    frequency of a candidate relative to uniform sampling, if the cosines are spread
    evenly.
    """
    t = torch.linspace(-1, 1, 801, dtype=torch.double)
    figure = Figure(figsize=(12, 4.2), layout='constrained')
    left, right = figure.subplots(1, 2)
    styles = zip(cycle(COLORS), cycle(DASHES), similarities.items(), strict=False)
    for color, dashes, (name, similarity) in styles:
        # Others compare the squared distance.
        compared = t if similarity.comparison == 'dot' else 2 - 2 * t
        phi = similarity.response(compared)(compared).detach()
        for ax, curve in ((left, phi), (right, phi.exp() / phi.exp().mean())):
            style = {'color': color, 'linestyle': dashes, 'linewidth': 2.2}
            ax.plot(t.numpy(), curve.numpy(), label=name, **style)
    right.axhline(1, color='#777777', linewidth=1)
    right.set_ylim(bottom=0)
    for ax in (left, right):
        ax.set(xlabel='cosine $t$ of the two nodes', xlim=(-1, 1))
        ax.set_xticks([-1, -0.5, 0, 0.5, 1])
        ax.grid(alpha=0.3)
    left.set(ylabel='similarity', title=r'Similarity $\phi(t)$')
    right.set_ylabel('sampling weight relative to uniform')
    right.set_title(r'Sampling weight $e^{\lambda \phi(t)}$, $\lambda = 1$')
    right.legend(loc='center left', bbox_to_anchor=(1, 0.5), frameon=False)
    return figure
