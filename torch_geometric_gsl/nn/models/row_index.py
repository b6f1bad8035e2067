"""Index training rows as the sources of new rows."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from torch_geometric_gsl._checks import (
    Ends,
    check_absent,
    check_compared,
    check_edge_index,
    check_edge_weight,
    check_features,
    check_num_nodes,
    check_parameter_match,
)
from torch_geometric_gsl._warnings import warn_caller
from torch_geometric_gsl.nn.conv.learned_graph_conv import check_serves_as_z
from torch_geometric_gsl.nn.shared_module import evaluation
from torch_geometric_gsl.ops.runtime import is_exporting

#: Ends the error of options that transition nodes do not support.
WITH_TRANSITION = 'with transition nodes'


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
        """Record the number of training rows; warn of fewer in evaluation."""
        is_eager = not torch.compiler.is_compiling() and not is_exporting()
        if not is_eager or not isinstance(x, Tensor):
            return
        trained = self._num_trained
        count = x.size(0)
        if self.training:
            if trained != count:  # Assignments to a module are slow.
                self._num_trained = count
        elif trained is not None and count < trained:
            edges = ', with the edges of both' if has_edges else ''
            warn_caller(
                f"'x' has {count} rows after training on {trained}, and neighbours are "
                f'searched among these {count} rows only: for new rows pass a pair '
                f"(x_train, x), or call 'model.index(x_train)' once{edges}",
                NewRowsWarning,
            )

    def _indexed(
        self, x: Any, batch: Any, checks_num_rows: bool = True, has_edges: bool = False
    ) -> Tensor | None:
        """Return the first indexed tensor if a call uses it; warn of unused ones."""
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


class LayerIndexMixin(RowIndexMixin):
    """Base class of networks that index the hidden rows of their layers as well."""

    # The sources of all layers but the first are stacked.
    _INDEXED = 'x', 'edge_index', 'edge_weight', 'z', 'hidden'

    in_channels: int
    convs: torch.nn.ModuleList
    z_channels: int | None
    num_nodes: int | None
    num_transition_nodes: int | None
    transition: str
    act: Any
    dropout: Any

    def index(
        self,
        x: Tensor,
        edge_index: Tensor | None = None,
        edge_weight: Tensor | None = None,
        *,
        z: Tensor | None = None,
    ) -> Any:
        r"""Compute the sources of later calls in evaluation mode, and keep them.

        Such a call holds new rows, unless it passes a pair or graph ids; edges lead
        from indexed rows to new ones. The arguments are those of :meth:`forward`. The
        rows and their hidden rows in all layers are computed here, in evaluation mode,
        without gradients and in the precision of the parameters. Later changes of
        parameters or options do not update them, except if a part of the model stays in
        training mode, such as dropout for estimates of uncertainty: then each call
        computes the hidden rows anew.

        The index is part of the :obj:`state_dict`, of saved models and of copies.
        :meth:`clear_index`, :meth:`train`, :meth:`reset_parameters` and a loaded
        :obj:`state_dict` delete it; the latter brings its own. Returns the model
        itself.
        """
        self._check_index(x, edge_index, edge_weight, z)
        edges_and_z: dict[str, Any]
        edges_and_z = {'edge_index': edge_index, 'edge_weight': edge_weight, 'z': z}
        src_args = self._layer_args(x, edges_and_z)
        hidden = [x]
        with evaluation_at_full_precision(self, x) as model:
            for conv in model.convs[:-1]:
                hidden.append(model._hidden(conv, hidden[-1], src_args))
        stacked = torch.stack(hidden[1:]) if len(hidden) > 1 else None
        self._store_index(x=x, hidden=stacked, **edges_and_z)
        return self

    def _check_index(
        self, x: Any, edge_index: Any, edge_weight: Any, z: Tensor | None
    ) -> None:
        """Raise unless rows can be indexed."""
        check_features(x, width=self.in_channels)
        if self.transition != 'projected':
            raise ValueError(
                f'index() is not supported with transition={self.transition!r}, where '
                'new rows need no other rows (got rows)'
            )
        if self.num_nodes is not None:
            check_num_nodes(x, self.num_nodes)
        if self.num_transition_nodes is not None:
            check_absent(edge_index, 'edge_index', WITH_TRANSITION)
            check_absent(edge_weight, 'edge_weight', WITH_TRANSITION)
        check_parameter_match(x, next(self.parameters()))
        self._check_z(z)
        if edge_index is not None:
            check_edge_index(edge_index, x, x)
        if edge_weight is not None:
            check_edge_weight(edge_weight, edge_index, x)
        if z is not None:
            check_compared(z, self.z_channels or 0, x.size(0))
        elif self.z_channels is not None:
            check_serves_as_z(x, self.z_channels)

    def _check_z(self, z: Any) -> None:
        if z is not None and self.z_channels is None:
            raise ValueError("'z' needs a model with 'z_channels' (got None)")

    def _with_index(self, x: Tensor, args: dict[str, Any]) -> tuple[Ends, Any]:
        """Make pairs of the indexed rows and new ones, and of their arguments."""
        index_z = self._index_tensor('z')
        z = args['z']
        if (index_z is None) != (z is None):
            rows_with_z = 'the new' if z is not None else 'the indexed'
            raise ValueError(
                f"'z' must be given both to 'index' and with new rows, or to "
                f'neither (got z of {rows_with_z} rows only)'
            )
        args = args | {'z': None if z is None else (index_z, z)}
        for name in ('edge_index', 'edge_weight'):
            args[name] = self._index_tensor(name), args[name]
        return Ends(self._index_tensor('x'), x, is_pair=True), args

    def _layer_args(self, x: Any, args: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of layers, without those that are None, where the
        features serve as compared rows.
        """
        if self.z_channels is not None and args['z'] is None:
            args = args | {'z': x}
        return {name: value for name, value in args.items() if value is not None}

    def _hidden(
        self,
        conv: Any,
        src: Tensor,
        src_args: dict[str, Any],
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return the sources of the next layer."""
        rows = (src, src) if self.transition == 'anchors' else src
        out = self.act(conv(rows, **src_args, generator=generator))
        hidden: Tensor = self.dropout(out, generator)
        return hidden
