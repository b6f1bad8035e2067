"""Rows that a model keeps, for new ones to join."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from torch_geometric_gsl._checks import check_features
from torch_geometric_gsl._warnings import warn_caller
from torch_geometric_gsl.ops.runtime import is_exporting


class NewRowsWarning(UserWarning):
    r"""A model that was trained on some rows answers others without them."""


class WatchesRows(torch.nn.Module):
    """Base class of the models that warn where new rows lack those of training."""

    # The number of rows of the last call in training mode, until a call has warned.
    _num_trained: int | None = None
    _advice = 'give a pair of dicts, the rows of training first'

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


class IndexesRows(WatchesRows):
    r"""Base class of the models that can keep the sources of new rows.

    Example:
        >>> from torch_geometric_gsl import GSLNet
        >>> model, x = GSLNet(16, 32, num_layers=2, out_channels=7), torch.randn(50, 16)
        >>> new = torch.randn(3, 16)
        >>> expected = model.eval()((x, new))
        >>> torch.allclose(model.index(x)(new), expected)
        True
    """

    #: What is kept of the rows, by name.
    _INDEXED: tuple[str, ...] = ('x',)
    _advice = "give a pair (x_train, x), or call 'model.index(x_train)' once"

    def index(self, x: Tensor) -> Any:
        r"""Keep a copy of rows, the sources of later calls in evaluation mode.

        Such a call holds new rows, unless it gives a pair or graph ids. The rows are
        part of :obj:`state_dict`, of saved models and of copies; :meth:`clear_index`
        drops them.

        Args:
            x (torch.Tensor): The rows, dense or sparse CSR.

        Returns:
            torch.nn.Module: The model itself.

        Raises:
            TypeError: If an argument has the wrong type.
            ValueError: If the rows have the wrong width.
        """
        check_features(x, width=getattr(self, 'in_channels', None))
        self._keep(x=x)
        return self

    def clear_index(self) -> Any:
        r"""Drop the rows that were indexed; return the model itself."""
        self._keep()
        return self

    def _keep(self, **rows: Tensor | None) -> None:
        """Keep copies, which no later change of the rows reaches."""
        with torch.inference_mode(False):  # Or no gradient would pass later.
            for name in self._INDEXED:
                value = rows.get(name)
                kept = None if value is None else value.detach().clone()
                self.register_buffer(f'index_{name}', kept)

    def _kept(self, name: str) -> Tensor | None:
        kept: Tensor | None = getattr(self, f'index_{name}', None)
        return kept

    def _indexed(self, x: Any, batch: Any, is_watched: bool = True) -> Tensor | None:
        """Return the rows that those of a call join, if these are indexed."""
        if batch is not None:
            return None
        kept = None if self.training else self._kept('x')
        if kept is None and is_watched:
            self._watch(x)
        return kept

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        for kept in map(self._kept, self._INDEXED):
            if kept is not None:  # PyTorch makes no deep copy of sparse CSR tensors.
                memo[id(kept)] = kept.clone()
        twin: Any = type(self).__new__(type(self))
        memo[id(self)] = twin
        twin.__setstate__(copy.deepcopy(self.__dict__, memo))
        return twin

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        state_dict, prefix, metadata = args[:3]
        found = {n: state_dict.get(f'{prefix}index_{n}') for n in self._INDEXED}
        if found['x'] is None:
            if self._kept('x') is not None:
                self.clear_index()  # The model whose state it is has none.
        else:
            like = next(self.parameters(), found['x'])
            is_assigned = metadata.get('assign_to_params_buffers', False)
            for name, kept in found.items():
                if kept is not None:
                    is_cast = kept.is_floating_point() and not is_assigned
                    dtype = like.dtype if is_cast else kept.dtype
                    found[name] = kept.to(like.device, dtype)
            self._keep(**found)
        super()._load_from_state_dict(*args, **kwargs)
