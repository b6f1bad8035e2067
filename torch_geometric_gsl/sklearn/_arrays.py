"""Between arrays and tensors: scaling, sparse matrices, and files."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from torch_geometric_gsl._columns import measure_columns, scale_columns
from torch_geometric_gsl._files import read_tensors
from torch_geometric_gsl.ops.neighbours import Neighbours
from torch_geometric_gsl.ops.sparse_rows import unit_entries
from torch_geometric_gsl.typing import SampledGraph


class Scaling(NamedTuple):
    """Move columns and divide them; sparse rows get unit norm instead.

    Args:
        mean (numpy.ndarray, optional): The means of dense columns, which are taken off.
            (default: :obj:`None`)
        width (numpy.ndarray, optional): Their standard deviations, 0 where a column is
            constant but for rounding, which tells nothing. (default: :obj:`None`)
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
        """Scale rows as those of training were, in double precision.

        Args:
            x (numpy.ndarray or scipy.sparse matrix): The rows.
            standardize (bool): Whether they are scaled at all.
            dtype (numpy.dtype, optional): The precision of the result; that of the rows
                if :obj:`None`. (default: :obj:`None`)

        Raises:
            ValueError: If a scaled value is beyond that precision.
        """
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


def check_same_kind(y: Any) -> None:
    """Raise if classes are texts and something else, such as numbers or none."""
    # NumPy would make a text of all that stands in a list beside one.
    y = np.array(y, dtype=object) if isinstance(y, list | tuple) else np.asarray(y)
    if y.dtype.kind != 'O':
        return
    kinds = sorted({type(value).__name__ for value in np.ravel(y)})
    if 'str' in kinds and len(kinds) > 1:
        raise ValueError(
            f"'y' must hold classes of one kind (got {' and '.join(kinds)}). Rows "
            'without a class are those of -1: number the classes, as with LabelEncoder'
        )


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
    """Return edges as a matrix, whose rows are the targets; zeros are kept.

    Args:
        graph (SampledGraph): The edges.
        shape (tuple[int, int]): The numbers of targets and of sources.
        by_weight (bool, optional): Whether a row begins with its least weight, as
            graphs of distances do, instead of its first source. (default: :obj:`False`)
    """
    source, target = graph.edge_index.cpu().numpy()
    weight = graph.edge_weight.detach().cpu().numpy()
    order = np.lexsort((weight if by_weight else source, target))
    offsets = np.searchsorted(target[order], np.arange(shape[0] + 1))
    data = weight[order]
    return scipy.sparse.csr_matrix((data, source[order], offsets), shape=shape)


def read_file(path: str | Path, kind: str) -> dict[str, Any]:
    """Read an estimator's file, written by :func:`write_tensors`."""
    content = read_tensors(path, 'saved estimator')
    if 'estimator' not in content:
        raise OSError(f"'{path}' holds no saved estimator")
    if content['estimator'] != kind:
        raise ValueError(f"'{path}' holds a {content['estimator']}, not a {kind}")
    return content
