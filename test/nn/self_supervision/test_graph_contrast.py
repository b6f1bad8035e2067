"""The contrastive loss, number by number, its gradient and its anchor."""

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
from torch.nn import functional as F

from torch_geometric_gsl import GraphContrast, GumbelKNNSampler, LinearSimilarity
from torch_geometric_gsl.ops.masking import hide_channels

METHODS = pytest.mark.parametrize('method', ['dense', 'race', 'stream'])
SMALL = {'embedding_channels': 4, 'projected_channels': 3}
RATES = (0.2, 0.4)
EYE = torch.eye(N, dtype=torch.double)


def make(method='auto', sampler=None, **kwargs):
    sampler = make_sampler(method=method) if sampler is None else sampler
    kwargs = {'dropout': 0.0, 'mask_rate': RATES, **SMALL, **kwargs}
    return move(GraphContrast(sampler, IN, HIDDEN, **kwargs).double())


def projected(network, a, x):
    h = two_layers(network, a, x)
    first, last = network.project_first, network.project_last
    h = (h @ first.weight.t() + first.bias).relu()
    return h @ last.weight.t() + last.bias


def dense_contrast(first, second, temperature):
    """Compute the formula, a pair of nodes at a time."""
    n = first.size(0)
    cosine = [
        [F.cosine_similarity(a, b, dim=0) / temperature for b in second] for a in first
    ]
    terms = []
    for i in range(n):
        row = torch.stack([cosine[i][j].exp() for j in range(n)]).sum()
        column = torch.stack([cosine[j][i].exp() for j in range(n)]).sum()
        terms += [cosine[i][i] - row.log(), cosine[i][i] - column.log()]
    return -torch.stack(terms).sum() / (2 * n)


def dense_loss(module, anchor, graph, x, generator):
    """Compute the loss from whole matrices; the anchor's features are hidden first."""
    views = [
        projected(module.network, a, hide_channels(x, rate, generator))
        for a, rate in ((anchor, RATES[0]), (matrix(graph, x.size(0)), RATES[1]))
    ]
    return dense_contrast(*views, module.temperature)


def test_repr():
    sampler = GumbelKNNSampler(LinearSimilarity(16), k=2)
    assert str(GraphContrast(sampler, 16, 32, tau=0.5)) == (
        'GraphContrast(16, 32, tau=0.5, sampler=GumbelKNNSampler('
        'LinearSimilarity(16), k=2, tau=0.25, scale=1.0, method=auto))'
    )


@METHODS
@pytest.mark.parametrize('call', CALLS)
@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('given', [False, True])
def test_loss_and_gradient_against_matrices(method, call, training, given):
    anchor = torch.rand(N, N, generator=seeded(9), dtype=torch.double) if given else EYE
    anchor = anchor / anchor.sum(dim=1, keepdim=True)
    target, source = anchor.nonzero().t()
    edges = torch.stack([source, target]), anchor[target, source]
    module = make(method, anchor=edges if given else None).train(training)
    x, z, inputs = words(), embeddings().requires_grad_(), CALLS[call]
    if method == 'stream' and training and 'edge_index' in inputs:
        with pytest.raises(ValueError, match="'method' cannot be 'stream' where 'edge"):
            module(x, embedding=z, **inputs)
        return
    leaves = [z, *module.parameters()]
    found = module(x, embedding=z, **inputs, generator=seeded())
    generator = seeded()
    graph = module.sampler(z, **inputs, generator=generator)
    expected = dense_loss(module, anchor, graph, x, generator)
    torch.testing.assert_close(found, expected)
    grads = [torch.autograd.grad(loss, leaves) for loss in (found, expected)]
    torch.testing.assert_close(*grads)
    # What all nodes add to what is contrasted may be of no account.
    assert all(bool(grad.any()) for grad in grads[0][: -len(SMALL)])


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('call', CALLS)
def test_gradient_by_differences(training, call):
    # Of a race the noise depends on the scores; the definition draws it first.
    module = make('dense', tau=1.0).train(training)
    x, z, inputs = words(), embeddings().requires_grad_(), CALLS[call]

    def loss(*_):
        return module(x, embedding=z, **inputs, generator=seeded())

    leaves = (z, *module.parameters())
    assert torch.autograd.gradcheck(loss, leaves, fast_mode=True)


def test_permuted_nodes():
    module, x, z = make().eval(), words(), embeddings()
    order = torch.randperm(N, generator=seeded(2))
    place = order.argsort()
    for edges, permuted in ((None, None), (EDGES, place[EDGES])):
        expected = module(x, edges, embedding=z, generator=seeded())
        found = module(x[order], permuted, embedding=z[order], generator=seeded())
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize('training', [False, True])
def test_sparse_features_give_the_same(training):
    # Unit rows are compared without a projection, sparse or not.
    sampler = GumbelKNNSampler(LinearSimilarity(IN), k=3, scale=5.0, method='dense')
    module = make(sampler=sampler, tau=1.0).train(training)
    x = words()
    found = module(x.to_sparse_csr(), generator=seeded())
    torch.testing.assert_close(found, module(x, generator=seeded()))
    z = torch.randn(N, IN, generator=seeded(), dtype=torch.double)
    found = module(x.to_sparse_csr(), embedding=z, generator=seeded())
    torch.testing.assert_close(found, module(x, embedding=z, generator=seeded()))


def test_groups():
    module, x, z = make(contrast_batch_size=5).eval(), words(), embeddings()
    views = []

    def keep(_, __, out):
        views.append(out)

    module.network.register_forward_hook(keep)
    for training in (False, True):
        views.clear()
        module.train(training)
        generator = seeded()
        found = module(x, embedding=z, generator=generator)
        order = torch.arange(N)
        if training:
            replayed = seeded()
            module.graph(x, embedding=z, generator=replayed)
            for rate in RATES:
                hide_channels(x, rate, replayed)
            order = torch.randperm(N, generator=replayed)
            assert torch.equal(replayed.get_state(), generator.get_state())
        terms = [
            dense_contrast(*(view[rows] for view in views), 0.2) * (rows.numel() / N)
            for rows in order.split(5)
        ]
        torch.testing.assert_close(found, torch.stack(terms).sum())


def test_the_anchor_follows_the_drawn_graphs():
    module, x, z = make(tau=0.9, anchor_interval=2), words(), embeddings()
    module.anchor.max_neighbours = None
    expected = EYE
    for step in range(6):
        module.train(step > 1)
        graph = module.graph(x, embedding=z, generator=seeded(step))
        module(x, embedding=z, generator=seeded(step))
        if step in (3, 5):
            expected = 0.9 * expected + 0.1 * matrix(graph).detach()
        found = module.anchor.graph(N, x)
        torch.testing.assert_close(matrix(found), expected)
    assert not found.edge_weight.requires_grad
    assert (expected.diagonal() > 0.8).all()
    # The next contrast is one with that graph.
    module.eval()
    generator = seeded()
    graph = module.graph(x, embedding=z, generator=generator)
    loss = module(x, embedding=z, generator=seeded())
    wanted = dense_loss(module, expected, graph, x, generator)
    torch.testing.assert_close(loss, wanted)
    module.reset_parameters()
    assert torch.equal(matrix(module.anchor.graph(N, x)), EYE)


def test_the_state_holds_the_anchor():
    module, x, z = make(tau=0.5), words(), embeddings()
    module(x, embedding=z)
    module(x, embedding=z)
    other = make(tau=0.5, sampler=make_sampler(scale=7.0))
    before = other.eval()(x, embedding=z, generator=seeded())
    other.load_state_dict(module.state_dict())
    expected = module.eval()(x, embedding=z, generator=seeded())
    assert torch.equal(other(x, embedding=z, generator=seeded()), expected)
    assert not torch.equal(before, expected)
    torch.testing.assert_close(other.anchor.graph(N, x), module.anchor.graph(N, x))
    # What has been given at construction is no part of it.
    given = make(tau=0.5, anchor=EDGES)
    assert set(given.state_dict()) == set(module.state_dict())


def test_a_step_keeps_a_few_anchor_edges():
    module, x, z = make(tau=0.5, max_anchor_neighbours=4).train(), words(), embeddings()
    for _ in range(3):
        module(x, embedding=z)
    found = matrix(module.anchor.graph(N, x))
    assert int((found > 0).sum(dim=1).max()) <= 4
    torch.testing.assert_close(found.sum(dim=1), torch.ones(N).double())


def test_seeds():
    x, z = words(), embeddings()
    options = {'adjacency_dropout': 0.3, 'contrast_batch_size': 4}
    losses = [
        make(**options).train()(x, embedding=z, generator=seeded(seed))
        for seed in (1, 1, 2)
    ]
    assert torch.equal(losses[0], losses[1])
    assert not torch.equal(losses[0], losses[2])


def test_dropped_edges_are_those_of_both_views():
    module, x, z = make(tau=1.0, adjacency_dropout=0.5), words(), embeddings()
    found = module(x, embedding=z, generator=seeded())
    generator = seeded()
    graph, views = module.graph(x, embedding=z, generator=generator), []
    for rate, a in zip(RATES, (module.anchor.graph(N, x), graph), strict=True):
        hidden = hide_channels(x, rate, generator)
        keep = torch.empty(a.edge_weight.size(0)).bernoulli_(0.5, generator=generator)
        a = a._replace(edge_weight=a.edge_weight * keep * 2)
        views.append(projected(module.network, matrix(a), hidden))
    torch.testing.assert_close(found, dense_contrast(*views, 0.2))
    losses = [
        made.eval()(x, embedding=z, generator=seeded())
        for made in (module, make(tau=1.0), make(tau=1.0, dropout=0.5))
    ]
    assert torch.equal(losses[0], losses[1])
    assert torch.equal(losses[0], losses[2])


@METHODS
def test_it_sharpens_a_graph_of_clusters(method):
    x, y = clusters()
    torch.manual_seed(0)
    similarity = LinearSimilarity(24, feature_weights=True)
    options = {'k': 5, 'tau': 1.0, 'scale': 10.0, 'loop': False, 'method': method}
    sampler = GumbelKNNSampler(similarity, **options)
    before = same_share(sampler, x, y)
    widths = {'embedding_channels': 32, 'projected_channels': 32}
    module = GraphContrast(sampler, 24, 32, **widths, mask_rate=0.4)
    teach(module, x, 100, seeded())
    after = same_share(sampler, x, y)
    assert 0.7 < before < 0.75
    assert after > 0.9
    weight = similarity.feature_weight.detach().abs()
    assert weight[:12].mean() > 3 * weight[12:].mean()


def test_the_anchor_is_that_of_its_nodes():
    module = make(tau=0.5).train()
    module(words(), embedding=embeddings())
    match = r"'x' must hold the 12 nodes of the anchor graph, .* \(got 8 nodes\)"
    with pytest.raises(ValueError, match=match):
        module(words(8), embedding=embeddings(8))
    module.reset_parameters()
    assert module(words(8), embedding=embeddings(8)).isfinite()
    given = make(anchor=EDGES)
    match = r"'anchor' must join nodes of 'x' \(got node 11 for 8 nodes\)"
    with pytest.raises(ValueError, match=match):
        given(words(8), embedding=embeddings(8))


@pytest.mark.parametrize(
    ('options', 'error', 'text'),
    [
        ({'embedding_channels': 0}, ValueError, "'embedding_channels' must be at le"),
        ({'projected_channels': 1.5}, TypeError, "'projected_channels' must be an in"),
        ({'temperature': 0}, ValueError, r"'temperature' must be positive .*\(got 0\)"),
        ({'contrast_batch_size': 1}, ValueError, "'contrast_batch_size' must be at l"),
        ({'mask_rate': (0.1, 1)}, ValueError, r"'mask_rate' must lie in \[0, 1\) \(go"),
        ({'mask_rate': (0.1,) * 3}, ValueError, "'mask_rate' must be a number or a p"),
        ({'tau': 1.5}, ValueError, r"'tau' must lie in \[0, 1\] \(got 1\.5\)"),
        ({'anchor_interval': 0}, ValueError, r"'anchor_interval' must be at least 1"),
        ({'max_anchor_neighbours': 0}, ValueError, "'max_anchor_neighbours' must be a"),
        ({'anchor': 'knn'}, TypeError, r"'anchor' must be a .* \(got str\)"),
        ({'anchor': (EDGES,)}, TypeError, r"'anchor' must be a .* \(got tuple\)"),
        (
            {'anchor': EDGES.float()},
            TypeError,
            r"'edge_index' must have dtype torch\.i",
        ),
    ],
)
def test_options(options, error, text):
    with pytest.raises(error, match=text):
        make(**options)
