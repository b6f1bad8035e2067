"""The paper's split of nodes."""

import pytest
import torch
from torch_geometric.data import Data

from reproduction.datasets import paper_split


def masks(data):
    return torch.stack([data.train_mask, data.val_mask, data.test_mask])


@pytest.mark.parametrize(
    ('num_nodes', 'options', 'sizes'),
    [
        (4, {}, [2, 1, 1]),
        (7, {}, [3, 1, 3]),
        (9607, {}, [4803, 2401, 2403]),
        (100, {'train': 0.29, 'val': 0.58}, [29, 58, 13]),  # Without a rounding error.
    ],
)
def test_sizes(num_nodes, options, sizes):
    split = masks(paper_split(Data(x=torch.zeros(num_nodes, 1)), **options))
    assert split.dtype == torch.bool
    assert split.sum(1).tolist() == sizes
    assert split.sum(0).tolist() == [1] * num_nodes


def test_a_seed_gives_one_split():
    data = Data(x=torch.zeros(50, 1))
    state = torch.get_rng_state()
    split = masks(paper_split(data))
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(1)  # The global state is not read, either.
    assert torch.equal(split, masks(paper_split(data, 0, train=0.5, val=0.25)))
    assert torch.equal(split, masks(paper_split(data, seed=0)))
    assert not torch.equal(split, masks(paper_split(data, seed=4)))


def test_every_node_is_as_likely_in_each_set():
    data = Data(x=torch.zeros(8, 1))
    runs = 2000
    share = sum(masks(paper_split(data, seed)).double() for seed in range(runs)) / runs
    expected = torch.tensor([[0.5], [0.25], [0.25]], dtype=torch.float64)
    deviation = (expected * (1 - expected) / runs).sqrt()
    # 24 binomial shares: one beyond 4.5 deviations happens once in 6,000 such tests.
    assert ((share - expected).abs() < 4.5 * deviation).all()


def test_the_given_data_is_untouched():
    old = torch.ones(8, 10, dtype=torch.bool)
    data = Data(x=torch.zeros(8, 1, device='meta'), train_mask=old)
    out = paper_split(data)
    assert data.to_dict().keys() == {'x', 'train_mask'}
    assert data.train_mask is old
    assert out.x is data.x
    assert out.train_mask.shape == (8,)
    assert out.val_mask.is_meta  # Masks lie on the device of the data.
    assert out.validate()


@pytest.mark.parametrize('options', [{}, {'train': 0.9, 'val': 0.1}])
def test_each_set_needs_a_node(options):
    with pytest.raises(ValueError, match=r"'data' has too few nodes .*\(got 3, which"):
        paper_split(Data(x=torch.zeros(3, 1)), **options)
