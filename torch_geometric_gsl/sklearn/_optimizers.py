"""Optimizers of networks for tables, and their learning rates."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from torch_geometric_gsl.nn.models.table_net import TableNet
from torch_geometric_gsl.sklearn._runtime import has_fast_bfloat16

# The share of a cycle in which the learning rate rises.
_WARMUP = 0.15
# The initial learning rate as a share of its peak.
_START_RATE = 0.05
# Learning rates of matrices and of the null neighbour's score, relative to others.
_MATRIX_RATE = 2
_NULL_RATE = 30
# Matrices of at least this size are optimized by Muon.
_MIN_MUON_SIDE = 32


class Muon(torch.optim.Muon):
    """Muon in the precision of the parameters.

    PyTorch's orthogonalizes in bfloat16, which takes 7 to 23 times as long as float32
    on processors without instructions for it. Updates have Nesterov's momentum and the
    size of AdamW's.
    """

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Update the matrices that have a gradient."""
        for group in self.param_groups:
            for param in group['params']:
                if param.grad is None:
                    continue
                state = self.state[param]
                if not state:
                    state['momentum_buffer'] = torch.zeros_like(param)
                mean = state['momentum_buffer'].lerp_(param.grad, 1 - group['momentum'])
                update = orthogonalize(
                    param.grad.lerp(mean, group['momentum']),
                    group['ns_coefficients'],
                    group['ns_steps'],
                )
                # As large as an update of AdamW: `adjust_lr_fn='match_rms_adamw'`.
                rate = 0.2 * math.sqrt(max(param.shape)) * group['lr']
                param.mul_(1 - group['lr'] * group['weight_decay'])
                param.add_(update, alpha=-rate)


def orthogonalize(
    x: Tensor, coefficients: tuple[float, float, float], num_steps: int
) -> Tensor:
    r"""Approximate the orthogonal factor of a matrix by Newton-Schulz steps.

    .. math::
        \mathbf{X} \leftarrow a \mathbf{X} + (b \mathbf{G} + c \mathbf{G}^2) \mathbf{X},
        \qquad \mathbf{G} = \mathbf{X} \mathbf{X}^{\top}
    """
    a, b, c = coefficients
    if x.size(0) > x.size(1):
        return orthogonalize(x.T, coefficients, num_steps).T
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(num_steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


def make_optimizers(model: TableNet, options: Any) -> list[Any]:
    """Optimize matrices by Muon, and vectors, scalars and embeddings by AdamW."""
    rate = options.learning_rate
    decay = options.weight_decay
    matrices = []
    vectors: list[Tensor] = []
    groups: list[dict[str, Any]] = [{'params': vectors, 'weight_decay': decay}]
    for name, param in model.named_parameters():
        is_large = min(param.shape, default=0) >= _MIN_MUON_SIDE
        if param.dim() == 0:
            share = _NULL_RATE if 'null_score' in name else 1
            groups.append({'params': [param], 'weight_decay': 0.0, 'lr': share * rate})
        elif param.dim() == 2 and is_large and 'periodic' not in name:
            matrices.append(param)
        else:
            vectors.append(param)
    optimizers: list[Any] = [torch.optim.AdamW(groups, lr=rate, fused=True)]
    if matrices:
        is_fast = has_fast_bfloat16(matrices[0].device)
        muon = (torch.optim.Muon if is_fast else Muon)(
            matrices,
            lr=_MATRIX_RATE * rate,
            weight_decay=decay,
            adjust_lr_fn='match_rms_adamw',
        )
        optimizers.append(muon)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group['peak'] = group['lr']
    return optimizers


def set_rates(optimizers: list[Any], progress: float) -> None:
    """Set the learning rates in a cycle: a linear rise, then a cosine to zero."""
    if progress < _WARMUP:
        share = _START_RATE + (1 - _START_RATE) * progress / _WARMUP
    else:
        share = 0.5 + 0.5 * math.cos(math.pi * (progress - _WARMUP) / (1 - _WARMUP))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group['lr'] = share * group['peak']
