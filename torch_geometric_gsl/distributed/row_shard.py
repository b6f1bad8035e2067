"""The rows of one process, and communication with the others."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache, partial
from itertools import groupby
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Parameter

from torch_geometric_gsl._checks import check_count, check_type
from torch_geometric_gsl.distributed.collective import (
    all_gather_rows,
    all_reduce_sum,
    broadcast_first,
    gather_numbers,
    is_joined,
)
from torch_geometric_gsl.ops.sparse_rows import rows_between
from torch_geometric_gsl.typing import SampledGraph


class RowShard:
    r"""Block of rows of this process, with methods to exchange data with the others.

    The processes of a group, its *ranks*, own consecutive blocks of a table, in order.
    Blocks may differ in size and be empty. Without a process group there is one rank,
    which owns all rows and sends nothing.

    Pass a shard to :class:`~torch_geometric_gsl.nn.GSLNet` or its layers with the rows
    of this rank. Compared rows and messages are gathered from all ranks; noise and
    dropout depend on the row in the table, so that any number of ranks samples the same
    graph. The sources of a pair :obj:`(x_src, x_dst)` are the same on all ranks.

    Call models and methods that communicate on all ranks, in the same order.

    Args:
        num_rows (int): The number of rows of this rank.
        group (torch.distributed.ProcessGroup, optional): The ranks; all processes if
            :obj:`None`. (default: :obj:`None`)

    Attributes:
        sizes (list[int]): The number of rows of each rank.
        rank (int): The number of this rank.
        first (int): The number of its first row in the table.
        total (int): The number of rows of the table.

    Example:
        >>> shard = RowShard(100)
        >>> shard
        RowShard(rows=(0, 100), total=100, rank=0, world_size=1)
        >>> shard.gather(torch.ones(100, 2)).shape
        torch.Size([100, 2])
        >>> from torch_geometric_gsl import GSLNet
        >>> model = GSLNet(8, 16, num_layers=2, out_channels=3)
        >>> model(torch.randn(100, 8), shard=shard).shape
        torch.Size([100, 3])
    """

    def __init__(self, num_rows: int, group: Any = None) -> None:
        check_count(num_rows, 'num_rows', minimum=0)
        self.group = group
        self.is_shared = is_joined()
        self.rank = dist.get_rank(group) if self.is_shared else 0
        self.sizes = self._sizes(num_rows)
        self.first = sum(self.sizes[: self.rank])
        self.total = sum(self.sizes)
        gather = partial(all_gather_rows, sizes=self.sizes, group=group)
        self._gather: Callable[[Tensor], Tensor] = gather

    @classmethod
    def even(cls, total: int, group: Any = None) -> RowShard:
        r"""Split a table into blocks of nearly equal size, one per rank.

        Args:
            total (int): The number of rows of the table.
            group (torch.distributed.ProcessGroup, optional): The ranks; all processes
                if :obj:`None`. (default: :obj:`None`)

        Example:
            >>> RowShard.even(100)
            RowShard(rows=(0, 100), total=100, rank=0, world_size=1)
        """
        check_count(total, 'total', minimum=0)
        if not is_joined():
            return cls(total, group)
        num_rows, remainder = divmod(total, dist.get_world_size(group))
        return cls(num_rows + (dist.get_rank(group) < remainder), group)

    @property
    def world_size(self) -> int:
        r"""Return the number of ranks."""
        return len(self.sizes)

    @property
    def num_rows(self) -> int:
        r"""Return the number of rows of this rank."""
        return self.sizes[self.rank]

    @property
    def rows(self) -> tuple[int, int]:
        r"""Return the range of rows of this rank, start and stop."""
        return self.first, self.first + self.num_rows

    def gather(self, x: Tensor) -> Tensor:
        r"""Gather the rows of all ranks, with gradients.

        Raises:
            ValueError: If :obj:`x` is sparse, or a rank has a wrong number of rows, or
                another width or dtype than the others.
        """
        if not self.is_shared:
            self._check_rows(x)
            return x
        return self._gather(x)

    def memoized(self) -> RowShard:
        r"""Return a copy that gathers each tensor once, for the layers of one call."""
        shard = copy.copy(self)
        shard._gather = cache(self._gather)
        return shard

    def check(self, x: Tensor) -> None:
        r"""Raise unless :obj:`x` has the rows of this rank."""
        if x.size(0) != self.num_rows:
            raise ValueError(
                f"'x' must have the {self.num_rows} rows of this rank (got {x.size(0)})"
            )

    def sum(self, x: Tensor) -> Tensor:
        r"""Sum tensors over all ranks, with gradients."""
        return all_reduce_sum(x, self.group) if self.is_shared else x

    def split(self, x: Tensor) -> Tensor:
        r"""Select the rows of this rank from the whole table, dense or sparse CSR."""
        self._check_rows(x)
        return rows_between(x, *self.rows)

    def concatenate(self, x: Tensor) -> Tensor:
        r"""Concatenate blocks of any numbers of rows, with gradients."""
        if not self.is_shared:
            return x
        return all_gather_rows(x, self._sizes(x.size(0)), self.group)

    def gather_graph(self, graph: SampledGraph) -> SampledGraph:
        r"""Gather the whole graph, from the edges of the targets of each rank."""
        edge_index = self.concatenate(graph.edge_index.t()).t()
        return SampledGraph(edge_index, self.concatenate(graph.edge_weight))

    def mean_loss(self, total: Tensor, count: int) -> Tensor:
        r"""Compute the mean loss over the nodes of all ranks.

        The value is the same on all ranks. The gradient is that of this rank's losses:
        :meth:`sum_gradients` makes it equal to that of a single process.

        Args:
            total (torch.Tensor): The sum of this rank's losses.
            count (int): The number of this rank's losses, which may be 0 on some
                ranks, but not on all.

        Raises:
            ValueError: If the count is 0 on all ranks.
        """
        sums = torch.stack([total.detach().double(), total.new_tensor(count).double()])
        sums = self.sum(sums)
        if not sums[1] > 0:
            raise ValueError("'count' must be at least 1 on some rank (got 0 on all)")
        share = total / sums[1].to(total.dtype)
        # The value of all ranks, the gradient of this one.
        return (sums[0] / sums[1]).to(share.dtype) + (share - share.detach())

    @torch.no_grad()
    def sum_gradients(self, module: torch.nn.Module) -> None:
        r"""Sum the gradients over the ranks, in one message per dtype.

        Call it once per step, after all of its backward passes. Parameters without a
        gradient on any rank keep none.

        Args:
            module (torch.nn.Module): The model, the same on all ranks.
        """
        check_type(module, torch.nn.Module, 'module', 'a torch.nn.Module')
        if not self.is_shared:
            return

        def dtype_and_device(parameter: Parameter) -> str:
            return f'{parameter.dtype} {parameter.device}'

        trainable = [p for p in module.parameters() if p.requires_grad]
        for _, group in groupby(
            sorted(trainable, key=dtype_and_device), key=dtype_and_device
        ):
            parameters = list(group)
            # One vector; its last entries count the existing gradients.
            zero = parameters[0].new_zeros(())
            grads = [
                zero.expand(p.shape) if p.grad is None else p.grad for p in parameters
            ]
            flags = zero.new_tensor([float(p.grad is not None) for p in parameters])
            total = self.sum(torch.cat([*(grad.reshape(-1) for grad in grads), flags]))
            *sums, counts = total.split(
                [*(p.numel() for p in parameters), len(parameters)]
            )
            for parameter, value, flag in zip(
                parameters, sums, counts.tolist(), strict=True
            ):
                if flag:
                    parameter.grad = value.view_as(parameter).clone()

    @torch.no_grad()
    def synchronize(
        self, module: torch.nn.Module, generator: torch.Generator | None = None
    ) -> None:
        r"""Copy parameters, buffers and random state from the first rank to all.

        Not needed if all ranks use the same seed and build the same model.

        Args:
            module (torch.nn.Module): The model.
            generator (torch.Generator, optional): A source of randomness in addition to
                the global ones. (default: :obj:`None`)
        """
        check_type(module, torch.nn.Module, 'module', 'a torch.nn.Module')
        if not self.is_shared:
            return
        for value in (*module.parameters(), *module.buffers()):
            broadcast_first(value, self.group)
        if generator is not None:
            generator.set_state(broadcast_first(generator.get_state(), self.group))
        torch.set_rng_state(broadcast_first(torch.get_rng_state(), self.group))
        if torch.cuda.is_available():
            state = broadcast_first(torch.cuda.get_rng_state(), self.group)
            torch.cuda.set_rng_state(state)

    def _sizes(self, num_rows: int) -> list[int]:
        """Gather one number per rank."""
        if not self.is_shared:
            return [num_rows]
        return [size for (size,) in gather_numbers([num_rows], self.group)]

    def _check_rows(self, x: Any) -> None:
        check_type(x, Tensor, 'x', 'a torch.Tensor')
        if x.dim() == 0 or x.size(0) != self.total:
            raise ValueError(
                f"'x' must have the {self.total} rows of all ranks "
                f'(got {list(x.shape)})'
            )

    def __repr__(self) -> str:
        return (
            f'{self.__class__.__name__}(rows={self.rows}, total={self.total}, '
            f'rank={self.rank}, world_size={self.world_size})'
        )
