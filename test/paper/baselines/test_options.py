"""Options, inputs, files, tasks and labelled nodes of the baselines."""

import copy
import math
import pickle

import pytest
import torch
from oracles import seeded
from small_baselines import BASELINES, PUBLISHED, N, features, make_baseline

from torch_geometric_gsl import NodeClassifier
from torch_geometric_gsl.ops.generators import GeneratorMode

WITH_GRAPH = ['KNNGCN', 'KNNLINKX', 'IDGL', 'IDGLAnchor']
EMBED = ['SLAPS', 'SUBLIME', 'HESGSL']
IDGLS = ['IDGL', 'IDGLAnchor']
EVERY = list(BASELINES)
EDGES = torch.tensor([[0, 1], [1, 2]])
Y, ROWS = torch.arange(N) % 4, torch.arange(N)


def spread(cases):
    return [
        pytest.param(name, *case, id=f'{name}-{"-".join(case[0])}-{index}')
        for index, (names, *case) in enumerate(cases)
        for name in names
    ]


@pytest.mark.parametrize(
    ('name', 'text'),
    [
        ('KNNGCN', ', k=2, root_weight=True'),
        ('KNNLINKX', ', num_nodes=12, k=2'),
        ('SLAPS', ', k=2, binary=False, denoising_channels=16'),
        (
            'SUBLIME',
            ', k=2, encoder_channels=16, embedding_channels=8, projected_channels=8',
        ),
        ('HESGSL', ', num_hops=2, k=2, binary=False, denoising_channels=16'),
        ('IDGL', ', k=2, delta=0.0, max_iterations=3'),
        ('IDGLAnchor', ', num_anchors=8, k=2, delta=0.0, max_iterations=3'),
        ('NodeFormer', ', heads=2, k=2'),
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
    (['HESGSL'], {'task': 'regression', 'out_channels': 1}, ValueError,
     "'homophily_weight' must be 0 with task='reg"),
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
]  # fmt: skip


@pytest.mark.parametrize(('name', 'options', 'error', 'match'), spread(BAD_OPTIONS))
def test_bad_options(name, options, error, match):
    with pytest.raises(error, match=match):
        make_baseline(name, **options)


def weigh(weight):
    return {'edge_index': EDGES, 'edge_weight': weight}


ONE_SET = sorted(set(PUBLISHED) - {'NodeFormer'})
BAD_INPUTS = [
    (EVERY, {'x': None}, TypeError, "'x' must be a torch.Tensor"),
    (EVERY, {'x': torch.ones(N, 2)}, ValueError, r"'x' must have 6 channels \(got 2"),
    (EVERY, {'x': features().double()}, TypeError, "'x' has torch.float64 but the par"),
    (EVERY, {'x': features() / 0}, ValueError, "'x' contains NaN or infinite"),
    (PUBLISHED, {'x': {'a': features()}}, TypeError, 'got a dict'),
    (ONE_SET, {'x': (features(), features())}, TypeError, r'torch.Tensor \(got tuple'),
    (['KNNLINKX'], {'x': features()[:9]}, ValueError, r'=12 rows \(got 9\): this mod'),
    (WITH_GRAPH, {'edge_index': EDGES + 11}, ValueError, 'has sources outside 0..11'),
    (WITH_GRAPH, {'edge_index': EDGES, 'batch': ROWS // 2}, ValueError, 'joins two gr'),
    (WITH_GRAPH, {'edge_weight': torch.ones(2)}, ValueError, "needs 'edge_index'"),
    (WITH_GRAPH, weigh(torch.ones(2).long()), TypeError, r'point tensor \(got torch.i'),
    (WITH_GRAPH, weigh(torch.tensor([1, -0.5])), ValueError, r'negative \(got -0.5\)'),
]


@pytest.mark.parametrize(('name', 'inputs', 'error', 'match'), spread(BAD_INPUTS))
def test_bad_inputs(name, inputs, error, match):
    model, args = make_baseline(name), {'x': features(), **inputs}
    labels = {'y': torch.arange(N) % 4, 'mask': torch.arange(N)}
    calls = [(model.loss, labels), (model, {})]
    # Without a share of the graph to start from, its arguments are checked as well.
    if name in IDGLS and 'x' not in inputs:
        calls += [(make_baseline(name, skip_weight=0.0), {})]
    for call, labelled in calls:
        with pytest.raises(error, match=match):
            call(**args, **labelled)


@pytest.mark.parametrize(
    ('name', 'index'),
    [(name, index) for name, rows in PUBLISHED.items() for index in range(len(rows))],
)
def test_files_copies_and_resets(name, index, tmp_path):
    torch.manual_seed(5)
    model = make_baseline(name, index)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.rand(parameter.shape, generator=seeded(1)))
    expected = model.eval()(features())
    model.save(tmp_path / 'model.pt')
    again = NodeClassifier.load(tmp_path / 'model.pt')
    for restored in (again, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert type(restored) is type(model)
        assert repr(restored) == repr(model)
        assert torch.equal(restored(features()), expected)
    again.train().loss(features(), Y, ROWS).backward()
    assert any(parameter.grad is not None for parameter in again.parameters())
    with GeneratorMode(seeded(6)):  # Buffers are drawn from it as well.
        model.reset_parameters()
    torch.manual_seed(6)
    again.reset_parameters()
    state, loaded = model.state_dict(), again.state_dict()
    assert all(torch.equal(value, loaded[key]) for key, value in state.items())


@pytest.mark.parametrize('name', EVERY)
@pytest.mark.parametrize('task', ['regression', 'binary', 'multilabel'])
def test_tasks(name, task):
    x, width = features(), 4 if task == 'multilabel' else 1
    y = x[:, :width].squeeze(1) if width == 1 else x[:, :width]
    y = y if task == 'regression' else (y > 0).long()
    options = {'HESGSL': {'homophily_weight': 0.0}}.get(name, {})
    torch.manual_seed(0)
    model = make_baseline(name, out_channels=width, task=task, **options)
    model.loss(x, y, torch.arange(6)).backward()
    scores = {'regression': 'r2', 'binary': 'accuracy', 'multilabel': 'micro_f1'}
    assert list(model.score(x, y, torch.arange(6, N))) == [scores[task]]
    assert model.predict(x).shape == y.shape
    assert f"task='{task}'" in repr(model)
