from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from torch_geometric_gsl._checks import check_mask


class NodeClassifier(torch.nn.Module, ABC):
    r"""Base class of the models that classify nodes without a given graph.

    A model maps node features to logits. What it minimises beside the cross-entropy,
    such as the regularisers of its paper, it adds in :meth:`loss`, so that one
    training loop serves all of them:

    .. code-block:: python

        for epoch in range(200):
            model.train()
            optimizer.zero_grad()
            model.loss(x, y, train_mask).backward()
            optimizer.step()
    """

    @abstractmethod
    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters of the module."""

    def loss(self, x: Tensor, y: Tensor, mask: Tensor, **kwargs: Any) -> Tensor:
        r"""The loss to be minimised in training.

        Labels are read where :obj:`mask` tells, and nowhere else.

        Args:
            x (torch.Tensor): The node features, dense or sparse CSR.
            y (torch.Tensor): The labels :math:`[|\mathcal{V}|]`.
            mask (torch.Tensor): The labelled nodes, as a mask or as indices.
            **kwargs (optional): Additional arguments of the forward method.

        Raises:
            ValueError: If no node is labelled.
        """
        return cross_entropy(self(x, **kwargs), y, mask)


def cross_entropy(out: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """The mean cross-entropy of labelled nodes, of which there must be one."""
    check_mask(mask)
    return F.cross_entropy(out[mask], y[mask])
