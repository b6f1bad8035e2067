"""Columns on the scale that the networks see."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
import torch
from scipy.special import ndtri
from sklearn.preprocessing import QuantileTransformer

from torch_geometric_gsl.sklearn._arrays import Scaling

#: How columns are scaled.
SCALINGS = ('auto', 'quantile', 'standard', 'none')
# From so many rows on, quantiles are measured well enough.
_LEAST_ROWS = 1000
_QUANTILES = 1000
# Equal values are told apart by noise of this size, so that quantiles are distinct.
_NOISE = 1e-5
# The share of the least value, as in scikit-learn.
_TAIL = 1e-7


class ColumnScaling:
    """Standardise columns, then map those of more than two values to normal quantiles.

    Args:
        scaling (str): One of :obj:`SCALINGS`.
    """

    def __init__(self, scaling: str) -> None:
        self.standardize = scaling != 'none'
        self.scaling = scaling
        self.line = Scaling()
        # Those of more than two values, and those that quantiles scale.
        self.varied = self.columns = np.zeros(0, dtype=int)
        self.quantiles: Any = None

    def fit(self, x: Any) -> ColumnScaling:
        """Measure the columns of training rows."""
        self.line = Scaling.of(x, self.standardize)
        is_many = self.scaling == 'quantile' or (
            self.scaling == 'auto' and x.shape[0] >= _LEAST_ROWS
        )
        if scipy.sparse.issparse(x):
            return self
        self.varied = np.flatnonzero([len(np.unique(column)) > 2 for column in x.T])
        if is_many and len(self.varied) > 0:
            self.columns = self.varied
            rows = self.line.apply(x, self.standardize, np.float64)[:, self.columns]
            rows = rows + np.random.RandomState(0).normal(0, _NOISE, rows.shape)
            number = min(_QUANTILES, len(rows))
            made = QuantileTransformer(n_quantiles=number, subsample=None)
            self.quantiles = made.fit(rows)
        return self

    def apply(self, x: Any) -> Any:
        """Scale rows as those of training were; return them in double precision.

        Raises:
            ValueError: If a value does not fit into single precision.
        """
        self.line.apply(x, self.standardize, np.float32)
        x = self.line.apply(x, self.standardize, np.float64)
        if self.quantiles is not None:
            share = self.quantiles.transform(x[:, self.columns])
            x[:, self.columns] = ndtri(share.clip(_TAIL, 1 - _TAIL))
        return x

    def state(self) -> dict[str, Any]:
        """Return what was measured in tensors."""
        arrays = {'mean': self.line.mean, 'width': self.line.width}
        arrays |= {'columns': self.columns, 'varied': self.varied}
        if self.quantiles is not None:
            arrays['quantiles'] = self.quantiles.quantiles_
        tensors = {k: v if v is None else torch.as_tensor(v) for k, v in arrays.items()}
        return {'scaling': self.scaling, **tensors}

    @classmethod
    def restored(cls, state: dict[str, Any]) -> ColumnScaling:
        """Return a scaling with the state of another."""
        self = cls(state['scaling'])
        arrays = {
            k: v.numpy() if isinstance(v, torch.Tensor) else v for k, v in state.items()
        }
        self.line = Scaling(arrays['mean'], arrays['width'])
        self.columns, self.varied = arrays['columns'], arrays['varied']
        if 'quantiles' in arrays:
            found = arrays['quantiles']
            made = QuantileTransformer()
            made.quantiles_, made.n_features_in_ = found, found.shape[1]
            made.references_ = np.linspace(0, 1, len(found))
            self.quantiles = made
        return self
