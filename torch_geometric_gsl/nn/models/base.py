"""Bases of models: their loss, predictions and score, by the task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from torch_geometric_gsl.nn.models.saved_model import SavedModel
from torch_geometric_gsl.nn.models.tasks import TASKS, Task, every_node
from torch_geometric_gsl.nn.one_type import OneType


class FollowsTask(torch.nn.Module):
    """Base class of the models with a :obj:`task`, such as classification."""

    task: str = 'classification'

    @property
    def _task(self) -> Task:
        return TASKS[self.task]

    def loss(
        self, x: Any, y: Tensor, mask: Tensor | None = None, **kwargs: Any
    ) -> Tensor:
        r"""Return the loss of labelled nodes, which training minimises.

        Args:
            x (torch.Tensor): The node features, as in the forward method.
            y (torch.Tensor): The labels :math:`[|\mathcal{V}|]`, or as the :obj:`task`
                says; they are read where :obj:`mask` tells, and nowhere else.
            mask (torch.Tensor, optional): The labelled nodes, as a boolean mask or as
                indices; all nodes if :obj:`None`. (default: :obj:`None`)
            **kwargs (optional): Additional arguments of the forward method.
        """
        return self._label_loss(self(x, **kwargs), y, mask)

    @torch.no_grad()
    def predict(self, x: Any, **kwargs: Any) -> Tensor:
        r"""Return the predictions of evaluation mode.

        By the :obj:`task` these are classes, values, one boolean a node, or one a node
        and label. The arguments are those of the forward method.

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
        r"""Return the score of predictions, by the name of the :obj:`task`'s metric.

        These are the accuracy, :math:`R^2` (the mean over outputs), the accuracy of
        booleans, or the F1 of all nodes and labels together (micro). The larger, the
        better. The arguments are those of :meth:`loss`.
        """
        return self._scored(self._evaluated(x, **kwargs), y, mask)

    def _label_loss(self, out: Tensor, y: Tensor, mask: Tensor | None) -> Tensor:
        """Return the mean loss of labelled nodes, of which there must be one."""
        task = self._task
        mask = every_node(out) if mask is None else mask
        target = task.target(out, y, mask)
        return task.loss(out[mask], target)

    def _scored(self, out: Tensor, y: Tensor, mask: Tensor | None) -> dict[str, float]:
        """Return the score of outputs, by the name of the metric."""
        task = self._task
        mask = every_node(out) if mask is None else mask
        target = task.target(out, y, mask)
        return {task.metric: float(task.score(task.predict(out[mask]), target))}

    def _evaluated(self, *args: Any, **kwargs: Any) -> Tensor:
        """Return the outputs of evaluation, and leave the mode as it was."""
        modes = [module.training for module in self.modules()]
        self.eval()
        try:
            out: Tensor = self(*args, **kwargs)
        finally:
            for module, mode in zip(self.modules(), modes, strict=True):
                module.training = mode
        return out


class NodeClassifier(FollowsTask, OneType, SavedModel, ABC):
    r"""Base class of the models that classify nodes without a given graph.

    A model maps node features to logits, or to the outputs of another :obj:`task`.
    What it minimises beside the loss of labels, such as the regularisers of its paper,
    it adds in :meth:`loss`, so that one training loop serves all models:

    .. code-block:: python

        for epoch in range(200):
            model.train()
            optimizer.zero_grad()
            model.loss(x, y, train_mask).backward()
            optimizer.step()

    A model whose graph can be listed has a method :obj:`graphs` as well, which takes
    the arguments of :meth:`forward` and returns a list of
    :class:`~torch_geometric_gsl.typing.SampledGraph`.
    """

    @abstractmethod
    def reset_parameters(self) -> None:
        r"""Reset all learnable parameters of the module."""

    @abstractmethod
    def forward(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        r"""Run the forward pass.

        A model takes those of these arguments that it serves: :obj:`edge_index` (and
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
