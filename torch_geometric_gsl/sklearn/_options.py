"""The options of an estimator, checked, with sizes that suit its table."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from torch_geometric_gsl._checks import (
    at_least,
    check_count,
    check_flag,
    check_option,
    check_positive,
    check_probability,
)
from torch_geometric_gsl.nn.similarity.resolver import NAMED
from torch_geometric_gsl.sklearn._scaling import SCALINGS
from torch_geometric_gsl.sklearn._training import GRAPHS

AUTO = 'auto'
# Steps without an improvement that end the training at the least.
_LEAST_STEPS = 320
# Rows of a table from which on a network has this width and dropout.
_SIZES = ((0, 64, 0.3), (1000, 128, 0.2), (4000, 192, 0.2))
# Fewer rows than these have so many networks.
_FEW_ROWS, _MEMBERS = 1000, 4


class Options(NamedTuple):
    """What training needs to know.

    Args:
        hidden_channels (int): The number of hidden units.
        dropout (float): The share that is left out.
        batch_size (int): The number of targets of a step.
        pool_size (int): The number of their candidates.
        learning_rate (float): The rate of AdamW.
        weight_decay (float): Its weight decay.
        max_iter (int): The most epochs.
        n_iter_no_change (int): The epochs without an improvement that end it.
        verbose (bool): Whether a bar is shown.
    """

    hidden_channels: int
    dropout: float
    batch_size: int
    pool_size: int
    learning_rate: float
    weight_decay: float
    max_iter: int
    n_iter_no_change: int
    verbose: bool

    @classmethod
    def of(cls, estimator: Any, num_rows: int) -> Options:
        """Return the options of an estimator for a table of some size."""
        _, hidden, dropout = [size for size in _SIZES if size[0] <= num_rows][-1]
        if estimator.hidden_channels != AUTO:
            hidden = estimator.hidden_channels
        if estimator.dropout != AUTO:
            dropout = float(estimator.dropout)
        batch = estimator.batch_size
        if batch == AUTO:
            batch = max(16, min(512, num_rows // 16))
        # Rows of a batch are no neighbours of each other: others must be left.
        batch = max(1, min(batch, num_rows // 2))
        steps = -(-num_rows // batch)
        patience = max(estimator.n_iter_no_change, -(-_LEAST_STEPS // steps))
        return cls(
            hidden,
            dropout,
            batch,
            estimator.pool_size,
            float(estimator.learning_rate),
            float(estimator.weight_decay),
            estimator.max_iter,
            patience,
            bool(estimator.verbose),
        )


def num_members(estimator: Any, num_rows: int) -> int:
    """Return the number of networks of an estimator for a table of some size."""
    if estimator.n_members != AUTO:
        return int(estimator.n_members)
    return _MEMBERS if num_rows < _FEW_ROWS else 1


def check_options(estimator: Any) -> None:
    """Raise unless the parameters of an estimator have the right types and ranges."""
    check_option(estimator.graph, (AUTO, *GRAPHS), 'graph')
    check_option(estimator.scaling, SCALINGS, 'scaling')
    if isinstance(estimator.similarity, str):
        check_option(estimator.similarity, NAMED, 'similarity')
    for name in ('n_members', 'hidden_channels', 'batch_size'):
        if isinstance(value := getattr(estimator, name), str):
            check_option(value, (AUTO,), name)
        else:
            check_count(value, name)
    for name in ('eval_k', 'pool_size', 'max_iter', 'n_iter_no_change'):
        check_count(getattr(estimator, name), name)
    if estimator.draws is not None:
        check_count(estimator.draws, 'draws')
    if estimator.dropout != AUTO:
        check_probability(estimator.dropout, 'dropout')
    check_positive(estimator.learning_rate, 'learning_rate')
    check_probability(estimator.validation_fraction, 'validation_fraction')
    at_least(0, estimator.weight_decay, 'weight_decay')
    check_flag(estimator.verbose, 'verbose')
    try:
        torch.empty(0, device=estimator.device)
    except (AssertionError, RuntimeError, TypeError) as error:
        raise ValueError(
            f"'device' must be one that PyTorch has (got {estimator.device!r}): {error}"
        ) from error
