from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import (
    check_array,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)
from torch import Tensor
from tqdm import tqdm

from torch_geometric_gsl._checks import check_count, check_option, check_positive
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.sampler.label_loss import leave_one_out_loss
from torch_geometric_gsl.nn.self_supervision.graph_denoising import GraphDenoising
from torch_geometric_gsl.nn.similarity.resolver import resolve_similarity
from torch_geometric_gsl.ops.local_random import DrawsFrom
from torch_geometric_gsl.sklearn._arrays import Scaling, to_csr, to_tensor
from torch_geometric_gsl.sklearn._base import DTYPES
from torch_geometric_gsl.typing import SampledGraph

MODES = ('distance', 'connectivity')
#: The similarities that are largest for equal rows.
NEAREST = ('linear', 'heat_kernel')
#: The similarities that weigh columns.
SIMILARITIES = ('linear', 'difference', 'gaussian', 'neural_gaussian', 'heat_kernel')


class GSLNeighborsTransformer(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    r"""Make the graph of the nearest rows under a similarity that is learned, as a
    sparse matrix: a drop-in for :class:`sklearn.neighbors.KNeighborsTransformer`.

    The similarity weighs the columns. With labels these weights are learned so that
    neighbours have the label of a row
    (:func:`~torch_geometric_gsl.nn.sampler.leave_one_out_loss`), without labels so that
    hidden entries can be told from neighbours
    (:class:`~torch_geometric_gsl.nn.self_supervision.GraphDenoising`).

    Args:
        n_neighbors (int, optional): The number of neighbours. (default: :obj:`15`)
        mode (str, optional): :obj:`"distance"` stores distances, each row's own of 0
            among them, :obj:`"connectivity"` ones, without a row itself.
            (default: :obj:`"distance"`)
        similarity (str, optional): The similarity. The distance is what it lacks to
            its upper bound, such as 1 less the cosine, so that :obj:`"distance"` needs
            one that is largest for equal rows, :obj:`"linear"` or
            :obj:`"heat_kernel"`. (default: :obj:`"linear"`)
        max_iter (int, optional): The number of epochs; 0 learns nothing.
            (default: :obj:`50`)
        learning_rate (float, optional): The rate of Adam. (default: :obj:`0.01`)
        standardize (bool, optional): Whether dense columns get mean 0 and deviation 1.
            (default: :obj:`True`)
        random_state (int, RandomState or None, optional): Where randomness comes from.
            An integer gives one model, whatever other threads draw; PyTorch's global
            generator is left alone. (default: :obj:`None`)
        verbose (bool, optional): Whether a bar shows the epochs.
            (default: :obj:`False`)

    Attributes:
        feature_weights_ (numpy.ndarray): The learned weights of the columns.
        n_samples_fit_ (int): The number of rows of training.
        n_iter_ (int): The number of epochs.

    Raises:
        TypeError: If a parameter has the wrong type.
        ValueError: If a parameter is out of range, or the rows are too few.

    Example:
        >>> from sklearn.datasets import load_wine
        >>> X, y = load_wine(return_X_y=True)
        >>> transformer = GSLNeighborsTransformer(5, max_iter=5, random_state=0)
        >>> transformer.fit_transform(X, y).shape
        (178, 178)
    """

    def __init__(
        self,
        n_neighbors: int = 15,
        *,
        mode: str = 'distance',
        similarity: str = 'linear',
        max_iter: int = 50,
        learning_rate: float = 0.01,
        standardize: bool = True,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.mode = mode
        self.similarity = similarity
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.standardize = standardize
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> GSLNeighborsTransformer:
        r"""Learn the similarity.

        Args:
            X (array-like): The rows.
            y (array-like, optional): Classes, -1 where they are not known. Targets of
                another kind, such as those of a regression, are not looked at.
                (default: :obj:`None`)
        """
        check_option(self.similarity, SIMILARITIES, 'similarity')
        check_count(self.n_neighbors, 'n_neighbors')
        check_option(self.mode, MODES, 'mode')
        if self.mode == 'distance' and self.similarity not in NEAREST:
            raise ValueError(
                f"'mode' must be 'connectivity' where the similarity is not the "
                f"largest for equal rows (got 'distance' with {self.similarity!r})"
            )
        check_count(self.max_iter, 'max_iter', minimum=0)
        check_positive(self.learning_rate, 'learning_rate')
        x = validate_data(self, X, dtype=DTYPES, ensure_min_samples=2)
        if self.n_neighbors >= len(x):
            raise ValueError(
                f"'n_neighbors' must be less than the number of rows "
                f'(got {self.n_neighbors}, n_samples={len(x)})'
            )
        random = check_random_state(self.random_state)
        self._scaling = Scaling.of(x, self.standardize)
        self._x = to_tensor(self._scaling.apply(x, self.standardize), 'cpu')
        self.n_samples_fit_ = len(x)
        generator = torch.Generator().manual_seed(int(random.randint(2**31 - 1)))
        self._learn(*_labels(x, y), generator)
        self.n_iter_ = self.max_iter
        weight = self._similarity.feature_weight
        self.feature_weights_ = weight.detach().numpy().copy()
        return self

    def _learn(self, known: Tensor, label: Tensor, generator: torch.Generator) -> None:
        options = {'feature_weights': True}
        with DrawsFrom(generator):
            self._similarity: Any = resolve_similarity(
                self.similarity, self._x.size(1), **options
            ).to(self._x.dtype)
        has_labels = len(label) > 0 and int(label.bincount().amax()) > 1
        # Each labelled row has one candidate less than there are of them.
        k = min(self.n_neighbors, len(label) - 1) if has_labels else self.n_neighbors
        sampler = GumbelKNNSampler(self._similarity, k, tau=1.0, scale=10.0, loop=False)
        if not has_labels:
            with DrawsFrom(generator):
                task: Any = GraphDenoising(sampler, self._x.size(1), 64)
            loss = partial(task.to(self._x.dtype), self._x)
        else:
            task = sampler
            loss = partial(leave_one_out_loss, sampler, self._x[known], label)
        optimizer = torch.optim.Adam(task.parameters(), lr=float(self.learning_rate))
        for _ in tqdm(range(self.max_iter), disable=not self.verbose, leave=False):
            optimizer.zero_grad()
            loss(generator=generator).backward()
            optimizer.step()

    @torch.no_grad()
    def transform(self, X: Any) -> Any:
        r"""Return the nearest rows of training for each row.

        Args:
            X (array-like): The rows. Rows of training are among their own neighbours.

        Returns:
            scipy.sparse.csr_matrix: Of shape :obj:`(len(X), n_samples_fit_)`.
        """
        check_is_fitted(self)
        x = validate_data(self, X, dtype=DTYPES, reset=False)
        x = to_tensor(self._scaling.apply(x, self.standardize), 'cpu')
        return self._matrix(x.to(self._x.dtype), is_own=False)

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> Any:
        r"""Learn the similarity, and return the graph of the rows."""
        self.fit(X, y)
        with torch.no_grad():
            return self._matrix(self._x, is_own=True)

    def _matrix(self, x: Tensor, is_own: bool) -> Any:
        has_self = self.mode == 'distance'
        k = self.n_neighbors + int(has_self and not is_own)
        k = min(k, self.n_samples_fit_)
        sampler = GumbelKNNSampler(self._similarity, k, loop=False).eval()
        features = x if is_own else (self._x, x)
        edge_index, _ = sampler(features)
        top = self._similarity.bounds[1]
        distance = (top - self._similarity((self._x, x), edge_index)).clamp(min=0)
        if is_own and has_self:
            loops = torch.arange(len(x)).expand(2, -1)
            # First, so that a row stands before its duplicates.
            edge_index = torch.cat([loops, edge_index], dim=1)
            distance = torch.cat([distance.new_zeros(len(x)), distance])
        value = distance if has_self else torch.ones_like(distance)
        shape = len(x), self.n_samples_fit_
        return to_csr(SampledGraph(edge_index, value), shape, by_weight=has_self)

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        r"""Return a name for each row of training, a column of the graph."""
        check_is_fitted(self)
        return np.array(
            [f'gslneighborstransformer{i}' for i in range(self.n_samples_fit_)],
            dtype=object,
        )


def _labels(x: Any, y: Any) -> tuple[Tensor, Tensor]:
    """Return the rows whose class is known, and their classes as numbers."""
    none = torch.empty(0, dtype=torch.long)
    if y is None:
        return none, none
    y = check_array(y, ensure_2d=False, dtype=None, input_name='y')
    check_consistent_length(x, y)
    if type_of_target(y, input_name='y') not in ('binary', 'multiclass'):
        return none, none
    y = column_or_1d(y)
    is_known = y != -1 if y.dtype.kind in 'if' else np.ones(len(y), dtype=bool)
    label = np.unique(y[is_known], return_inverse=True)[1]
    return torch.from_numpy(np.flatnonzero(is_known)), torch.from_numpy(label)
