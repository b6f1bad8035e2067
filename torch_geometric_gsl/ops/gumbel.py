from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

# torch.rand draws zeros, and their arrival time would be infinite.
_MIN_UNIFORM = 2.0**-54


def arrival_times(
    size: Sequence[int],
    *,
    dtype: torch.dtype,
    device: torch.device,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Draws arrival times :math:`E = -\log U` of a process of unit rate.

    :math:`-\log E` is standard Gumbel noise, and :math:`E / e^{s}` is the arrival
    time of an item with score :math:`s`, so that the smallest arrival time is the
    largest perturbed score (Gumbel-max). Times are positive and finite. On a CPU a
    tensor drawn in pieces equals one drawn at once.

    Args:
        size (Sequence[int]): The shape.
        dtype (torch.dtype): The floating-point type.
        device (torch.device): The device.
        generator (torch.Generator, optional): Source of randomness; the global
            generator if :obj:`None`. (default: :obj:`None`)
    """
    uniform = torch.rand(tuple(size), dtype=dtype, device=device, generator=generator)
    smallest = max(_MIN_UNIFORM, torch.finfo(dtype).tiny)
    return uniform.clamp_(min=smallest).log_().neg_()


def clone_generator(
    generator: torch.Generator | None, device: torch.device
) -> torch.Generator:
    """Returns a generator that will repeat what :obj:`generator` draws next."""
    twin = torch.Generator(device=device)
    if generator is not None:
        twin.set_state(generator.get_state())
    elif device.type == 'cuda':
        twin.set_state(torch.cuda.get_rng_state(device))
    else:
        twin.set_state(torch.get_rng_state())
    return twin


def straight_through(forward: Tensor, backward: Tensor) -> Tensor:
    """The value of the first argument with the gradient of the second."""
    value: Tensor = _StraightThrough.apply(  # type: ignore[no-untyped-call]
        forward, backward
    )
    return value


class _StraightThrough(torch.autograd.Function):
    # Not hard + soft - soft.detach(): that leaves rounding errors in the zeros.
    @staticmethod
    def forward(ctx: object, forward: Tensor, backward: Tensor) -> Tensor:
        # What is undefined must not look like a choice.
        return torch.where(backward.isnan(), backward, forward)

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> tuple[None, Tensor]:
        return None, grad
