"""Sparse features without a projection give the graphs of dense ones."""

import pytest
import torch
from oracles import seeded
from torch_geometric.utils import erdos_renyi_graph, lexsort

from torch_geometric_gsl import GumbelKNNSampler
from torch_geometric_gsl.nn.similarity.distance_similarity import (
    HeatKernelSimilarity,
)
from torch_geometric_gsl.nn.similarity.linear_similarity import LinearSimilarity
from torch_geometric_gsl.nn.similarity.resolver import resolve_similarity

N, D = 300, 60


def words(n=N, seed=1):
    """Return a bag of words whose third node has none."""
    x = torch.rand(n, D, generator=seeded(seed), dtype=torch.double)
    x[torch.rand(n, D, generator=seeded(seed + 1)) < 0.9] = 0
    x[2] = 0
    return x


X, Y = words(), words(200, 7)
H = torch.randn(N, 4, generator=seeded(3), dtype=torch.double)
BATCH = torch.arange(N) // 100
EDGES = erdos_renyi_graph(N, 0.1)
FORMS = {
    'all': (lambda f: f(X), {}),
    'bipartite': (lambda f: (f(X), f(Y)), {}),
    'batch': (lambda f: f(X), {'batch': BATCH}),
    'candidates': (lambda f: f(X), {'edge_index': EDGES}),
}


def run(name, x, form, is_training=True, **kwargs):
    """Return the graph, sums of messages, and the gradients of these."""
    torch.manual_seed(5)
    similarity = resolve_similarity(name, D).double()
    sampler = (
        GumbelKNNSampler.paper(similarity, k=3, **kwargs).double().train(is_training)
    )
    h = H.clone().requires_grad_()
    graph = sampler(x, generator=seeded(2), **form)
    out = sampler.propagate(x, h, generator=seeded(2), **form)
    grads = torch.autograd.grad(out.square().sum(), [h, *similarity.parameters()])
    return graph, out, grads


def assert_same(name, features, form, **kwargs):
    dense = features(torch.Tensor.clone)
    (edges, weight), out, grads = run(name, dense, form, **kwargs)
    sparse = features(torch.Tensor.to_sparse_csr)
    (sparse_edges, sparse_weight), sparse_out, sparse_grads = run(
        name, sparse, form, **kwargs
    )
    if kwargs.get('is_training', True):
        assert torch.equal(sparse_edges, edges)
    else:  # Words are often as near as others: the nearest are equal up to ties.
        assert torch.equal(sparse_edges[1], edges[1])
        weights = sparse_weight.detach(), weight.detach()
        orders = [lexsort([w, edges[1]]) for w in weights]
        sparse_weight, weight = sparse_weight[orders[0]], weight[orders[1]]
    for value, expected in zip(
        (sparse_weight, sparse_out, *sparse_grads), (weight, out, *grads), strict=True
    ):
        torch.testing.assert_close(value, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ('method', 'form'),
    [
        (method, form)
        for method in ('dense', 'stream', 'race', 'pool')
        for form in FORMS
        # A stream and a pool serve no given candidates.
        if form != 'candidates' or method in ('dense', 'race')
    ],
)
@pytest.mark.parametrize('scale', [1.0, 20.0])
def test_draws(method, scale, form):
    features, inputs = FORMS[form]
    assert_same('neural_gaussian', features, inputs, method=method, scale=scale)


@pytest.mark.parametrize('name', ['linear', 'difference', 'gaussian'])
@pytest.mark.parametrize('method', ['stream', 'race', 'pool'])
def test_similarities(name, method):
    kwargs = {'method': method, 'scale': 20.0, 'loop': False}
    assert_same(name, *FORMS['all'], **kwargs)


@pytest.mark.parametrize('form', FORMS)
@pytest.mark.parametrize('name', ['linear', 'neural_gaussian'])
def test_evaluation(name, form):
    assert_same(name, *FORMS[form], is_training=False, scale=5.0, loop=False)


def test_squared_distances_need_a_projection():
    sampler = GumbelKNNSampler.paper(HeatKernelSimilarity(D))
    with pytest.raises(ValueError, match=r"'x' is sparse .* needs a projection:"):
        sampler(X.float().to_sparse_csr())
    sampler = GumbelKNNSampler.paper(LinearSimilarity(D, feature_weights=True))
    with pytest.raises(ValueError, match=r'needs a projection with feature_weights:'):
        sampler(X.float().to_sparse_csr())
