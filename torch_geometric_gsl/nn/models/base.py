"""Base class of models that predict nodes, and the parts between their layers."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn.resolver import activation_resolver

from torch_geometric_gsl._checks import check_count, check_option, check_probability
from torch_geometric_gsl.distributed.row_shard import RowShard
from torch_geometric_gsl.nn.models.homophily import (
    WARMUP_LOSSES,
    warn_if_at_chance,
)
from torch_geometric_gsl.nn.models.saved_model import SavedModel
from torch_geometric_gsl.nn.models.tasks import (
    TASKS,
    check_node_mask,
    node_mask,
)
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import samplers_of
from torch_geometric_gsl.nn.sampler.options import PASSED_ON, PLAIN
from torch_geometric_gsl.nn.shared_module import evaluation
from torch_geometric_gsl.ops.generators import dropout


class NodeClassifier(SavedModel, ABC):
    r"""Base class of models that predict nodes without a given graph.

    A model maps node features to logits, or to the outputs of another :obj:`task`.
    :meth:`loss` adds other terms to the loss of labels, such as the regularisers of a
    paper, so that one training loop serves all models:

    .. code-block:: python

        for epoch in range(200):
            model.train()
            optimizer.zero_grad()
            model.loss(x, y, train_mask).backward()
            optimizer.step()

    A model that can list its graphs also has a method :obj:`graphs`, which takes
    the arguments of :meth:`forward` and returns a list of
    :class:`~torch_geometric_gsl.typing.SampledGraph`.
    """

    task: str = 'classification'
    _num_losses = 0
    in_channels: Any
    hidden_channels: int
    num_layers: int
    out_channels: int

    @abstractmethod
    def reset_parameters(self) -> None:
        r"""Reset all learnable parameters of the module."""

    @abstractmethod
    def forward(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        r"""Run the forward pass.

        A model takes the arguments that it supports: :obj:`edge_index` (and
        :obj:`edge_weight`), candidates or a graph that replaces its own; :obj:`batch`,
        sorted graph ids of the nodes; and :obj:`generator`, the source of randomness of
        the call, dropout included. Models that support new rows also take a pair
        :obj:`(x_src, x_dst)` of sources and targets as :obj:`x`. Lazy parameters are
        initialised with the global generator, the only one that
        :func:`torch.utils.checkpoint.checkpoint` restores.
        """

    def _keep_sizes(self, *sizes: int, task: str) -> list[tuple[int, int]]:
        """Check and store sizes and the task; return the sizes of each layer."""
        names = 'in_channels', 'hidden_channels', 'num_layers', 'out_channels'
        for name, size in zip(names, sizes, strict=True):
            if size != -1 or name != 'in_channels':
                check_count(size, name)
            setattr(self, name, size)
        check_option(task, TASKS, 'task')
        if task == 'binary' and self.out_channels != 1:
            raise ValueError(
                f"'out_channels' must be 1 with task='binary' (got {self.out_channels})"
            )
        self.task = task
        in_channels, hidden_channels, num_layers, out_channels = sizes
        hidden = [hidden_channels] * (num_layers - 1)
        return list(pairwise([in_channels, *hidden, out_channels]))

    def loss(
        self, x: Any, y: Tensor, mask: Tensor | None = None, **kwargs: Any
    ) -> Tensor:
        r"""Compute the loss of labelled nodes, to be minimised.

        Args:
            x (torch.Tensor): The node features, as in the forward method.
            y (torch.Tensor): The labels :math:`[|\mathcal{V}|]`, or as the :obj:`task`
                requires; only labels of :obj:`mask` are read.
            mask (torch.Tensor, optional): The labelled nodes, as a boolean mask or as
                indices; all nodes if :obj:`None`. (default: :obj:`None`)
            **kwargs (optional): Additional arguments of the forward method. With a
                :obj:`shard` the loss is the mean over the labelled nodes of all
                processes; some may have none.
        """
        if self.training:
            self._num_losses += 1
        shard = kwargs.get('shard')
        is_warm = self.training and self._num_losses == WARMUP_LOSSES
        samplers = samplers_of(self) if is_warm and shard is None else []
        if not samplers or self.task != 'classification':
            return self._label_loss(self(x, **kwargs), y, mask, shard)
        draws: list[Any] = []
        with samplers[0].register_draw_hook(lambda *draw: draws.append(draw)):
            out = self(x, **kwargs)
        loss = self._label_loss(out, y, mask)
        for sampler, rows, *candidates in draws[:1]:
            # Skip listed candidates, batches and pairs, and labels of graphs.
            is_plain = isinstance(rows, Tensor) and candidates == [None, None, None]
            if is_plain and len(rows) == len(out):
                warn_if_at_chance(sampler, rows, y, node_mask(mask, out))
        return loss

    def predict(self, x: Any, **kwargs: Any) -> Tensor:
        r"""Return the predictions in evaluation mode.

        Depending on the :obj:`task`, these are classes, values, or booleans per node or
        per node and label. The arguments are those of the forward method.

        Example:
            >>> from torch_geometric_gsl import GSLNet
            >>> model = GSLNet(16, 32, num_layers=2, out_channels=1, task='regression')
            >>> model.predict(torch.randn(100, 16)).shape
            torch.Size([100])
        """
        return TASKS[self.task].predict(self._evaluated(x, **kwargs))

    @torch.no_grad()
    def score(
        self, x: Any, y: Tensor, mask: Tensor | None = None, **kwargs: Any
    ) -> dict[str, float]:
        r"""Compute the metric of the :obj:`task`; return it by name.

        The metrics are the accuracy, :math:`R^2` (the mean over outputs), the accuracy
        of booleans, or the micro-averaged F1 of all nodes and labels. Larger is better.
        The arguments are those of :meth:`loss`.
        """
        task = TASKS[self.task]
        out = self._evaluated(x, **kwargs)
        mask = node_mask(mask, out)
        if (shard := kwargs.get('shard')) is not None:
            check_node_mask(mask, out.size(0), allow_empty=True)
            out, y = (shard.concatenate(rows[mask]) for rows in (out, y))
            mask = node_mask(None, out)
        target = task.target(out, y, mask)
        return {task.metric: float(task.score(task.predict(out[mask]), target))}

    def _label_loss(
        self, out: Tensor, y: Tensor, mask: Tensor | None, shard: RowShard | None = None
    ) -> Tensor:
        """Compute the mean loss of the labelled nodes; raise if there are none."""
        task = TASKS[self.task]
        mask = node_mask(mask, out)
        if shard is not None:
            check_node_mask(mask, out.size(0), allow_empty=True)
            if len(out[mask]) == 0:
                return shard.mean_loss(out[mask].sum(), 0)
        target = task.target(out, y, mask)
        loss = task.loss(out[mask], target)
        if shard is None:
            return loss
        return shard.mean_loss(loss * len(target), len(target))

    def _evaluated(self, *args: Any, **kwargs: Any) -> Tensor:
        """Compute the outputs in evaluation mode."""
        with evaluation(self) as model:
            out: Tensor = model(*args, **kwargs)
        return out

    def __repr__(self) -> str:
        names = 'in_channels', 'hidden_channels', 'num_layers', 'out_channels'
        args = [str(self.in_channels), str(self.hidden_channels)]
        args += [f'{name}={getattr(self, name)}' for name in names[2:]]
        parameters = inspect.signature(type(self)).parameters
        samplers = samplers_of(self)
        omitted = {*names, 'similarity', *(PASSED_ON if samplers else ())}
        for name, value in vars(self).get('_init_arguments', {}).items():
            default = parameters[name].default if name in parameters else None
            is_same = isinstance(value, PLAIN) and value == default
            if name not in omitted and value is not default and not is_same:
                args.append(f'{name}={value!r}')
        if samplers:
            similarities = {
                type(sampler.similarity).__name__: 0 for sampler in samplers
            }
            options = {sampler.describe_options(): 0 for sampler in samplers}
            args += [f'similarity={" or ".join(similarities)}', ' or '.join(options)]
        return f'{self.__class__.__name__}({", ".join(args)})'


def resolve_activation(act: Any) -> Callable[[Tensor], Tensor]:
    """Return the activation of a name; the identity for :obj:`None`."""
    resolved: Callable[[Tensor], Tensor] = (
        torch.nn.Identity() if act is None else activation_resolver(act)
    )
    if not callable(resolved) or isinstance(resolved, type):
        raise TypeError(f"'act' must be a str, a callable or None (got {act!r})")
    return resolved


class Dropout(torch.nn.Dropout):
    """Dropout with a given source of randomness."""

    def __init__(self, p: float = 0.5) -> None:
        check_probability(p, 'dropout')
        super().__init__(p)

    def forward(
        self,
        x: Tensor,
        generator: torch.Generator | None = None,
        shard: RowShard | None = None,
    ) -> Tensor:
        if shard is None or not self.training:
            return dropout(x, self.p, self.training, generator)
        # Drawn for the rows of all ranks: any number of them drops the same entries.
        ones = x.new_ones(shard.total, x.size(1))
        return x * shard.split(dropout(ones, self.p, True, generator))
