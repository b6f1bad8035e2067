import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData

from torch_geometric_gsl.datasets import paper_split


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


@pytest.mark.parametrize('num_nodes', [4, 5, 7, 300])
@pytest.mark.parametrize('seed', [0, 1, 2**64 - 1])
def test_sets_are_disjoint_and_cover_all_nodes(num_nodes, seed):
    split = masks(paper_split(Data(num_nodes=num_nodes), seed))
    assert split.sum(0).tolist() == [1] * num_nodes


def test_a_seed_gives_one_split():
    data = Data(x=torch.zeros(50, 1))
    state = torch.get_rng_state()
    first = masks(paper_split(data))
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(1)  # The global state is not read, either.
    assert torch.equal(first, masks(paper_split(data, 0, train=0.5, val=0.25)))
    assert torch.equal(first, masks(paper_split(data, seed=np.int64(0))))
    assert not torch.equal(first, masks(paper_split(data, seed=4)))


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


@pytest.mark.parametrize(
    ('options', 'error', 'text'),
    [
        ({'seed': -1}, ValueError, r"'seed' must be at least 0 \(got -1\)"),
        ({'seed': 2**64}, ValueError, r"'seed' must be less than 2\*\*64"),
        ({'seed': 1.0}, TypeError, r"'seed' must be an integer \(got float\)"),
        ({'train': 0.0}, ValueError, r"'train' must lie in \(0, 1\) \(got 0.0\)"),
        ({'val': -0.1}, ValueError, r"'val' must lie in \(0, 1\) \(got -0.1\)"),
        ({'val': '0.25'}, TypeError, r"'val' must be a number \(got str\)"),
        ({'val': 0.5}, ValueError, r"'train' \+ 'val' must be less than 1 \(got 1.0\)"),
    ],
)
def test_options_are_checked(options, error, text):
    with pytest.raises(error, match=text):
        paper_split(Data(x=torch.zeros(8, 1)), **options)


def test_data_is_checked():
    with pytest.raises(TypeError, match=r"'data' must be .* \(got HeteroData\)"):
        paper_split(HeteroData())
    with pytest.raises(ValueError, match=r'too few nodes .*\(got 3, which gives \['):
        paper_split(Data(x=torch.zeros(3, 1)))
    with (
        pytest.warns(UserWarning, match="Unable to accurately infer 'num_nodes'"),
        pytest.raises(ValueError, match=r"'data' must have nodes \(got neither"),
    ):
        paper_split(Data())
