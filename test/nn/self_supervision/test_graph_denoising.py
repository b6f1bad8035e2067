"""The denoising loss, number by number, and its gradient."""

import pytest
import torch
from drawn import (
    CALLS,
    EDGES,
    HIDDEN,
    IN,
    N,
    clusters,
    embeddings,
    make_sampler,
    matrix,
    move,
    same_share,
    teach,
    two_layers,
    words,
)
from oracles import seeded

from torch_geometric_gsl import GraphDenoising, GumbelKNNSampler, LinearSimilarity
from torch_geometric_gsl.nn.self_supervision import graph_denoising
from torch_geometric_gsl.ops.masking import MaskedFeatures, mask_features

METHODS = pytest.mark.parametrize('method', ['dense', 'race', 'stream'])


def make(method='auto', sampler=None, **kwargs):
    sampler = make_sampler(method=method) if sampler is None else sampler
    kwargs = {'dropout': 0.0, 'mask_ratio': 2.0, **kwargs}
    return move(GraphDenoising(sampler, IN, HIDDEN, **kwargs).double())


def dense_loss(module, graph, x, masked):
    """Compute the loss from whole matrices, cell by cell of what is hidden."""
    hidden = x.clone()
    hidden[masked.row, masked.column] = 0
    out = two_layers(module.network, matrix(graph, x.size(0)), hidden)
    terms = []
    for row, column in zip(masked.row.tolist(), masked.column.tolist(), strict=True):
        found, value = out[row, column], x[row, column]
        if module.binary:
            sign = 1.0 if value > 0 else -1.0
            terms.append(torch.log1p(torch.exp(-sign * found)))
        else:
            terms.append((found - value) ** 2)
    return torch.stack(terms).mean()


def test_repr():
    sampler = GumbelKNNSampler(LinearSimilarity(16), k=2)
    assert str(GraphDenoising(sampler, 16)) == (
        'GraphDenoising(16, 512, binary=False, sampler=GumbelKNNSampler('
        'LinearSimilarity(16), k=2, tau=0.25, scale=1.0, method=auto))'
    )


@METHODS
@pytest.mark.parametrize('call', CALLS)
@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('binary', [False, True])
def test_loss_and_gradient_against_matrices(method, call, training, binary):
    module = make(method, binary=binary).train(training)
    x, z, inputs = words(), embeddings().requires_grad_(), CALLS[call]
    if method == 'stream' and training and 'edge_index' in inputs:
        with pytest.raises(ValueError, match="'method' cannot be 'stream' where 'edge"):
            module(x, embedding=z, **inputs)
        return
    leaves = [z, *module.parameters()]
    found = module(x, embedding=z, **inputs, generator=seeded())
    generator = seeded()
    graph = module.sampler(z, **inputs, generator=generator)
    masked = mask_features(x, 2.0, 5.0 if binary else None, generator=generator)
    assert 5 < masked.target.numel() < N * IN
    expected = dense_loss(module, graph, x, masked)
    torch.testing.assert_close(found, expected)
    grads = [torch.autograd.grad(loss, leaves) for loss in (found, expected)]
    torch.testing.assert_close(*grads)
    assert all(bool(grad.any()) for grad in grads[0])


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('call', CALLS)
def test_gradient_by_differences(training, call):
    # Of a race the noise depends on the scores; the definition draws it first.
    module = make('dense').train(training)
    x, z = words(), embeddings().requires_grad_()
    inputs = CALLS[call]

    def loss(*_):
        return module(x, embedding=z, **inputs, generator=seeded())

    leaves = (z, *module.parameters())
    assert torch.autograd.gradcheck(loss, leaves, fast_mode=True)


def test_features_are_compared_without_an_embedding():
    sampler = make_sampler(IN)
    module, x = make(sampler=sampler).eval(), words()
    alone = module(x, generator=seeded())
    torch.testing.assert_close(alone, module(x, embedding=x, generator=seeded()))
    expected = sampler(x)
    torch.testing.assert_close(tuple(module.graph(x)), tuple(expected))


def test_permuted_nodes(monkeypatch):
    module, x, z = make().eval(), words(), embeddings()
    hidden = torch.rand(N, IN, generator=seeded()) < 0.3
    order = torch.randperm(N, generator=seeded(2))
    place = order.argsort()

    def hide(given, *args, **kwargs):
        chosen = hidden if torch.equal(given, x) else hidden[order]
        row, column = chosen.nonzero(as_tuple=True)
        return MaskedFeatures(given * ~chosen, row, column, given[row, column])

    monkeypatch.setattr(graph_denoising, 'mask_features', hide)
    for edges, permuted in ((None, None), (EDGES, place[EDGES])):
        expected = module(x, edges, embedding=z)
        found = module(x[order], permuted, embedding=z[order])
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize('binary', [False, True])
@pytest.mark.parametrize('training', [False, True])
def test_sparse_features_give_the_same(binary, training):
    # Unit rows are compared without a projection, sparse or not.
    sampler = GumbelKNNSampler(LinearSimilarity(IN), k=3, scale=5.0, method='dense')
    module = make(sampler=sampler, binary=binary).train(training)
    x = words()
    sparse = x.to_sparse_csr()
    found = module(sparse, generator=seeded())
    torch.testing.assert_close(found, module(x, generator=seeded()))
    z = torch.randn(N, IN, generator=seeded(), dtype=torch.double)
    found = module(sparse, embedding=z, generator=seeded())
    torch.testing.assert_close(found, module(x, embedding=z, generator=seeded()))


def test_hidden_zeros_teach_nothing_but_words_do():
    # The masked values are those of the features, not of the embedding.
    module = make().eval()
    with torch.no_grad():
        for parameter in module.network.parameters():
            parameter.zero_()
    x, generator = words(), seeded()
    found = module(x, embedding=embeddings(), generator=generator)
    masked = mask_features(x, 2.0, generator=seeded())
    torch.testing.assert_close(found, masked.target.square().mean())
    module.binary = True
    found = module(x, embedding=embeddings(), generator=seeded())
    torch.testing.assert_close(found, torch.tensor(2.0).double().log())


@pytest.mark.parametrize('dropped', ['dropout', 'adjacency_dropout'])
def test_nothing_is_dropped_in_evaluation(dropped):
    x, z = words(), embeddings()
    module, plain = make(**{dropped: 0.5}), make()
    for training in (False, True):
        torch.manual_seed(1)
        losses = [
            m.train(training)(x, embedding=z, generator=seeded())
            for m in (module, plain)
        ]
        assert torch.equal(*losses) != training


def test_dropped_edges_are_drawn_before_features_are_hidden():
    module, x, z = make(adjacency_dropout=0.5), words(), embeddings()
    found = module(x, embedding=z, generator=seeded())
    generator = seeded()
    graph = module.sampler(z, generator=generator)
    keep = torch.empty(graph.edge_weight.size(0)).bernoulli_(0.5, generator=generator)
    graph = graph._replace(edge_weight=graph.edge_weight * keep * 2)
    masked = mask_features(x, 2.0, generator=generator)
    torch.testing.assert_close(found, dense_loss(module, graph, x, masked))


@METHODS
def test_it_sharpens_a_graph_of_clusters(method):
    x, y = clusters()
    torch.manual_seed(0)
    similarity = LinearSimilarity(24, feature_weights=True)
    options = {'k': 5, 'tau': 1.0, 'scale': 10.0, 'loop': False, 'method': method}
    sampler = GumbelKNNSampler(similarity, **options)
    before = same_share(sampler, x, y)
    module = GraphDenoising(sampler, 24, 32, mask_ratio=3.0)
    teach(module, x, 100, seeded())
    after = same_share(sampler, x, y)
    assert 0.7 < before < 0.75
    assert after > 0.85
    weight = similarity.feature_weight.detach().abs()
    assert weight[:12].mean() > 1.5 * weight[12:].mean()


def test_idle_words_drown_squared_errors_but_not_entropies():
    x, y = clusters(idle=24, chance_of_own=0.6)
    gains = []
    for binary in (False, True):
        torch.manual_seed(0)
        similarity = LinearSimilarity(36, feature_weights=True)
        options = {'tau': 1.0, 'scale': 10.0, 'loop': False, 'method': 'dense'}
        sampler = GumbelKNNSampler(similarity, **options)
        before = same_share(sampler, x, y)
        module = GraphDenoising(sampler, 36, 32, mask_ratio=3.0, binary=binary)
        teach(module, x, 100, seeded())
        gains.append(same_share(sampler, x, y) - before)
    assert gains[0] < 0.1
    assert gains[1] > 0.2


def test_words_must_not_be_negative():
    module, x = make(binary=True), words()
    x[2, 3] = -0.5
    with pytest.raises(ValueError, match=r"'x' must not be negative .* \(got -0\.5\)"):
        module(x, embedding=embeddings())
    make()(x, embedding=embeddings())


@pytest.mark.parametrize(
    ('options', 'error', 'text'),
    [
        ({'mask_ratio': 0.5}, ValueError, r"'mask_ratio' must be at least 1 \(got 0.5"),
        ({'negative_ratio': -1}, ValueError, r"'negative_ratio' must be at least 0 \("),
        ({'binary': 1}, TypeError, r"'binary' must be a bool \(got 1\)"),
        ({'dropout': 1.0}, ValueError, r"'dropout' must lie in \[0, 1\) \(got 1\.0\)"),
        ({'adjacency_dropout': -0.1}, ValueError, "'adjacency_dropout' must lie in"),
    ],
)
def test_options(options, error, text):
    with pytest.raises(error, match=text):
        make(**options)
