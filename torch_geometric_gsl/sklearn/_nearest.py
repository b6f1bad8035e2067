"""The nearest rows of a table, by scaled columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.neighbors import NearestNeighbors
from torch import Tensor


class Nearest:
    r"""Neighbours of rows among some others, with squared distances.

    Distances are divided by the mean of the farthest of them.

    Args:
        x (numpy.ndarray or scipy.sparse.csr_matrix): All rows.
        candidates (torch.Tensor): Those that may be neighbours.
        k (int): The number of neighbours.
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
