from __future__ import annotations

from textwrap import indent
from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from torch_geometric_gsl._labels import UNLABELLED, find_labelled
from torch_geometric_gsl.sklearn._base import GSLEstimator
from torch_geometric_gsl.sklearn._scaling import measure_columns, scale_columns

#: The parameters in the docstrings of both estimators.
PARAMETERS = r"""
Args:
    graph (str, optional): The members: :obj:`"learned"` for networks with a learned
        graph of the rows, :obj:`"none"` for networks without a graph, or
        :obj:`"auto"` for a blend of both, a linear model and boosted trees.
        (default: :obj:`"auto"`)
    n_members (int or str, optional): The number of splits into training and held-back
        rows; each kind of member is fitted on every one, and averaged.
        :obj:`"auto"` uses 4 with fewer than 1,000 training rows (labelled and not
        held back), else 1. With :obj:`groups`, each is held back once if there are
        fewer than ten, else there are at most :obj:`1 / validation_fraction` splits.
        (default: :obj:`"auto"`)
    similarity (str, optional): The similarity of two rows. (default: :obj:`"distance"`)
    eval_k (int, optional): The number of neighbours of a row. (default: :obj:`96`)
    draws (int, optional): The number of relaxed draws of neighbours in training;
        if :obj:`None`, all rows of a block are neighbours. (default: :obj:`None`)
    hidden_channels (int or str, optional): The number of hidden units; 64, 128 or
        192 by the number of rows if :obj:`"auto"`. (default: :obj:`"auto"`)
    dropout (float or str, optional): Dropout probability of hidden units; by the
        number of rows if :obj:`"auto"`. (default: :obj:`"auto"`)
    scaling (str, optional): The scaling of dense columns of networks:
        :obj:`"robust"` by median and quartiles, with far values bent towards the
        others, :obj:`"quantile"` to a normal distribution, :obj:`"standard"` to mean 0
        and deviation 1, or :obj:`"none"`. :obj:`"auto"` is robust; a blend of 1,000 to
        200,000 rows also has networks on quantiles, unless :obj:`groups` or
        :obj:`order` are given. Sparse rows are scaled to unit norm unless
        :obj:`"none"`. (default: :obj:`"auto"`)
    block_size (int or str, optional): The number of near rows that see each other in
        training; 128 or 256 by the number of rows if :obj:`"auto"`.
        (default: :obj:`"auto"`)
    learning_rate (float, optional): Peak learning rate of AdamW; Muon, for matrices,
        has twice as much. (default: :obj:`0.005`)
    weight_decay (float, optional): Weight decay of both. (default: :obj:`1e-4`)
    max_iter (int, optional): The maximum number of epochs. (default: :obj:`1000`)
    validation_fraction (float, optional): The share of labelled rows held back for
        validation, from each class with enough rows. With too few rows, none are:
        networks train for 30 epochs, and members have equal weights.
        (default: :obj:`0.2`)
    random_state (int, RandomState or None, optional): Source of randomness. An
        integer makes results reproducible, up to rounding by another number of
        threads. (default: :obj:`None`)
    device (str, optional): The device of the networks. (default: :obj:`"cpu"`)
    verbose (bool, optional): If :obj:`True`, shows a progress bar of each network.
        (default: :obj:`False`)

Attributes:
    classes_ (numpy.ndarray): The classes (classifier only).
    n_iter_ (int): The largest number of epochs of a network.
    loss_curve_ (list[float]): The training loss of the first network after each epoch.

Warns:
    ConvergenceWarning: If a network still improved after :obj:`max_iter` epochs, or if
        the estimator is hardly better than a constant on held-back rows. One that is no
        better predicts the constant.
    UserWarning: If a graph is requested, and only one row may be a neighbour; if a
        column may identify groups, and :obj:`groups` is not given; in predictions, if
        many rows are far from all training rows.

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

    Blends up to seven members by non-negative weights, which have the least loss on
    held-back rows: networks with a learned graph and without a graph, on columns in one
    or two scalings, a linear model, and two settings of
    :class:`~sklearn.ensemble.HistGradientBoostingClassifier`. :attr:`report_` has their
    losses and weights, :meth:`contributions` divides each prediction into their parts.

    The network is a :class:`~torch_geometric_gsl.nn.TableNet`: a row sees the columns
    and labels of its nearest rows by a learned distance, but never its own label, as in
    the `"TabR: Tabular Deep Learning Meets Nearest Neighbors"
    <https://arxiv.org/abs/2307.14338>`_ paper. It is trained by `Muon
    <https://kellerjordan.github.io/posts/muon/>`_ and AdamW in blocks of near rows, and
    in cycles of the learning rate, each twice as long as the last, until the loss on
    held-back rows hardly improves. With :obj:`draws`, neighbours are the relaxed draws
    of the `"Neural Gaussian Similarity Modeling for Differential Graph Structure
    Learning" <https://arxiv.org/abs/2312.09498>`_ paper. New rows attend to all rows of
    :meth:`fit`. The time of an epoch is nearly linear in the number of rows.

    If new rows are of other groups, such as patients or places, or come later, pass
    :obj:`groups` or :obj:`order` to :meth:`fit`: rows are then held back, and hidden
    from their neighbours, in the same way.

    Rows with the label -1 are unlabelled nodes of the graph. If there is only one other
    label, or another negative one, -1 is a class. A warning reports the number of
    unlabelled rows unless they are the majority; with two classes, nine in ten.

    A DataFrame of strings, categories, dates or missing values is encoded by
    :func:`make_table_transformer`; columns of new rows are matched by name.

    A row of weight 0 becomes an unlabelled node, and a weight of 2 does not duplicate a
    node: scikit-learn's :obj:`check_sample_weight_equivalence_on_dense_data` and
    :obj:`check_sample_weight_equivalence_on_sparse_data` fail.

    {parameters}

    Example:
        >>> from sklearn.datasets import load_wine
        >>> X, y = load_wine(return_X_y=True)
        >>> model = GSLClassifier('learned', n_members=1, random_state=0)
        >>> model = model.fit(X[::2], y[::2])
        >>> model.score(X[1::2], y[1::2]) > 0.9
        True
    """

    _TARGETS = ('classes_',)

    def predict_proba(self, X: Any) -> Any:
        r"""Predict the probability of each class for each row.

        Args:
            X (array-like or DataFrame): The rows.
        """
        return self._outputs(self._new_rows(X)).astype(self._rows.x.dtype)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        r"""Return the accuracy on labelled rows.

        Args:
            X (array-like or DataFrame): The rows.
            y (array-like): Their classes; rows of class -1 do not count, unless it is
                a class of training.
            sample_weight (array-like, optional): Weights of the rows.
                (default: :obj:`None`)
        """
        check_is_fitted(self)
        labels = np.ravel(y)
        is_known = np.isin(labels, self.classes_) | (labels != UNLABELLED)
        if not is_known.all():
            weight = np.ones(len(is_known)) if sample_weight is None else sample_weight
            sample_weight = np.asarray(weight) * is_known
        return float(super().score(X, y, sample_weight=sample_weight))

    def _find_labelled(self, y: Any) -> Any:
        """Store the classes; return a mask of rows with a known class."""
        check_classification_targets(y)
        is_known = find_labelled(y)
        self.classes_ = np.unique(y[is_known])
        if len(self.classes_) < 2:
            raise ValueError(
                f'{type(self).__name__} needs two classes; the data has one class '
                f'({self.classes_.tolist()})'
            )
        return is_known

    def _encode(self, y: Any, is_known: Any) -> Tensor:
        """Return class indices; those of unlabelled rows are not used."""
        return torch.from_numpy(np.searchsorted(self.classes_, y))

    def _decode(self, out: Any) -> Any:
        """Return the most probable class."""
        return self.classes_[out.argmax(axis=1)]

    def _named_components(self, components: dict[str, Any]) -> dict[str, Any]:
        """Return the parts of the probability of the predicted class."""
        best = components['prediction'].argmax(axis=1)
        rows = np.arange(len(best))
        return {name: component[rows, best] for name, component in components.items()}


@_documented
class GSLRegressor(RegressorMixin, GSLEstimator):  # type: ignore[misc]
    r"""Regressor for tables with a learned graph of the rows.

    It works as :class:`GSLClassifier`, with the same parameters; the loss is the
    squared error of standardized targets, and predictions estimate their mean.

    {parameters}

    Example:
        >>> from sklearn.datasets import load_diabetes
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = GSLRegressor('learned', n_members=1, random_state=0)
        >>> model = model.fit(X[::2], y[::2])
        >>> model.score(X[1::2], y[1::2]) > 0.3
        True
    """

    _TARGETS = ('_center', '_width')

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags

    def _find_labelled(self, y: Any) -> Any:
        return np.ones(len(y), dtype=bool)

    def _encode(self, y: Any, is_known: Any) -> Tensor:
        """Scale targets, so that any range fits single precision."""
        target = y.reshape(len(y), -1)
        self._center, self._width = measure_columns(target[is_known])
        scaled = scale_columns(target, self._center, self._width)
        return torch.from_numpy(scaled.astype(np.float32))

    def _decode(self, out: Any) -> Any:
        """Return outputs in the units of the target."""
        target = out * self._width + self._center
        return target[:, 0] if self._rows.targets.ndim == 1 else target

    def _named_components(self, components: dict[str, Any]) -> dict[str, Any]:
        """Return the parts in the units of the target."""
        columns = {}
        for name, component in components.items():
            is_total = name in ('constant', 'prediction')
            value = component * self._width + is_total * self._center
            for i, column in enumerate(value.T):
                columns[name if self._rows.targets.ndim == 1 else f'{name} {i}'] = (
                    column
                )
        return columns
