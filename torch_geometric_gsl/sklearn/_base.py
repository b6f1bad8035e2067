from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.base import is_classifier
from sklearn.utils import check_random_state, check_X_y
from sklearn.utils.validation import _check_sample_weight
from torch import Tensor

from torch_geometric_gsl._checks import (
    at_least,
    check_count,
    check_device,
    check_flag,
    check_option,
    check_positive,
    check_probability,
)
from torch_geometric_gsl._labels import check_same_kind
from torch_geometric_gsl._warnings import warn_caller
from torch_geometric_gsl.nn.similarity.resolver import NAMED
from torch_geometric_gsl.sklearn._blend import fit_blend
from torch_geometric_gsl.sklearn._column_warnings import warn_of_groups
from torch_geometric_gsl.sklearn._columns import (
    check_unmasked,
    columns_of,
    is_frame,
    is_missing,
    row_labels,
    to_native,
)
from torch_geometric_gsl.sklearn._fitting import GRAPHS, BlendMixin
from torch_geometric_gsl.sklearn._runtime import atomic
from torch_geometric_gsl.sklearn._saving import SavedEstimator
from torch_geometric_gsl.sklearn._scaling import SCALINGS
from torch_geometric_gsl.sklearn._splits import (
    RowSplit,
    Table,
    codes_of,
    group_splits,
    latest_split,
    masked_split,
    random_splits,
)
from torch_geometric_gsl.sklearn.table_transformer import check_rows

AUTO = 'auto'
# Below this number of training rows there are several splits.
_FEW_ROWS = 1000
_NUM_SPLITS = 4


class GSLEstimator(BlendMixin, SavedEstimator):
    """Base class of estimators on a table and a graph of its rows.

    Its parameters are those of :class:`GSLClassifier`.
    """

    def __init__(
        self,
        graph: str = 'auto',
        *,
        n_members: int | str = 'auto',
        similarity: str = 'distance',
        eval_k: int = 96,
        draws: int | None = None,
        hidden_channels: int | str = 'auto',
        dropout: float | str = 'auto',
        scaling: str = 'auto',
        block_size: int | str = 'auto',
        learning_rate: float = 0.005,
        weight_decay: float = 1e-4,
        max_iter: int = 1000,
        validation_fraction: float = 0.2,
        random_state: Any = None,
        device: str = 'cpu',
        verbose: bool = False,
    ) -> None:
        self.graph = graph
        self.n_members = n_members
        self.similarity = similarity
        self.eval_k = eval_k
        self.draws = draws
        self.hidden_channels = hidden_channels
        self.dropout = dropout
        self.scaling = scaling
        self.block_size = block_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.max_iter = max_iter
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @atomic
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        validation_mask: Any = None,
        groups: Any = None,
        order: Any = None,
    ) -> Any:
        r"""Fit the members of the blend, and their weights on held-back rows.

        Args:
            X (array-like or DataFrame): The rows, dense or sparse.
            y (array-like): Classes, -1 if unknown, or targets in one or more columns.
            sample_weight (array-like, optional): Non-negative weights of the rows in
                the loss. A row of weight 0 sends no label. (default: :obj:`None`)
            validation_mask (array-like, optional): The rows to hold back; chosen by
                :obj:`groups` or :obj:`order`, else at random, if :obj:`None`.
                (default: :obj:`None`)
            groups (array-like, optional): The group of each row, such as a patient or
                a place, if new rows are of new groups. Whole groups are held back, and
                rows of one group are not neighbours. (default: :obj:`None`)
            order (array-like, optional): A number or a date of each row, if new rows
                come later. The latest are held back, and neighbours come before a row.
                (default: :obj:`None`)
        """
        self._check_parameters()
        for name, values in {
            'y': y,
            'sample_weight': sample_weight,
            'validation_mask': validation_mask,
            'groups': groups,
            'order': order,
        }.items():
            check_unmasked(values, name)
        x, y = self._checked(X, y)
        weight = self._find_labelled(y) * _check_sample_weight(
            sample_weight, x, dtype=np.float64, ensure_non_negative=True
        )
        # Only their ratios matter: normalised, they fit single precision in any unit.
        weight = (weight / max(weight.max(), np.finfo(float).tiny)).astype(np.float32)
        is_known = weight > 0
        if not is_known.any():
            raise ValueError("'sample_weight' must be positive for a row with a label")
        self._targets = y
        target = self._encode(y, is_known)
        # A row without weight sends no label either, and its loss is finite.
        target[torch.from_numpy(~is_known)] = 0
        self._known_y = target.clone()
        no_label = torch.nan if target.is_floating_point() else -1
        self._known_y[torch.from_numpy(~is_known)] = no_label
        random = check_random_state(self.random_state)
        # Options of the networks, which later changes of parameters do not affect;
        # `options_of` selects those of training.
        names = ('similarity', 'draws', 'eval_k')
        self._net_options = {name: getattr(self, name) for name in names}
        self._device = check_device(self.device)
        self._dtype = x.dtype
        self._x = x
        self._seen = [
            None if v is None else torch.from_numpy(codes_of(v, name, len(target)))
            for name, v in {'groups': groups, 'order': order}.items()
        ]
        splits = self._splits(target.numpy(), is_known, validation_mask, random)
        if self._num_classes:
            self._warn_of_lost(target[np.concatenate([s.train for s in splits])])
        tensors = target, self._known_y, torch.from_numpy(weight), *self._seen
        table = Table(None, *self._on_device(*tensors))
        members, val_outputs = self._fit_members(table, splits, random)
        self._blend = fit_blend(members, np.stack(val_outputs), x, table, splits)
        self._prepare()
        if validation_mask is None and self._seen == [None, None]:
            labelled = np.flatnonzero(is_known)
            warn_of_groups(self._blend, self._rows, x, target.numpy(), labelled)
        return self

    def _splits(self, y: Any, is_known: Any, mask: Any, random: Any) -> list[RowSplit]:
        """Choose the rows to hold back."""
        group, order = self._seen
        choices = {'groups': group, 'order': order, 'validation_mask': mask}
        names = [name for name, value in choices.items() if value is not None]
        if len(names) > 1:
            raise ValueError(
                f'{names[0]!r} is not supported with {names[1]!r}: each of them '
                'chooses the rows to hold back (got both)'
            )
        fraction = self.validation_fraction
        is_few = (1 - fraction) * is_known.sum() < _FEW_ROWS
        num_splits = _NUM_SPLITS if is_few else 1
        if self.n_members != AUTO:
            num_splits = int(self.n_members)
        if mask is not None:
            return [masked_split(mask, is_known)] * num_splits
        if fraction > 0 and names == ['order']:
            return [latest_split(order.numpy(), is_known, fraction)] * num_splits
        if fraction > 0 and names == ['groups']:
            splits = group_splits(group.numpy(), is_known, num_splits, fraction, random)
            if any(len(group[split.candidates].unique()) == 1 for split in splits):
                warn_caller(
                    "of two 'groups' one is held back, and rows of the other one have "
                    "no neighbours in training: pass more groups, or graph='none'",
                    UserWarning,
                )
            return splits
        return random_splits(
            y, is_known, num_splits, fraction, random, self._num_classes
        )

    def _check_parameters(self) -> None:
        """Raise unless the parameters have valid types and ranges."""
        check_option(self.graph, (AUTO, *GRAPHS), 'graph')
        check_option(self.scaling, SCALINGS, 'scaling')
        if isinstance(self.similarity, str):
            check_option(self.similarity, NAMED, 'similarity')
        for name in ('n_members', 'hidden_channels', 'block_size'):
            if isinstance(value := getattr(self, name), str) and value != AUTO:
                raise ValueError(f"{name!r} must be 'auto' or a number (got {value!r})")
            if value != AUTO:
                check_count(value, name)
        for name in ('eval_k', 'max_iter'):
            check_count(getattr(self, name), name)
        if self.draws is not None:
            check_count(self.draws, 'draws')
        if self.dropout != AUTO:
            check_probability(self.dropout, 'dropout')
        check_positive(self.learning_rate, 'learning_rate')
        check_probability(self.validation_fraction, 'validation_fraction')
        at_least(0, self.weight_decay, 'weight_decay')
        check_flag(self.verbose, 'verbose')

    def _checked(self, X: Any, y: Any) -> tuple[Any, Any]:
        """Return copies of the rows as numbers, and of the targets as an array."""
        if isinstance(y, str):
            raise TypeError(
                f"'y' must hold a value per row (got {y!r}): pass the column, X[{y!r}]"
            )
        name = None if is_frame(y) else getattr(y, 'name', None)
        self._target_name = ('' if name is None else str(name)) or 'target'
        if hasattr(y, 'dtype') and np.dtype(np.longdouble) == y.dtype:
            with np.errstate(over='ignore'):  # Infinite if out of range.
                y = np.asarray(y, dtype=np.float64)
        is_number = not is_classifier(self)
        infinities = (np.inf, -np.inf) if is_number else ()
        gaps = np.vectorize(
            lambda value: is_missing(value) or value in infinities, [bool]
        )(np.array(y, dtype=object))
        if gaps.size > 1 and (has_gap := gaps.reshape(len(gaps), -1).any(axis=1)).any():
            count = f'in {has_gap.sum()} of {len(has_gap)} rows'
            raise ValueError(
                f"'y' must hold finite numbers (got NaN or inf {count}, first in row "
                f'{has_gap.argmax()}): drop these rows'
                if is_number
                else f"'y' has no class, such as NaN, {count}: drop them, or encode "
                'the classes as integers with -1 for these'
            )
        if not is_number:
            check_same_kind(y)
        x = check_rows(self, X, reset=True, accept_sparse='csr')
        options = {'accept_sparse': 'csr', 'dtype': [x.dtype], 'estimator': self}
        try:
            x, y = check_X_y(
                x, y, **options, multi_output=is_number, y_numeric=is_number
            )
            if is_number and y.dtype.kind in 'mM':
                raise ValueError(f"'y' must hold numbers (got {y.dtype})")
            y = y.astype(np.float64) if is_number and y.dtype.kind not in 'biuf' else y
        except (TypeError, ValueError) as error:
            if 'could not convert' not in str(error) and 'NA is' not in str(error):
                raise
            raise ValueError(f"'y' must hold numbers ({error})") from error
        # Copies: later changes of the caller's table have no effect.
        self._rows = x = x.copy()
        self._labels = row_labels(X, x.shape[0])
        if is_frame(X):
            self._rows = {k: np.array(column) for k, column in columns_of(X).items()}
        return x, to_native(y).copy()

    def _warn_of_lost(self, labels: Tensor) -> None:
        """Warn about classes without a row to train on."""
        if classes := np.delete(self.classes_, np.unique(labels)).tolist():
            warn_caller(
                f'no member learns to predict the classes {classes}: all of their rows '
                'are held back for validation or have weight 0',
                UserWarning,
            )
