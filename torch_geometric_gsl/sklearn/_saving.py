"""Save fitted estimators to files, and load them without executing code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from torch_geometric_gsl._checks import check_device
from torch_geometric_gsl._files import plain_value, read_tensors, write_tensors
from torch_geometric_gsl.nn.models.table_net import TableNet
from torch_geometric_gsl.ops.local_random import DrawsFrom
from torch_geometric_gsl.sklearn._plain import decode, encode
from torch_geometric_gsl.sklearn._rows import Scaling
from torch_geometric_gsl.sklearn._transaction import default_modes
from torch_geometric_gsl.sklearn.table_transformer import TableTransformer

# Fitted attributes with plain values.
_PLAIN = (
    *('graph_choice_', 'graph_losses_', 'graph_margin_', 'validation_loss_', 'n_iter_'),
    *('loss_curve_', 'validation_scores_', '_num_outputs', '_net_options'),
    '_is_constant',
)


class Saves(BaseEstimator):  # type: ignore[misc]
    """Save an estimator to a file, and load it again."""

    #: Fitted attributes with arrays.
    _TARGETS: tuple[str, ...] = ()

    @default_modes()
    def save(self, path: str | Path) -> None:
        r"""Write the fitted estimator to a file, to be read by :meth:`load`.

        Names of columns, labels of rows and values keep their types: strings, numbers,
        dates, durations, tuples of them, and those of pandas. Labels and values of
        other types become strings.

        Args:
            path (str or pathlib.Path): The file, replaced atomically.

        Raises:
            TypeError: If a parameter is not a plain value, or the name of a column or
                a class has another type.
        """
        check_is_fitted(self)
        params = plain_value(self.get_params())  # Grid searches set NumPy values.
        if isinstance(params['device'], torch.device):
            params['device'] = str(params['device'])
        for name, value in params.items():
            if not isinstance(value, str | int | float | bool | None):
                raise TypeError(
                    f"'{name}' must be a plain value to be saved "
                    f'(got {type(value).__name__})'
                )
        table = self._table
        rows, names = self._rows, None
        if table is not None:
            names = [encode(column.name) for column in table.columns_]
            rows = [*rows.values()]
        content = {
            'estimator': type(self).__name__,
            'params': params,
            'fit': {name: getattr(self, name) for name in _PLAIN},
            'device': str(self._device),
            'x': _packed(self._x),
            'rows': _packed(rows, as_text=True),
            'labels': _packed(self._labels, as_text=True),
            'known_y': self._known_y,
            'scaling': self._scaling.state(),
            'sizes': [[m.hidden_channels, m.dropout] for m in self._members],
            'states': [_weights(member) for member in self._members],
            'dtype': str(self._dtype),
            'table': None if table is None else table.state() | {'names': names},
            'targets': {name: _packed(getattr(self, name)) for name in self._TARGETS},
        }
        write_tensors(content, path)

    @classmethod
    def load(cls, path: str | Path, device: str | None = None) -> Any:
        r"""Load an estimator written by :meth:`save`; no code is executed.

        Args:
            path (str or pathlib.Path): The file.
            device (str, optional): The device of the networks, or of the saved ones
                if :obj:`None`. (default: :obj:`None`)

        Raises:
            OSError: If the file is not a saved estimator, or is damaged.
            ValueError: If the estimator has another class.
        """
        content = read_tensors(path, 'saved estimator', [cls.__name__])
        try:
            if device is not None:
                content['params']['device'] = content['device'] = device
            with default_modes():
                return cls._restored(content)
        except (
            *(ArithmeticError, AttributeError, LookupError, RuntimeError),
            *(TypeError, ValueError),
        ) as error:
            raise OSError(
                f"'{path}' holds a {cls.__name__} that cannot be restored: {error}"
            ) from error

    @classmethod
    def _restored(cls, content: dict[str, Any]) -> Any:
        if 'device' not in content:
            raise ValueError('it was saved by version 0.2.0: fit it again')
        # Parameters that were set after `fit` are checked by the next one.
        self: Any = cls(**content['params'])
        for name in _PLAIN:
            setattr(self, name, content['fit'][name])
        for name in cls._TARGETS:
            setattr(self, name, _unpacked(content['targets'][name]))
        self._device = check_device(content['device'])
        self._scaling = Scaling.restored(content['scaling'])
        self._x, self._rows = _unpacked(content['x']), _unpacked(content['rows'])
        self._known_y, self._dtype = content['known_y'], np.dtype(content['dtype'])
        self._labels = _unpacked(content['labels'])
        self._table, self.n_features_in_ = None, self._x.shape[1]
        if content['table'] is not None:
            names = [decode(name) for name in content['table']['names']]
            self._table = TableTransformer.restored(content['table'], names)
            self._rows = dict(zip(names, self._rows, strict=True))
            self.n_features_in_ = len(names)
            if all(isinstance(name, str) for name in names):
                self.feature_names_in_ = np.array(names, dtype=object)
        self._members = []
        for (hidden, dropout), weights in zip(
            content['sizes'], content['states'], strict=True
        ):
            # Initial parameters come from a separate generator, and are replaced.
            with DrawsFrom(torch.Generator()):
                model = self._network(self.graph_choice_, hidden, dropout)
            model.load_state_dict(weights)
            self._members.append(model.to(self._device))
        if not self._members:
            raise ValueError('it has no network')
        self._prepare()
        return self


def _weights(model: TableNet) -> dict[str, Tensor]:
    """Return the state of a network without its index, in single precision."""
    return {
        name: value.float().cpu()
        for name, value in model.state_dict().items()
        if not name.startswith('index_')
    }


def _packed(x: Any, as_text: bool = False) -> Any:
    """Convert an array, a sparse matrix or columns to tensors or plain values."""
    if isinstance(x, list):
        return {'columns': [_packed(column, as_text) for column in x]}
    if scipy.sparse.issparse(x):
        x = scipy.sparse.csr_matrix(x)
        parts = (torch.from_numpy(a) for a in (x.data, x.indices, x.indptr))
        return [*parts, list(x.shape)]
    if x.dtype.kind in 'bif':
        return torch.from_numpy(np.array(x, order='C'))
    values = x.astype(np.int64) if x.dtype.kind in 'mM' else x
    return [[encode(value, as_text) for value in values.tolist()], str(x.dtype)]


def _unpacked(x: Any) -> Any:
    if isinstance(x, dict):
        return [_unpacked(column) for column in x['columns']]
    if isinstance(x, Tensor):
        return x.numpy()
    *parts, last = x
    if not isinstance(last, str):
        return scipy.sparse.csr_matrix(tuple(p.numpy() for p in parts), shape=last)
    values = np.empty(len(parts[0]), dtype=np.dtype(last))
    # One by one: an array of tuples would have two dimensions.
    for position, value in enumerate(parts[0]):
        values[position] = decode(value)
    return values
