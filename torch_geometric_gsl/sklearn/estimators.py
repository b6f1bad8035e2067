from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from torch_geometric_gsl._columns import measure_columns, scale_columns
from torch_geometric_gsl._labels import find_labelled
from torch_geometric_gsl.sklearn._arrays import check_same_kind
from torch_geometric_gsl.sklearn._base import GSLEstimator
from torch_geometric_gsl.sklearn.table_transformer import check_rows


class GSLClassifier(ClassifierMixin, GSLEstimator):  # type: ignore[misc]
    r"""Classify the rows of a table with a graph that is learned of them, from the
    `"Neural Gaussian Similarity Modeling for Differential Graph Structure Learning"
    <https://arxiv.org/abs/2312.09498>`_ paper.

    Three networks are trained: a :class:`~torch_geometric_gsl.nn.GSLNet`, which learns
    its graph, a :class:`~torch_geometric_gsl.baselines.KNNGCN` on the nearest rows, and
    a :class:`~torch_geometric_gsl.baselines.MLPClassifier` without a graph. Rows that
    are held back choose among them, by their loss. New rows take their neighbours from
    the rows of training.

    Rows with the label -1 are not labelled: they are part of the graph, and nothing is
    learned from their label. Where labels are -1 and one other value, or others are
    negative, too, -1 is a class. A warning tells the number of rows without a label
    where they are not the majority, since -1 may have been meant as a class.

    A DataFrame of texts, categories, dates or missing values is taken as
    :func:`make_table_transformer` takes it.

    A row of weight 0 remains a node of the graph, and a weight of 2 is no second node:
    of scikit-learn's checks those that ask for the contrary
    (:obj:`check_sample_weight_equivalence_on_dense_data` and its sparse twin) fail.

    Args:
        graph (str, optional): What joins rows: :obj:`"learned"`, :obj:`"nearest"`,
            :obj:`"none"`, or :obj:`"auto"` for what validation prefers.
            (default: :obj:`"auto"`)
        similarity (str, optional): The similarity of a learned graph, which compares
            the scaled columns. On one or two columns :obj:`"linear"` and
            :obj:`"heat_kernel"` compare distances, as a cosine has no meaning there.
            (default: :obj:`"linear"`)
        k (int, optional): The number of neighbours, at most one less than the rows.
            (default: :obj:`5`)
        num_candidates (int or None, optional): The number of nearest rows that a
            learned graph weighs, no fewer than :obj:`k`; :obj:`None` for all rows,
            which costs more. (default: :obj:`32`)
        tau (float, optional): The temperature of a learned graph. (default: :obj:`1.0`)
        initial_scale (float, optional): Where its learned scale begins.
            (default: :obj:`10.0`)
        hidden_channels (int, optional): The number of hidden units.
            (default: :obj:`64`)
        num_layers (int, optional): The number of layers. (default: :obj:`2`)
        dropout (float, optional): The share of hidden units that are left out in
            training. (default: :obj:`0.5`)
        learning_rate (float, optional): The rate of Adam. (default: :obj:`0.01`)
        weight_decay (float, optional): Its weight decay. (default: :obj:`5e-4`)
        max_iter (int, optional): The most epochs. (default: :obj:`300`)
        validation_fraction (float, optional): The share of labelled rows that is held
            back, of each class with enough of them. With too few in all none is: the
            epoch of the least training loss counts then, and :obj:`"auto"` learns a
            graph. (default: :obj:`0.2`)
        n_iter_no_change (int, optional): The number of epochs without an improvement
            that end the training. (default: :obj:`50`)
        standardize (bool, optional): Whether dense columns get mean 0 and deviation 1,
            and sparse rows unit norm. (default: :obj:`True`)
        random_state (int, RandomState or None, optional): Where randomness comes from.
            An integer gives one model, whatever other threads draw; PyTorch's global
            generator is left alone. (default: :obj:`None`)
        device (str, optional): Where the networks are. (default: :obj:`"cpu"`)
        verbose (bool, optional): Whether a bar shows the epochs and the time left.
            (default: :obj:`False`)

    Attributes:
        classes_ (numpy.ndarray): The classes.
        graph_choice_ (str): What validation chose.
        graph_ (scipy.sparse.csr_matrix): The graph of the training rows: in row
            :math:`i` the weights of the neighbours of :math:`i`, without noise.
        n_iter_ (int): The number of epochs of the chosen network.
        validation_loss_ (float): Its loss.

    Raises:
        TypeError: If a parameter has the wrong type.
        ValueError: If a parameter is out of range, or the table is not one.

    Example:
        >>> from sklearn.datasets import load_wine
        >>> X, y = load_wine(return_X_y=True)
        >>> model = GSLClassifier(random_state=0).fit(X[::2], y[::2])
        >>> model.score(X[1::2], y[1::2]) > 0.9
        True
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> GSLClassifier:
        r"""Train the networks, and keep that which validation prefers.

        Args:
            X (array-like or DataFrame): The rows, dense or sparse.
            y (array-like): Their classes, -1 where they are not known.
            sample_weight (array-like, optional): What the loss of each row counts, no
                less than 0. A row of weight 0 remains a node of the graph.
                (default: :obj:`None`)
        """
        self._check_parameters()
        X = check_rows(self, X, reset=True, accept_sparse='csr')
        check_same_kind(y)
        X, y = self._with_targets(X, y)
        check_classification_targets(y)
        known = find_labelled(y)
        self.classes_ = np.unique(y[known])
        if len(self.classes_) < 2:
            raise ValueError(
                f'{type(self).__name__} needs two classes; the data has one class '
                f'({self.classes_.tolist()})'
            )
        self._num_outputs = len(self.classes_)
        label = np.zeros(len(y), dtype=np.int64)
        label[known] = np.searchsorted(self.classes_, y[known])
        self._fit(X, label, known, sample_weight)
        return self

    @property
    def transduction_(self) -> Any:
        r"""Return the classes that the network gives the rows of training.

        :meth:`predict` takes all rows for new ones, so that one of training would have
        itself among its neighbours.

        Returns:
            numpy.ndarray: A class for each row, labelled or not.
        """
        check_is_fitted(self)
        return self.classes_[self._own_outputs().argmax(axis=1)]

    def predict_proba(self, X: Any) -> Any:
        r"""Return the probability of each class for each row."""
        out = torch.from_numpy(self._outputs(X))
        return out.softmax(dim=1).numpy()

    def predict(self, X: Any) -> Any:
        r"""Return the most probable class of each row."""
        best = self._outputs(X).argmax(axis=1)
        return self.classes_[best]

    def _saved_targets(self) -> dict[str, Any]:
        return {'classes': self.classes_.tolist(), 'dtype': str(self.classes_.dtype)}

    def _restore_targets(self, saved: dict[str, Any]) -> None:
        self.classes_ = np.array(saved['classes'], dtype=np.dtype(saved['dtype']))


class GSLRegressor(RegressorMixin, GSLEstimator):  # type: ignore[misc]
    r"""Predict numbers from the rows of a table with a graph that is learned of them.

    It works as :class:`GSLClassifier` does, and takes the same parameters; the loss is
    the squared error.

    Args:
        graph (str, optional): What joins rows. (default: :obj:`"auto"`)
        similarity (str, optional): The similarity of a learned graph.
            (default: :obj:`"linear"`)
        k (int, optional): The number of neighbours. (default: :obj:`5`)
        num_candidates (int or None, optional): The number of nearest rows that a
            learned graph weighs, no fewer than :obj:`k`. (default: :obj:`32`)
        tau (float, optional): The temperature. (default: :obj:`1.0`)
        initial_scale (float, optional): Where the learned scale begins.
            (default: :obj:`10.0`)
        hidden_channels (int, optional): The number of hidden units.
            (default: :obj:`64`)
        num_layers (int, optional): The number of layers. (default: :obj:`2`)
        dropout (float, optional): The share of hidden units that are left out.
            (default: :obj:`0.5`)
        learning_rate (float, optional): The rate of Adam. (default: :obj:`0.01`)
        weight_decay (float, optional): Its weight decay. (default: :obj:`5e-4`)
        max_iter (int, optional): The most epochs. (default: :obj:`300`)
        validation_fraction (float, optional): The share of rows that is held back.
            (default: :obj:`0.2`)
        n_iter_no_change (int, optional): The number of epochs without an improvement
            that end the training. (default: :obj:`50`)
        standardize (bool, optional): Whether dense columns are standardised.
            (default: :obj:`True`)
        random_state (int, RandomState or None, optional): Where randomness comes from.
            An integer gives one model, whatever other threads draw; PyTorch's global
            generator is left alone. (default: :obj:`None`)
        device (str, optional): Where the networks are. (default: :obj:`"cpu"`)
        verbose (bool, optional): Whether a bar shows the epochs.
            (default: :obj:`False`)

    Attributes:
        graph_choice_ (str): What validation chose.
        graph_ (scipy.sparse.csr_matrix): The graph of the training rows.
        n_iter_ (int): The number of epochs of the chosen network.
        validation_loss_ (float): Its loss, of targets of deviation 1.

    Example:
        >>> from sklearn.datasets import load_diabetes
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = GSLRegressor(random_state=0).fit(X[::2], y[::2])
        >>> model.score(X[1::2], y[1::2]) > 0.3
        True
    """

    _task = 'regression'

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> GSLRegressor:
        r"""Train the networks, and keep that which validation prefers.

        Args:
            X (array-like or DataFrame): The rows, dense or sparse.
            y (array-like): Their targets, of one column or of several.
            sample_weight (array-like, optional): What the loss of each row counts.
                (default: :obj:`None`)
        """
        self._check_parameters()
        X = check_rows(self, X, reset=True, accept_sparse='csr')
        X, y = self._with_targets(X, y, multi_output=True, y_numeric=True)
        self._is_column = y.ndim == 1
        target = y.reshape(len(y), -1)
        self._center, self._width = measure_columns(target)
        self._num_outputs = target.shape[1]
        # Single precision holds what is centred, wherever it was.
        target = scale_columns(target, self._center, self._width).astype(X.dtype)
        self._fit(X, target, np.ones(len(y), dtype=bool), sample_weight)
        return self

    def predict(self, X: Any) -> Any:
        r"""Return the target of each row, in double precision."""
        out = self._outputs(X).astype(np.float64) * self._width + self._center
        return out[:, 0] if self._is_column else out

    def _saved_targets(self) -> dict[str, Any]:
        numbers = {'center': self._center, 'width': self._width}
        saved = {name: torch.from_numpy(value) for name, value in numbers.items()}
        return {**saved, 'is_column': self._is_column}

    def _restore_targets(self, saved: dict[str, Any]) -> None:
        self._center, self._width = saved['center'].numpy(), saved['width'].numpy()
        self._is_column = saved['is_column']
