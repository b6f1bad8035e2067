"""Options and inputs that a sampler refuses, with the texts of their errors."""

import math
import re

import pytest
import torch
from sampling import make, normal

import torch_geometric_gsl as gsl
from torch_geometric_gsl.nn.sampler.methods import BY_NAME

LEAST = {'arrivals': 1, 'tail': 0, 'eval_pairs': 1, 'memory': 1}
OPTIONS = [
    ({'k': 0}, ValueError, "'k' must be at least 1 (got 0)"),
    ({'k': 2.0}, TypeError, "'k' must be an integer (got float)"),
    ({'tau': 0}, ValueError, "'tau' must be positive and finite (got 0)"),
    ({'scale': -1.0}, ValueError, "'scale' must be positive and finite (got -1.0)"),
    ({'scale': 'auto'}, TypeError, "'scale' must be a positive number"),
    ({'scale': 0.0, 'train_scale': True}, ValueError, "'scale'"),
    ({'method': 'fast'}, ValueError,
     f"must be one of {['auto', *BY_NAME]} (got 'fast')"),
    *(({name: 'no'}, TypeError, f"'{name}' must be a bool (got 'no')")
      for name in ('hard', 'replace', 'loop', 'train_scale')),
    *(({'similarity': value}, TypeError, f'a Similarity (got {name})')
      for value, name in (('linear', 'str'), (None, 'NoneType'))),
    ({'null_score': '1'}, TypeError, "'null_score' must be a number"),
    ({'null_score': math.inf}, ValueError, "'null_score' must be finite (got inf)"),
    ({'eval_k': 0}, ValueError, "'eval_k' must be at least 1"),
    ({'eval_k': 2.5}, TypeError, "'eval_k' must be an integer"),
    ({'eval_k': True}, TypeError, "'eval_k' must be an integer"),
    ({'eval_k': 'al'}, ValueError,
     "'eval_k' must be None, 'all' or an integer"),
    ({'budget': 7}, TypeError, "'budget' must be a Budget (got int)"),
    *(({'budget': gsl.Budget(**{name: least - 1})}, ValueError, f"'{name}' must be at")
      for name, least in LEAST.items()),
    # What cannot act is refused.
    *(({'budget': gsl.Budget(**{name: 4}), **options}, ValueError, f"'{name}' is not s")
      for name, options in (('arrivals', {'method': 'dense'}),
                            ('tail', {'method': 'pool'}),
                            ('arrivals', {'replace': False}))),
]  # fmt: skip


@pytest.mark.parametrize(('options', 'error', 'text'), OPTIONS)
def test_bad_options(options, error, text):
    with pytest.raises(error, match=re.escape(text)):
        gsl.GumbelKNNSampler.paper(**{'similarity': gsl.LinearSimilarity(6), **options})


@pytest.mark.parametrize(
    ('run', 'text'),
    [
        (lambda: make(kk=1), "unexpected keyword argument 'kk'"),
        (lambda: gsl.GSLNet(2, 2, 1, 2, null_scor=1.0), "did you mean 'null_score'"),
        (lambda: gsl.GSLNet(2, 2, 1, 2, heads=4), "has no option 'heads', but ["),
    ],
)
def test_unknown_options_are_told(run, text):
    with pytest.raises(TypeError, match=re.escape(text)):
        run()


X, N = normal(6, 6), 6
EDGES, BATCH = torch.zeros(2, 3, dtype=torch.long), torch.tensor([0, 0, 0, 1, 1, 1])
NONE = X.masked_fill(torch.eye(6) > 0, math.nan)
BOUNDS = 'between 0 and the number of targets, 6 (got ({}, {}))'
INPUTS = [
    ({'x': NONE}, ValueError, "'x' contains NaN or infinite values"),
    ({'x': X.to_sparse_csr().requires_grad_()}, ValueError,
     "'x' must not require a gradient"),
    ({'edge_index': [[0], [1]]}, TypeError,
     "'edge_index' must be a torch.Tensor (got list)"),
    ({'edge_index': EDGES + 6}, ValueError, "'edge_index' has sources outside 0..5"),
    ({'x': (X, X[:0]), 'edge_index': EDGES}, ValueError,
     "'edge_index' must be empty where there are no targets"),
    ({'batch': BATCH.flip(0)}, ValueError, "'batch' must be sorted"),
    ({'x': (X, X), 'batch': BATCH}, TypeError,
     "'batch' must be a pair like 'x' (got a Tensor)"),
    ({'edge_index': EDGES + 3 * (torch.arange(2) > 0).view(2, 1), 'batch': BATCH},
     ValueError, "'edge_index' joins two graphs of 'batch'"),
    ({'generator': 3}, TypeError, "'generator' must be a torch"),
    ({'rows': 3}, TypeError, "'rows' must be a pair of integers (got 3)"),
    ({'rows': (1, 2, 3)}, TypeError, "'rows' must be a pair of integers"),
    ({'rows': (0, 1.5)}, TypeError, "'rows' must be an integer (got float)"),
    ({'rows': (-1, 2)}, ValueError, "'rows' must be at least 0 (got -1)"),
    ({'rows': (5, 2)}, ValueError, BOUNDS.format(5, 2)),
    ({'rows': (0, 7)}, ValueError, BOUNDS.format(0, 7)),
    ({'rows': (0, 1), 'edge_index': EDGES}, ValueError,
     "'edge_index' is not supported with 'rows'"),
    ({'rows': (0, 1), 'batch': BATCH}, ValueError,
     "'batch' is not supported with 'rows'"),
]  # fmt: skip


@pytest.mark.parametrize(('kwargs', 'error', 'text'), INPUTS)
def test_bad_inputs(kwargs, error, text):
    kwargs = {'x': X, **kwargs}
    with pytest.raises(error, match=re.escape(text)):
        make()(**kwargs)
    with pytest.raises(error, match=re.escape(text)):
        make().eval().propagate(kwargs.pop('x'), X, **kwargs)


@pytest.mark.parametrize(
    ('error', 'h', 'text'),
    [
        (TypeError, None, "'h' must be a torch.Tensor (got NoneType)"),
        (ValueError, X[:3, :2], "'h' must have shape [6, channels] (got [3, 2"),
    ],
)
@pytest.mark.parametrize('training', [True, False])
def test_bad_messages(error, h, text, training):
    with pytest.raises(error, match=re.escape(text)):
        make().train(training).propagate(X, h)


EVERY = torch.cartesian_prod(torch.arange(N), torch.arange(N)).t()
WEIGHT = torch.ones(N * N, dtype=torch.double)
WEIGHTS = [
    (-WEIGHT, ValueError, "'edge_weight' must not be negative (got -1."),
    (WEIGHT / 0, ValueError, "'edge_weight' contains NaN or infinite values"),
    (WEIGHT[:3], ValueError, "'edge_weight' must have shape [36] (got [3])"),
    (EVERY[0], TypeError, "'edge_weight' must be a floating-point tensor (got tor"),
    ([1.0], TypeError, "'edge_weight' must be a floating-point tensor (got list)"),
    (WEIGHT.to('meta'), ValueError, "'edge_weight' is on meta but 'x' is on cpu"),
]


@pytest.mark.parametrize(('weight', 'error', 'text'), WEIGHTS)
def test_bad_weights(weight, error, text):
    conv = gsl.LatentGraphConv(N, 3, 'linear').double()
    net = gsl.GSLNet(N, 3, 2, 3, 'linear').double()
    for call in (make(), make().plan, make().distribution, conv, conv.graph, net):
        with pytest.raises(error, match=re.escape(text)):
            call(X, EVERY, weight)


def test_weights_of_no_edges_and_of_a_race():
    for call in (make(), gsl.LatentGraphConv(N, 3, 'linear').double()):
        with pytest.raises(ValueError, match="'edge_weight' needs 'edge_index'"):
            call(X, None, WEIGHT)
    with pytest.raises(ValueError, match="cannot be 'race': 'edge_weight' is given"):
        make(method='race')(X, EVERY, WEIGHT)
    assert make().plan(X, EVERY, WEIGHT).method == 'dense'


@pytest.mark.parametrize('bounds', [(1.0, 0.0), (math.nan, 1.0)])
def test_bounds_are_ordered(bounds):
    sampler = make('linear', method='race')
    sampler.similarity.bounds = bounds
    for call in (sampler, sampler.plan):
        with pytest.raises(ValueError, match="'bounds' of 'similarity' must be a pair"):
            call(normal(900, 6))


@pytest.mark.parametrize('options', [{'train_scale': True}, {'null_score': 0.0}])
@pytest.mark.parametrize('method', ['dense', 'race', 'stream', 'pool'])
def test_parameters_on_another_device(method, options):
    # Those of the sampler alone: the similarity has none.
    sampler = gsl.GumbelKNNSampler.paper(
        gsl.CosineSimilarity(6), method=method, **options
    )
    text = "'x' is on cpu but the parameters are on meta"
    for call in (sampler.to('meta'), sampler.plan, sampler.distribution):
        with pytest.raises(ValueError, match=text):
            call(X)
    with pytest.raises(ValueError, match=text):
        sampler.propagate(X, X)


def test_edges_are_checked_before_their_weights():
    sampler, weight = make(k=1), torch.ones(1).double()
    x = normal(5, 6)
    with pytest.raises(TypeError, match="'edge_index' must be a"):
        sampler(x, [[0], [1]], weight)
    with pytest.raises(
        ValueError, match=r"'edge_index' must have shape \[2, num_edges"
    ):
        sampler(x, torch.tensor([0]), weight)


@pytest.mark.parametrize('form', ['all', 'batch', 'edges'])
def test_evaluation_needs_no_candidates_of_draws(form):
    x = normal(5, 6)
    every = torch.ones(5, 5).nonzero().t()
    kwargs = {'batch': {'batch': torch.zeros(5).long()}, 'edges': {'edge_index': every}}
    kwargs = kwargs.get(form, {})
    sampler = make(k=9, replace=False, eval_k=2)
    with pytest.raises(ValueError, match="'k' must not exceed"):
        sampler(x, **kwargs)
    assert sampler.eval()(x, **kwargs).edge_index.shape == (2, 10)
    same = make(k=9, replace=False).eval()
    with pytest.raises(ValueError, match="'k' must not exceed"):
        same(x, **kwargs)
