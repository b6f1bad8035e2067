"""Losses on a sampled graph: values, gradients, inputs, and the graphs they teach."""

import copy

import pytest
import torch
from drawn import (
    CALLS,
    HIDDEN,
    IN,
    N,
    embeddings,
    make_sampler,
    matrix,
    move,
    reference,
    words,
)
from oracles import as_layout, check_gradients, seeded

from reproduction.self_supervision import GraphContrast, GraphDenoising
from torch_geometric_gsl import (
    GumbelKNNSampler,
    LinearSimilarity,
)

TRAINING = pytest.mark.parametrize('training', [True, False])
LAYOUTS = pytest.mark.parametrize('layout', ['dense', 'sparse'])
ANCHOR = torch.rand(N, N, generator=seeded(9), dtype=torch.double)
ANCHOR = ANCHOR / ANCHOR.sum(dim=1, keepdim=True)
EYE = torch.eye(N, dtype=torch.double)
SMALL = {'embedding_channels': 4, 'projected_channels': 3, 'mask_rate': (0.2, 0.4)}
KINDS = {
    'denoising': (GraphDenoising, {'mask_ratio': 2.0}),
    'words': (GraphDenoising, {'mask_ratio': 2.0, 'binary': True}),
    'contrast': (GraphContrast, SMALL),
    'anchor': (GraphContrast, {'anchor': 'to be given', **SMALL}),
}
EACH = pytest.mark.parametrize('kind', KINDS)


def edges_of(matrix):
    target, source = matrix.nonzero().t()
    return torch.stack([source, target]), matrix[target, source]


def make(kind, sampler=None, **kwargs):
    sampler = make_sampler() if sampler is None else sampler
    module, options = KINDS[kind]
    if 'anchor' in options:
        options = {**options, 'anchor': edges_of(ANCHOR)}
    options = {'dropout': 0.0, **options, **kwargs}
    return move(module(sampler, IN, HIDDEN, **options).double())


def test_repr():
    sampler = GumbelKNNSampler.paper(LinearSimilarity(16), k=2)
    end = f', sampler={sampler})'
    found = GraphDenoising(sampler, 16), GraphContrast(sampler, 16, 32, tau=0.5)
    assert str(found[0]) == f'GraphDenoising(16, 512, binary=False{end}'
    assert str(found[1]) == f'GraphContrast(16, 32, tau=0.5{end}'


@pytest.mark.parametrize(
    ('method', 'call'),
    [*(('dense', call) for call in CALLS), ('race', 'all'), ('stream', 'batch')],
)
@EACH
@TRAINING
def test_loss_and_gradient_against_matrices(method, kind, call, training):
    sampler = make_sampler(method=method)
    module = make(kind, sampler, adjacency_dropout=0.3).train(training)
    x, z, inputs = words(), embeddings().requires_grad_(), CALLS[call]
    leaves = [z, *module.parameters()]
    generator, replayed = seeded(), seeded()
    found = module(x, z=z, **inputs, generator=generator)
    # The graph is drawn once.
    graph = sampler(z, **inputs, generator=replayed)
    anchor = edges_of(ANCHOR if kind == 'anchor' else EYE)
    expected = reference(module.network, x, graph, replayed, anchor)
    assert torch.equal(replayed.get_state(), generator.get_state())
    torch.testing.assert_close(found, expected)
    grads = [torch.autograd.grad(loss, leaves) for loss in (found, expected)]
    torch.testing.assert_close(*grads)
    # A contrast does not depend on what all projected rows have in common.
    last = 0 if 'mask_ratio' in KINDS[kind][1] else 2
    assert all(bool(grad.any()) for grad in grads[0][: len(leaves) - last])


@EACH
@TRAINING
@pytest.mark.parametrize('call', ['all', 'both'])
def test_gradient_by_differences(kind, training, call):
    # Of a race the noise depends on the scores; the definition draws it first.
    options = {} if 'mask_ratio' in KINDS[kind][1] else {'tau': 1.0}
    module = make(kind, make_sampler(method='dense'), **options).train(training)
    x, z, inputs = words(), embeddings().requires_grad_(), CALLS[call]

    def loss(*_):
        return module(x, z=z, **inputs, generator=seeded())

    leaves = (z, *module.parameters())
    assert torch.autograd.gradcheck(loss, leaves, fast_mode=True)


@EACH
def test_the_sampler_is_that_of_the_user(kind):
    sampler = make_sampler()
    before = copy.deepcopy(sampler.state_dict())
    module = make(kind, sampler)
    assert module.sampler is sampler
    for name, value in sampler.state_dict().items():
        assert torch.equal(value, before[name])
    module.reset_parameters()
    assert float(sampler.factor.detach()) == pytest.approx(3.0)
    assert not torch.equal(sampler.similarity.w_b, before['similarity.w_b'])


@EACH
@TRAINING
def test_sparse_features_give_the_same(kind, training):
    # Unit rows are compared without a projection, sparse or not.
    sampler = GumbelKNNSampler.paper(
        LinearSimilarity(IN), k=3, scale=5.0, method='dense'
    )
    module, x = make(kind, sampler).train(training), words()
    calls = [(x, {}), (x.to_sparse_csr(), {}), (x, {'z': x})]
    dense, *others = (
        copy.deepcopy(module)(features, **given, generator=seeded())
        for features, given in calls
    )
    for other in others:
        torch.testing.assert_close(other, dense)


@EACH
@pytest.mark.parametrize('dropped', ['dropout', 'adjacency_dropout'])
def test_dropout_is_that_of_training(kind, dropped):
    losses = {}
    for rate in (0.0, 0.5):
        for training in (True, False):
            module = make(kind, **{dropped: rate}).train(training)
            torch.manual_seed(0)
            losses[rate, training] = module(words(), z=embeddings())
    assert torch.equal(losses[0.0, False], losses[0.5, False])
    assert not torch.equal(losses[0.0, True], losses[0.5, True])


@EACH
def test_all_that_is_random_comes_from_the_generator(kind):
    groups = {} if 'mask_ratio' in KINDS[kind][1] else {'contrast_batch_size': 5}
    options = {'dropout': 0.5, 'adjacency_dropout': 0.3, **groups}
    module, x = make(kind, make_sampler(), **options), words()

    def losses(seed, global_seed):
        torch.manual_seed(global_seed)
        own, state = copy.deepcopy(module), torch.get_rng_state()
        given = {'z': embeddings(), 'generator': seeded(seed) if seed else None}
        found = torch.stack([own(x, **given) for _ in range(2)])
        assert torch.equal(torch.get_rng_state(), state) == bool(seed)
        return found

    first = losses(1, global_seed=0)
    assert torch.equal(first, losses(1, global_seed=3))
    assert not torch.equal(first, losses(2, global_seed=0))
    assert torch.equal(losses(None, global_seed=4), losses(None, global_seed=4))


@EACH
@TRAINING
@LAYOUTS
def test_half_precision(kind, training, layout):
    # Features of full precision under autocast, and all of half precision.
    exact = make(kind).float().train(training)
    x, z = words(dtype=torch.float), embeddings().float()
    twins = copy.deepcopy(exact), copy.deepcopy(exact).bfloat16()
    expected = float(exact(x, z=z, generator=seeded()).detach())
    for module, dtype in zip(twins, (torch.float, torch.bfloat16), strict=True):
        given = as_layout(x.to(dtype), layout)
        compared = z.detach().to(dtype).requires_grad_()
        is_cast = dtype == torch.float
        with torch.autocast('cpu', dtype=torch.bfloat16, enabled=is_cast):
            loss = module(given, z=compared, generator=seeded())
        loss.backward()
        assert float(loss.detach()) == pytest.approx(expected, rel=0.03)
        assert bool(compared.grad.isfinite().all() & compared.grad.any())
        check_gradients(module.sampler)


@pytest.mark.parametrize('kind', ['denoising', 'words', 'contrast'])
@TRAINING
@LAYOUTS
def test_no_nodes(kind, training, layout):
    module, x = make(kind).train(training), as_layout(words()[:0], layout)
    loss = module(x, z=embeddings()[:0])
    assert float(loss.detach()) == 0
    loss.backward()


# The groups and the anchor of a contrast.


def test_the_anchor_follows_the_sampled_graphs():
    module = make('contrast', tau=0.9)
    x, z, expected = words(), embeddings(), EYE
    for step in range(4):
        module.train(step > 1)
        graph = module.graph(x, z=z, generator=seeded(step))
        module(x, z=z, generator=seeded(step))
        if step > 1:
            expected = 0.9 * expected + 0.1 * matrix(graph).detach()
        torch.testing.assert_close(
            matrix(module.network.anchor.graph(N, x.dtype)), expected
        )
    # The next contrast is one with that graph.
    generator = seeded()
    graph = module.eval().graph(x, z=z, generator=generator)
    wanted = reference(module.network, x, graph, generator, edges_of(expected))
    torch.testing.assert_close(module(x, z=z, generator=seeded()), wanted)
    module.reset_parameters()
    assert torch.equal(matrix(module.network.anchor.graph(N, x.dtype)), EYE)


# Inputs and options.


@EACH
def test_inputs(kind):
    module, x, z = make(kind), words(), embeddings()
    negative, missing = x.clone(), x.clone()
    negative[2, 3], missing[3, 2] = -0.5, torch.nan
    cases = [
        ((x[:, :4],), {}, ValueError, r"'x' must have 6 channels \(got 4\)"),
        ((x.float(),), {}, TypeError, r"'x' has torch\.float32 but the parameters"),
        ((missing,), {'z': z}, ValueError, r"'x' contains NaN .* \(got 1 of 72\)"),
        ((x,), {}, ValueError, r"'x' must have 4 channels \(got 6\)"),
        ((x,), {'z': x}, ValueError, r"'z' must have 4 channels \(got 6\)"),
        ((x,), {'z': z[:5]}, ValueError, r"'z' .* \(got 5 for 12 nodes\)"),
        ((x,), {'z': z.float()}, TypeError, "'z' has torch.float32"),
    ]
    if kind == 'words':
        text = r"'x' must not be negative .* \(got -0\.5\)"
        cases += [((negative,), {'z': z}, ValueError, text)]
    else:
        module(negative, z=z)
    for args, kwargs, error, text in cases:
        with pytest.raises(error, match=text):
            module(*args, **kwargs)


CONTRAST = ['contrast']
DENOISING = ['denoising']
BAD_OPTIONS = [
    (KINDS, {'sampler': 3}, TypeError, r"'sampler' must be a Gumbel.* \(got int\)"),
    (KINDS, {'in_channels': -1}, ValueError, r"'in_channels' must be at least 1 \(go"),
    (KINDS, {'hidden_channels': 2.5}, TypeError, "'hidden_channels' must be an integ"),
    (KINDS, {'dropout': 1.0}, ValueError, r"'dropout' must lie in \[0, 1\) \(got 1"),
    (KINDS, {'adjacency_dropout': -0.1}, ValueError, "'adjacency_dropout' must lie in"),
    (DENOISING, {'mask_ratio': 0.5}, ValueError, "'mask_ratio' must be at least 1"),
    (DENOISING, {'negative_ratio': -1}, ValueError, "'negative_ratio' must be at le"),
    (DENOISING, {'binary': 1}, TypeError, r"'binary' must be a bool \(got 1\)"),
    (CONTRAST, {'embedding_channels': 0}, ValueError, "'embedding_channels' must be "),
    (CONTRAST, {'projected_channels': 1.5}, TypeError, "'projected_channels' must be"),
    (CONTRAST, {'temperature': 0}, ValueError, "'temperature' must be positive"),
    (CONTRAST, {'contrast_batch_size': 1}, ValueError, "'contrast_batch_size' must b"),
    (CONTRAST, {'mask_rate': (0.1, 1)}, ValueError, r"'mask_rate' must lie in \[0, 1"),
]


@pytest.mark.parametrize(('kinds', 'options', 'error', 'text'), BAD_OPTIONS)
def test_options(kinds, options, error, text):
    for kind in kinds:
        sizes = {'sampler': make_sampler(), 'in_channels': IN}
        given = {'mask_rate': 0.5} if kind == 'contrast' else {}
        with pytest.raises(error, match=text):
            KINDS[kind][0](**{**sizes, **given, **options})
