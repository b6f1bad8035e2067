from __future__ import annotations

from textwrap import indent
from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor

from torch_geometric_gsl._columns import (
    UNLABELLED,
    find_labelled,
    measure_columns,
    scale_columns,
)
from torch_geometric_gsl.sklearn._base import GSLEstimator

#: The parameters in the docstrings of both estimators.
PARAMETERS = r"""
Args:
    graph (str, optional): The graph of the rows: :obj:`"learned"`,
        :obj:`"nearest"`, :obj:`"none"`, or :obj:`"auto"` for the best by validation
        loss. (default: :obj:`"auto"`)
    n_members (int or str, optional): The number of networks in the ensemble, which
        differ by seed and held-back rows. :obj:`"auto"` uses 4 with fewer than 1,000
        training rows (labelled and not held back), else 1. Members that are no better
        than a constant on held-back rows are dropped. (default: :obj:`"auto"`)
    similarity (str, optional): The similarity of two rows. (default: :obj:`"distance"`)
    eval_k (int, optional): The number of neighbours of a row. (default: :obj:`96`)
    draws (int, optional): The number of relaxed draws of neighbours in training;
        if :obj:`None`, all rows of the pool are neighbours. (default: :obj:`4`)
    hidden_channels (int or str, optional): The number of hidden units; 64, 128 or
        192 by the number of rows if :obj:`"auto"`. (default: :obj:`"auto"`)
    dropout (float or str, optional): Dropout probability of hidden units; by the
        number of rows if :obj:`"auto"`. (default: :obj:`"auto"`)
    scaling (str, optional): The scaling of dense columns: :obj:`"quantile"` to a
        normal distribution, :obj:`"standard"` to mean 0 and deviation 1, or
        :obj:`"none"`; :obj:`"auto"` uses quantiles from 1,000 rows on. Sparse rows
        are scaled to unit norm unless :obj:`"none"`. (default: :obj:`"auto"`)
    batch_size (int or str, optional): The number of rows per step; up to 512 by
        the number of rows if :obj:`"auto"`. (default: :obj:`"auto"`)
    pool_size (int, optional): The number of other rows that a step draws neighbours
        from, at most 40 % of all rows. (default: :obj:`4096`)
    learning_rate (float, optional): Learning rate of AdamW. (default: :obj:`0.001`)
    weight_decay (float, optional): Weight decay of AdamW. (default: :obj:`1e-4`)
    max_iter (int, optional): The maximum number of epochs. (default: :obj:`1000`)
    n_iter_no_change (int, optional): The number of epochs without improvement, of
        at least 320 steps, before training stops. (default: :obj:`10`)
    validation_fraction (float, optional): The share of labelled rows held back for
        validation, from each class with enough rows. With too few rows, none are:
        the epoch of lowest training loss is kept, and :obj:`"auto"` learns a
        graph. (default: :obj:`0.2`)
    random_state (int, RandomState or None, optional): Source of randomness. An
        integer makes results reproducible, whatever else draws. (default: :obj:`None`)
    device (str, optional): The device of the networks. (default: :obj:`"cpu"`)
    verbose (bool, optional): If :obj:`True`, shows a progress bar with the loss and
        the remaining time without further improvement. (default: :obj:`False`)

Attributes:
    classes_ (numpy.ndarray): The classes (classifier only).
    graph_choice_ (str): The graph chosen by validation.
    graph_losses_ (dict[str, float]): The validation losses of graphs, in order.
    graph_margin_ (float or None): The relative gap of the two lowest losses.
    n_iter_ (int): The number of epochs of the first network that is kept.
    loss_curve_ (list[float]): Its training loss after each epoch.
    validation_scores_ (list[float]): Its accuracy, or :math:`R^2`, on held-back
        rows after each epoch, if there are any.
    validation_loss_ (float): The lowest validation loss, averaged over networks.

Warns:
    ConvergenceWarning: If a network still improved after :obj:`max_iter` epochs, or
        is hardly better than a constant on held-back rows. One that is no better
        predicts the constant.
    UserWarning: If a graph is requested, and only one row may be a neighbour.

Raises:
    TypeError: If a parameter has the wrong type.
    ValueError: If a parameter is out of range, or the table is invalid.
"""


def _documented(cls: Any) -> Any:
    """Insert the common parameters of estimators into a docstring."""
    parameters = indent(PARAMETERS.strip(), '    ').lstrip()
    cls.__doc__ = (cls.__doc__ or '').replace('{parameters}', parameters)
    return cls


@_documented
class GSLClassifier(ClassifierMixin, GSLEstimator):  # type: ignore[misc]
    r"""Classifier for tables with a learned graph of the rows.

    Combines the relaxed draws of neighbours of the `"Neural Gaussian Similarity
    Modeling for Differential Graph Structure Learning"
    <https://arxiv.org/abs/2312.09498>`_ paper with the labelled neighbours of the
    `"TabR: Tabular Deep Learning Meets Nearest Neighbors"
    <https://arxiv.org/abs/2307.14338>`_ paper. The network is a
    :class:`~torch_geometric_gsl.nn.TableNet`: each row sees the labels of its nearest
    rows by a learned distance, but never its own. Three networks are trained: with a
    learned graph, with the nearest rows by scaled columns, and without a graph. The
    loss on held-back rows selects one, and stops training early. New rows attend to all
    rows of :meth:`fit`. The time of an epoch is linear in the number of rows.

    Rows with the label -1 are unlabelled nodes of the graph. If there is only one other
    label, or another negative one, -1 is a class. A warning reports the number of
    unlabelled rows unless they are the majority.

    A DataFrame of strings, categories, dates or missing values is encoded by
    :func:`make_table_transformer`; columns of new rows are matched by name.

    A row of weight 0 becomes an unlabelled node, and a weight of 2 does not duplicate a
    node: scikit-learn's :obj:`check_sample_weight_equivalence_on_dense_data` fails.

    {parameters}

    Example:
        >>> from sklearn.datasets import load_wine
        >>> X, y = load_wine(return_X_y=True)
        >>> model = GSLClassifier(n_members=1, random_state=0).fit(X[::2], y[::2])
        >>> model.score(X[1::2], y[1::2]) > 0.9
        True
    """

    _TARGETS = ('classes_', '_targets')

    def predict_proba(self, X: Any) -> Any:
        r"""Predict the probability of each class for each row.

        Args:
            X (array-like or DataFrame): The rows.
        """
        share = self._outputs(X).softmax(dim=2).mean(dim=0)
        return share.numpy().astype(self._dtype)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        r"""Return the accuracy on labelled rows.

        Args:
            X (array-like or DataFrame): The rows.
            y (array-like): Their classes; rows of class -1 do not count, unless it is
                a class of training.
            sample_weight (array-like, optional): Weights of the rows.
                (default: :obj:`None`)
        """
        labels = np.ravel(y)
        is_known = np.isin(labels, self.classes_) | (labels != UNLABELLED)
        if not is_known.all():
            weight = np.ones(len(is_known)) if sample_weight is None else sample_weight
            sample_weight = np.asarray(weight) * is_known
        return float(super().score(X, y, sample_weight=sample_weight))

    def _find_known(self, y: Any) -> Any:
        """Store the classes; return a mask of rows with a known class."""
        check_classification_targets(y)
        known = find_labelled(y)
        self.classes_ = np.unique(y[known])
        self._num_outputs = len(self.classes_)
        if self._num_outputs < 2:
            raise ValueError(
                f'{type(self).__name__} needs two classes; the data has one class '
                f'({self.classes_.tolist()})'
            )
        return known

    def _encode(self, y: Any, is_known: Any) -> Tensor:
        """Return class indices; those of unlabelled rows are not used."""
        return torch.from_numpy(np.searchsorted(self.classes_, y))

    def _decode(self, out: Tensor) -> Any:
        """Return the most probable class of the mean over members."""
        share = out.softmax(dim=2).mean(dim=0)
        return self.classes_[share.argmax(dim=1).numpy()]


@_documented
class GSLRegressor(RegressorMixin, GSLEstimator):  # type: ignore[misc]
    r"""Regressor for tables with a learned graph of the rows.

    It works as :class:`GSLClassifier`, with the same parameters; the loss is the
    squared error of standardized targets.

    {parameters}

    Example:
        >>> from sklearn.datasets import load_diabetes
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = GSLRegressor(n_members=1, random_state=0).fit(X[::2], y[::2])
        >>> model.score(X[1::2], y[1::2]) > 0.3
        True
    """

    _TARGETS = ('_center', '_width', '_targets')

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags

    def _find_known(self, y: Any) -> Any:
        return np.ones(len(y), dtype=bool)

    def _encode(self, y: Any, is_known: Any) -> Tensor:
        """Scale targets, so that any range fits single precision."""
        target = y.reshape(len(y), -1)
        self._num_outputs = target.shape[1]
        self._center, self._width = measure_columns(target[is_known])
        scaled = scale_columns(target, self._center, self._width)
        return torch.from_numpy(scaled.astype(np.float32))

    def _decode(self, out: Tensor) -> Any:
        """Return the mean over members, in the units of the target."""
        found = out.mean(dim=0).numpy().astype(np.float64) * self._width + self._center
        return found[:, 0] if self._targets.ndim == 1 else found
