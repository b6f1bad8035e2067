"""Models on rows that are distributed over several processes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torch_geometric_gsl._checks import check_absent, check_type
from torch_geometric_gsl.distributed.row_shard import RowShard
from torch_geometric_gsl.distributed.sharded_parts import sharded_methods
from torch_geometric_gsl.nn.conv.latent_graph_conv import LatentGraphConv
from torch_geometric_gsl.nn.conv.transition_graph_conv import TransitionGraphConv
from torch_geometric_gsl.nn.models.gsl_net import GSLNet
from torch_geometric_gsl.nn.models.tasks import all_nodes_mask, check_node_mask
from torch_geometric_gsl.typing import Features, SampledGraph


class ShardedModel(torch.nn.Module):
    r"""Wrapper of a model for a table with rows distributed over processes.

    Each rank passes its rows and gets their outputs. Compared rows and messages are
    gathered from all ranks; noise and dropout depend on the global row index, so that
    any number of ranks samples the same graph. All ranks must make the same calls in
    the same order, with the arguments of the model's methods for their rows.

    The sources of a pair :obj:`(x_src, x_dst)` are the same on all ranks.

    Args:
        model (torch.nn.Module): A :class:`~torch_geometric_gsl.nn.GSLNet` without a
            readout, or one of its layers.
        shard (RowShard): The rows of this rank.

    Raises:
        ValueError: If the model has a readout.

    Example:
        >>> from torch_geometric_gsl import GSLNet
        >>> model = GSLNet(8, 16, num_layers=2, out_channels=3)
        >>> sharded = ShardedModel(model, RowShard(100))
        >>> sharded(torch.randn(100, 8)).shape
        torch.Size([100, 3])
    """

    def __init__(self, model: torch.nn.Module, shard: RowShard) -> None:
        super().__init__()
        types = GSLNet, LatentGraphConv, TransitionGraphConv
        check_type(model, types, 'model', 'a GSLNet or one of its layers')
        check_type(shard, RowShard, 'shard', 'a RowShard')
        readout = getattr(model, 'readout', None)
        check_absent(readout, 'readout', 'with distributed rows')
        self.model: Any = model
        self.shard = shard

    def forward(self, x: Features, *args: Any, **kwargs: Any) -> Any:
        r"""Run the forward pass of the model.

        Args:
            x (torch.Tensor or tuple[torch.Tensor, torch.Tensor]): The rows of this
                rank, or a pair with these rows as targets.
            *args (optional): Further arguments of the model, for these rows.
            **kwargs (optional): Its keyword arguments.
        """
        with sharded_methods(self.model, self.shard, x):
            return self.model(x, *args, **kwargs)

    def graph(self, x: Features, *args: Any, **kwargs: Any) -> Any:
        r"""Return the edges to the rows of this rank, with global row indices."""
        with sharded_methods(self.model, self.shard, x):
            return self._method('graph')(x, *args, **kwargs)

    def graphs(self, x: Features, *args: Any, **kwargs: Any) -> list[SampledGraph]:
        r"""Return the edges of each layer to the rows of this rank."""
        with sharded_methods(self.model, self.shard, x):
            graphs: list[SampledGraph] = self._method('graphs')(x, *args, **kwargs)
        return graphs

    def loss(
        self, x: Features, y: Tensor, mask: Tensor | None = None, **kwargs: Any
    ) -> Tensor:
        r"""Compute the mean loss over the labelled rows of all ranks.

        Args:
            x (torch.Tensor or tuple[torch.Tensor, torch.Tensor]): The rows of this
                rank.
            y (torch.Tensor): Their labels.
            mask (torch.Tensor, optional): The labelled rows, possibly none on a rank;
                all rows if :obj:`None`. (default: :obj:`None`)
            **kwargs (optional): Additional arguments of the model.
        """
        self._method('loss')
        out = self(x, **kwargs)
        mask = all_nodes_mask(out) if mask is None else mask
        check_node_mask(mask, out.size(0), allow_empty=True)
        total, count = out[mask].sum(), len(out[mask])  # Zero without rows.
        if count > 0:
            task = self.model._task
            total = task.loss(out[mask], task.target(out, y, mask)) * count
        return self.shard.mean_loss(total, count)

    @torch.no_grad()
    def predict(self, x: Features, **kwargs: Any) -> Tensor:
        r"""Predict the rows of this rank."""
        with sharded_methods(self.model, self.shard, x):
            prediction: Tensor = self._method('predict')(x, **kwargs)
        return prediction

    @torch.no_grad()
    def score(
        self, x: Features, y: Tensor, mask: Tensor | None = None, **kwargs: Any
    ) -> dict[str, float]:
        r"""Compute the metric over the rows of all ranks, as :meth:`loss`."""
        self._method('score')
        with sharded_methods(self.model, self.shard, x):
            out = self.model._evaluated(x, **kwargs)
        mask = all_nodes_mask(out) if mask is None else mask
        check_node_mask(mask, out.size(0), allow_empty=True)
        out, y = (self.shard.concatenate(rows[mask]) for rows in (out, y))
        scores: dict[str, float] = self.model._scored(out, y, None)
        return scores

    def _method(self, name: str) -> Any:
        """Return a method of the model; raise if there is none."""
        if not hasattr(self.model, name):
            type_name = type(self.model).__name__
            raise TypeError(f"'model' must have a method '{name}' (got {type_name})")
        return getattr(self.model, name)
