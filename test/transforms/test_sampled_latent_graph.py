import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.utils import degree

from torch_geometric_gsl.nn.sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.similarity import LinearSimilarity
from torch_geometric_gsl.transforms import SampledLatentGraph


@pytest.fixture
def data():
    return Data(x=torch.randn(20, 4))


def sums(data):
    zeros = torch.zeros(data.num_nodes)
    return zeros.index_add(0, data.edge_index[1], data.edge_weight)


def test_is_what_the_sampler_draws(data):
    generator = torch.Generator().manual_seed(7)
    sampler = GumbelKNNSampler(LinearSimilarity(4), k=3, tau=0.5, scale=2.0)
    edge_index, edge_weight = sampler(data.x, generator=generator)
    out = SampledLatentGraph(k=3, tau=0.5, scale=2.0, seed=7)(data)
    assert torch.equal(out.edge_index, edge_index)
    torch.testing.assert_close(out.edge_weight, edge_weight)
    torch.testing.assert_close(sums(out), torch.ones(20))


@pytest.mark.parametrize('method', ['dense', 'stream'])
def test_options_reach_the_sampler(data, method):
    out = SampledLatentGraph(k=3, hard=True, method=method)(data)
    assert bool((out.edge_weight > 0.3).all())  # No edges of zero weight.
    assert out.num_edges <= 60
    torch.testing.assert_close(sums(out), torch.ones(20))
    out = SampledLatentGraph(k=3, replace=False, loop=False, method=method)(data)
    assert degree(out.edge_index[1], 20).tolist() == [3.0] * 20
    assert not out.has_self_loops()


def test_seed(data):
    state = torch.get_rng_state()
    first, again, other, last = (
        SampledLatentGraph(k=3, seed=seed)(data).edge_weight
        for seed in (3, np.int64(3), 4, 2**64 - 1)
    )
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(first, last)
    # Without a seed the global generator draws.
    first, second = (SampledLatentGraph(k=3)(data).edge_weight for _ in range(2))
    torch.set_rng_state(state)
    assert torch.equal(first, SampledLatentGraph(k=3)(data).edge_weight)
    assert not torch.equal(first, second)
