"""What all transforms have in common: names, printing, features, wrong data."""

import copy
import pickle
import re

import pytest
import torch
from torch_geometric.data import Data, HeteroData, TemporalData
from torch_geometric.data.datapipes import DatasetAdapter

from torch_geometric_gsl.nn.conv import LatentGraphConv, TransitionGraphConv
from torch_geometric_gsl.nn.models import GSLNet
from torch_geometric_gsl.nn.sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.similarity import LinearSimilarity
from torch_geometric_gsl.transforms import (
    FreezeLatentGraph,
    RefineGraph,
    SampledLatentGraph,
    SimilarityKNNGraph,
)

SAMPLER = GumbelKNNSampler.paper(LinearSimilarity(4), k=2)
# The class, its functional name, arguments, and how it prints itself.
CASES = [
    (SimilarityKNNGraph, 'similarity_knn_graph', {'k': 2},
     'k=2, similarity=linear, loop=False, force_undirected=False, clamp=True'),
    (SampledLatentGraph, 'sampled_latent_graph', {'k': 2, 'seed': 1, 'hard': True},
     'k=2, similarity=linear, tau=0.5, scale=20.0, seed=1, clamp=True, hard=True'),
    (FreezeLatentGraph, 'freeze_latent_graph', {'model': SAMPLER, 'k': 1},
     f'{SAMPLER}, layer=0, k=1, threshold=0.0'),
    (RefineGraph, 'refine_graph', {'k': 2, 'min_similarity': 0.1},
     'k=2, min_similarity=0.1'),
]  # fmt: skip
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
    for data_cls in (HeteroData, TemporalData):
        text = rf"'data' must be a homogeneous .*Data.* \(got {data_cls.__name__}\)"
        with pytest.raises(TypeError, match=text):
            transform(data_cls())


def test_other_features(make):
    values = torch.randn(12, 4)
    transform = make(attr='pos')
    expected = copy.copy(transform)
    expected.attr = 'x'
    expected = expected(Data(x=values))
    for data in (Data(x=torch.randn(12, 5), pos=values), Data(pos=values)):
        out = transform(data)
        assert torch.equal(out.edge_index, expected.edge_index)
        assert torch.equal(out.edge_weight, expected.edge_weight)
        assert out.get('x') is data.get('x')
    # Where there are no edges nothing else determines the number of nodes.
    assert make(attr='embedding')(Data(embedding=values[:1])).num_nodes == 1
    assert repr(transform).endswith('attr=pos)')
    with pytest.raises(TypeError, match=r"'attr' must be the name of an attribute"):
        make(attr=3)


@pytest.mark.parametrize(
    ('data', 'error', 'text'),
    [
        ({'num_nodes': 4}, ValueError, 'must hold node features (got None)'),
        ({'v': [1.0]}, TypeError, 'must be a torch.Tensor (got list)'),
        ({'v': torch.ones(12, 4).long()}, TypeError, 'must be floating-point (got'),
        ({'v': torch.ones(4)}, ValueError, 'must have shape [num_nodes'),
        ({'v': torch.ones(12, 4) / 0}, ValueError, 'contains NaN or infinite'),
        ({'v': torch.eye(4).to_sparse()}, ValueError, 'must be dense or sparse CSR'),
        (
            {'v': torch.ones(9, 4), 'num_nodes': 12},
            ValueError,
            'must have one row per no',
        ),
    ],
)
def test_wrong_features_are_named(make, data, error, text):
    for attr in ('x', 'pos'):
        stored = {attr if name == 'v' else name: value for name, value in data.items()}
        with pytest.raises(error, match=re.escape(f"'data.{attr}' {text}")):
            make(attr=attr)(Data(**stored))


NET = GSLNet(4, 8, num_layers=2, out_channels=3)
TRANSITION = TransitionGraphConv(4, 8, num_nodes=9, num_transition_nodes=5)
BAD = {
    SimilarityKNNGraph: [
        ({'k': 0}, ValueError, "'k' must be at least 1 (got 0)"),
        ({'memory_budget': 0}, ValueError, "'memory_budget' must be at least 1"),
        ({'loop': 'no'}, TypeError, "'loop' must be a bool (got 'no')"),
        ({'force_undirected': 1}, TypeError, "'force_undirected' must be a bool (got"),
        ({'similarity': 'cosine'}, ValueError, "cosine of the rows (got 'cosine'"),
        ({'similarity': 'uniform'}, ValueError, "'similarity' must be one of ["),
        *(
            (
                {'similarity': name},
                ValueError,
                "must be one of ['linear', 'difference', 'gaussian', 'heat_kernel', "
                f"'distance'] (got '{name}'){hint}",
            )
            for name, hint in {
                'euclid': '',
                'lineer': ": did you mean 'linear'?",
            }.items()
        ),
        ({'similarity': torch.nn.Tanh()}, TypeError, 'a Similarity (got Tanh)'),
        ({'similarity': LinearSimilarity(3)}, ValueError, 'must have in_channels='),
        ({'clamp': 'no'}, TypeError, "'clamp' must be a bool (got 'no')"),
    ],
    SampledLatentGraph: [
        ({'method': 'magic'}, ValueError, "'method' must be one of ["),
        ({'seed': -1}, ValueError, "'seed' must be at least 0 (got -1)"),
        ({'seed': 2**70}, ValueError, "'seed' must be less than 2**64 (got 118"),
        ({'similarity': 'neural_gaussian'}, ValueError, 'parameters: pass a (trained)'),
        ({'k': 'linear'}, TypeError, "'k' must be an integer (got str)"),
        ({'sharp': True}, TypeError, "SampledLatentGraph has no option 'sharp'"),
        ({'seeds': 1}, TypeError, "has no option 'seeds': did you mean 'seed'?"),
        ({'clamp': 'no'}, TypeError, "'clamp' must be a bool (got 'no')"),
    ],
    FreezeLatentGraph: [
        (
            {'model': torch.nn.Sequential(SAMPLER)},
            TypeError,
            "(got Sequential): pass model.get_submodule('0'), and data.x as it gets it",
        ),
        (
            {'model': torch.nn.Sequential(torch.nn.ReLU(), LatentGraphConv(4, 4))},
            TypeError,
            "(got Sequential): pass model.get_submodule('1'), and data.x as it gets it",
        ),
        ({'model': 3}, TypeError, "'model' must be a torch.nn.Module (got int"),
        ({'model': torch.nn.Tanh()}, TypeError, 'or be a GumbelKNNSampler (got Tanh)'),
        ({'model': TRANSITION}, ValueError, 'edges run from transition nodes to nodes'),
        ({'layer': 'last'}, TypeError, "'layer' must be an integer (got str)"),
        ({'k': 0}, ValueError, "'k' must be at least 1 (got 0)"),
        ({'threshold': 'a'}, TypeError, "'threshold' must be a number"),
        ({'use_edge_index': 'no'}, TypeError, "'use_edge_index' must be a bool (got"),
        ({'layer': 2}, ValueError, "one of the model's 2 layers (got 2)"),
        ({'model': SAMPLER, 'layer': -2}, ValueError, "model's 1 layers (got -2)"),
    ],
}


@pytest.mark.parametrize(
    ('cls', 'kwargs', 'error', 'text'),
    [(cls, *case) for cls, cases in BAD.items() for case in cases],
)
def test_bad_arguments(cls, kwargs, error, text):
    kwargs = {'model': NET, **kwargs} if cls is FreezeLatentGraph else kwargs
    with pytest.raises(error, match=re.escape(text)):
        cls(**kwargs)(Data(x=torch.randn(12, 4)))
