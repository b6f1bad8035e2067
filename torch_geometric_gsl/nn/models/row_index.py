"""Index training rows as the sources of new rows."""

from __future__ import annotations

import copy
from typing import Any, cast

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor
from torch_geometric.nn.dense.linear import is_uninitialized_parameter

from torch_geometric_gsl._checks import (
    check_compared,
    check_edge_index,
    check_edge_weight,
    check_features,
    check_num_nodes,
    check_parameter_match,
)
from torch_geometric_gsl._warnings import warn_caller
from torch_geometric_gsl.nn.conv.learned_graph_conv import check_serves_as_z
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.sampler.options import HasSamplers
from torch_geometric_gsl.ops.runtime import is_exporting


class NewRowsWarning(UserWarning):
    r"""Issued if a model predicts new rows without its training or indexed rows."""


class WatchesRows(HasSamplers):
    """Base class of models that warn if new rows come without training rows."""

    # The number of rows of the last training call, until the warning.
    _num_trained: int | None = None
    _advice = 'pass a pair of dicts, training rows first'

    def _watch(self, x: Any, has_edges: bool = False) -> None:
        """Record the number of training rows; warn once about fewer in evaluation."""
        is_eager = not torch.compiler.is_compiling() and not is_exporting()
        if not is_eager or not isinstance(x, Tensor):
            return
        trained, count = self._num_trained, x.size(0)
        if self.training:
            if trained != count:  # Assignments to a module are slow.
                self._num_trained = count
            return
        if trained is not None and count < trained:
            self._num_trained = None
            advice = self._advice + (', with the edges of both' if has_edges else '')
            warn_caller(
                f"'x' has {count} rows after training on {trained}, and neighbours are "
                f'searched among these {count} rows only: for new rows {advice}',
                NewRowsWarning,
            )


class IndexesRows(WatchesRows):
    r"""Base class of models that can index the sources of new rows.

    Example:
        >>> from torch_geometric_gsl import GSLNet
        >>> model, x = GSLNet(16, 32, num_layers=2, out_channels=7), torch.randn(50, 16)
        >>> new = torch.randn(3, 16)
        >>> expected = model.eval()((x, new))
        >>> torch.allclose(model.index(x)(new), expected)
        True
    """

    #: The indexed tensors, by name.
    _INDEXED: tuple[str, ...] = ('x',)
    _advice = "pass a pair (x_train, x), or call 'model.index(x_train)' once"

    def index(self, x: Tensor) -> Any:
        r"""Copy rows, to be the sources of later calls in evaluation mode.

        Such a call holds new rows, unless it passes a pair or graph ids. The rows,
        dense or sparse CSR, are part of the :obj:`state_dict`, of saved models and of
        copies; :meth:`clear_index` deletes them. Returns the model itself.
        """
        check_features(x, width=getattr(self, 'in_channels', None))
        self._keep(x=x)
        return self

    def clear_index(self) -> Any:
        r"""Delete the indexed rows; return the model itself."""
        self._keep()
        return self

    def _keep(self, **rows: Tensor | None) -> None:
        """Store copies, safe from later changes of the rows."""
        with torch.inference_mode(False):  # Inference tensors block later gradients.
            for name in self._INDEXED:
                value = rows.get(name)
                kept = None if value is None else value.detach().clone()
                self.register_buffer(f'index_{name}', kept)

    def _kept(self, name: str) -> Tensor | None:
        return getattr(self, f'index_{name}', None)

    def _indexed(
        self, x: Any, batch: Any, is_watched: bool = True, has_edges: bool = False
    ) -> Tensor | None:
        """Return the indexed rows as the sources of a call, if there are any."""
        if batch is not None:
            return None
        kept = None if self.training else self._kept('x')
        if self.training and not torch.is_grad_enabled():
            self._warn_of_training(x)
        if kept is None and is_watched:
            self._watch(x, has_edges)
        return kept

    def _warn_of_training(self, x: Any) -> None:
        """Warn if new rows come in training mode, which does not use the index."""
        kept = self._kept('x')
        if kept is not None and isinstance(x, Tensor) and len(x) != len(kept):
            warn_caller(
                f"'x' has {len(x)} rows, and the {len(kept)} indexed rows are not used "
                "in training mode: for new rows call 'model.eval()'",
                NewRowsWarning,
            )

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        for kept in map(self._kept, self._INDEXED):
            if kept is not None:  # PyTorch cannot deepcopy sparse CSR tensors.
                memo[id(kept)] = kept.clone()
        twin: Any = type(self).__new__(type(self))
        memo[id(self)] = twin
        twin.__setstate__(copy.deepcopy(self.__dict__, memo))
        return twin

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        state_dict, prefix, metadata = args[:3]
        found = {n: state_dict.get(f'{prefix}index_{n}') for n in self._INDEXED}
        if all(kept is None for kept in found.values()):
            if any(self._kept(name) is not None for name in self._INDEXED):
                self.clear_index()  # The loaded state has none.
        else:
            like = next(self.parameters())
            is_assigned = metadata.get('assign_to_params_buffers', False)
            for name, kept in found.items():
                if kept is not None:
                    is_cast = kept.is_floating_point() and not is_assigned
                    dtype = like.dtype if is_cast else kept.dtype
                    found[name] = kept.to(like.device, dtype)
            self._keep(**found)
        super()._load_from_state_dict(*args, **kwargs)


class IndexesLayers(IndexesRows):
    """Base class of networks that compute the hidden rows of their index once."""

    _INDEXED = 'x', 'edge_index', 'edge_weight', 'z'

    in_channels: int
    convs: torch.nn.ModuleList
    z_channels: int | None
    num_nodes: int | None
    transition: str
    act: Any
    dropout: Any
    # Hidden rows, and the values they were computed from.
    _hidden_rows: tuple[Any, list[Tensor], list[Tensor]] | None = None

    def index(
        self,
        x: Tensor,
        edge_index: Tensor | None = None,
        edge_weight: Tensor | None = None,
        *,
        z: Tensor | None = None,
    ) -> Any:
        r"""Copy rows, to be the sources of later calls in evaluation mode.

        Such a call holds new rows, unless it passes a pair or graph ids; edges lead
        from indexed rows to new ones. The rows, and the other arguments as in
        :meth:`forward`, are part of the :obj:`state_dict`, of saved models and of
        copies; :meth:`clear_index` deletes them, and so does a loaded
        :obj:`state_dict` without them. Their hidden rows are computed once,
        and again after a change of the parameters; they carry no gradient to the
        parameters. Returns the model itself.
        """
        check_features(x, width=self.in_channels)
        if self.transition != 'projected':
            raise ValueError(
                f'index() is not supported with transition={self.transition!r}, where '
                'new rows need no other rows (got rows)'
            )
        if self.num_nodes is not None:
            check_num_nodes(x, self.num_nodes)
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
        self._keep(x=x, edge_index=edge_index, edge_weight=edge_weight, z=z)
        return self

    def _check_z(self, z: Any) -> None:
        if z is not None and self.z_channels is None:
            raise ValueError("'z' needs a model with 'z_channels' (got None)")

    def _hidden(
        self,
        conv: Any,
        src: Tensor,
        own: dict[str, Any],
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return the sources of the next layer."""
        rows = (src, src) if self.transition == 'anchors' else src
        out = self.act(conv(rows, **own, generator=generator))
        hidden: Tensor = self.dropout(out, generator)
        return hidden

    def _keep(self, **rows: Tensor | None) -> None:
        super()._keep(**rows)
        self._hidden_rows = None

    def _index_layers(self, own: dict[str, Any]) -> list[Tensor]:
        """Compute the hidden rows of the index, if anything has changed."""
        device = next(self.parameters()).device.type
        is_autocast = torch.is_autocast_enabled(device)
        samplers = [m for m in self.modules() if isinstance(m, GumbelKNNSampler)]
        options = [(repr(m), m.num_nearest, m.loop, m.budget) for m in samplers]
        kept = [rows for rows in map(self._kept, self._INDEXED) if rows is not None]
        versions = [rows._version for rows in kept]
        key = is_autocast and torch.get_autocast_dtype(device), options, versions
        # Compared by value: optimizers may write without increasing a version counter.
        values: list[Tensor] = [*self.parameters()]
        found = self._hidden_rows
        if found is None or found[0] != key or not _are_equal(found[1], values):
            with torch.inference_mode(False), torch.no_grad():
                hidden = [cast(Tensor, self._kept('x'))]
                for conv in self.convs[:-1]:
                    hidden.append(self._hidden(conv, hidden[-1], own))
                copies = [value.detach().clone() for value in values]
            self._hidden_rows = found = key, copies, hidden[1:]
        return found[2]


def is_constant(model: torch.nn.Module) -> bool:
    """Return whether repeated calls with equal inputs give equal outputs."""
    if torch.compiler.is_compiling() or is_exporting():
        return False
    # Not if a part stays random, such as dropout for uncertainty estimates.
    return not any(m.training for m in model.modules()) and not any(
        is_uninitialized_parameter(p) or is_functorch_wrapped_tensor(p)
        for p in model.parameters()
    )


def _are_equal(first: list[Tensor], second: list[Tensor]) -> bool:
    """Return whether tensors are equal in values, dtypes and devices."""
    return len(first) == len(second) and all(
        a.dtype == b.dtype and a.device == b.device and torch.equal(a, b)
        for a, b in zip(first, second, strict=True)
    )
