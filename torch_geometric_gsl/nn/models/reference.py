"""Rows that a model keeps, for new ones to join."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torch_geometric_gsl._checks import (
    check_features,
    check_flag,
    check_num_nodes,
)


class RemembersRows(torch.nn.Module):
    r"""Base class of the models that can keep the context of new rows.

    Example:
        >>> from torch_geometric_gsl import GSLNet
        >>> model, x = GSLNet(16, 32, num_layers=2, out_channels=7), torch.randn(50, 16)
        >>> new = torch.randn(3, 16)
        >>> expected = model.eval()(new, context=x)
        >>> torch.allclose(model.remember(x)(new), expected)
        True
    """

    reference: Tensor | None

    def remember(self, x: Tensor, *, persistent: bool = False) -> Any:
        r"""Keep a copy of rows that are the context of later calls in evaluation mode.

        A call that gives a :obj:`context`, edges or graph ids of its own does not take
        them, nor does one in training mode.

        Args:
            x (torch.Tensor): The rows, dense or sparse CSR.
            persistent (bool, optional): Whether they are part of :obj:`state_dict`, and
                come back with it. (default: :obj:`False`)

        Returns:
            torch.nn.Module: The model itself.

        Raises:
            TypeError: If an argument has the wrong type.
            ValueError: If the rows have the wrong width or, with projected transition
                nodes, another number, the similarity compares an embedding that each
                call gives, the model has a readout, or new rows need no others.
        """
        check_features(x, width=getattr(self, 'in_channels', None))
        check_flag(persistent, 'persistent')
        if getattr(self, 'readout', None) is not None:
            raise ValueError(
                'rows cannot be remembered with a readout, which tells of whole graphs'
            )
        num_nodes = getattr(self, 'num_nodes', None)
        if num_nodes is not None:
            check_num_nodes(x, num_nodes)
        transition = getattr(self, 'transition', 'projected')
        if transition != 'projected':
            raise ValueError(
                f'rows cannot be remembered with transition={transition!r}: new rows '
                'need none'
            )
        if getattr(self, 'compare', None) == 'embedding':
            raise ValueError(
                "rows cannot be remembered with compare='embedding': each call gives "
                'the embedding of its context'
            )
        # A copy, which no later change of the rows reaches; nor can torch.export take
        # an input that is a view of what is kept.
        self.register_buffer('reference', x.detach().clone(), persistent=persistent)
        return self

    def forget(self) -> Any:
        r"""Drop the rows that were kept; return the model itself."""
        self.register_buffer('reference', None)
        return self

    def _context(self, context: Tensor | None, *own: Any) -> Tensor | None:
        """Return the context of a call, whose own edges and graph ids are given."""
        if context is not None or self.training or any(v is not None for v in own):
            return context
        return getattr(self, 'reference', None)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        kept = state_dict.get(f'{prefix}reference')
        if kept is not None:
            parameter = next(self.parameters(), kept)
            self.remember(kept.to(parameter.device), persistent=True)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
