from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from torch_geometric_gsl._checks import check_index, check_mask, check_value


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

        Returns:
            torch.Tensor: The loss, a number.

        Raises:
            TypeError: If :obj:`y` or :obj:`mask` has the wrong type.
            ValueError: If no node is labelled, or a label is that of no class.
        """
        return cross_entropy(self(x, **kwargs), y, mask)


def cross_entropy(out: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """Return the mean cross-entropy of labelled nodes, of which there must be one."""
    labels = chosen_labels(out, y, mask)
    return F.cross_entropy(out[mask], labels)


def chosen_labels(out: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """Return the labels of the labelled nodes, checked against the logits of all."""
    num_nodes, num_classes = out.shape
    _check_choice(mask, num_nodes)
    check_index(y, 'y', '[num_nodes]', 1, like=out)
    _check_one_per_node(y, 'y', num_nodes)
    labels = y[mask]
    low, high = labels.aminmax()
    check_value(
        (low >= 0) & (high < num_classes),
        f"'y' has labels outside 0..{num_classes - 1} where 'mask' chooses",
        got=partial('{}..{}'.format, low, high),
    )
    return labels


def _check_choice(mask: Any, num_nodes: int) -> None:
    if not isinstance(mask, Tensor):
        raise TypeError(f"'mask' must be a torch.Tensor (got {type(mask).__name__})")
    if mask.dtype not in (torch.bool, torch.long):
        raise TypeError(
            f"'mask' must have dtype torch.bool, or torch.int64 for indices "
            f'(got {mask.dtype})'
        )
    if mask.dim() != 1:
        raise ValueError(
            f"'mask' must have shape [num_nodes], or [num_indices] "
            f'(got {list(mask.shape)})'
        )
    check_mask(mask)
    if mask.dtype == torch.bool:
        _check_one_per_node(mask, 'mask', num_nodes)
        return
    low, high = mask.aminmax()
    check_value(
        (low >= 0) & (high < num_nodes),
        f"'mask' has indices outside 0..{num_nodes - 1}",
        got=partial('{}..{}'.format, low, high),
    )
    # Two nodes may be listed in any order, but more of them not by zeros and ones.
    if mask.numel() == num_nodes > 2:
        check_value(
            high > 1,
            "'mask' must have dtype torch.bool where it has a zero or a one per node",
            got=lambda: mask.dtype,
        )


def _check_one_per_node(value: Tensor, name: str, num_nodes: int) -> None:
    if value.numel() != num_nodes:
        raise ValueError(
            f"'{name}' must have one entry per node "
            f'(got {value.numel()} for {num_nodes} nodes)'
        )
