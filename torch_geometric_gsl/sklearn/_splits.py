"""Divide the rows of a table: into those to hold back, and blocks of near rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torch_geometric_gsl._warnings import warn_caller
from torch_geometric_gsl.sklearn._columns import is_missing
from torch_geometric_gsl.sklearn._rows import TrainingRows
from torch_geometric_gsl.sklearn._scaling import to_tensor

# The number of held-back rows for a useful validation.
MIN_VALIDATION = 12
# With fewer groups, each is held back once.
_FEW_GROUPS = 10
# Below this number of training rows there are several splits.
_FEW_ROWS = 1000
_NUM_SPLITS = 4
# The largest numbers of held-back rows and of candidates in validation.
_MAX_VAL_ROWS = 5_000
_MAX_CANDIDATES = 50_000


class Table(NamedTuple):
    """Rows, dense or SciPy sparse, with targets.

    Labels sent as messages are -1 or NaN if unknown.
    """

    x: Any
    y: Tensor
    known_y: Tensor
    weight: Tensor
    group: Tensor | None = None  # Rows of one group do not see each other.
    order: Tensor | None = None  # Rows see those of a lower number.

    def take(self, rows: Tensor) -> Tensor:
        """Return some rows as one tensor."""
        if isinstance(self.x, Tensor):
            return self.x[rows]
        return to_tensor(self.x[rows.cpu().numpy()], rows.device, torch.float32)


class RowSplit(NamedTuple):
    """Indices of rows: of the loss, possible neighbours, and held back.

    Arrays, or tensors on the device of a network.
    """

    train: Any
    candidates: Any
    val: Any


def choose_splits(
    rows: TrainingRows,
    is_known: NDArray[np.bool_],
    mask: Any,
    options: Any,
    random: np.random.RandomState,
) -> list[RowSplit]:
    """Choose the rows to hold back, by a mask, groups or an order, else at random.

    The options are the parameters of the estimator.
    """
    choices = {'groups': rows.group, 'order': rows.order, 'validation_mask': mask}
    names = [name for name, value in choices.items() if value is not None]
    if len(names) > 1:
        raise ValueError(
            f'{names[0]!r} is not supported with {names[1]!r}: each of them '
            'chooses the rows to hold back (got both)'
        )
    fraction = options.validation_fraction
    is_few = (1 - fraction) * is_known.sum() < _FEW_ROWS
    num_splits = _NUM_SPLITS if is_few else 1
    if options.n_members != 'auto':
        num_splits = int(options.n_members)
    if mask is not None:
        return [masked_split(mask, is_known)] * num_splits
    if fraction > 0 and rows.order is not None:
        return [latest_split(rows.order.numpy(), is_known, fraction)] * num_splits
    if fraction > 0 and rows.group is not None:
        group = rows.group.numpy()
        splits = group_splits(group, is_known, num_splits, fraction, random)
        if any(len(np.unique(group[split.candidates])) == 1 for split in splits):
            warn_caller(
                "of two 'groups' one is held back, and rows of the other one have "
                "no neighbours in training: pass more groups, or graph='none'",
                UserWarning,
            )
        return splits
    y = rows.known_y.numpy()
    return random_splits(y, is_known, num_splits, fraction, random, rows.num_classes)


def random_splits(
    y: NDArray[Any],
    is_known: NDArray[np.bool_],
    num_splits: int,
    fraction: float,
    random: np.random.RandomState,
    num_classes: int,
) -> list[RowSplit]:
    """Hold back labelled rows at random, others in each split as far as they suffice.

    Classes are represented by their share, rounded down, so that rare ones stay.
    """
    strata = [np.flatnonzero(is_known)]
    if num_classes > 0:
        strata = [rows[y[rows] == c] for rows in strata for c in range(num_classes)]
    strata = [random.permutation(rows) for rows in strata]
    sizes = [int(fraction * len(rows)) for rows in strata]
    # Rows of a single class do not measure accuracy.
    is_one_class = sum(size > 0 for size in sizes) < min(2, len(sizes))
    if is_one_class or num_splits * sum(sizes) < MIN_VALIDATION:
        sizes = [0] * len(sizes)
    splits = []
    for split in range(num_splits):
        blocks = [
            np.roll(rows, -split * size)[:size]
            for rows, size in zip(strata, sizes, strict=True)
        ]
        val = np.concatenate(blocks)
        splits.append(_split_without(val, is_known, np.arange(len(y))))
    return splits


def group_splits(
    group: NDArray[Any],
    is_known: NDArray[np.bool_],
    num_splits: int,
    fraction: float,
    random: np.random.RandomState,
) -> list[RowSplit]:
    """Hold back whole groups; each of them once if they are few.

    Raises:
        ValueError: If the labelled rows are of one group.
    """
    num_groups = int(group.max()) + 1
    num_folds = min(num_groups, max(2, round(1 / fraction)))
    if num_groups < _FEW_GROUPS:
        num_splits = num_folds
    # Groups from the largest on join the smallest fold.
    counts = np.bincount(group[is_known], minlength=num_groups)
    if (counts > 0).sum() < 2:
        raise ValueError("'groups' must have labelled rows of two groups (got one)")
    fold_of = np.zeros(num_groups, dtype=int)
    sizes = np.zeros(num_folds)
    order = random.permutation(num_groups)
    for g in order[np.argsort(-counts[order], kind='stable')]:
        fold_of[g] = sizes.argmin()
        sizes[fold_of[g]] += counts[g]
    splits = []
    for fold in random.permutation(np.flatnonzero(sizes > 0))[:num_splits]:
        is_val = fold_of[group] == fold
        val = np.flatnonzero(is_val & is_known)
        splits.append(_split_without(val, is_known, np.flatnonzero(~is_val)))
    return splits


def latest_split(
    order: NDArray[Any], is_known: NDArray[np.bool_], fraction: float
) -> RowSplit:
    """Hold back the labelled rows that come last; neighbours come before them.

    Raises:
        ValueError: If the labelled rows have one value.
    """
    values = np.sort(order[is_known])
    if values[0] == values[-1]:
        raise ValueError("'order' must have two values of labelled rows (got one)")
    threshold = values[min(len(values) - 1, int((1 - fraction) * len(values)))]
    # Rows of the first value stay, however many they are.
    threshold = max(threshold, values[values > values[0]][0])
    val = np.flatnonzero(is_known & (order >= threshold))
    return _split_without(val, is_known, np.flatnonzero(order < threshold))


def masked_split(mask: Any, is_known: NDArray[np.bool_]) -> RowSplit:
    """Hold back the rows of a mask; unlabelled ones send no messages either.

    Raises:
        ValueError: If the mask has no bool per row, or has no labelled row on a side.
    """
    is_masked = np.asarray(mask)
    if is_masked.dtype != bool or is_masked.shape != is_known.shape:
        raise ValueError(
            f"'validation_mask' must have one bool for each of the {len(is_known)} "
            f'rows (got {is_masked.dtype} of shape {list(is_masked.shape)})'
        )
    num_val = (is_known & is_masked).sum()
    num_train = (is_known & ~is_masked).sum()
    if num_val == 0 or num_train == 0:
        raise ValueError(
            f"'validation_mask' must hold back and leave labelled rows of positive "
            f'weight (got {num_val} and {num_train})'
        )
    val = np.flatnonzero(is_masked & is_known)
    return _split_without(val, is_known, np.flatnonzero(~is_masked))


def _split_without(val: Any, is_known: Any, candidates: Any) -> RowSplit:
    """Hold back rows, which are no candidates."""
    candidates = np.setdiff1d(candidates, val)
    return RowSplit(candidates[is_known[candidates]], candidates, np.sort(val))


def codes_of(values: Any, name: str, num_rows: int) -> NDArray[np.int64]:
    """Return the ranks of the distinct values of a column, one value a row.

    Raises:
        ValueError: If the number of values is wrong, or one is missing.
        TypeError: If there is a name of a column instead, or values of several kinds.
    """
    if isinstance(values, str):
        raise TypeError(
            f'{name!r} must hold a value per row (got {values!r}): pass the column, '
            f'X[{values!r}]'
        )
    values = np.asarray(values)
    if name == 'order' and any(isinstance(v, str) for v in values.ravel()[:1].tolist()):
        raise TypeError(
            f"'order' must hold numbers or dates (got {values.ravel()[0]!r}): "
            'convert strings, such as by pandas.to_datetime'
        )
    if values.shape != (num_rows,):
        raise ValueError(
            f'{name!r} must have one value for each of the {num_rows} rows '
            f'(got shape {list(values.shape)})'
        )
    is_gap = np.array([is_missing(value) for value in values.tolist()], dtype=bool)
    if is_gap.any():
        raise ValueError(
            f'{name!r} must have no missing values '
            f'(got {is_gap.sum()}, first in row {is_gap.argmax()})'
        )
    try:
        codes: NDArray[np.int64] = np.unique(values, return_inverse=True)[1]
    except TypeError as error:
        raise TypeError(f'{name!r} must hold values of one kind ({error})') from error
    return codes


def subsample(split: RowSplit, seed: int) -> RowSplit:
    """Subsample many rows for validation."""
    generator = torch.Generator().manual_seed(seed)

    def sample(rows: Tensor, max_rows: int) -> Tensor:
        if len(rows) <= max_rows:
            return rows
        indices = torch.randperm(len(rows), generator=generator)[:max_rows]
        return rows[indices.sort().values.to(rows.device)]

    val = split.val
    candidates = split.candidates
    return split._replace(
        val=sample(val, _MAX_VAL_ROWS), candidates=sample(candidates, _MAX_CANDIDATES)
    )


@torch.no_grad()
def near_blocks(z: Tensor, size: int, generator: torch.Generator) -> list[Tensor]:
    """Divide rows into blocks of about one size, by a tree of random projections.

    Each node of the tree splits its rows along the difference of two of them, drawn at
    random, so that near rows mostly end in the same block. Returns indices.

    Example:
        >>> z, generator = torch.randn(100, 4), torch.Generator().manual_seed(0)
        >>> [len(block) for block in near_blocks(z, 25, generator)]
        [25, 25, 25, 25]
    """
    blocks = []
    all_rows = torch.arange(z.size(0), device=z.device)
    nodes = [(all_rows, max(1, round(z.size(0) / size)))]
    while nodes:
        rows, num_blocks = nodes.pop()
        if num_blocks == 1:
            blocks.append(rows)
            continue
        keys = z[rows]
        pair = torch.randint(
            len(rows), (2,), generator=generator, device=generator.device
        )
        order = rows[(keys @ (keys[pair[0]] - keys[pair[1]])).argsort(stable=True)]
        num_left = num_blocks // 2
        cut = len(rows) * num_left // num_blocks
        nodes += [(order[cut:], num_blocks - num_left), (order[:cut], num_left)]
    return blocks
