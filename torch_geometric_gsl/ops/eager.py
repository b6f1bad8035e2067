from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch

Function = TypeVar('Function', bound=Callable[..., Any])


def eager(function: Function) -> Function:
    """Keeps :func:`torch.compile` out of a function.

    A compiled model then samples the graph that an eager one samples with one seed, and
    the tracer stays out of sparse products and cached tables.
    """
    return cast(Function, torch.compiler.disable(function))
