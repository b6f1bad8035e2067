r"""Plain functions, compiled where that pays."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import cache
from threading import Lock
from typing import TypeVar, cast

import torch
from torch import Tensor

from torch_geometric_gsl._warnings import warn_caller

Result = TypeVar('Result')

#: The number of entries from which a function is compiled: it takes some seconds.
MIN_NUMEL = 2**18

_LOCK = Lock()


def fastest(
    function: Callable[..., Result], numel: int, device: torch.device
) -> Callable[..., Result]:
    r"""Returns :obj:`function` or its compiled form, which computes the same.

    Large inputs on a CPU take the compiled form, where a C++ compiler is present. It
    is made at the first call and shared by all later ones. The environment variable
    :obj:`TORCH_COMPILE_DISABLE=1` turns this off.

    Args:
        function (Callable): A pure function of tensors, at the level of its module.
        numel (int): The number of entries of what it computes.
        device (torch.device): The device.
    """
    if numel < MIN_NUMEL or device.type != 'cpu' or not has_compiler():
        return function
    if torch._dynamo.config.disable or os.environ.get('TORCH_COMPILE_DISABLE') == '1':
        return function
    with _LOCK:  # Each function once, however many threads ask for it.
        return cast('Callable[..., Result]', _compile(function))


@cache
def has_compiler() -> bool:
    """Whether a C++ compiler is present that :func:`torch.compile` would find."""
    names = [os.environ.get('CXX', ''), 'g++', 'clang++']
    return any(shutil.which(name) for name in names if name)


@cache
def _compile(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    quick = torch.compile(function)
    broken = False

    def call(*args: object) -> Tensor:
        nonlocal broken
        if not broken:
            try:
                return quick(*args)
            except torch._dynamo.exc.TorchDynamoException as error:
                with _LOCK:
                    is_first, broken = not broken, True
                if is_first:
                    warn_caller(
                        f'{function.__name__} could not be compiled and runs eagerly: '
                        f'{str(error).strip().splitlines()[0]}',
                        RuntimeWarning,
                    )
        return function(*args)

    return call
