"""Sum the gradients of parameters over the ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby

import torch
from torch import Tensor
from torch.nn import Parameter


def sum_gradients(
    parameters: Iterable[Parameter], add: Callable[[Tensor], Tensor]
) -> None:
    """Replace gradients by their sums, in one message for each type of numbers.

    Args:
        parameters (Iterable[torch.nn.Parameter]): The parameters.
        add (Callable): Sums a tensor over the ranks.
    """

    def kind(parameter: Parameter) -> str:
        return f'{parameter.dtype} {parameter.device}'

    learned = sorted((p for p in parameters if p.requires_grad), key=kind)
    for _, group in groupby(learned, key=kind):
        _sum_of_one_type(list(group), add)


def _sum_of_one_type(
    parameters: list[Parameter], add: Callable[[Tensor], Tensor]
) -> None:
    """Sum gradients in one vector, whose last numbers tell which of them exist."""
    zero = parameters[0].new_zeros(())
    parts = [zero.expand(p.shape) if p.grad is None else p.grad for p in parameters]
    flags = zero.new_tensor([float(p.grad is not None) for p in parameters])
    total = add(torch.cat([*(part.reshape(-1) for part in parts), flags]))
    *sums, found = total.split([*(p.numel() for p in parameters), len(parameters)])
    for parameter, value, flag in zip(parameters, sums, found.tolist(), strict=True):
        if flag:
            parameter.grad = value.view_as(parameter).clone()
