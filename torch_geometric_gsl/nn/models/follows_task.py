"""The loss, the predictions and the score of a model, by its task."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torch_geometric_gsl.nn.models.tasks import TASKS, Task, every_node


class FollowsTask(torch.nn.Module):
    """Base class of the models that tell something of nodes."""

    #: What the model tells of a node, as in :class:`~torch_geometric_gsl.nn.GSLNet`.
    task: str = 'classification'

    @property
    def _task(self) -> Task:
        return TASKS[self.task]

    def _label_loss(self, out: Tensor, y: Tensor, mask: Tensor | None) -> Tensor:
        """Return the mean loss of labelled nodes, of which there must be one."""
        mask = every_node(out) if mask is None else mask
        target = self._task.target(out, y, mask)
        return self._task.loss(out[mask], target)

    def _scored(self, out: Tensor, y: Tensor, mask: Tensor | None) -> dict[str, float]:
        """Return how good outputs are, by the name of the metric."""
        mask = every_node(out) if mask is None else mask
        target = self._task.target(out, y, mask)
        score = self._task.score(self._task.predict(out[mask]), target)
        return {self._task.metric: float(score)}

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
