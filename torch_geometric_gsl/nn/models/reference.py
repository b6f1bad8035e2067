"""Rows that a model keeps, for new ones to join."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from torch_geometric_gsl._checks import (
    check_features,
    check_num_nodes,
)
from torch_geometric_gsl._warnings import warn_caller
from torch_geometric_gsl.ops.runtime import is_exporting


class NewRowsWarning(UserWarning):
    r"""A model that was trained on some rows answers others without them."""


class WatchesRows(torch.nn.Module):
    """Base class of the models that warn where new rows lack those of training."""

    # The number of rows of the last call in training mode, until a call has warned.
    _num_trained: int | None = None
    _advice = "give the rows of training as 'context_dict'"

    def _watch(self, x: Tensor) -> None:
        """Count the rows of training, and warn once of fewer in evaluation."""
        is_eager = not torch.compiler.is_compiling() and not is_exporting()
        if not is_eager or not isinstance(x, Tensor):
            return
        if self.training:
            self._num_trained = x.size(0)
            return
        trained, count = self._num_trained, x.size(0)
        if trained is not None and count < trained:
            self._num_trained = None
            warn_caller(
                f"'x' has {count} rows after training on {trained}, and these {count} "
                f"alone are each other's neighbours: for new rows {self._advice}",
                NewRowsWarning,
            )


class RemembersRows(WatchesRows):
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
    _advice = (
        "give the rows of training as 'context', or call 'model.remember(x_train)' once"
    )

    def remember(self, x: Tensor) -> Any:
        r"""Keep a copy of rows that are the context of later calls in evaluation mode.

        A call that gives a :obj:`context`, edges or graph ids of its own does not take
        them, nor does one in training mode. The rows are part of :obj:`state_dict`, of
        saved models and of copies, which answer new rows as the model does;
        :meth:`forget` drops them.

        Args:
            x (torch.Tensor): The rows, dense or sparse CSR.

        Returns:
            torch.nn.Module: The model itself.

        Raises:
            TypeError: If an argument has the wrong type.
            ValueError: If the rows have the wrong width or, with projected transition
                nodes, another number, the similarity compares an embedding that each
                call gives, the model has a readout, or new rows need no others.
        """
        check_features(x, width=getattr(self, 'in_channels', None))
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
        self.register_buffer('reference', x.detach().clone())
        return self

    def forget(self) -> Any:
        r"""Drop the rows that were kept; return the model itself."""
        self.register_buffer('reference', None)
        return self

    def _context(self, x: Tensor, context: Tensor | None, *own: Any) -> Tensor | None:
        """Return the context of a call, whose own edges and graph ids are given."""
        if context is not None or any(v is not None for v in own):
            return context
        kept: Tensor | None = None
        if not self.training:
            kept = getattr(self, 'reference', None)
        is_whole = getattr(self, 'readout', None) is not None
        needs_none = getattr(self, 'transition', 'projected') != 'projected'
        if kept is None and not is_whole and not needs_none:
            self._watch(x)
        return kept

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        kept = getattr(self, 'reference', None)
        if kept is not None:  # PyTorch makes no deep copy of sparse CSR tensors.
            memo[id(kept)] = kept.clone()
        twin: Any = type(self).__new__(type(self))
        memo[id(self)] = twin
        twin.__setstate__(copy.deepcopy(self.__dict__, memo))
        return twin

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        state_dict, prefix, metadata = args[:3]
        kept = state_dict.get(f'{prefix}reference')
        if kept is not None:
            like = next(self.parameters(), kept)
            is_assigned = metadata.get('assign_to_params_buffers', False)
            self.remember(
                kept.to(like.device, kept.dtype if is_assigned else like.dtype)
            )
        elif getattr(self, 'reference', None) is not None:
            self.forget()  # The model whose state it is remembers none.
        super()._load_from_state_dict(*args, **kwargs)
