from __future__ import annotations

from textwrap import indent
from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor

from torch_geometric_gsl._columns import find_labelled, measure_columns, scale_columns
from torch_geometric_gsl.sklearn._base import GSLEstimator

#: What the docstrings of both estimators say of their parameters.
PARAMETERS = r"""
Args:
    graph (str, optional): What joins rows: :obj:`"learned"`, :obj:`"nearest"`,
        :obj:`"none"`, or :obj:`"auto"` for what validation prefers.
        (default: :obj:`"auto"`)
    n_members (int or str, optional): The number of networks whose answers are
        averaged. They differ by their seeds, and by the rows that are held back.
        :obj:`"auto"` takes 4 below 1,000 rows of training, those that have a label
        and are not held back, else 1. (default: :obj:`"auto"`)
    similarity (str, optional): What a learned graph compares rows by.
        (default: :obj:`"distance"`)
    eval_k (int, optional): The number of neighbours of a prediction.
        (default: :obj:`96`)
    draws (int, optional): The number of relaxed draws of neighbours in training;
        all rows of the pool are neighbours if :obj:`None`. (default: :obj:`4`)
    hidden_channels (int or str, optional): The number of hidden units; 64, 128 or
        192 by the number of rows if :obj:`"auto"`. (default: :obj:`"auto"`)
    dropout (float or str, optional): The share of hidden units that are left out in
        training; by the number of rows if :obj:`"auto"`. (default: :obj:`"auto"`)
    scaling (str, optional): How dense columns are scaled: to normal quantiles, to
        mean 0 and deviation 1 (:obj:`"standard"`), or not (:obj:`"none"`);
        :obj:`"auto"` takes quantiles from 1,000 rows on. Sparse rows get unit norm
        unless :obj:`"none"`. (default: :obj:`"auto"`)
    batch_size (int or str, optional): The number of rows of a step; up to 512 by
        the number of rows if :obj:`"auto"`. (default: :obj:`"auto"`)
    pool_size (int, optional): The number of other rows among which a step looks for
        neighbours. (default: :obj:`4096`)
    learning_rate (float, optional): The rate of AdamW. (default: :obj:`0.001`)
    weight_decay (float, optional): Its weight decay. (default: :obj:`1e-4`)
    max_iter (int, optional): The most epochs. (default: :obj:`1000`)
    n_iter_no_change (int, optional): The number of epochs without an improvement
        that end the training; they have at least 320 steps. (default: :obj:`10`)
    validation_fraction (float, optional): The share of labelled rows that is held
        back, of each class with enough of them. With too few in all none is: the
        epoch of the least training loss counts then, and :obj:`"auto"` learns a
        graph. (default: :obj:`0.2`)
    random_state (int, RandomState or None, optional): Source of randomness. An
        integer gives one model; PyTorch's global generator is left alone.
        (default: :obj:`None`)
    device (str, optional): Where the networks are. (default: :obj:`"cpu"`)
    verbose (bool, optional): Whether a bar shows the steps, the loss and the time
        left if nothing improves any more. (default: :obj:`False`)

Attributes:
    classes_ (numpy.ndarray): The classes, of a classifier.
    graph_choice_ (str): What validation chose.
    graph_losses_ (dict[str, float]): The validation loss of each graph that was
        tried, the least first.
    graph_margin_ (float or None): The share by which the least is less than the
        second.
    n_iter_ (int): The number of epochs of the first network.
    loss_curve_ (list[float]): Its training loss after each epoch.
    validation_scores_ (list[float]): Its accuracy, or its :math:`R^2`, on rows that
        are held back after each epoch, if there are any.
    validation_loss_ (float): The least, averaged over the networks.

Warns:
    ConvergenceWarning: If a network still improved after :obj:`max_iter` epochs.
    UserWarning: If a graph is wanted, and one row only may be a neighbour.

Raises:
    TypeError: If a parameter has the wrong type.
    ValueError: If a parameter is out of range, or the table is not one.
"""


def _documented(cls: Any) -> Any:
    """Put the parameters, which all estimators have, into a docstring."""
    parameters = indent(PARAMETERS.strip(), '    ').lstrip()
    cls.__doc__ = (cls.__doc__ or '').replace('{parameters}', parameters)
    return cls


@_documented
class GSLClassifier(ClassifierMixin, GSLEstimator):  # type: ignore[misc]
    r"""Classify the rows of a table with a graph that is learned of them.

    It joins the relaxed draws of neighbours of the `"Neural Gaussian Similarity
    Modeling for Differential Graph Structure Learning"
    <https://arxiv.org/abs/2312.09498>`_ paper to the labelled neighbours of the `"TabR:
    Tabular Deep Learning Meets Nearest Neighbors" <https://arxiv.org/abs/2307.14338>`_
    paper. The network is a :class:`~torch_geometric_gsl.nn.TableNet`: each row hears
    the labels of other rows, the nearest by a distance that is learned, and never its
    own. Three are trained: one that learns its graph, one on the nearest rows by the
    scaled columns, and one without a graph. The loss of rows that are held back chooses
    among them, and ends the training. New rows take their neighbours from all rows of
    :meth:`fit`. A step takes a batch and a pool of other rows, so that an epoch is
    linear in the number of rows.

    Rows with the label -1 are part of the graph without a label. Where labels are -1
    and one other value, or others are negative, too, -1 is a class. A warning gives the
    number of rows without a label where they are not the majority.

    A DataFrame of texts, categories, dates or missing values is taken as
    :func:`make_table_transformer` takes it; the columns of new rows are found by their
    names.

    A row of weight 0 remains a node, which tells no label, and a weight of 2 is no
    second node: of scikit-learn's checks those that ask for the contrary
    (:obj:`check_sample_weight_equivalence_on_dense_data` and its sparse twin) fail.

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
        r"""Return the probability of each class for each row.

        Args:
            X (array-like or DataFrame): The rows.
        """
        share = self._outputs(X).softmax(dim=2).mean(dim=0)
        return share.numpy().astype(self._dtype)

    def _find_known(self, y: Any) -> Any:
        """Note the classes, and return which rows have one."""
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
        """Return the numbers of classes; that of a row without one is not used."""
        return torch.from_numpy(np.searchsorted(self.classes_, y))

    def _decode(self, out: Tensor) -> Any:
        """Return the most probable classes by the mean of all members."""
        share = out.softmax(dim=2).mean(dim=0)
        return self.classes_[share.argmax(dim=1).numpy()]


@_documented
class GSLRegressor(RegressorMixin, GSLEstimator):  # type: ignore[misc]
    r"""Predict numbers from the rows of a table with a graph that is learned of them.

    It works as :class:`GSLClassifier` does, and takes the same parameters; the loss is
    the squared error of targets that are scaled to deviation 1.

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
        """Return scaled targets; single precision holds them, wherever they were."""
        target = y.reshape(len(y), -1)
        self._num_outputs = target.shape[1]
        self._center, self._width = measure_columns(target[is_known])
        scaled = scale_columns(target, self._center, self._width)
        return torch.from_numpy(scaled.astype(np.float32))

    def _decode(self, out: Tensor) -> Any:
        """Return the mean of all members in the units of the target."""
        found = out.mean(dim=0).numpy().astype(np.float64) * self._width + self._center
        return found[:, 0] if self._targets.ndim == 1 else found
