"""Graphs of positions, or of any other attribute of the nodes."""

import re

import pytest
import torch
from oracles import seeded
from torch_geometric.data import Batch, Data

from torch_geometric_gsl.nn.models import GSLNet
from torch_geometric_gsl.nn.similarity import HeatKernelSimilarity
from torch_geometric_gsl.transforms import (
    FreezeLatentGraph,
    SampledLatentGraph,
    SimilarityKNNGraph,
)

N = 12
MODEL = GSLNet(3, 8, 2, 4, k=2)
TRANSFORMS = {
    'knn': lambda **kwargs: SimilarityKNNGraph(2, **kwargs),
    'sampled': lambda **kwargs: SampledLatentGraph(2, seed=1, **kwargs),
    'frozen': lambda **kwargs: FreezeLatentGraph(MODEL, **kwargs),
}
each = pytest.mark.parametrize('make', TRANSFORMS.values(), ids=TRANSFORMS)


def values(num_nodes=N, seed=3):
    return torch.randn(num_nodes, 3, generator=seeded(seed))


@each
@pytest.mark.parametrize('attr', ['pos', 'embedding'])
def test_as_if_it_were_x(make, attr):
    expected = make()(Data(x=values()))
    data = make(attr=attr)(Data(x=torch.randn(N, 5), **{attr: values()}))
    assert torch.equal(data.edge_index, expected.edge_index)
    assert torch.equal(data.edge_weight, expected.edge_weight)
    assert data.x.size(1) == 5
    alone = make(attr=attr)(Data(**{attr: values()}))
    assert torch.equal(alone.edge_index, expected.edge_index)
    assert alone.num_nodes == N
    assert repr(make(attr=attr)).endswith(f'attr={attr})')
    assert 'attr' not in repr(make())


@each
def test_batch_of_positions(make, graph_of):
    examples = [Data(pos=values(size, seed=size)) for size in (4, 7)]
    batch = make(attr='pos')(Batch.from_data_list(examples))
    for number, data in enumerate(examples):
        alone, (edges, weight) = make(attr='pos')(data), graph_of(batch, number)
        assert torch.equal(edges, alone.edge_index)
        torch.testing.assert_close(weight, alone.edge_weight)


def test_distances_of_positions():
    pos = values()
    kernel = HeatKernelSimilarity(3, normalize=False)
    data = SimilarityKNNGraph(3, kernel, attr='pos')(Data(pos=pos))
    near = torch.cdist(pos, pos).fill_diagonal_(torch.inf)
    near = near.topk(3, largest=False).indices.sort().values
    assert torch.equal(data.edge_index[0].view(N, 3), near)


@each
def test_nodes_without_neighbours_are_counted(make):
    data = make(attr='embedding')(Data(embedding=values(1)))
    assert data.num_nodes == 1


@each
@pytest.mark.parametrize(
    ('data', 'kind', 'text'),
    [
        ({'x': values()}, ValueError, "'data.pos' must hold node features (got None)"),
        ({'pos': [1.0]}, TypeError, "'data.pos' must be a torch.Tensor (got list)"),
        ({'pos': values().long()}, TypeError, "'data.pos' must be floating-point"),
        ({'pos': values()[:, 0]}, ValueError, "'data.pos' must have shape [num_nodes"),
        ({'pos': values() / 0}, ValueError, "'data.pos' contains NaN or infinite"),
        (
            {'x': values(), 'pos': values(9)},
            ValueError,
            "'data.pos' must have one row per node (got 9 for 12 nodes)",
        ),
    ],
)
def test_wrong_attributes_are_named(make, data, kind, text):
    with pytest.raises(kind, match=re.escape(text)):
        make(attr='pos')(Data(**data))


@each
def test_wrong_names(make):
    with pytest.raises(
        TypeError, match=r"'attr' must be the name of an attribute \(go"
    ):
        make(attr=3)
