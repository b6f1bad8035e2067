"""Functions of self-supervised losses: hidden features, contrasts, dropped edges."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from torch_geometric_gsl._checks import (
    check_features,
    check_positive,
    check_probability,
    check_type,
    check_value,
)
from torch_geometric_gsl.ops.edges import Edges, expand_ranges, list_by_row
from torch_geometric_gsl.ops.neighbours import Neighbours
from torch_geometric_gsl.ops.runtime import (
    MEMORY_BUDGET,
    full_precision,
    recomputed,
    row_blocks,
)
from torch_geometric_gsl.ops.scores import unit_rows


class MaskedFeatures(NamedTuple):
    """Features with hidden entries set to zero, the sorted indices of these, and their
    original values.
    """

    x: Tensor
    row: Tensor
    column: Tensor
    target: Tensor


@torch.no_grad()
def mask_features(
    x: Tensor,
    ratio: float,
    negative_ratio: float | None = None,
    *,
    generator: torch.Generator | None = None,
) -> MaskedFeatures:
    r"""Hide features independently at random, for a denoising autoencoder.

    Each feature is hidden with probability :math:`1 / r`. With :obj:`negative_ratio`
    :math:`\eta` features are words that occur (:math:`x > 0`) or do not: the
    :math:`n_1` ones are hidden with probability :math:`1 / r` and the :math:`n_0` zeros
    with :math:`\frac{n_1}{n_0} \frac{\eta}{r}`, at most 1, so that :math:`\eta` zeros
    are hidden per one. Draws only the hidden entries, not all :math:`n \times d`.
    """
    width = max(1, x.size(1))
    cell, value, position = _entries(x, width)
    if negative_ratio is None:
        hidden = choose_numbers(x.numel(), 1 / ratio, x.device, generator)
    else:
        is_one = value > 0
        cell, value, position = (
            cell[is_one],
            torch.ones_like(value[is_one]),
            position[is_one],
        )
        num_zeros = x.numel() - cell.numel()
        share = min(1.0, cell.numel() * negative_ratio / (max(1, num_zeros) * ratio))
        ones = cell[choose_numbers(cell.numel(), 1 / ratio, x.device, generator)]
        # Skipping the ones leaves zeros with this probability.
        places = choose_numbers(x.numel(), share, x.device, generator)
        zeros = places[~find_sorted(places, cell)[1]]
        hidden = torch.cat([ones, zeros]).sort().values
    index, is_entry = find_sorted(hidden, cell)
    target = value.new_zeros(hidden.numel())
    target[is_entry] = value[index[is_entry]]
    row = torch.div(hidden, width, rounding_mode='floor')
    masked = _without(x, position[index[is_entry]])
    return MaskedFeatures(masked, row, hidden - row * width, target)


def hide_channels(
    x: Tensor, probability: float, generator: torch.Generator | None = None
) -> Tensor:
    r"""Set random channels to zero, the same ones for all nodes.

    Hides :math:`\lfloor p \, d \rfloor` of the :math:`d` channels.
    """
    count = int(probability * x.size(1))
    if count == 0:
        return x
    order = torch.rand(x.size(1), device=x.device, generator=generator).argsort()
    keep = torch.ones(x.size(1), dtype=x.dtype, device=x.device)
    keep[order[:count]] = 0
    if x.layout == torch.strided:
        return x * keep
    return _with_values(x, x.values() * keep[x.col_indices()])


def choose_numbers(
    count: int,
    probability: float,
    device: torch.device | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Choose from :obj:`0, ..., count - 1`, independently with equal probability, in
    ascending order. Draws only the gaps between them, which are geometric.
    """
    if probability >= 1:
        return torch.arange(count, device=device)
    if probability <= 0 or count == 0:
        return torch.empty(0, dtype=torch.long, device=device)
    mean = count * probability
    size = int(mean + math.sqrt(mean)) + 1
    numbers: list[Tensor] = []
    last = -1
    while last < count:
        gap = torch.empty(size, dtype=torch.float64, device=device)
        numbers.append(
            last + gap.geometric_(probability, generator=generator).cumsum(0)
        )
        last = int(numbers[-1][-1])
    every = torch.cat(numbers)
    return every[every < count].long()


def _entries(x: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the cell, the value and the storage position of each entry."""
    if x.layout == torch.strided:
        flat = x.flatten()
        cell = flat.nonzero().flatten()
        return cell, flat[cell], cell
    row, _ = expand_ranges(x.crow_indices()[:-1], x.crow_indices().diff())
    cell, position = (row * width + x.col_indices()).sort()
    return cell, x.values()[position], position


def _without(x: Tensor, position: Tensor) -> Tensor:
    """Set entries at storage positions to zero."""
    if x.layout == torch.strided:
        return x.flatten().index_fill(0, position, 0).view_as(x)
    return _with_values(x, x.values().index_fill(0, position, 0))


def _with_values(x: Tensor, values: Tensor) -> Tensor:
    """Return sparse CSR features with other values in the same places."""
    indices = x.crow_indices(), x.col_indices()
    return torch.sparse_csr_tensor(*indices, values, x.shape, check_invariants=False)


def find_sorted(queries: Tensor, ascending: Tensor) -> tuple[Tensor, Tensor]:
    """Return the positions of non-negative numbers, and whether they are present."""
    index = torch.searchsorted(ascending, queries)
    padded = torch.cat([ascending, ascending.new_full((1,), -1)])
    return index, padded[index] == queries


def check_words(x: Tensor) -> None:
    """Raise if binary features are negative."""
    values = x if x.layout == torch.strided else x.values()
    check_value(
        (values >= 0).all(),
        "'x' must not be negative where 'binary' is True",
        got=lambda: float(values.min()),
    )


def restoration_loss(out: Tensor, target: Tensor, *, binary: bool) -> Tensor:
    """Compute the loss of restored features: binary cross-entropy of logits, or mean
    squared error. It is zero without features.
    """
    if target.numel() == 0:
        return out.sum()  # Zero; a mean would be NaN.
    if binary:
        return F.binary_cross_entropy_with_logits(out, target)
    return F.mse_loss(out, target)


def nt_xent(
    view: Tensor,
    other_view: Tensor,
    temperature: float,
    *,
    memory: int = MEMORY_BUDGET,
) -> Tensor:
    r"""Compute the normalised temperature-scaled cross-entropy of two views.

    .. math::
        \mathcal{L} = - \frac{1}{2 n} \sum_{i=1}^{n} \left( \log
        \frac{e^{s_{ii} / t}}{\sum_j e^{s_{ij} / t}} + \log
        \frac{e^{s_{ii} / t}}{\sum_j e^{s_{ji} / t}} \right), \qquad
        s_{ij} = \cos (\mathbf{z}_i, \mathbf{z}'_j)

    Similarities are computed in blocks of rows and recomputed in the backward pass, so
    that no :math:`n \times n` matrix is stored. Half precision is computed in
    :obj:`torch.float32`. Without rows the loss is zero.
    """
    if view.size(0) == 0:
        return view.sum() + other_view.sum()
    with torch.autocast(view.device.type, enabled=False):
        scaled, unit = (unit_rows(full_precision(z)) for z in (view, other_view))
        scaled = scaled / temperature
        # The similarities, their exponentials and their gradient.
        bytes_per_row = 3 * unit.size(0) * unit.itemsize
        rows = row_blocks(scaled.size(0), bytes_per_row, memory)
        blocks = [recomputed(_block_sums)(scaled[block], unit) for block in rows]
        by_row = torch.cat([row for row, _ in blocks])
        by_column = torch.stack([column for _, column in blocks]).logsumexp(dim=0)
        positive = (scaled * unit).sum(dim=1)
        loss = (by_row / 2 + by_column / 2 - positive).mean()
    return loss.to(view.dtype)


def _block_sums(rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    """Compute log-sum-exp of a block, over rows and over columns."""
    scores = rows @ columns.t()
    return scores.logsumexp(dim=1), scores.logsumexp(dim=0)


def grouped_nt_xent(
    view: Tensor, other_view: Tensor, temperature: float, size: int | None
) -> Tensor:
    """Contrast nodes within consecutive groups of rows; each node counts once."""
    num_nodes = max(1, view.size(0))
    groups = (z.split(size or num_nodes) for z in (view, other_view))
    terms = [
        nt_xent(left, right, temperature) * (left.size(0) / num_nodes)
        for left, right in zip(*groups, strict=True)
    ]
    return torch.stack(terms).sum()


def list_sources(edge_index: Tensor, num_nodes: int) -> Neighbours:
    """List the sources of each node, given edges that are sorted by target."""
    return list_by_row(edge_index[1], edge_index[0], (num_nodes, num_nodes))


def drop_edges(
    edges: Edges, probability: float, generator: torch.Generator | None = None
) -> Edges:
    """Drop edges by setting random weights to zero; rescale the others."""
    if probability == 0:
        return edges
    noise = torch.empty_like(edges.weight, dtype=torch.float32)
    keep = noise.bernoulli_(1 - probability, generator=generator)
    weight = edges.weight * keep.to(edges.weight.dtype) / (1 - probability)
    return edges._replace(weight=weight)


def pair_of_probabilities(value: Any, name: str) -> tuple[float, float]:
    """Return two probabilities, given one for both or one for each."""
    pair = value if isinstance(value, tuple) else (value, value)
    if len(pair) != 2:
        raise ValueError(f"'{name}' must be a number or a pair of them (got {pair})")
    for each in pair:
        check_probability(each, name)
    return pair


def consistency_loss(outs: Sequence[Tensor], temperature: float = 0.5) -> Tensor:
    r"""Compute the distance of predictions of random passes to their sharpened mean,
    from the `"Graph Random Neural Network for Semi-Supervised Learning on Graphs"
    <https://arxiv.org/abs/2005.11079>`_ paper (equations 3 to 5).

    .. math::
        \mathcal{L} = \frac{1}{S n} \sum_{s=1}^{S} \sum_{i=1}^{n}
        \big\lVert \mathbf{p}_i^{(s)} - \bar{\mathbf{q}}_i \big\rVert^2, \qquad
        \bar{q}_{ic} \propto \Big( \frac{1}{S} \sum_s p_{ic}^{(s)} \Big)^{1 / T}

    where :math:`\mathbf{p}^{(s)}` are the probabilities of pass :math:`s`; no gradient
    flows through :math:`\bar{\mathbf{q}}`. Each pass samples another graph, so that
    unlabelled nodes train the sampler to choose neighbours with equal predictions. With
    few labels, add it to their loss with a growing weight, such as
    :obj:`min(1, epoch / 60)`.

    Args:
        outs (Sequence[torch.Tensor]): The logits of at least two passes,
            :math:`[n, C]` each, or one tensor of shape :math:`[S, n, C]`.
        temperature (float, optional): The temperature :math:`T`; values below one
            sharpen the mean. (default: :obj:`0.5`)

    Returns:
        torch.Tensor: The loss, a scalar; zero without nodes.

    Example:
        >>> outs = torch.tensor([[[2.0, 0.0]], [[0.0, 0.0]]])
        >>> consistency_loss(outs)
        tensor(0.1129)
    """
    check_positive(temperature, 'temperature')
    logits = _stacked(outs)
    if logits.numel() == 0:
        return logits.sum()
    log_share = full_precision(logits).log_softmax(dim=-1)
    with torch.no_grad():
        target = (log_share.logsumexp(dim=0) / temperature).softmax(dim=-1)
    square = (log_share.exp() - target).square().sum(dim=-1)
    return square.mean().to(logits.dtype)


def _stacked(outs: Any) -> Tensor:
    """Check the logits of all passes and stack them [S, n, C]."""
    check_type(outs, (Tensor, Sequence), 'outs', 'a sequence of tensors')
    for logits in outs:
        check_features(logits, 'outs', is_finite=False)
    if len(outs) < 2:
        raise ValueError(f"'outs' must have at least two passes (got {len(outs)})")
    kinds = {f'{list(logits.shape)} of {logits.dtype}' for logits in outs}
    if len(kinds) > 1:
        descriptions = ' and '.join(sorted(kinds))
        raise ValueError(f"'outs' must have one shape and dtype (got {descriptions})")
    return torch.stack([*outs])
