"""The memory of a training step: its peak by allocations, and its largest tensor."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from torch_geometric_gsl.nn.conv.latent_graph_conv import LatentGraphConv


def peak_bytes(conv: LatentGraphConv, num_nodes: int) -> int:
    """Bytes above what was live before the step; all of them are freed after it."""
    x = torch.randn(num_nodes, conv.in_channels)
    conv(x).sum().backward()  # Tables and gradients that live on are made here.
    activities = [ProfilerActivity.CPU]
    with profile(activities=activities, profile_memory=True, acc_events=True) as found:
        conv(x).sum().backward()
    events = found.profiler.kineto_results.events()
    changes = [event for event in events if event.name() == '[memory]']
    live = peak = 0
    for event in sorted(changes, key=lambda event: event.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    assert abs(live) < 10_000
    return peak


@pytest.mark.parametrize('tau', [0.25, 0.5])
def test_a_race_is_linear_in_nodes(tau: float) -> None:
    conv = LatentGraphConv(8, 8, tau=tau, method='race', memory_budget=2**20)
    small, large = peak_bytes(conv, 4000), peak_bytes(conv, 8000)
    assert 0 < large < 2.1 * small
    assert large < 8000**2 / 3  # Twelve times less than one number for each pair.


def test_the_definition_is_seen_to_be_quadratic() -> None:
    conv = LatentGraphConv(8, 8, method='dense', memory_budget=2**20)
    small, large = peak_bytes(conv, 700), peak_bytes(conv, 1400)
    assert large > 3.5 * small > 4 * 700**2


class LargestTensor(TorchDispatchMode):
    """Records the bytes of the largest tensor that any operation returns."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        for part in tree_leaves(result):
            if isinstance(part, Tensor) and part.layout == torch.strided:
                self.bytes = max(self.bytes, part.untyped_storage().nbytes())
        return result


def largest_bytes(method: str, n: int, channels: int) -> int:
    conv = LatentGraphConv(8, channels, method=method, memory_budget=2**19)
    x = torch.randn(n, 8, generator=torch.Generator().manual_seed(1))
    with LargestTensor() as largest:
        conv(x, generator=torch.Generator().manual_seed(2)).square().sum().backward()
    return largest.bytes


def test_the_largest_tensor_grows_linearly() -> None:
    proposals, channels, k = 22, 64, 5
    small, large = (largest_bytes('race', n, channels) for n in (2000, 4000))
    assert 0 < large <= 2.1 * small
    # Far less than one number for each channel of each proposal, or for each pair.
    assert large < 4 * 4000 * min(4000, k * proposals * channels) / 10
    assert largest_bytes('dense', 700, channels) >= 4 * 700**2  # It would be seen.
