"""Options and inputs that the baselines refuse, and their representations."""

import math

import pytest
import torch
from small_baselines import BASELINES, IN, N, make_baseline

WITH_GRAPH = ['KNNGCN', 'KNNLINKX', 'IDGL', 'IDGLAnchor']
EMBED = ['SLAPS', 'SUBLIME', 'HESGSL']
IDGLS = ['IDGL', 'IDGLAnchor']
EVERY = list(BASELINES)
EDGES = torch.tensor([[0, 1], [1, 2]])


def features():
    return torch.rand(N, IN, generator=torch.Generator().manual_seed(0))


def spread(cases):
    return [
        pytest.param(name, *case, id=f'{name}-{"-".join(case[0])}-{number}')
        for number, (names, *case) in enumerate(cases)
        for name in names
    ]


@pytest.mark.parametrize(
    ('name', 'text'),
    [
        ('KNNGCN', ', k=2, similarity=linear, root_weight=True'),
        ('KNNLINKX', ', num_nodes=12, k=2'),
        ('SLAPS', ', k=2'),
        ('SUBLIME', ', k=2'),
        ('HESGSL', ', k=2, num_hops=2'),
        ('IDGL', ', k=2'),
        ('IDGLAnchor', ', k=2, num_anchors=8'),
        ('NodeFormer', ', heads=2, k=2, tau=0.25'),
        ('MLPClassifier', ''),
    ],
)
def test_repr(name, text):
    assert (
        str(make_baseline(name)) == f'{name}(6, 8, num_layers=2, out_channels=4{text})'
    )


HAVE_K = [name for name in EVERY if name != 'MLPClassifier']
BAD_OPTIONS = [
    (EVERY, {'in_channels': 0}, ValueError, r"'in_channels' must be at least 1 \(got"),
    (EVERY, {'out_channels': 2.0}, TypeError, "'out_channels' must be an integer"),
    (EVERY, {'dropout': 1.0}, ValueError, r"'dropout' must lie in \[0, 1\) \(got 1.0"),
    (HAVE_K, {'k': 0}, ValueError, r"'k' must be at least 1 \(got 0\)"),
    (WITH_GRAPH, {'cached': 1}, TypeError, r"'cached' must be a bool \(got 1\)"),
    (['MLPClassifier'], {'act': 'bell'}, ValueError, 'Could not resolve'),
    (['KNNGCN'], {'similarity': 'gaussian'}, ValueError, r"'similarity' must be one"),
    (['KNNGCN'], {'root_weight': 'no'}, TypeError, r"a bool \(got 'no'\)"),
    (['KNNLINKX'], {'num_nodes': 0}, ValueError, r"'num_nodes' must be at least 1"),
    (['NodeFormer'], {'heads': 0}, ValueError, r"'heads' must be at least 1 \(got 0"),
    (['NodeFormer'], {'num_features': 2.0}, TypeError, "'num_features' must be an in"),
    (['NodeFormer'], {'tau': 0.0}, ValueError, "'tau' must be positive and finite"),
    ([*EMBED, *IDGLS], {'in_channels': -1}, ValueError, r'at least 1 \(got -1\)'),
    (EMBED, {'graph_generator': 'x'}, ValueError, r"must be one of \['mlp', "),
    (EMBED, {'graph_act': 'elu'}, ValueError, r"must be one of \['tanh', 'relu"),
    (['SLAPS'], {'denoising_weight': -1}, ValueError, "_weight' must be at least 0"),
    (['SLAPS'], {'denoising_channels': 0}, ValueError, "_channels' must be at least"),
    (['SLAPS'], {'dropout': (0.1,)}, ValueError, "'dropout' must be a number or a p"),
    (['SLAPS'], {'adjacency_dropout': (0, -1)}, ValueError, r"y_dropout' must lie in"),
    (['SUBLIME'], {'contrastive_weight': -1}, ValueError, "_weight' must be at least"),
    (['SUBLIME'], {'encoder_channels': 0}, ValueError, "'encoder_channels' must be at"),
    (['HESGSL'], {'num_hops': 0}, ValueError, r"'num_hops' must be at least 1 \(got 0"),
    (['HESGSL'], {'homophily_weight': -1}, ValueError, "_weight' must be at least 0"),
    (IDGLS, {'num_layers': 1}, ValueError, r"'num_layers' must be at least 2 \(got 1"),
    (IDGLS, {'num_heads': 1.5}, TypeError, "'num_heads' must be an integer"),
    (['IDGLAnchor'], {'num_anchors': 0}, ValueError, "'num_anchors' must be at least"),
    (IDGLS, {'skip_weight': 1.0}, ValueError, r"'skip_weight' must lie in \[0, 1\)"),
    (IDGLS, {'delta': math.inf}, ValueError, "'delta' must be finite"),
    (IDGLS, {'update_weight': 1.1}, ValueError, r"_weight' must lie in \[0, 1\]"),
    (IDGLS, {'epsilon': -0.1}, ValueError, r"'epsilon' must lie in \[0, 1\) \(got -0"),
    (IDGLS, {'smoothness': -1}, ValueError, r"'smoothness' must be at least 0 \(got"),
    (IDGLS, {'sparsity': -1}, ValueError, "'sparsity' must be at least 0"),
    (IDGLS, {'degree': -1}, ValueError, "'degree' must be at least 0"),
    (IDGLS, {'max_iterations': 0}, ValueError, "'max_iterations' must be at least 1"),
]


@pytest.mark.parametrize(('name', 'options', 'error', 'match'), spread(BAD_OPTIONS))
def test_bad_options(name, options, error, match):
    with pytest.raises(error, match=match):
        make_baseline(name, **options)


def weigh(weight):
    return {'edge_index': EDGES, 'edge_weight': weight}


BAD_INPUTS = [
    (EVERY, {'x': None}, TypeError, "'x' must be a torch.Tensor"),
    (EVERY, {'x': torch.ones(N, 2)}, ValueError, r"'x' must have 6 channels \(got 2"),
    (EVERY, {'x': features().double()}, TypeError, "'x' has torch.float64 but the par"),
    (EVERY, {'x': features() / 0}, ValueError, "'x' contains NaN or infinite"),
    (['KNNLINKX'], {'x': features()[:9]}, ValueError, r'=12 rows \(got 9\); the weig'),
    (WITH_GRAPH, {'edge_index': EDGES + 11}, ValueError, 'has sources outside 0..11'),
    (WITH_GRAPH, {'edge_weight': torch.ones(2)}, ValueError, "needs 'edge_index'"),
    (WITH_GRAPH, weigh(torch.ones(2).long()), TypeError, r'point tensor \(got torch.i'),
    (WITH_GRAPH, weigh(torch.tensor([1, -0.5])), ValueError, r'negative \(got -0.5\)'),
]


@pytest.mark.parametrize(('name', 'given', 'error', 'match'), spread(BAD_INPUTS))
def test_bad_inputs(name, given, error, match):
    model, args = make_baseline(name), {'x': features(), **given}
    labels = {'y': torch.arange(N) % 4, 'mask': torch.arange(N)}
    calls = [(model.loss, labels), (model, {})]
    # Without a share of the graph to start from, its arguments are checked as well.
    if name in IDGLS and 'x' not in given:
        calls += [(make_baseline(name, skip_weight=0.0), {})]
    for call, others in calls:
        with pytest.raises(error, match=match):
            call(**args, **others)


@pytest.mark.parametrize('name', ['KNNGCN', *EMBED, *IDGLS])
@pytest.mark.parametrize('number', [1, 2])
def test_few_rows_are_all_neighbours(name, number):
    x = features()[:number]
    out, (graph, *_) = (
        make_baseline(name).eval()(x),
        make_baseline(name).eval().graphs(x),
    )
    assert bool(out.isfinite().all())
    apart = graph.edge_index[0] != graph.edge_index[1]
    assert int(apart.sum()) <= number * (number - 1)
