import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from torch_geometric_gsl.visualization._layout import (
    principal_components,
    spring_layout,
)


def test_principal_components_against_scikit_learn():
    x = torch.randn(12, 5, dtype=torch.double) * torch.tensor([1.0, 2, 3, 4, 5])
    expected = PCA(2).fit_transform(x.numpy())
    place = principal_components(x + 3)
    assert np.allclose(place.abs(), np.abs(expected))
    # The sign is not left to chance: the largest entry of an axis is positive.
    axes = (x - x.mean(dim=0)).t() @ place
    assert torch.equal(axes.amax(dim=0), axes.abs().amax(dim=0))


@pytest.mark.parametrize('shape', [(1, 4), (5, 1), (3, 0)])
def test_principal_components_of_few_axes(shape):
    place = principal_components(torch.randn(shape))
    assert place.shape == (shape[0], 2)
    assert bool(place.isfinite().all())


def test_spring_layout_gathers_what_edges_join():
    # Two cliques of five nodes.
    pairs = torch.cartesian_prod(torch.arange(5), torch.arange(5)).t()
    edge_index = torch.cat([pairs, pairs + 5], dim=1)
    place = spring_layout(edge_index, num_nodes=10, seed=1)
    distance = torch.cdist(place, place)
    inside, between = distance[:5, :5], distance[:5, 5:]
    assert between.min() > max(inside.max(), distance[5:, 5:].max()) / 2
    assert between.mean() > 2 * inside.mean()


def test_spring_layout_is_seeded():
    edge_index = torch.tensor([[0, 1], [1, 2]])
    state = torch.get_rng_state()
    first, again, other = (spring_layout(edge_index, 4, seed) for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(state, torch.get_rng_state())


def test_spring_layout_of_one_node():
    place = spring_layout(torch.empty(2, 0, dtype=torch.long), 1, seed=0)
    assert place.shape == (1, 2)
    assert bool(place.isfinite().all())
