from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from torch_geometric_gsl.nn.models.follows_task import FollowsTask
from torch_geometric_gsl.nn.models.saved_model import SavedModel
from torch_geometric_gsl.nn.one_type import OneType


class NodeClassifier(FollowsTask, OneType, SavedModel, ABC):
    r"""Base class of the models that classify nodes without a given graph.

    A model maps node features to logits, or to the outputs of another :obj:`task`.
    All of them are called in the same way, with the arguments that they serve. What a
    model minimises beside the loss of labels, such as the regularisers of its paper, it
    adds in :meth:`loss`, so that one training loop serves all of them:

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
    :class:`~reproduction.baselines.NodeFormer`, which weighs all pairs of nodes
    without forming them, and :class:`~torch_geometric_gsl.baselines.MLPClassifier`.
    """

    @abstractmethod
    def reset_parameters(self) -> None:
        r"""Reset all learnable parameters of the module."""

    @abstractmethod
    def forward(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        r"""Run the forward pass.

        A model takes what it serves, by these names: :obj:`edge_index` (and
        :obj:`edge_weight`), candidates or a graph in place of its own, :obj:`batch`,
        sorted graph ids of the nodes, and :obj:`generator`, the source of all
        randomness of the call, dropout included. Models that serve new rows take a pair
        :obj:`(x_src, x_dst)` of sources and targets in place of :obj:`x`. Parameters
        that wait for their first input are initialised by the global generator, and
        :func:`torch.utils.checkpoint.checkpoint` restores no other.

        Args:
            x (torch.Tensor or tuple[torch.Tensor, torch.Tensor]): The node features,
                dense or sparse CSR, or a pair.
            *args (optional): Other arguments of the model.
            **kwargs (optional): Other arguments of the model.
        """

    def loss(
        self, x: Any, y: Tensor, mask: Tensor | None = None, **kwargs: Any
    ) -> Tensor:
        r"""Return the loss to be minimised in training.

        Labels are read where :obj:`mask` tells, and nowhere else. In a mini-batch of
        labelled rows, all of them are meant: :obj:`model.loss(x, y)`.

        Args:
            x (torch.Tensor): The node features, dense or sparse CSR.
            y (torch.Tensor): The labels :math:`[|\mathcal{V}|]`, or as the :obj:`task`
                says.
            mask (torch.Tensor, optional): The labelled nodes, as a boolean mask or as
                indices; all nodes if :obj:`None`. (default: :obj:`None`)
            **kwargs (optional): Additional arguments of the forward method.

        Returns:
            torch.Tensor: The loss, a number.

        Raises:
            TypeError: If :obj:`y` or :obj:`mask` has the wrong type.
            ValueError: If no node is labelled, or a label is that of no class.
        """
        return self._label_loss(self(x, **kwargs), y, mask)

    @torch.no_grad()
    def predict(self, x: Any, **kwargs: Any) -> Tensor:
        r"""Return what the model says of each node, without noise.

        Args:
            x (torch.Tensor): The node features, dense or sparse CSR.
            **kwargs (optional): Additional arguments of the forward method.

        Returns:
            torch.Tensor: By the :obj:`task`: classes :math:`[|\mathcal{V}|]`, values,
            one boolean a node, or one a node and label.

        Example:
            >>> from torch_geometric_gsl import GSLNet
            >>> model = GSLNet(16, 32, num_layers=2, out_channels=1, task='regression')
            >>> model.predict(torch.randn(100, 16)).shape
            torch.Size([100])
        """
        return self._task.predict(self._evaluated(x, **kwargs))

    @torch.no_grad()
    def score(
        self, x: Any, y: Tensor, mask: Tensor | None = None, **kwargs: Any
    ) -> dict[str, float]:
        r"""Return how good predictions are, by the name of the :obj:`task`'s metric.

        These are the accuracy, :math:`R^2` (the mean over outputs), the accuracy of
        booleans, or the F1 of all nodes and labels together (micro).

        Args:
            x (torch.Tensor): The node features, dense or sparse CSR.
            y (torch.Tensor): The labels.
            mask (torch.Tensor, optional): The nodes that count, as a boolean mask or as
                indices; all nodes if :obj:`None`. (default: :obj:`None`)
            **kwargs (optional): Additional arguments of the forward method.

        Returns:
            dict[str, float]: The score, of which larger is better.
        """
        return self._scored(self._evaluated(x, **kwargs), y, mask)
