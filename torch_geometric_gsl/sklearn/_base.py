from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from sklearn.base import is_classifier
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted
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
from torch_geometric_gsl._files import SaveMixin
from torch_geometric_gsl._warnings import warn_caller
from torch_geometric_gsl.nn.models.table_net import TableNet
from torch_geometric_gsl.nn.similarity.resolver import NAMED
from torch_geometric_gsl.sklearn._blend import fit_blend
from torch_geometric_gsl.sklearn._column_warnings import warn_of_groups
from torch_geometric_gsl.sklearn._columns import check_unmasked, row_labels
from torch_geometric_gsl.sklearn._fitting import (
    AUTO,
    GRAPHS,
    FittedMembers,
    fit_members,
    index_rows,
    network_options,
    training_table,
)
from torch_geometric_gsl.sklearn._predictions import Predictions
from torch_geometric_gsl.sklearn._rows import (
    TrainingRows,
    check_table,
    name_of,
    stored_columns,
)
from torch_geometric_gsl.sklearn._runtime import atomic, default_modes
from torch_geometric_gsl.sklearn._saving import (
    packed_params,
    packed_state,
    restore_state,
)
from torch_geometric_gsl.sklearn._scaling import SCALINGS
from torch_geometric_gsl.sklearn._splits import (
    RowSplit,
    Table,
    choose_splits,
    codes_of,
)
from torch_geometric_gsl.sklearn._training import Training


class GSLEstimator(Predictions, SaveMixin):
    """Base class of estimators on a table and a graph of its rows.

    Its parameters are those of :class:`GSLClassifier`. Subclasses find the labelled
    rows by :meth:`_find_labelled`, and encode targets by :meth:`_encode`.
    """

    #: The fitted arrays by which a subclass decodes.
    _TARGETS: tuple[str, ...] = ()
    # Variants in studies have others.
    _network_class: Any = TableNet
    _training_class: Any = Training

    # What `fit` and `load` set, beside what predictions need: the device of networks.
    _device: torch.device

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
        target_name = name_of(y)
        encoder, x, targets = check_table(self, X, y)
        weight = self._find_labelled(targets) * _check_sample_weight(
            sample_weight, x, dtype=np.float64, ensure_non_negative=True
        )
        # Only their ratios matter: normalised, they fit single precision in any unit.
        weight = (weight / max(weight.max(), np.finfo(float).tiny)).astype(np.float32)
        is_known = weight > 0
        if not is_known.any():
            raise ValueError("'sample_weight' must be positive for a row with a label")
        known_y = self._encode(targets, is_known)
        # A row without weight sends no label either.
        no_label = torch.nan if known_y.is_floating_point() else -1
        known_y[torch.from_numpy(~is_known)] = no_label
        random = check_random_state(self.random_state)
        # Later changes of parameters do not affect these.
        self._net_options = network_options(self)
        self._device = check_device(self.device)
        group, order = (
            None if v is None else torch.from_numpy(codes_of(v, name, len(known_y)))
            for name, v in {'groups': groups, 'order': order}.items()
        )
        self._rows = rows = TrainingRows(
            x=x,
            columns=stored_columns(X, x),
            labels=row_labels(X, len(known_y)),
            encoder=encoder,
            targets=targets,
            target_name=target_name,
            known_y=known_y,
            num_classes=len(self.classes_) if is_classifier(self) else 0,
            group=group,
            order=order,
        )
        splits = choose_splits(rows, is_known, validation_mask, self, random)
        if rows.num_classes:
            self._warn_of_lost(known_y[np.concatenate([s.train for s in splits])])
        table = training_table(rows, weight, self._device)
        members, val_outputs, losses = self._fit_members(table, splits, random)
        self.loss_curve_ = losses[0]
        self.n_iter_ = max(map(len, losses))
        self._blend = fit_blend(members, np.stack(val_outputs), x, table, splits)
        index_rows(self._blend, rows, self._device)
        if validation_mask is None and not rows.is_hidden:
            labelled = np.flatnonzero(is_known)
            y = table.y.cpu().numpy()
            warn_of_groups(self._blend, rows.columns, x, y, labelled)
        return self

    def _fit_members(
        self, table: Table, splits: list[RowSplit], random: Any
    ) -> FittedMembers:
        """Fit the members of the blend, which variants in studies change."""
        options = SimpleNamespace(
            **self.get_params(deep=False),
            network_class=self._network_class,
            training_class=self._training_class,
        )
        return fit_members(self._rows, table, splits, options, random)

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

    def _warn_of_lost(self, labels: Tensor) -> None:
        """Warn about classes without a row to train on."""
        if classes := np.delete(self.classes_, np.unique(labels)).tolist():
            warn_caller(
                f'no member learns to predict the classes {classes}: all of their rows '
                'are held back for validation or have weight 0',
                UserWarning,
            )

    @default_modes()
    def _save_state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        check_is_fitted(self)
        return packed_params(self.get_params()), packed_state(self)

    @classmethod
    @default_modes()
    def _from_state(cls, options: Any, state: Any, device: torch.device | None) -> Any:
        if device is not None:
            options['device'] = state['device'] = str(device)
        # Parameters that were set after `fit` are checked by the next one.
        model: Any = cls(**options)
        restore_state(model, state)
        return model
