"""Run the networks of a fitted estimator on rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from torch_geometric_gsl.sklearn._arrays import to_csr
from torch_geometric_gsl.sklearn._nearest import Nearest
from torch_geometric_gsl.sklearn._training import Rows
from torch_geometric_gsl.sklearn.table_transformer import check_rows

# The most neighbours of a fixed graph.
NEAREST = 12
# Answers are computed in double precision for tables of at most so many rows.
_MOST_IN_DOUBLE = 2**17
# New rows that are answered at once.
_BLOCK = 2048


class Answers:
    """Answer new rows, and those of training among each other."""

    # What a fit leaves behind.
    device: str
    eval_k: int
    graph_choice_: str
    _members: list[Any]
    _num_rows: int
    _scaling: Any
    _told: Tensor
    _x: Any

    def _prepare(self) -> None:
        """Index all rows in the networks, in the precision of answers."""
        is_small = self._num_rows <= _MOST_IN_DOUBLE
        is_small = is_small and torch.device(self.device).type == 'cpu'
        self._precision = torch.float64 if is_small else torch.float32
        self._nearest = None
        every = torch.arange(self._num_rows, device=self.device)
        if self.graph_choice_ == 'nearest':
            self._nearest = Nearest(self._x, every, min(NEAREST, self.eval_k))
        rows = self._to_rows(self._x, self._precision).take(every)
        for model in self._members:
            model.to(self._precision).eval().index(rows, self._told.to(self.device))

    # Answers

    def _to_rows(self, x: Any, dtype: Any = torch.float32) -> Rows:
        """Return scaled rows in the precision of a network."""
        if scipy.sparse.issparse(x):
            kind = np.float64 if dtype == torch.float64 else np.float32
            return Rows(scipy.sparse.csr_matrix(x, dtype=kind), self.device)
        return Rows(torch.as_tensor(x, dtype=dtype, device=self.device), self.device)

    def _new_rows(self, X: Any) -> Any:
        check_is_fitted(self)
        x = check_rows(self, X, reset=False, accept_sparse='csr')
        is_sparse = scipy.sparse.issparse(self._x)
        if scipy.sparse.issparse(x) != is_sparse:
            x = scipy.sparse.csr_matrix(x) if is_sparse else x.toarray()
        x = self._scaling.apply(x)
        return x if is_sparse else np.require(x, requirements=['C', 'W'])

    @torch.no_grad()
    def _run(self, x: Any, return_graph: bool = False) -> Any:
        """Return the outputs of each member for scaled new rows, and their graphs."""
        rows = self._to_rows(x, self._precision)
        options: dict[str, Any] = {'return_graph': return_graph}
        if self._nearest is not None:
            source, distance = self._nearest.of_new(x)
            options['given'] = source, distance.to(self._precision)
        taken = rows.take(torch.arange(len(rows), device=self.device))
        found = [model(taken, **options) for model in self._members]
        if not return_graph:
            return torch.stack(found)
        shape = x.shape[0], self._num_rows
        return sum(to_csr(graph, shape) for _, graph in found) / len(found)

    def _outputs(self, X: Any) -> Tensor:
        """Return the outputs of each member for new rows."""
        x = self._new_rows(X)
        blocks = range(0, x.shape[0], _BLOCK)
        return torch.cat([self._run(x[i : i + _BLOCK]) for i in blocks], dim=1).cpu()

    @torch.no_grad()
    def _own(self, return_graph: bool = False) -> Any:
        """Run the networks on the rows of training among each other."""
        every = torch.arange(self._num_rows, device=self.device)
        rows = self._to_rows(self._x, self._precision).take(every)
        options: dict[str, Any] = {'return_graph': return_graph}
        if self._nearest is not None:
            source, distance = self._nearest.of_rows(every)
            options['given'] = source, distance.to(self._precision)
        told = self._told.to(self.device)
        found = [model(rows, told, **options) for model in self._members]
        if not return_graph:
            return torch.stack(found).cpu()
        shape = self._num_rows, self._num_rows
        return sum(to_csr(graph, shape) for _, graph in found) / len(found)
