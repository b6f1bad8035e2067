"""The peak of all live memory during a training step, allocation by allocation."""

from __future__ import annotations

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

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
