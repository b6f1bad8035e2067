"""Tasks: losses, predictions and metrics of labels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from torch_geometric_gsl._checks import (
    check_index,
    check_mask,
    check_type,
    check_value,
)


class Task(NamedTuple):
    """The name of a metric, and functions of labels, losses and predictions.

    ``target`` checks the labels of the selected nodes against all outputs; ``loss``
    and ``score`` compare selected outputs, or predictions, with them.
    """

    metric: str
    target: Callable[[Tensor, Tensor, Tensor], Tensor]
    loss: Callable[[Tensor, Tensor], Tensor]
    predict: Callable[[Tensor], Tensor]
    score: Callable[[Tensor, Tensor], Tensor]


def node_mask(mask: Tensor | None, out: Tensor) -> Tensor:
    """Return a mask, or that of all nodes, given the outputs of a model."""
    if mask is not None:
        return mask
    return torch.ones(out.size(0), dtype=torch.bool, device=out.device)


def masked_labels(out: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """Select the labels of labelled nodes; check them against all logits."""
    num_nodes, num_classes = out.shape
    check_node_mask(mask, num_nodes)
    check_index(y, 'y', '[num_nodes]', 1, like=out)
    _check_one_per_node(y, 'y', num_nodes)
    labels = y[mask]
    low, high = labels.aminmax()
    check_value(
        (low >= 0) & (high < num_classes),
        f"'y' has labels outside 0..{num_classes - 1} where 'mask' selects",
        got=partial('{}..{}'.format, low, high),
    )
    return labels


def _masked_values(out: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """Select the targets of nodes, in the shape of their outputs."""
    check_node_mask(mask, out.size(0))
    check_type(y, Tensor, 'y', 'a torch.Tensor')
    shape = list(out.shape)
    if list(y.shape) not in (shape, shape[:1] if shape[1] == 1 else shape):
        raise ValueError(f"'y' must have shape {shape} (got {list(y.shape)})")
    if y.device != out.device:
        raise ValueError(f"'y' must be on {out.device} (got {y.device})")
    if y.dtype.is_complex:
        raise TypeError(f"'y' must hold real numbers (got {y.dtype})")
    values = y.reshape(shape)[mask]
    # Cast as the loss reads them; a score reads all of their digits.
    is_finite = values.to(out.dtype).isfinite().all()
    text = "'y' must be finite where 'mask' selects"
    check_value(is_finite, text, got=lambda: 'NaN or infinity')
    return values


def _masked_flags(out: Tensor, y: Any, mask: Tensor) -> Tensor:
    flags = _masked_values(out, y, mask).to(out.dtype)
    text = "'y' must hold zeros and ones where 'mask' selects"
    is_flag = (flags == 0) | (flags == 1)
    check_value(is_flag.all(), text, got=lambda: flags[~is_flag][0].item())
    return flags


def check_node_mask(mask: Any, num_nodes: int, *, allow_empty: bool = False) -> None:
    """Raise unless a mask or indices select at least one node."""
    check_type(mask, Tensor, 'mask', 'a torch.Tensor')
    if mask.dtype not in (torch.bool, torch.long):
        raise TypeError(
            f"'mask' must have dtype torch.bool, or torch.int64 for indices "
            f'(got {mask.dtype})'
        )
    if mask.dim() != 1:
        raise ValueError(
            f"'mask' must have shape [num_nodes], or [num_indices] "
            f'(got {list(mask.shape)})'
        )
    if not allow_empty:
        check_mask(mask)
    if mask.dtype == torch.bool:
        _check_one_per_node(mask, 'mask', num_nodes)
        return
    if mask.numel() == 0:
        return
    low, high = mask.aminmax()
    check_value(
        (low >= 0) & (high < num_nodes),
        f"'mask' has indices outside 0..{num_nodes - 1}",
        got=partial('{}..{}'.format, low, high),
    )
    # Indices of more than two zeros and ones must be a mask.
    if mask.numel() == num_nodes > 2:
        check_value(
            high > 1,
            "'mask' must have dtype torch.bool if it has a zero or one per node",
            got=lambda: mask.dtype,
        )


def _check_one_per_node(value: Tensor, name: str, num_nodes: int) -> None:
    if value.numel() != num_nodes:
        raise ValueError(
            f"'{name}' must have one entry per node "
            f'(got {value.numel()} for {num_nodes} nodes)'
        )


def _accuracy(prediction: Tensor, target: Tensor) -> Tensor:
    return (prediction == target.reshape(prediction.shape)).double().mean()


def _r2(prediction: Tensor, target: Tensor) -> Tensor:
    """Compute the coefficient of determination, the mean over columns."""
    target = target.reshape(len(prediction), -1).double()
    error = (target - prediction.reshape(target.shape).double()).square().sum(dim=0)
    spread = (target - target.mean(dim=0)).square().sum(dim=0)
    # As in scikit-learn, a constant column scores 1 if predicted exactly, else 0.
    is_exact = (error == 0).double()
    return torch.where(spread > 0, 1 - error / spread, is_exact).mean()


def _micro_f1(prediction: Tensor, target: Tensor) -> Tensor:
    target = target.bool()
    hits = (prediction & target).sum().double()
    # 0 without any positive, as in scikit-learn.
    return 2 * hits / (prediction.sum() + target.sum()).clamp(min=1)


def _squeezed(out: Tensor) -> Tensor:
    return out.squeeze(-1) if out.size(-1) == 1 else out


#: Tasks by their names.
TASKS = {
    'classification': Task(
        'accuracy',
        masked_labels,
        F.cross_entropy,
        partial(torch.argmax, dim=-1),
        _accuracy,
    ),
    'regression': Task(
        'r2',
        _masked_values,
        lambda out, target: F.mse_loss(out, target.to(out.dtype)),
        _squeezed,
        _r2,
    ),
    'binary': Task(
        'accuracy',
        _masked_flags,
        F.binary_cross_entropy_with_logits,
        lambda out: _squeezed(out) > 0,
        _accuracy,
    ),
    'multilabel': Task(
        'micro_f1',
        _masked_flags,
        F.binary_cross_entropy_with_logits,
        lambda out: out > 0,
        _micro_f1,
    ),
}
