"""Read the matrices of Planetoid's raw files, pickles of Python 2, without trust."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from torch_geometric_gsl.datasets._io.safe_pickle import (
    SafeUnpickler,
    StandIn,
    read_pickle,
    refusal,
    to_numbers,
)

# SciPy has moved the class.
_CSR_MATRIX = (('scipy.sparse.csr', 'csr_matrix'), ('scipy.sparse._csr', 'csr_matrix'))


def load_matrix(path: str) -> dict[str, NDArray[Any]]:
    """Read one pickled matrix; nothing in the file is executed.

    Args:
        path (str): The pickle of a numpy array, or of a SciPy matrix of sparse rows.

    Returns:
        The array as :obj:`data`, or the arrays :obj:`data`, :obj:`indices`,
        :obj:`indptr` and :obj:`shape` of the sparse matrix.

    Raises:
        OSError: If the file is damaged, or asks for anything else; the text
            names the global it asks for.
        ValueError: If it holds no matrix of numbers.
    """
    found = read_pickle(path, _MatrixUnpickler)
    if type(found) is not _SparseRows:
        return {'data': to_numbers(found, 'data', path)}
    state = getattr(found, 'state', {})
    shape = state.get('_shape')
    parts = {**state, 'shape': list(shape) if type(shape) is tuple else None}
    names = ('data', 'indices', 'indptr', 'shape')
    return {name: to_numbers(parts.get(name), name, path) for name in names}


class _SparseRows(StandIn):
    """Stand in for SciPy's matrix, and keeps its attributes."""

    __slots__ = ('state',)

    def __setstate__(self, state: object) -> None:
        if type(state) is not dict:
            raise refusal('a matrix of unknown form')
        self.state = state


class _MatrixUnpickler(SafeUnpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _CSR_MATRIX:
            return _SparseRows
        return super().find_class(module, name)
