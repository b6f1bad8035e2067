"""Results of diagnostics, printed as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

_HEADER = ('min', '25 %', 'median', '75 %', 'max', 'mean')


@dataclass(frozen=True, eq=False)
class GraphSummary:
    r"""The result of :func:`describe_graph`; :obj:`print` shows it as a table.

    Args:
        num_targets (int): The number of targets.
        num_edges (int): The number of edges.
        num_zero (int): The number of edges of weight zero.
        num_isolated (int): The number of targets without positive weights.
        entropy (torch.Tensor): The entropy of each target's weights in nats.
        effective_neighbors (torch.Tensor): The exponential of the entropy; 0 for
            targets without positive weights.
        homophily (float, optional): The share of edges that join equal labels.
            (default: :obj:`None`)
        weighted_homophily (float, optional): The share of the weight on such edges.
            (default: :obj:`None`)
        chance (float, optional): The share of all pairs with equal labels.
            (default: :obj:`None`)
    """

    num_targets: int
    num_edges: int
    num_zero: int
    num_isolated: int
    entropy: Tensor
    effective_neighbors: Tensor
    homophily: float | None = None
    weighted_homophily: float | None = None
    chance: float | None = None

    def __str__(self) -> str:
        title = (
            f'{self.num_edges} edges ({self.num_zero} of weight zero) to '
            f'{self.num_targets} targets ({self.num_isolated} without neighbours)'
        )
        rows = {
            'entropy (nats)': self.entropy,
            'effective neighbours': self.effective_neighbors,
        }
        scalars = {
            'edge homophily': self.homophily,
            'weighted homophily': self.weighted_homophily,
            'homophily by chance': self.chance,
        }
        return '\n'.join([title, *_table(rows, scalars)])


@dataclass(frozen=True, eq=False)
class LayerSummary:
    r"""The result of :func:`describe_model` for one call of a sampler.

    Args:
        name (str): The name of the sampler in the model, and its call if not the first.
        sampler (str): Its :obj:`repr`.
        candidates (torch.Tensor): The number of candidates of each target.
        entropy (torch.Tensor): The entropy of each :math:`\pi_i` in nats.
        effective_candidates (torch.Tensor): The exponential of the entropy.
        share (float): The mean of effective candidates over candidates of the
            targets that have at least two; :obj:`nan` if there are none.
        b (torch.Tensor or None): The centres of the kernels, one per target, of a
            :class:`~torch_geometric_gsl.nn.similarity.NeuralGaussianSimilarity`.
        c (torch.Tensor or None): Their bandwidths.
        grad_norms (dict): The 2-norm of the gradient of each parameter of the
                similarity, :obj:`None` if it has no gradient.
        null (torch.Tensor, optional): The probability of the null neighbour per target,
            if any. (default: :obj:`None`)
        homophily (float, optional): With labels, the share of the weight in evaluation
            mode, among labelled nodes without self-loops, of neighbours with the label
            of the target. (default: :obj:`None`)
        chance (float, optional): The share of such pairs. (default: :obj:`None`)
    """

    name: str
    sampler: str
    candidates: Tensor
    entropy: Tensor
    effective_candidates: Tensor
    share: float
    b: Tensor | None
    c: Tensor | None
    grad_norms: dict[str, float | None]
    null: Tensor | None = None
    homophily: float | None = None
    chance: float | None = None

    def __str__(self) -> str:
        rows = {
            'b': self.b,
            'c': self.c,
            'null neighbour': self.null,
            'entropy of pi (nats)': self.entropy,
            'effective candidates': self.effective_candidates,
            'candidates': self.candidates,
        }
        norms = ', '.join(
            f'{name} none' if norm is None else f'{name} {norm:.4g}'
            for name, norm in self.grad_norms.items()
        )
        scalars = {'share': self.share, 'homophily': self.homophily}
        table = _table(rows, scalars | {'homophily by chance': self.chance})
        footer = f'  gradient norms: {norms or "the similarity has no parameters"}'
        return '\n'.join([f'{self.name}: {self.sampler}', *table, footer])


@dataclass(frozen=True, eq=False)
class ModelSummary:
    r"""The result of :func:`describe_model`; :obj:`print` shows it as tables.

    Args:
        layers (tuple[LayerSummary, ...]): One entry per call of a sampler, in the
            order of the calls.
    """

    layers: tuple[LayerSummary, ...]

    def __str__(self) -> str:
        return '\n\n'.join(map(str, self.layers))


def _table(
    rows: Mapping[str, Tensor | None], scalars: Mapping[str, float | None]
) -> list[str]:
    """Format a row per vector, with its quartiles and mean, and per number."""
    lines = [f'  {"":<21}' + ''.join(f'{title:>10}' for title in _HEADER)]
    columns: dict[str, Sequence[float]]
    columns = {k: _statistics(v) for k, v in rows.items() if v is not None}
    columns |= {k: [v] for k, v in scalars.items() if v is not None}
    for name, values in columns.items():
        lines.append(f'  {name:<21}' + ''.join(f'{value:>10.4g}' for value in values))
    return lines


def _statistics(values: Tensor) -> list[float]:
    """Compute the extremes, the quartiles and the mean of values of any shape."""
    if values.numel() == 0:
        return [float('nan')] * 6
    # Not torch.quantile, which is limited to 2^24 values.
    array = values.detach().cpu().double().numpy()
    quartiles = np.quantile(array, [0, 0.25, 0.5, 0.75, 1])
    return [*quartiles.tolist(), float(array.mean())]
