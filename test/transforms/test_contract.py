"""Test what all transforms have in common."""

import pickle

import pytest
import torch
from torch_geometric.data import Data, HeteroData, TemporalData
from torch_geometric.data.datapipes import DatasetAdapter

from torch_geometric_gsl.nn.sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.similarity import LinearSimilarity
from torch_geometric_gsl.transforms import (
    DropObservedGraph,
    FreezeLatentGraph,
    SampledLatentGraph,
    SimilarityKNNGraph,
    ToSparseFeatures,
)

SAMPLER = GumbelKNNSampler(LinearSimilarity(4), k=2)
# The class, its functional name, arguments, and how it prints itself.
CASES = [
    (
        SimilarityKNNGraph,
        'similarity_knn_graph',
        {'k': 2},
        'k=2, similarity=linear, loop=False, force_undirected=False, clamp=True',
    ),
    (
        SampledLatentGraph,
        'sampled_latent_graph',
        {'k': 2, 'seed': 1, 'hard': True},
        'k=2, similarity=linear, tau=0.25, scale=1.0, seed=1, clamp=True, hard=True',
    ),
    (
        FreezeLatentGraph,
        'freeze_latent_graph',
        {'model': SAMPLER, 'k': 1},
        f'{SAMPLER}, layer=0, k=1, threshold=0.0',
    ),
    (ToSparseFeatures, 'to_sparse_features', {}, ''),
    (DropObservedGraph, 'drop_observed_graph', {}, ''),
]
each = pytest.mark.parametrize(
    ('cls', 'name', 'kwargs', 'inside'), CASES, ids=[case[1] for case in CASES]
)


@each
def test_functional_name_pickle_and_repr(cls, name, kwargs, inside, examples):
    transform = cls(**kwargs)
    assert str(transform) == f'{cls.__name__}({inside})'
    again = pickle.loads(pickle.dumps(transform))
    pipe = getattr(DatasetAdapter(examples), name)(**kwargs)
    for data, out in zip(examples, pipe, strict=True):
        expected = transform(data)
        for made in (out, again(data)):
            assert set(made.keys()) == set(expected.keys())
            assert str(made.x) == str(expected.x)
            assert str(made.edge_index) == str(expected.edge_index)
            assert str(made.edge_weight) == str(expected.edge_weight)


@each
def test_wrong_data(cls, name, kwargs, inside):
    transform = cls(**kwargs)
    for kind in (HeteroData, TemporalData):
        if cls is DropObservedGraph and kind is HeteroData:
            continue
        text = rf"'data' must be a homogeneous .*Data.* \(got {kind.__name__}\)"
        with pytest.raises(TypeError, match=text):
            transform(kind())
    if cls is DropObservedGraph:
        return
    with pytest.raises(ValueError, match=r"'data\.x' must hold node features \(got N"):
        transform(Data(edge_index=torch.zeros(2, 1, dtype=torch.long), num_nodes=4))
    with pytest.raises(TypeError, match=r"'data\.x' must be floating-point \(got tor"):
        transform(Data(x=torch.ones(8, 4, dtype=torch.long)))
    with pytest.raises(ValueError, match=r"'data\.x' contains NaN or infinite"):
        transform(Data(x=torch.full((8, 4), float('nan'))))
    with pytest.raises(ValueError, match=r"'data\.x' must be dense or sparse CSR"):
        transform(Data(x=torch.eye(4).to_sparse()))
