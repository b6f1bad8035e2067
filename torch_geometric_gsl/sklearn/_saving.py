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

from torch_geometric_gsl._files import plain_value, read_tensors, write_tensors
from torch_geometric_gsl.ops.local_random import DrawsFrom
from torch_geometric_gsl.sklearn._rows import Scaling
from torch_geometric_gsl.sklearn.table_transformer import TableTransformer

# Fitted attributes with plain values.
_PLAIN = (
    *('graph_choice_', 'graph_losses_', 'graph_margin_', 'validation_loss_', 'n_iter_'),
    *('loss_curve_', 'validation_scores_', '_num_outputs', '_net_options'),
)


class Saves(BaseEstimator):  # type: ignore[misc]
    """Save an estimator to a file, and load it again."""

    #: Fitted attributes with arrays.
    _TARGETS: tuple[str, ...] = ()

    def save(self, path: str | Path) -> None:
        r"""Write the fitted estimator to a file, to be read by :meth:`load`.

        Args:
            path (str or pathlib.Path): The file, replaced atomically.

        Raises:
            TypeError: If a parameter is not a plain value.
        """
        check_is_fitted(self)
        params = plain_value(self.get_params())  # Grid searches set NumPy values.
        for name, value in params.items():
            if not isinstance(value, str | int | float | bool | None):
                raise TypeError(
                    f"'{name}' must be a plain value to be saved "
                    f'(got {type(value).__name__})'
                )
        table = self._table
        members = [member.clear_index().float() for member in self._members]
        states = [member.state_dict() for member in members]
        content = {
            'estimator': type(self).__name__,
            'params': params,
            'fit': {name: getattr(self, name) for name in _PLAIN},
            'x': _packed(self._x),
            'rows': _packed(self._rows),
            'labels': _packed(self._labels),
            'known_y': self._known_y,
            'scaling': self._scaling.state(),
            'sizes': [[m.hidden_channels, m.dropout] for m in members],
            'states': [{k: v.cpu() for k, v in state.items()} for state in states],
            'dtype': str(self._dtype),
            'table': None if table is None else table.state(),
            'names': getattr(self, 'feature_names_in_', np.array([])).tolist(),
            'targets': {name: _packed(getattr(self, name)) for name in self._TARGETS},
        }
        self._prepare()
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
                content['params']['device'] = device
            return cls._restored(content)
        except (
            *(AttributeError, LookupError, RuntimeError, TypeError, ValueError),
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
        for name in cls._TARGETS:
            setattr(self, name, _unpacked(content['targets'][name]))
        self._scaling = Scaling.restored(content['scaling'])
        self._x, self._rows = _unpacked(content['x']), _unpacked(content['rows'])
        self._known_y, self._dtype = content['known_y'], np.dtype(content['dtype'])
        self._labels = _unpacked(content['labels'])
        state = content['table']
        self._table = None if state is None else TableTransformer.restored(state)
        self.n_features_in_ = len(state['columns']) if state else self._x.shape[1]
        if content['names']:
            self.feature_names_in_ = np.array(content['names'], dtype=object)
        self._members = []
        for (hidden, dropout), weights in zip(
            content['sizes'], content['states'], strict=True
        ):
            # Initial parameters come from a separate generator, and are replaced.
            with DrawsFrom(torch.Generator()):
                model = self._network(self.graph_choice_, hidden, dropout)
            model.load_state_dict(weights)
            self._members.append(model.to(self.device))
        if not self._members:
            raise ValueError('it has no network')
        self._prepare()
        return self


def _packed(x: Any) -> Any:
    """Convert an array, a sparse matrix or columns to tensors or plain values."""
    if isinstance(x, dict):
        return {_plain(name): _packed(column) for name, column in x.items()}
    if scipy.sparse.issparse(x):
        x = scipy.sparse.csr_matrix(x)
        parts = (torch.tensor(np.asarray(a)) for a in (x.data, x.indices, x.indptr))
        return [*parts, list(x.shape)]
    if x.dtype.kind in 'bif':
        return torch.tensor(np.ascontiguousarray(x))
    values = x.astype(np.int64) if x.dtype.kind in 'mM' else x
    return [[_plain(value) for value in values.tolist()], str(x.dtype)]


def _unpacked(x: Any) -> Any:
    if isinstance(x, dict):
        return {name: _unpacked(column) for name, column in x.items()}
    if isinstance(x, Tensor):
        return x.numpy()
    *parts, last = x
    if isinstance(last, str):
        return np.array(parts[0], dtype=np.dtype(last))
    return scipy.sparse.csr_matrix(tuple(p.numpy() for p in parts), shape=last)


def _plain(value: Any) -> Any:
    value = plain_value(value)
    return value if isinstance(value, int | float | str | None) else str(value)
