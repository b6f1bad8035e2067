from __future__ import annotations

import copy
from typing import Any

import numpy as np
import scipy.sparse
import torch
from sklearn.base import is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state, check_X_y
from sklearn.utils.validation import _check_sample_weight
from torch import Tensor
from tqdm import tqdm

from torch_geometric_gsl._checks import (
    at_least,
    check_count,
    check_device,
    check_flag,
    check_option,
    check_positive,
    check_probability,
)
from torch_geometric_gsl._columns import check_same_kind, find_far
from torch_geometric_gsl._warnings import warn_caller
from torch_geometric_gsl.nn.models.table_net import TableNet
from torch_geometric_gsl.nn.similarity.resolver import NAMED
from torch_geometric_gsl.ops.local_random import DrawsFrom
from torch_geometric_gsl.sklearn._frames import (
    check_unmasked,
    columns_of,
    is_frame,
    to_native,
)
from torch_geometric_gsl.sklearn._predictions import (
    FIXED_NEIGHBORS,
    Predictions,
)
from torch_geometric_gsl.sklearn._rows import (
    NUMBERS,
    SCALINGS,
    Nearest,
    Scaling,
    is_missing,
    to_tensor,
)
from torch_geometric_gsl.sklearn._saving import Saves
from torch_geometric_gsl.sklearn._training import (
    AUTO,
    GRAPHS,
    Result,
    Split,
    Table,
    constant_output,
    loss_of,
    options_of,
    sampled,
    set_constant,
    train,
)
from torch_geometric_gsl.sklearn._transaction import atomic
from torch_geometric_gsl.sklearn.table_transformer import check_rows

# The number of held-back rows for a useful validation.
_LEAST_VALIDATION = 12
# With more rows, a fixed graph is tried only if requested.
_MOST_NEAREST = 200_000
# A network with a larger share of the loss of a constant has learned nothing.
_CONSTANT = 0.98
# A ratio of columns' largest values that hides the smaller ones in sparse rows.
_LARGE = 1000
# With more columns, there are no periodic embeddings.
_MOST_EMBEDDED = 32


class GSLEstimator(Predictions, Saves):
    """Base class of estimators on a table and a graph of its rows.

    Its parameters are those of :class:`GSLClassifier`.
    """

    _network_class: Any = TableNet

    def __init__(
        self,
        graph: str = 'auto',
        *,
        n_members: int | str = 'auto',
        similarity: str = 'distance',
        eval_k: int = 96,
        draws: int | None = 4,
        hidden_channels: int | str = 'auto',
        dropout: float | str = 'auto',
        scaling: str = 'auto',
        batch_size: int | str = 'auto',
        pool_size: int = 4096,
        learning_rate: float = 0.001,
        weight_decay: float = 1e-4,
        max_iter: int = 1000,
        n_iter_no_change: int = 10,
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
        self.batch_size = batch_size
        self.pool_size = pool_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.max_iter = max_iter
        self.n_iter_no_change = n_iter_no_change
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
        self, X: Any, y: Any, sample_weight: Any = None, validation_mask: Any = None
    ) -> Any:
        r"""Train networks with each candidate graph, and keep the best.

        Args:
            X (array-like or DataFrame): The rows, dense or sparse.
            y (array-like): Classes, -1 if unknown, or targets in one or more columns.
            sample_weight (array-like, optional): Non-negative weights of the rows in
                the loss. A row of weight 0 sends no label. (default: :obj:`None`)
            validation_mask (array-like, optional): The rows to hold back, such as the
                latest; a random choice if :obj:`None`. (default: :obj:`None`)
        """
        self._check_parameters()
        for name, values in {
            'y': y,
            'sample_weight': sample_weight,
            'validation_mask': validation_mask,
        }.items():
            check_unmasked(values, name)
        x, y = self._checked(X, y)
        weight = self._find_known(y) * _check_sample_weight(
            sample_weight, x, dtype=np.float64, ensure_non_negative=True
        )
        is_known = weight > 0
        if not is_known.any():
            raise ValueError("'sample_weight' must be positive for a row with a label")
        self._targets = y
        target = self._encode(y, is_known)
        held = _checked_mask(validation_mask, is_known)
        if held is not None and is_classifier(self):
            self._warn_of_lost(target[is_known & ~held])
        # A row without weight sends no label either.
        self._known_y = target.clone()
        unknown = torch.nan if target.is_floating_point() else -1
        self._known_y[torch.from_numpy(~is_known)] = unknown
        # Only their ratios matter: normalised, they fit single precision in any unit.
        weight = torch.from_numpy(weight / weight.max()).float()
        random = check_random_state(self.random_state)
        # Options of the networks, which later changes of parameters do not affect;
        # `options_of` selects those of training.
        names = ('similarity', 'draws', 'eval_k')
        self._net_options = {name: getattr(self, name) for name in names}
        self._device = check_device(self.device)
        self._dtype = x.dtype
        self._scaling = Scaling(self.scaling).fit(x)
        is_sparse = scipy.sparse.issparse(x)
        (self._warn_of_large if is_sparse else self._warn_of_far)(x)
        self._x = rows = self._scaling.apply(x)
        if not is_sparse:
            rows = to_tensor(rows, self._device, torch.float32)
        known = target, self._known_y, weight
        table = Table(rows, *(t.to(self._device) for t in known))
        split = self._split(target.numpy(), is_known, held, random)
        results = [self._train_best(table, split, _seed(random))]
        for _ in range(1, options_of(self, len(split.train)).n_members):
            split = self._split(target.numpy(), is_known, held, random)
            results.append(self._train(results[0].graph, table, split, _seed(random)))
        self._keep(results)
        self._prepare()
        return self

    def _keep(self, results: list[Result]) -> None:
        """Store the networks better than a constant, and the losses of the first."""
        results = [each for each in results if not each.is_constant] or results[:1]
        self._is_constant = results[0].is_constant
        self.graph_choice_ = results[0].graph
        self.validation_loss_ = float(np.mean([result.loss for result in results]))
        self.loss_curve_, self.validation_scores_ = results[0].losses, results[0].scores
        self.n_iter_ = len(self.loss_curve_)
        self._members = [result.model for result in results]

    def _check_parameters(self) -> None:
        """Raise unless the parameters have valid types and ranges."""
        check_option(self.graph, (AUTO, *GRAPHS), 'graph')
        check_option(self.scaling, SCALINGS, 'scaling')
        if isinstance(self.similarity, str):
            check_option(self.similarity, NAMED, 'similarity')
        for name in ('n_members', 'hidden_channels', 'batch_size'):
            if isinstance(value := getattr(self, name), str) and value != AUTO:
                raise ValueError(f"{name!r} must be 'auto' or a number (got {value!r})")
            if value != AUTO:
                check_count(value, name)
        for name in ('eval_k', 'pool_size', 'max_iter', 'n_iter_no_change'):
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
        if hasattr(y, 'dtype') and np.dtype(np.longdouble) == y.dtype:
            with np.errstate(over='ignore'):  # Infinite if out of range.
                y = np.asarray(y, dtype=np.float64)
        is_number = not is_classifier(self)
        ends = (np.inf, -np.inf) if is_number else ()
        gaps = np.vectorize(lambda value: is_missing(value) or value in ends, [bool])(
            np.array(y, dtype=object)
        )
        if gaps.size > 1 and (gone := gaps.reshape(len(gaps), -1).any(axis=1)).any():
            where = f'in {gone.sum()} of {len(gone)} rows'
            raise ValueError(
                f"'y' must hold finite numbers (got NaN or inf {where}, first in row "
                f'{gone.argmax()}): drop these rows'
                if is_number
                else f"'y' has no class, such as NaN, {where}: drop them, or encode "
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
        self._labels = np.arange(x.shape[0])
        if is_frame(X):
            self._labels = to_native(np.array(getattr(X, 'index', self._labels)))
            self._rows = {k: np.array(column) for k, column in columns_of(X).items()}
        return x, to_native(y).copy()

    def _warn_of_lost(self, left: Tensor) -> None:
        """Warn about classes without a row to train on."""
        if lost := np.delete(self.classes_, np.unique(left)).tolist():
            warn_caller(
                f"'validation_mask' holds back all rows of the classes {lost}: no "
                'network learns to predict them',
                UserWarning,
            )

    def _warn_of_far(self, x: Any) -> None:
        """Warn about outliers that dominate the scale of their column."""
        if self._scaling.quantiles is not None:
            return
        names = [*range(x.shape[1])]
        if self._table is not None:  # Their numbers come first.
            names = [c.name for c in self._table.columns_ if c.kind in NUMBERS]
        for name, values in zip(names, x.T, strict=False):
            if (row := find_far(values)) is not None:
                warn_caller(
                    f'column {name!r} has the value {values[row]:g} in row {row}, far '
                    'outside of all others: it may flatten them; check it, or '
                    "scaling='quantile'",
                    UserWarning,
                )

    def _warn_of_large(self, x: Any) -> None:
        """Warn about a column that hides the others of sparse rows of unit norm."""
        largest = np.ravel(abs(x).max(axis=0).toarray())
        column = int(largest.argmax())
        usual = np.median(largest[largest > 0]) if largest.any() else 0.0
        if self.scaling != 'none' and largest[column] > _LARGE * usual:
            warn_caller(
                f'column {column} has values up to {largest[column]:g}, and hides the '
                'others in sparse rows, which are scaled to unit norm: scale it, or '
                "pass dense rows ('sparse_threshold=0' of a ColumnTransformer)",
                UserWarning,
            )

    def _train_best(self, table: Table, split: Split, seed: int) -> Result:
        """Train with each candidate graph; return the best by validation loss."""
        graphs = [self.graph]
        if len(split.candidates) < 2 and self.graph != 'none':
            warn_caller(
                f'graph={self.graph!r} has no edges: of {len(table.y)} rows, only '
                f'{len(split.candidates)} is not held back for validation, and it has '
                "no neighbour. The estimator is fitted with graph='none'",
                UserWarning,
            )
            graphs = ['none']
        elif self.graph == AUTO:
            is_small = len(table.y) <= _MOST_NEAREST
            graphs = [g for g in GRAPHS if g != 'nearest' or is_small]
            if len(split.val) == 0:
                graphs = graphs[:1]
                warn_caller(
                    f"graph='auto' takes {graphs[0]!r} without a comparison: too few "
                    f'of {len(table.y)} rows can be held back for validation',
                    UserWarning,
                )
        results = [self._train(graph, table, split, seed) for graph in graphs]
        # Of constants, the one without a graph.
        results.sort(key=lambda result: (result.loss, result.graph != 'none'))
        self.graph_losses_ = {result.graph: result.loss for result in results}
        best, *others = self.graph_losses_.values()
        self.graph_margin_ = 1 - best / others[0] if others and others[0] > 0 else None
        if self.verbose and others:
            tqdm.write(
                f'{results[0].graph} is chosen by validation losses '
                + ', '.join(f'{k} {v:.4g}' for k, v in self.graph_losses_.items())
            )
        return results[0]

    def _train(self, graph: str, table: Table, split: Split, seed: int) -> Result:
        options = options_of(self, len(split.train))
        if graph == 'nearest':
            k = min(FIXED_NEIGHBORS, self._net_options['eval_k'])
            table = table._replace(nearest=Nearest(self._x, split.candidates, k))
        with DrawsFrom(torch.Generator().manual_seed(seed)):
            model = self._network(graph, options.hidden_channels, options.dropout)
        result = train(model.to(self._device), graph, table, split, options, seed)
        # Few rows do not tell whether a network is worse than a constant.
        if len(split.val) >= _LEAST_VALIDATION:
            constant = constant_output(table, split.train)
            rows = sampled(split, seed).val
            least = loss_of(constant.expand(len(rows), -1), table, rows)
            self._warn_of_training(result, least)
            if result.loss >= least:
                set_constant(result.model, constant)
                result = result._replace(loss=least, is_constant=True)
        elif not result.has_converged:
            self._warn_of_training(result, float('inf'))
        return result

    def _warn_of_training(self, result: Result, least: float) -> None:
        """Warn if training ended early, or is hardly better than a constant."""
        who = f"the network with graph='{result.graph}'"
        constant = f'(loss {result.loss:.3g}, of the constant {least:.3g})'
        instead = f'no better than a constant {constant}, which it predicts instead'
        if not result.has_converged:
            also = f', and is {instead}' * (result.loss >= least)
            text = f"{who} still improved after 'max_iter' = {self.max_iter} epochs"
            warn_caller(text + also, ConvergenceWarning)
        elif result.loss >= least > 0:
            text = f'no signal was found: on held-back rows {who} is {instead}'
            warn_caller(text, ConvergenceWarning)
        elif result.loss > _CONSTANT * least > 0:
            text = f'little signal was found: on held-back rows {who} is hardly better '
            warn_caller(f'{text}than a constant {constant}', ConvergenceWarning)

    def _network(self, graph: str, hidden_channels: int, dropout: float) -> TableNet:
        # Embeddings of many columns are slow and rarely help.
        columns = self._scaling.varied.tolist()
        columns = columns if len(columns) <= _MOST_EMBEDDED else []
        made: TableNet = self._network_class(
            self._x.shape[1],
            hidden_channels,
            self._num_outputs,
            graph={'nearest': 'given'}.get(graph, graph),
            num_frequencies=32 if columns else 0,
            periodic_columns=columns,
            dropout=dropout,
            **copy.deepcopy(self._net_options),
        )
        return made

    def _split(self, y: Any, is_known: Any, mask: Any, random: Any) -> Split:
        """Split off labelled rows for validation, at random or by a mask."""
        order = random.permutation(np.flatnonzero(is_known))
        held = self._held(y, order) if mask is None else order[mask[order]]
        hidden = held if mask is None else np.flatnonzero(mask)
        candidates = np.setdiff1d(np.arange(len(y)), hidden)
        split = np.setdiff1d(order, held), candidates, np.sort(held)
        return Split(*(torch.from_numpy(part).to(self._device) for part in split))

    def _held(self, y: Any, order: Any) -> Any:
        """Sample the rows to hold back, stratified by class if there are classes."""
        groups = [order]
        if is_classifier(self):
            groups = [order[y[order] == c] for c in range(self._num_outputs)]
        fraction = self.validation_fraction
        groups = [rows[: int(fraction * len(rows))] for rows in groups]
        held = np.concatenate(groups)
        # Rows of a single class do not measure accuracy.
        is_one_class = sum(len(rows) > 0 for rows in groups) < min(2, len(groups))
        return held[:0] if is_one_class or len(held) < _LEAST_VALIDATION else held


def _checked_mask(mask: Any, is_known: Any) -> Any:
    """Return the rows to hold back as an array, if given."""
    if mask is None:
        return None
    found = np.asarray(mask)
    if found.dtype != bool or found.shape != is_known.shape:
        raise ValueError(
            f"'validation_mask' must have one bool for each of the {len(is_known)} "
            f'rows (got {found.dtype} of shape {list(found.shape)})'
        )
    held, left = (is_known & found).sum(), (is_known & ~found).sum()
    if held == 0 or left == 0:
        raise ValueError(
            f"'validation_mask' must hold back and leave labelled rows of positive "
            f'weight (got {held} and {left})'
        )
    return found


def _seed(random: Any) -> int:
    return int(random.randint(2**31 - 1))
