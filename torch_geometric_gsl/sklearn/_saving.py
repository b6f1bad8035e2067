"""Write fitted estimators to files, and read them without executing anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from torch_geometric_gsl._files import plain_value, read_tensors, write_tensors
from torch_geometric_gsl.ops.local_random import DrawsFrom
from torch_geometric_gsl.sklearn._rows import ColumnScaling
from torch_geometric_gsl.sklearn.table_transformer import TableTransformer, is_frame

# What describes a fit in plain values.
_PLAIN = (
    *('graph_choice_', 'graph_losses_', 'graph_margin_', 'validation_loss_', 'n_iter_'),
    *('loss_curve_', 'validation_scores_', '_num_outputs'),
)


class Saves:
    """Save an estimator to a file, and load it."""

    def save(self, path: str | Path) -> None:
        r"""Write the fitted estimator to a file, which :meth:`load` reads.

        Args:
            path (str or pathlib.Path): The file, which is replaced as a whole.

        Raises:
            TypeError: If a parameter is no plain value.
        """
        check_is_fitted(self)
        estimator: Any = self
        params = estimator.get_params()
        for name, value in params.items():
            params[name] = value = plain_value(value)  # Grids are NumPy's.
            if not isinstance(value, str | int | float | bool | None):
                raise TypeError(
                    f"'{name}' must be a plain value to be saved "
                    f'(got {type(value).__name__})'
                )
        table = estimator._table
        members = [member.clear_index().float() for member in estimator._members]
        states = [member.state_dict() for member in members]
        content = {
            'estimator': type(self).__name__,
            'params': params,
            'fit': {name: getattr(self, name) for name in _PLAIN},
            'x': _to_tensors(estimator._x),
            'rows': _plain_rows(estimator._rows),
            'told': estimator._told,
            'scaling': estimator._scaling.state(),
            'net': estimator._net_options,
            'sizes': [[m.hidden_channels, m.dropout] for m in members],
            'states': [{k: v.cpu() for k, v in state.items()} for state in states],
            'dtype': str(estimator._dtype),
            'table': None if table is None else table.state(),
            'names': getattr(self, 'feature_names_in_', np.array([])).tolist(),
            'targets': estimator._saved_targets(),
        }
        estimator._prepare()
        write_tensors(content, path)

    @classmethod
    def load(cls, path: str | Path, device: str | None = None) -> Any:
        r"""Read an estimator that :meth:`save` wrote; nothing in the file is executed.

        Args:
            path (str or pathlib.Path): The file.
            device (str, optional): The device of the networks; that of the saved ones
                if :obj:`None`. (default: :obj:`None`)

        Raises:
            OSError: If the file holds no saved estimator, or a damaged one.
            ValueError: If it is one of another class.
        """
        content = read_tensors(path, 'saved estimator')
        kind = content.get('estimator')
        if kind is None:
            raise OSError(f"'{path}' holds no saved estimator")
        if kind != cls.__name__:
            raise ValueError(f"'{path}' holds a {kind}, not a {cls.__name__}")
        try:
            if device is not None:
                content['params']['device'] = device
            return cls._restored(content)
        except (
            *(AttributeError, IndexError, KeyError, RuntimeError),
            *(TypeError, ValueError),
        ) as error:
            raise OSError(
                f"'{path}' holds a {cls.__name__} that cannot be restored: {error}"
            ) from error

    @classmethod
    def _restored(cls, content: dict[str, Any]) -> Any:
        self: Any = cls(**content['params'])
        self._check_parameters()
        for name in _PLAIN:
            setattr(self, name, content['fit'][name])
        self._net_options = content['net']
        self._scaling = ColumnScaling.restored(content['scaling'])
        self._x = _from_tensors(content['x'])
        self._num_rows, width = self._x.shape
        self._told = content['told']
        self._dtype = np.dtype(content['dtype'])
        state = content['table']
        self._table = None if state is None else TableTransformer.restored(state)
        rows = content['rows']
        self._rows = rows if isinstance(rows, dict) else _from_tensors(rows)
        self.n_features_in_ = width if state is None else len(state['columns'])
        if content['names']:
            self.feature_names_in_ = np.array(content['names'], dtype=object)
        self._restore_targets(content['targets'])
        self._members = []
        for (hidden, dropout), weights in zip(
            content['sizes'], content['states'], strict=True
        ):
            # Parameters are drawn from another generator, and replaced.
            with DrawsFrom(torch.Generator()):
                model = self._network(self.graph_choice_, hidden, dropout)
            model.load_state_dict(weights)
            self._members.append(model.to(self.device))
        if not self._members:
            raise ValueError('it has no network')
        self._prepare()
        return self


def _to_tensors(x: Any) -> Any:
    """Return a matrix, dense or sparse, as tensors."""
    if not scipy.sparse.issparse(x):
        return torch.tensor(np.ascontiguousarray(x))
    x = scipy.sparse.csr_matrix(x)
    parts = (torch.tensor(np.asarray(a)) for a in (x.data, x.indices, x.indptr))
    return [*parts, list(x.shape)]


def _from_tensors(x: Any) -> Any:
    if isinstance(x, Tensor):
        return x.numpy()
    *parts, shape = x
    return scipy.sparse.csr_matrix(tuple(p.numpy() for p in parts), shape=shape)


def _plain_rows(rows: Any) -> Any:
    """Return a table as plain values: numbers as they are, others as texts."""
    if isinstance(rows, dict):
        return rows
    if not is_frame(rows):
        return _to_tensors(rows)
    columns = {}
    for name in rows.columns:
        array = rows[name].to_numpy()
        values = (array.astype(str) if array.dtype.kind in 'mM' else array).tolist()
        columns[_plain(name)] = [_plain(value) for value in values]
    return columns


def _plain(value: Any) -> Any:
    value = plain_value(value)
    return value if isinstance(value, int | float | str | None) else str(value)
