"""Modules on nodes of one type."""

from __future__ import annotations

from typing import Any

import torch
from torch._C._functorch import peek_interpreter_stack

from torch_geometric_gsl._checks import check_one_type
from torch_geometric_gsl.ops.runtime import check_not_batched


class OneType(torch.nn.Module):
    r"""Base class of modules on nodes of one type.

    :func:`torch_geometric.nn.to_hetero` would copy them for each type, without a graph
    between types. Use :class:`~torch_geometric_gsl.nn.HeteroLatentGraphConv` for
    several types.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # PyG traces a module by calling it, without running its `forward`.
        for value in (*args, *kwargs.values()):
            if value is not None and not isinstance(value, torch.Tensor | bool):
                check_one_type(value)
        if not torch.compiler.is_compiling() and peek_interpreter_stack() is not None:
            check_not_batched(self, (args, kwargs), self.parameters())
        return super().__call__(*args, **kwargs)
