"""Scale the columns of a table, and convert its rows to tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from sklearn.preprocessing import QuantileTransformer, normalize
from torch import Tensor

from torch_geometric_gsl._warnings import silence_csr_warning

#: The options of scaling columns.
SCALINGS = ('auto', 'robust', 'quantile', 'standard', 'none')
_MAX_QUANTILES = 1000
# Noise of this size breaks ties, so that quantiles are distinct.
_NOISE = 1e-5
_FAR = 1e3  # A larger ratio of deviation and quartiles is due to a few values.
# Values far beyond this multiple of the quartiles' distance are bent.
_KNEES = {'robust': 3.0, 'linear': 12.0}
_EPS = float(np.finfo(np.float64).eps)


class Scaling:
    r"""Scale the columns of a table, or sparse rows to unit norm.

    * :obj:`"standard"`: mean 0 and deviation 1;
    * :obj:`"quantile"`: normal quantiles of columns with more than two values;
    * :obj:`"robust"`: :math:`z / \sqrt{1 + (z / 3)^2}` with :math:`z = (x -
      \mathrm{median}) / (q_{75} - q_{25})`, or :math:`2 (x - \mathrm{median}) / (\max -
      \min)` if the quartiles are equal; this bends, but does not flatten, what lies
      outside of the training rows;
    * :obj:`"linear"`: the same with 12 in place of 3, for the linear model.

    Columns constant up to rounding become zero.
    """

    def __init__(self, scaling: str) -> None:
        self.scaling = scaling
        self.is_sparse = False
        self.mean: Any = None
        self.width: Any = None
        self.quantiles: Any = None
        # The columns of more than two values.
        self.varied = np.zeros(0, dtype=int)

    def fit(self, x: Any) -> Scaling:
        """Measure the columns of training rows."""
        self.is_sparse = scipy.sparse.issparse(x)
        if self.is_sparse:
            return self
        self.varied = np.flatnonzero([len(np.unique(column)) > 2 for column in x.T])
        if self.scaling != 'none':
            self.mean, self.width = measure_columns(x)
        if self.scaling in _KNEES:
            low, middle, high = np.percentile(x, (25, 50, 75), axis=0)
            spread = 0.5 * high - 0.5 * low
            ranges = 0.25 * x.max(axis=0) - 0.25 * x.min(axis=0)
            spread = 2 * np.where(spread > 0, spread, ranges)
            self.mean = np.where(self.width > 0, middle, 0.0)
            self.width = np.where(self.width > 0, spread, 0.0)
        elif len(self.varied) > 0 and self.scaling == 'quantile':
            # If a few values dominate the deviation, noise would hide all others.
            low, middle, high = np.percentile(x, (25, 50, 75), axis=0)
            is_far = (self.width > _FAR * (high - low)) & (high > low)
            self.mean = np.where(is_far, middle, self.mean)
            self.width = np.where(is_far, high - low, self.width)
            self.quantiles = QuantileTransformer(
                n_quantiles=min(_MAX_QUANTILES, len(x)),
                output_distribution='normal',
                subsample=None,
            ).set_output(transform='default')
            z = self._standardised(x)[:, self.varied]
            noise = np.random.RandomState(0).normal(0, _NOISE, z.shape)
            self.quantiles.fit(z + noise)
        return self

    def apply(self, x: Any, dtype: Any = np.float32) -> Any:
        """Scale rows in double precision; raise if they overflow a dtype."""
        if scipy.sparse.issparse(x) != self.is_sparse:
            x = scipy.sparse.csr_matrix(x) if self.is_sparse else x.toarray()
        x = self._standardised(x)
        if self.scaling in _KNEES and not self.is_sparse:
            x = x.clip(-1e150, 1e150)  # Squares must not overflow.
            x = x / np.sqrt(1 + np.square(x / _KNEES[self.scaling]))
        if self.quantiles is not None:
            values = x[:, self.varied].clip(-1e300, 1e300)
            x[:, self.varied] = self.quantiles.transform(values)
        values = x.data if self.is_sparse else x
        with np.errstate(over='ignore'):
            overflows = ~np.isfinite(values.astype(dtype))
        if overflows.any():
            index = overflows.nonzero()[-1][0]
            column = x.indices[index] if self.is_sparse else index
            raise ValueError(
                f"'X' must fit into {np.dtype(dtype)}, the network's precision "
                f'(got a value that is too large in column {column})'
            )
        return x

    def _standardised(self, x: Any) -> Any:
        if self.scaling == 'none':
            return x.astype(np.float64, copy=False)
        if self.is_sparse:
            return normalize(x.astype(np.float64))
        return scale_columns(x, self.mean, self.width)


def measure_columns(x: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return means and standard deviations of finite numbers in double precision.

    Neither overflows nor underflows where the values do not. The deviation is zero
    where a column is constant up to rounding, in the precision of :obj:`x`.
    """
    eps = np.finfo(x.dtype).eps if x.dtype.kind == 'f' else _EPS
    x = x.astype(np.float64)
    largest = np.abs(x).max(axis=0, initial=0.0)
    # A power of two changes no digit.
    unit = np.ldexp(1.0, np.frexp(largest)[1] - 1)
    x /= unit
    mean = x.mean(axis=0)
    x -= mean
    # Correct the rounding error of the sum.
    residual = x.mean(axis=0)
    x -= residual
    mean += residual
    deviation = np.sqrt(np.einsum('ij,ij->j', x, x) / max(1, len(x)))
    # A few units in the last place, or the error of n summands as in scikit-learn.
    noise = max(4 * float(eps), len(x) * _EPS) * np.abs(mean)
    return mean * unit, np.where(deviation > noise, deviation, 0.0) * unit


def scale_columns(
    x: NDArray[Any], mean: NDArray[Any], deviation: NDArray[Any]
) -> NDArray[Any]:
    """Standardize columns in double precision; constant columns become zero."""
    # A difference of halves cannot overflow.
    centred = 0.5 * x.astype(np.float64) - 0.5 * mean
    with np.errstate(over='ignore'):
        return np.divide(
            centred, 0.5 * deviation, out=np.zeros_like(centred), where=deviation > 0
        )


def to_tensor(x: Any, device: Any, dtype: torch.dtype) -> Tensor:
    """Convert rows to a tensor, sparse CSR if they are sparse."""
    if not scipy.sparse.issparse(x):
        x = np.require(x, requirements=['C', 'W'])
        return torch.as_tensor(x, dtype=dtype, device=device)
    x = scipy.sparse.csr_matrix(x)
    x.sum_duplicates()
    silence_csr_warning()
    rows = torch.sparse_csr_tensor(
        torch.from_numpy(x.indptr.astype(np.int64)),
        torch.from_numpy(x.indices.astype(np.int64)),
        torch.from_numpy(x.data).to(dtype),
        x.shape,
        check_invariants=False,
    )
    return rows.to(device)
