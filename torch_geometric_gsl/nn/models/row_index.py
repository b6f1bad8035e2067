"""Index training rows as the sources of new rows."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from torch_geometric_gsl._checks import check_features
from torch_geometric_gsl._warnings import warn_caller
from torch_geometric_gsl.nn.shared_module import evaluation
from torch_geometric_gsl.ops.runtime import is_exporting


class NewRowsWarning(UserWarning):
    r"""Issued if a model predicts new rows without its training or indexed rows.

    Only numbers of rows are compared, not the rows: in evaluation mode the warning is
    given for fewer rows than in the last call in training mode. As many rows or more
    pass, since they may contain those of training; and any number passes in a model
    that was loaded, or never trained. In training mode without gradients the warning is
    given if the model has an index of another number of rows.
    """


class RowIndexMixin(torch.nn.Module):
    r"""Base class of models that can index the sources of new rows.

    Example:
        >>> from torch_geometric_gsl import GSLNet
        >>> model, x = GSLNet(16, 32, num_layers=2, out_channels=7), torch.randn(50, 16)
        >>> new = torch.randn(3, 16)
        >>> expected = model.eval()((x, new))
        >>> torch.allclose(model.index(x)(new), expected)
        True
    """

    #: The indexed tensors, by name; the first is always there.
    _INDEXED: tuple[str, ...] = ('x',)
    # The number of rows of the last training call.
    _num_trained: int | None = None

    def index(self, x: Tensor) -> Any:
        r"""Copy rows, to be the sources of later calls in evaluation mode.

        Such a call holds new rows, unless it passes a pair or graph ids. The rows,
        dense or sparse CSR, are part of the :obj:`state_dict`, of saved models and of
        copies. :meth:`clear_index`, :meth:`train` and a loaded :obj:`state_dict`
        delete them; the latter brings its own. Returns the model itself.
        """
        check_features(x, width=getattr(self, 'in_channels', None))
        self._store_index(x=x)
        return self

    def clear_index(self) -> Any:
        r"""Delete the index; return the model itself."""
        if any(self._index_tensor(name) is not None for name in self._INDEXED):
            self._store_index()
        return self

    def train(self, mode: bool = True) -> Any:
        r"""Set training mode, which deletes the index, or evaluation mode."""
        if mode:
            self.clear_index()
        return super().train(mode)

    def _store_index(self, *, copies: bool = True, **rows: Tensor | None) -> None:
        """Store rows, or copies that are safe from later changes of the rows."""
        with torch.inference_mode(False):  # Inference tensors block later gradients.
            # `torch.export` miscounts buffers behind those that are None.
            for name in sorted(self._INDEXED, key=lambda name: rows.get(name) is None):
                value = rows.get(name)
                buffer = None if value is None else value.detach()
                if buffer is not None and copies:
                    buffer = buffer.clone()
                self._buffers.pop(f'index_{name}', None)
                self.register_buffer(f'index_{name}', buffer)

    def _index_tensor(self, name: str) -> Tensor | None:
        return getattr(self, f'index_{name}', None)

    def _check_num_rows(self, x: Any, has_edges: bool = False) -> None:
        """Warn of fewer rows in evaluation than in training."""
        is_eager = not torch.compiler.is_compiling() and not is_exporting()
        if self.training or not is_eager or not isinstance(x, Tensor):
            return
        trained = self._num_trained
        count = x.size(0)
        if trained is not None and count < trained:
            edges = ', with the edges of both' if has_edges else ''
            warn_caller(
                f"'x' has {count} rows after training on {trained}, and neighbours are "
                f'searched among these {count} rows only: for new rows pass a pair '
                f"(x_train, x), or call 'model.index(x_train)' once{edges}",
                NewRowsWarning,
            )

    def _note_num_trained(self, x: Any) -> None:
        """Record the number of rows of a call in training mode that succeeded."""
        if torch.compiler.is_compiling() or not isinstance(x, Tensor):
            return
        if self._num_trained != x.size(0):  # Assignments to a module are slow.
            self._num_trained = x.size(0)

    def _indexed(
        self, x: Any, batch: Any, checks_num_rows: bool = True, has_edges: bool = False
    ) -> Tensor | None:
        """Return the first indexed tensor if a call uses it; warn of unused ones.

        A call in training mode ends with :meth:`_note_num_trained`.
        """
        if batch is not None:
            return None
        indexed = self._index_tensor(self._INDEXED[0])
        if indexed is not None and self.training:
            # Without gradients, as mini-batches of training have them.
            is_new = isinstance(x, Tensor) and len(x) != len(indexed)
            if is_new and not torch.is_grad_enabled():
                warn_caller(
                    f"'x' has {len(x)} rows, and the {len(indexed)} indexed rows are "
                    "not used in training mode: for new rows call 'model.eval()'",
                    NewRowsWarning,
                )
            indexed = None
        if indexed is None and checks_num_rows:
            self._check_num_rows(x, has_edges)
        return indexed

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        for value in map(self._index_tensor, self._INDEXED):
            if value is not None:  # PyTorch cannot deepcopy sparse CSR tensors.
                memo[id(value)] = value.clone()
        twin: Any = type(self).__new__(type(self))
        memo[id(self)] = twin
        twin.__setstate__(copy.deepcopy(self.__dict__, memo))
        return twin

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        state_dict, prefix, metadata = args[:3]
        is_assigned = metadata.get('assign_to_params_buffers', False)
        like = next(self.parameters())
        loaded = {}
        for name in self._INDEXED:
            if (value := state_dict.get(f'{prefix}index_{name}')) is not None:
                is_cast = value.is_floating_point() and not is_assigned
                dtype = like.dtype if is_cast else value.dtype
                loaded[name] = value.to(like.device, dtype)
        self.clear_index()
        if loaded:
            self._store_index(**loaded)
        super()._load_from_state_dict(*args, **kwargs)


@contextmanager
def evaluation_at_full_precision(model: RowIndexMixin, x: Tensor) -> Iterator[Any]:
    """Yield a model in evaluation mode, without gradients, in its own precision."""
    with (
        evaluation(model) as twin,
        torch.inference_mode(False),
        torch.no_grad(),
        torch.autocast(x.device.type, enabled=False),
    ):
        yield twin
