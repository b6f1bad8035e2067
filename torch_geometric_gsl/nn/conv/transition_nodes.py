"""The forms of transition nodes, and the anchors of layers and networks."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import Tensor

from torch_geometric_gsl._checks import (
    check_absent,
    check_count,
    check_finite,
    check_generator,
    check_matrix,
    check_option,
)
from torch_geometric_gsl.ops.sparse_rows import dense_rows

#: The forms of transition nodes.
TRANSITIONS = ('projected', 'free', 'anchors')


def check_transition(
    transition: str, num_nodes: int | None, num_transition_nodes: int | None
) -> None:
    """Raise unless the form of transition nodes is known and has its sizes."""
    check_option(transition, TRANSITIONS, 'transition')
    if transition == 'projected':
        if (num_transition_nodes is None) != (num_nodes is None):
            raise ValueError(
                f"'num_transition_nodes' and 'num_nodes' must be given together (got "
                f"{num_transition_nodes} and {num_nodes}), unless 'transition' is "
                f"'free' or 'anchors'"
            )
        if num_nodes is not None:
            check_count(num_nodes, 'num_nodes')
    else:
        context = f'with transition={transition!r}, which takes any number of rows'
        check_absent(num_nodes, 'num_nodes', context)
        if num_transition_nodes is None:
            raise ValueError(
                f"'num_transition_nodes' is required with transition={transition!r} "
                f'(got None)'
            )


class AnchorMixin(torch.nn.Module):
    """Base class of the modules whose transition nodes can be anchors."""

    in_channels: Any
    num_transition_nodes: int | None
    transition: str
    anchors: Tensor | None

    def _init_anchors(self) -> None:
        """Register the buffer of anchors, if there are anchors.

        Never as None: torch.export miscounts buffers that are None.
        """
        if self.transition == 'anchors':
            self.register_buffer('anchors', None)
        else:
            self.anchors = None

    def choose_anchors(
        self, x: Tensor, *, generator: torch.Generator | None = None
    ) -> Any:
        r"""Choose :obj:`num_transition_nodes` random rows as transition nodes.

        Rows are drawn without replacement, and no others are read: :obj:`x` may be a
        memory-mapped table. If :obj:`x` has exactly this many rows, such as cluster
        centres, all are kept in order. Anchors are dense and part of the
        :obj:`state_dict`; :meth:`reset_parameters` keeps them.

        Args:
            x (torch.Tensor): The rows, dense or sparse CSR.
            generator (torch.Generator, optional): Source of randomness.
                (default: :obj:`None`)

        Returns:
            torch.nn.Module: The module itself.
        """
        count = self.num_transition_nodes
        if self.transition != 'anchors' or count is None:
            raise ValueError(
                f"'transition' must be 'anchors' to choose anchors "
                f'(got {self.transition!r})'
            )
        check_matrix(x, width=self.in_channels)
        check_generator(generator, x.device)
        if x.size(0) < count:
            raise ValueError(
                f"'x' must have at least num_transition_nodes={count} rows "
                f'(got {x.size(0)})'
            )
        index = _sample_indices(x.size(0), count, generator)
        rows = dense_rows(x, index.to(x.device)).detach()
        check_finite(rows, 'x')
        self._set_anchors(rows)
        return self

    def _set_anchors(self, rows: Tensor) -> None:
        parameter = next(self.parameters())
        rows = rows.to(device=parameter.device, dtype=parameter.dtype)
        self.register_buffer('anchors', rows)

    def _required_anchors(self) -> Tensor:
        if self.anchors is None:
            raise ValueError(
                "'anchors' must be chosen first, by choose_anchors(x), or passed as "
                "the sources of a pair 'x' (got None)"
            )
        return self.anchors

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        saved = state_dict.get(f'{prefix}anchors')
        if saved is not None and self.transition == 'anchors' and self.anchors is None:
            # An empty buffer of the expected shape: PyTorch reports any other.
            width = saved.size(-1) if self.in_channels == -1 else self.in_channels
            self._set_anchors(saved.new_zeros(self.num_transition_nodes or 0, width))
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


def _sample_indices(size: int, count: int, generator: torch.Generator | None) -> Tensor:
    """Sample :obj:`count` of :obj:`range(size)` without replacement, sorted."""
    if count == size:
        return torch.arange(size)
    device = 'cpu' if generator is None else generator.device
    seed = int(torch.randint(2**62, (), generator=generator, device=device))
    return torch.tensor(sorted(random.Random(seed).sample(range(size), count)))
