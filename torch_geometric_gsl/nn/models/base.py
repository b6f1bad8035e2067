from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from torch_geometric_gsl.nn.models._labels import chosen_labels


class NodeClassifier(torch.nn.Module, ABC):
    r"""Base class of the models that classify nodes without a given graph.

    A model maps node features to logits. All of them are called in the same way, and
    an argument without a meaning for a model is refused by its name. What a model
    minimises beside the cross-entropy, such as the regularisers of its paper, it adds
    in :meth:`loss`, so that one training loop serves all of them:

    .. code-block:: python

        for epoch in range(200):
            model.train()
            optimizer.zero_grad()
            model.loss(x, y, train_mask).backward()
            optimizer.step()

    A model whose graph can be listed has a method :obj:`graphs` as well, which takes
    the arguments of :meth:`forward` and returns a list of
    :class:`~torch_geometric_gsl.typing.SampledGraph`. Others lack it, as
    :obj:`hasattr(model, "graphs")` tells:
    :class:`~torch_geometric_gsl.baselines.NodeFormer`, which weighs all pairs of nodes
    without forming them, and :class:`~torch_geometric_gsl.baselines.MLPClassifier`.
    """

    @abstractmethod
    def reset_parameters(self) -> None:
        r"""Reset all learnable parameters of the module."""

    @abstractmethod
    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | None = None,
        batch: Tensor | None = None,
        *,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        r"""Run the forward pass.

        Args:
            x (torch.Tensor): The node features, dense or sparse CSR.
            edge_index (torch.Tensor, optional): Edges, in the meaning that the model
                gives them: candidates, or a graph in place of its own.
                (default: :obj:`None`)
            batch (torch.Tensor, optional): Sorted graph ids of the nodes.
                (default: :obj:`None`)
            generator (torch.Generator, optional): Source of randomness, where there is
                any; dropout of hidden samples uses the global one.
                (default: :obj:`None`)

        Raises:
            ValueError: If an argument is given that has no meaning for the model.
        """

    def loss(self, x: Tensor, y: Tensor, mask: Tensor, **kwargs: Any) -> Tensor:
        r"""Return the loss to be minimised in training.

        Labels are read where :obj:`mask` tells, and nowhere else.

        Args:
            x (torch.Tensor): The node features, dense or sparse CSR.
            y (torch.Tensor): The labels :math:`[|\mathcal{V}|]`.
            mask (torch.Tensor): The labelled nodes, as a boolean mask or as indices.
            **kwargs (optional): Additional arguments of the forward method.

        Raises:
            TypeError: If :obj:`y` or :obj:`mask` has the wrong type.
            ValueError: If no node is labelled, or a label is that of no class.
        """
        return cross_entropy(self(x, **kwargs), y, mask)


def cross_entropy(out: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """Return the mean cross-entropy of labelled nodes, of which there must be one."""
    labels = chosen_labels(y, mask, out)
    return F.cross_entropy(out[mask], labels)
