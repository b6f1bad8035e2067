from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
import torch
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import (
    check_array,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
)
from torch import Tensor
from tqdm import tqdm

from torch_geometric_gsl._checks import check_count, check_option, check_positive
from torch_geometric_gsl._columns import check_same_kind, find_labelled
from torch_geometric_gsl.nn.nearest_neighbours import (
    COSINE_COLUMNS,
    near_similarity,
    nearness,
)
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.sampler.label_loss import leave_one_out_loss
from torch_geometric_gsl.nn.self_supervision.losses import GraphDenoising
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.nn.similarity.resolver import resolve_similarity
from torch_geometric_gsl.ops.local_random import DrawsFrom
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.sparse_rows import dense_rows
from torch_geometric_gsl.sklearn._frames import check_unmasked
from torch_geometric_gsl.sklearn._rows import Scaling, to_csr, to_tensor
from torch_geometric_gsl.sklearn._transaction import atomic, default_modes
from torch_geometric_gsl.sklearn.table_transformer import check_rows
from torch_geometric_gsl.typing import SampledGraph

# Bytes of a dense copy of the sparse rows in a training step.
_DENSE_BYTES = 2**27
# Time grows with the number of draws in training.
_MOST_DRAWS = 15
MODES = ('distance', 'connectivity')
#: Similarities that are largest for equal rows.
NEAREST = ('linear', 'heat_kernel')
#: Similarities that weigh columns.
SIMILARITIES = ('linear', 'difference', 'gaussian', 'neural_gaussian', 'heat_kernel')


class GSLNeighborsTransformer(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,
):
    r"""Transformer to a sparse graph of the nearest rows under a learned similarity, a
    drop-in for :class:`sklearn.neighbors.KNeighborsTransformer`.

    The similarity has one weight per column. With labels, the weights are trained so
    that neighbours share the label of a row
    (:func:`~torch_geometric_gsl.nn.sampler.leave_one_out_loss`); without labels, so
    that neighbours reconstruct hidden entries
    (:class:`~torch_geometric_gsl.nn.self_supervision.GraphDenoising`). Sparse rows stay
    sparse; each step uses up to 128 MB of dense rows.

    Args:
        n_neighbors (int, optional): The number of neighbours; all other rows if there
            are fewer. (default: :obj:`15`)
        mode (str, optional): :obj:`"distance"` stores distances, including 0 for the
            row itself, :obj:`"connectivity"` ones, excluding it. (default:
            :obj:`"distance"`)
        similarity (str, optional): The similarity. The mode :obj:`"distance"` needs
            one that is largest for equal rows: :obj:`"linear"`, with one minus the
            cosine as the distance, or :obj:`"heat_kernel"`, with the distance of unit
            rows. On one or two columns both use distances. (default: :obj:`"linear"`)
        max_iter (int, optional): The number of epochs, 0 for none. (default: :obj:`50`)
        learning_rate (float, optional): Learning rate of Adam. (default: :obj:`0.01`)
        standardize (bool, optional): If :obj:`True`, dense columns get mean 0 and
            deviation 1. (default: :obj:`True`)
        random_state (int, RandomState or None, optional): Source of randomness, as in
            :class:`GSLClassifier`. (default: :obj:`None`)
        verbose (bool, optional): If :obj:`True`, shows a bar. (default: :obj:`False`)

    Attributes:
        feature_weights_ (numpy.ndarray): The learned weights of the columns.
        n_samples_fit_ (int): The number of training rows.
        n_iter_ (int): The number of epochs.

    Raises:
        TypeError: If a parameter has the wrong type.
        ValueError: If a parameter is out of range, or there are too few rows.

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

    @atomic
    def fit(self, X: Any, y: Any = None) -> GSLNeighborsTransformer:
        r"""Learn the similarity.

        Args:
            X (array-like or DataFrame): The rows, dense or sparse.
            y (array-like, optional): Classes, -1 if unknown, as in
                :class:`GSLClassifier`; other targets, such as those of a regression,
                are ignored. (default: :obj:`None`)
        """
        check_option(self.similarity, SIMILARITIES, 'similarity')
        check_count(self.n_neighbors, 'n_neighbors')
        check_option(self.mode, MODES, 'mode')
        if self.mode == 'distance' and self.similarity not in NEAREST:
            raise ValueError(
                f"'mode' must be 'connectivity' unless the similarity is largest "
                f"for equal rows (got 'distance' with {self.similarity!r})"
            )
        check_count(self.max_iter, 'max_iter', minimum=0)
        check_positive(self.learning_rate, 'learning_rate')
        options = {'accept_sparse': 'csr', 'ensure_min_samples': 2, 'copy': True}
        x = check_rows(self, X, reset=True, **options)
        if scipy.sparse.issparse(x) and x.shape[1] < COSINE_COLUMNS:
            x = x.toarray()
        if scipy.sparse.issparse(x) and self.similarity == 'heat_kernel':
            raise ValueError(
                "'similarity' must be a function of the cosine for sparse rows, e.g. "
                "'linear' (got 'heat_kernel')"
            )
        random = check_random_state(self.random_state)
        self._dtype = x.dtype
        self._mode = self.mode
        self._num_neighbors = int(self.n_neighbors)
        self._scaling = Scaling('standard' if self.standardize else 'none').fit(x)
        rows = self._scaled(x)
        self.n_samples_fit_ = self._n_features_out = rows.shape[0]
        generator = torch.Generator().manual_seed(int(random.randint(2**31 - 1)))
        self._learn(self._tensor(rows), *_labels(x, y), generator)
        self.n_iter_ = self.max_iter
        self._similarity.eval()
        weight = self._similarity.feature_weight
        self.feature_weights_ = weight.detach().numpy().copy()
        if scipy.sparse.issparse(rows):
            # Sparse rows are scaled directly, as the search takes no weights.
            self._similarity.feature_weight = None
        self._x = self._weighed(rows)
        return self

    def _scaled(self, x: Any) -> Any:
        return self._scaling.apply(x, self._dtype).astype(self._dtype)

    def _weighed(self, x: Any) -> Any:
        """Multiply the columns of sparse rows by their weights."""
        if not scipy.sparse.issparse(x):
            return x
        return scipy.sparse.csr_matrix(x.multiply(self.feature_weights_))

    def _tensor(self, x: Any) -> Tensor:
        return to_tensor(x, 'cpu', getattr(torch, str(self._dtype)))

    def _learn(
        self, x: Tensor, known: Tensor, label: Tensor, generator: torch.Generator
    ) -> None:
        with DrawsFrom(generator):
            self._similarity: Any = self._make_similarity(x.size(1)).to(x.dtype)
        has_labels = len(label) > 0 and int(label.bincount().amax()) > 1
        number = len(label) if has_labels else self.n_samples_fit_
        # A labelled row is not its own candidate.
        k = min(self.n_neighbors, number - int(has_labels), _MOST_DRAWS)
        sampler = GumbelKNNSampler(self._similarity, k, tau=1.0, train_scale=False)
        task: Any = sampler
        if not has_labels:
            with DrawsFrom(generator):
                task = GraphDenoising(sampler, x.size(1), 64).to(x.dtype)
        optimizer = torch.optim.Adam(task.parameters(), lr=float(self.learning_rate))
        for _ in tqdm(range(self.max_iter), disable=not self.verbose, leave=False):
            optimizer.zero_grad()
            rows = self._some(x, number, k, generator)
            if not has_labels:
                loss = task(dense_rows(x, rows), generator=generator)
            elif int(label[rows].bincount().amax()) > 1:
                some = dense_rows(x, known[rows]), label[rows]
                loss = leave_one_out_loss(sampler, *some, generator=generator)
            else:
                continue
            loss.backward()
            optimizer.step()

    def _make_similarity(self, width: int) -> Similarity:
        """Create the similarity, of distances if there are few columns."""
        if self.similarity in NEAREST and width < COSINE_COLUMNS:
            return nearness(width, feature_weights=True)
        similarity = near_similarity(self.similarity, width)
        return resolve_similarity(similarity, width, feature_weights=True)

    def _some(
        self, x: Tensor, number: int, k: int, generator: torch.Generator
    ) -> Tensor:
        """Return all rows, or of sparse rows only as many as fit a dense copy."""
        width = x.size(1) * x.element_size()
        most = max(_DENSE_BYTES // width, 4 * k)
        if x.layout == torch.strided or number <= most:
            return torch.arange(number)
        return torch.randperm(number, generator=generator)[:most]

    def transform(self, X: Any) -> Any:
        r"""Find the nearest training rows of each row.

        Args:
            X (array-like or DataFrame): The rows; training rows find themselves.

        Returns:
            scipy.sparse.csr_matrix: Of shape :obj:`(len(X), n_samples_fit_)`.
        """
        check_is_fitted(self)
        x = check_rows(self, X, reset=False, accept_sparse='csr')
        return self._matrix(self._weighed(self._scaled(x)), False)

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        r"""Learn the similarity, and return the graph of the training rows."""
        self.fit(X, y)
        return self._matrix(self._x, True)

    @default_modes()
    @torch.no_grad()
    def _matrix(self, rows: Any, is_own: bool) -> Any:
        sources = self._tensor(self._x)
        x = sources if is_own else self._tensor(rows)
        has_self = self._mode == 'distance'
        k = self._num_neighbors + int(has_self and not is_own)
        sampler = GumbelKNNSampler(self._similarity, eval_k=k).eval()
        features = x if is_own else (sources, x)
        edge_index, _ = sampler(features)
        distance = self._distances((sources, x), edge_index)
        if is_own and has_self:
            loops = torch.arange(x.size(0)).expand(2, -1)
            # First, to sort a row before its duplicates.
            edge_index = torch.cat([loops, edge_index], dim=1)
            distance = torch.cat([distance.new_zeros(x.size(0)), distance])
        value = distance if has_self else torch.ones_like(distance)
        shape = x.size(0), self.n_samples_fit_
        graph = to_csr(SampledGraph(edge_index, value), shape, by_weight=has_self)
        return graph.astype(self._dtype, copy=False)

    def _distances(self, x: tuple[Tensor, Tensor], edge_index: Tensor) -> Tensor:
        """Compute the distances along edges, which do not saturate."""
        pairs: PairScores = self._similarity.exact_scores(x)
        value = pairs.compare_edges(edge_index)
        return (1 - value).clamp(min=0) if pairs.comparison == 'dot' else value.sqrt()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _labels(x: Any, y: Any) -> tuple[Tensor, Tensor]:
    """Return the labelled rows, and their classes as numbers."""
    none = torch.empty(0, dtype=torch.long)
    if y is None:
        return none, none
    check_unmasked(y, 'y')
    check_same_kind(y)
    y = check_array(y, ensure_2d=False, dtype=None, input_name='y')
    check_consistent_length(x, y)
    if type_of_target(y, input_name='y') not in ('binary', 'multiclass'):
        return none, none
    y = column_or_1d(y)
    is_known = find_labelled(y)
    label = np.unique(y[is_known], return_inverse=True)[1]
    return torch.from_numpy(np.flatnonzero(is_known)), torch.from_numpy(label)
