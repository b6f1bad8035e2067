"""Rows of a table as arrays and tensors: their scaling and their nearest rows."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import torch
from scipy.special import ndtri
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import QuantileTransformer
from torch import Tensor

from torch_geometric_gsl._columns import measure_columns, scale_columns
from torch_geometric_gsl.ops.neighbours import Neighbours
from torch_geometric_gsl.ops.sparse_rows import unit_entries
from torch_geometric_gsl.typing import SampledGraph

#: How columns are scaled.
SCALINGS = ('auto', 'quantile', 'standard', 'none')
# From so many rows on, quantiles are measured well enough.
_LEAST_ROWS = 1000
_QUANTILES = 1000
# Equal values are told apart by noise of this size, so that quantiles are distinct.
_NOISE = 1e-5
# The share of the least value, as in scikit-learn.
_TAIL = 1e-7


class Scaling(NamedTuple):
    """Means and deviations of columns; sparse rows get unit norm instead.

    The deviation is 0 where a column is constant but for rounding, and tells nothing.
    """

    mean: Any = None
    width: Any = None

    @classmethod
    def of(cls, x: Any, standardize: bool) -> Scaling:
        """Measure the columns of training rows."""
        if scipy.sparse.issparse(x) or not standardize:
            return cls()
        return cls(*measure_columns(x))

    def apply(self, x: Any, standardize: bool, dtype: Any = None) -> Any:
        """Scale rows as those of training were; raise if a value is beyond a dtype."""
        dtype = x.dtype if dtype is None else dtype
        if standardize:
            is_sparse = scipy.sparse.issparse(x)
            x = _unit_rows(x) if is_sparse else scale_columns(x, self.mean, self.width)
        with np.errstate(over='ignore'):
            out = x.astype(dtype, copy=False)
        bad = ~np.isfinite(out.data if scipy.sparse.issparse(out) else out)
        if bad.any():
            place = bad.nonzero()[-1][0]
            column = out.tocsr().indices[place] if bad.ndim == 1 else place
            raise ValueError(
                f"'X' must fit into {out.dtype}, which the network computes in (got a "
                f'value that is too large in column {column})'
            )
        return out


def _unit_rows(x: Any) -> Any:
    """Scale sparse rows to unit norm, without overflow."""
    x = scipy.sparse.csr_matrix(x, dtype=np.float64, copy=True)
    x.sum_duplicates()
    columns, offsets = (torch.from_numpy(a).long() for a in (x.indices, x.indptr))
    words = Neighbours(columns, x.shape[1], offsets)
    x.data = unit_entries(torch.from_numpy(x.data), words).numpy()
    return x


class ColumnScaling:
    """Standardise columns, then map those of more than two values to quantiles."""

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
        """Scale rows in double precision; raise if one does not fit into single."""
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


def to_tensor(x: Any, device: str) -> Tensor:
    """Return rows as a tensor, sparse CSR if they are sparse."""
    if not scipy.sparse.issparse(x):
        return torch.from_numpy(np.require(x, requirements=['C', 'W'])).to(device)
    x = scipy.sparse.csr_matrix(x)
    x.sum_duplicates()
    with warnings.catch_warnings():
        # That CSR is a beta feature.
        warnings.filterwarnings('ignore', message='Sparse CSR tensor support')
        rows = torch.sparse_csr_tensor(
            torch.from_numpy(x.indptr.astype(np.int64)),
            torch.from_numpy(x.indices.astype(np.int64)),
            torch.from_numpy(x.data),
            x.shape,
            check_invariants=False,
        )
    return rows.to(device)


def to_csr(graph: SampledGraph, shape: tuple[int, int], by_weight: bool = False) -> Any:
    """Return edges as a matrix of targets and sources; zeros are kept.

    A row begins with its first source, or its least weight, as graphs of distances do.
    """
    source, target = graph.edge_index.cpu().numpy()
    weight = graph.edge_weight.detach().cpu().numpy()
    order = np.lexsort((weight if by_weight else source, target))
    offsets = np.searchsorted(target[order], np.arange(shape[0] + 1))
    data = weight[order]
    return scipy.sparse.csr_matrix((data, source[order], offsets), shape=shape)


class Rows:
    """Rows of a table, dense or sparse, that are taken by their numbers."""

    def __init__(self, x: Any, device: str) -> None:
        self.x, self.device = x, device
        self.is_sparse = not isinstance(x, Tensor)

    def __len__(self) -> int:
        return int(self.x.shape[0])

    def take(self, rows: Tensor) -> Tensor:
        """Return some rows as one tensor."""
        if not self.is_sparse:
            taken: Tensor = self.x[rows]
            return taken
        return to_tensor(self.x[rows.cpu().numpy()], self.device)


class Nearest:
    r"""Neighbours of rows among some others, with squared distances.

    Distances are divided by the mean of the farthest of them.
    """

    def __init__(self, x: Any, candidates: Tensor, k: int) -> None:
        self.x, self.candidates = x, candidates.cpu()
        self.device, self.k = candidates.device, min(k, len(candidates) - 1)
        rows = self.candidates.numpy()
        self._search = NearestNeighbors(n_neighbors=self.k + 1).fit(x[rows])
        distance, source = self._search.kneighbors(x[rows])
        source = rows[source]
        # Without the row itself, or where it has more twins, without the last.
        keep = source != rows[:, None]
        keep[keep.all(axis=1), -1] = False
        shape = len(rows), self.k
        source, distance = source[keep].reshape(shape), distance[keep].reshape(shape)
        farthest = (distance[:, -1] ** 2).mean() if distance.size else 0.0
        self.unit = float(farthest) or 1.0
        self._place = torch.full((x.shape[0],), -1)
        self._place[self.candidates] = torch.arange(len(rows))
        self._known = self._tensors(source, distance)

    def of_rows(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the neighbours of rows of the table, none its own."""
        place = self._place[rows.cpu()]
        source, distance = (part[place] for part in self._known)
        is_new = place < 0
        if bool(is_new.any()):
            others = self.x[rows.cpu()[is_new].numpy()]
            source[is_new], distance[is_new] = (t.cpu() for t in self.of_new(others))
        return source.to(self.device), distance.to(self.device)

    def of_new(self, x: Any) -> tuple[Tensor, Tensor]:
        """Return the neighbours of new rows."""
        distance, source = self._search.kneighbors(x, n_neighbors=self.k)
        found = self._tensors(self.candidates.numpy()[source], distance)
        return found[0].to(self.device), found[1].to(self.device)

    def _tensors(self, source: Any, distance: Any) -> tuple[Tensor, Tensor]:
        squares = torch.from_numpy(np.asarray(distance) ** 2 / self.unit)
        return torch.from_numpy(source), squares.float()
