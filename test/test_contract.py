"""What a layer shows is what it sums."""

import copy
import itertools

import pytest
import torch
from oracles import seeded, to_matrix
from sampling import assert_graph, limits, make, normal

from torch_geometric_gsl import GSLNet, SampledEvaluationWarning
from torch_geometric_gsl.nn.conv import (
    LatentGraphConv,
    SensorGraphConv,
    TransitionGraphConv,
)
from torch_geometric_gsl.nn.sampler import Budget, GumbelKNNSampler
from torch_geometric_gsl.nn.sampler import plan as planning
from torch_geometric_gsl.nn.sampler.methods import BY_NAME
from torch_geometric_gsl.nn.similarity import CosineSimilarity
from torch_geometric_gsl.nn.similarity.resolver import resolve_similarity
from torch_geometric_gsl.ops.aggregate import weighted_sum

N = 60
FORMS = ('all', 'pair', 'batch', 'edges', 'weighted edges')
METHODS = ('auto', *BY_NAME)


def inputs(form, n=N, degree=9):
    """Return features, and with what else a sampler is called."""
    x, edges = torch.randn(n, 5, dtype=torch.double), torch.randint(n, (2, degree * n))
    weight = torch.rand(degree * n, dtype=torch.double)
    kwargs = {
        'batch': {'batch': torch.arange(n) * 2 // n},
        'edges': {'edge_index': edges},
        'weighted edges': {'edge_index': edges, 'edge_weight': weight},
    }
    x = (x, torch.randn(7, 5, dtype=torch.double)) if form == 'pair' else x
    return x, kwargs.get(form, {})


def serves(form, method):
    if method in BY_NAME and not BY_NAME[method].takes_edges:
        return 'edges' not in form
    return (form, method) != ('weighted edges', 'race')


OPTIONS = [{}, {'null_score': 0.0}, {'replace': False}, {'hard': True}, {'loop': False}]
# Races that never look at most candidates, in blocks of a few rows.
SHORT = [
    {'tail': 0, 'memory': 1},
    {'tail': 10, 'memory': 2**12},
    {'tau': 0.75, 'memory': 2**12},
    {'replace': False, 'loop': False, 'memory': 2**12},
]
SERVED = [pair for pair in itertools.product(FORMS, METHODS) if serves(*pair)]
WAYS = [
    (method, options)
    for method, options in itertools.product(METHODS, OPTIONS)
    if method != 'pool' or 'replace' not in options
]


def assert_sum_of_graph(sampler, x, kwargs, channels=3):
    """Check a graph, and sums over it and their gradients against those of its seed."""
    ends = x if isinstance(x, tuple) else (x,)
    h = torch.randn(len(ends[0]), channels, dtype=torch.double)
    leaves = [leaf.requires_grad_() for leaf in (*ends, h)]
    graph = sampler(x, **kwargs, generator=seeded(2))
    out = sampler.propagate(x, h, **kwargs, generator=seeded(2))
    sums = [
        (each, *torch.autograd.grad(each.square().sum(), leaves, retain_graph=True))
        for each in (out, weighted_sum(h, *graph, len(ends[-1])))
    ]
    torch.testing.assert_close(*sums)
    degree = torch.bincount(graph.edge_index[1], minlength=len(ends[-1]))
    if sampler.null_score is None:
        assert_graph(graph, (degree > 0).double(), len(h))
    return degree


def make_sampler(method='auto', **options):
    options = {'k': 2, 'scale': 3.0} | options
    budget = {name: options.pop(name) for name in ('tail', 'memory') if name in options}
    options['budget'] = limits(method, options, **budget)
    return GumbelKNNSampler.paper(
        CosineSimilarity(5), method=method, **options
    ).double()


@pytest.mark.parametrize('form', FORMS)
@pytest.mark.parametrize(('method', 'options'), WAYS, ids=str)
def test_training_sums_over_the_graph_that_it_returns(form, method, options):
    if serves(form, method):
        assert_sum_of_graph(make_sampler(method, **options), *inputs(form))


@pytest.mark.parametrize(
    ('form', 'method'), [pair for pair in SERVED if pair[1] in ('race', 'stream')]
)
@pytest.mark.parametrize('options', SHORT, ids=str)
def test_races_that_are_cut_short_sum_over_their_graphs(form, method, options):
    sampler = make_sampler(method, scale=0.2, **options)
    x, kwargs = inputs(form, 200, degree=200)
    if method == 'race':
        assert 0 < sampler.plan(x, **kwargs).num_proposals < 50
    assert_sum_of_graph(sampler, x, kwargs)


@pytest.mark.parametrize('form', FORMS)
@pytest.mark.parametrize('eval_k', ['all', 4, None])
@pytest.mark.parametrize('options', OPTIONS, ids=str)
def test_evaluation_sums_over_the_graph_that_it_returns(form, eval_k, options):
    sampler = make_sampler(eval_k=eval_k, **options).eval()
    degree = assert_sum_of_graph(sampler, *inputs(form))
    limit = {'all': N, None: N if options.get('replace', True) else 2}.get(eval_k, 4)
    assert int(degree.max()) <= limit


@pytest.mark.parametrize('is_pair', [True, False])
@pytest.mark.parametrize('training', [True, False])
def test_graphs_of_a_batch_that_are_served_in_different_ways(
    training, is_pair, monkeypatch
):
    # Many pairs are a stream, few are listed; the middle one has no node.
    monkeypatch.setattr(planning, 'SMALL', 30)
    targets = torch.tensor([4, 9, 0, 8, 5])
    sources = torch.tensor([5, 7, 0, 9, 3]) if is_pair else targets
    ids = tuple(torch.arange(5).repeat_interleave(n) for n in (sources, targets))
    x = tuple(torch.randn(len(rows), 5, dtype=torch.double) for rows in ids)
    x, batch = (x, ids) if is_pair else (x[0], ids[0])
    # A scale of its own: what is chosen for equal options is kept.
    sampler = make_sampler(tau=0.5, scale=1.01).train(training)
    assert_sum_of_graph(sampler, x, {'batch': batch})
    if not training:
        h = torch.randn(len(ids[0]), 3, dtype=torch.double)
        score = 1.01 * sampler.similarity(x) / 0.5
        score = score.masked_fill(ids[1].unsqueeze(1) != ids[0], -torch.inf)
        expected = score.softmax(dim=1) @ h
        torch.testing.assert_close(sampler.propagate(x, h, batch=batch), expected)


def clustered(n, seed):
    """Return rows of a few groups, among which sharp scores race by bounds."""
    generator = seeded(seed)
    noise = torch.randn(n, 5, generator=generator)
    return torch.eye(5).repeat(-(-n // 5), 1)[:n] + 0.2 * noise


@pytest.mark.parametrize('scale', [1.0, 20.0])
@pytest.mark.parametrize(('method', 'options'), WAYS, ids=str)
def test_one_seed_gives_one_graph(method, scale, options):
    torch.manual_seed(1)
    options = {'scale': scale, 'train_scale': scale > 1, 'method': method} | options

    def make():
        torch.manual_seed(2)
        return GumbelKNNSampler.paper(CosineSimilarity(5), k=2, **options)

    x, sampler = clustered(320, 0), make()
    for features in (clustered(320, 1), x, clustered(40, 2), x + 0.01, (x, x[:9])):
        sampler(features)
    with torch.no_grad():
        sampler.distribution(x)
        sampler(x)
    sampler.plan(2 * x.flip(0))
    resumed = make()
    resumed.load_state_dict(sampler.state_dict())
    samplers = make(), sampler, resumed, copy.deepcopy(sampler)
    for form in ('all', 'pair'):
        features = (x, clustered(50, 3)) if form == 'pair' else x
        fresh, *graphs = (each(features, generator=seeded(5)) for each in samplers)
        for graph in graphs:
            assert torch.equal(graph.edge_index, fresh.edge_index)
            assert torch.equal(graph.edge_weight, fresh.edge_weight)


def drawn(method, memory, **options):
    """Return a graph of clustered rows, and a sum over one of the same seed."""
    torch.manual_seed(1)
    x, h = clustered(200, 0).double(), torch.arange(200.0).double().unsqueeze(1)
    sampler = make_sampler(method, memory=memory, **options)
    graph = sampler(x, generator=seeded(5))
    return graph, sampler.propagate(x, h, generator=seeded(5))


def assert_same_draw(draw, twin):
    assert torch.equal(draw[0].edge_index, twin[0].edge_index)
    # What is summed in blocks of another size differs in its last bits.
    torch.testing.assert_close(draw[0].edge_weight, twin[0].edge_weight)
    torch.testing.assert_close(draw[1], twin[1])


@pytest.mark.parametrize('scale', [1.0, 20.0])
@pytest.mark.parametrize(('method', 'options'), WAYS, ids=str)
def test_memory_changes_no_graph(method, scale, options):
    at_once, in_blocks = (
        drawn(method, memory, scale=scale, **options) for memory in (2**25, 2**13)
    )
    assert_same_draw(at_once, in_blocks)


@pytest.mark.parametrize('method', [m for m in BY_NAME if m != 'dense'])
def test_threads_change_no_graph(method):
    before = torch.get_num_threads()
    on_one_thread = drawn(method, 2**25, scale=20.0)
    try:
        torch.set_num_threads(2)
        on_two_threads = drawn(method, 2**25, scale=20.0)
    finally:
        torch.set_num_threads(before)
    assert_same_draw(on_one_thread, on_two_threads)


@pytest.mark.parametrize('bounds', ['squared_distance', 'sparse', 'bell'])
def test_one_seed_gives_one_graph_in_a_resumed_training(bounds):
    x = clustered(300, 0)
    x = x.relu().to_sparse_csr() if bounds == 'sparse' else x
    name = {'squared_distance': 'distance', 'bell': 'gaussian'}.get(bounds, 'linear')
    options = {'scale': 20.0, 'method': 'race', 'train_scale': True, 'k': 2}

    def make(state=None):
        torch.manual_seed(2)
        width = None if bounds == 'sparse' else 4
        sampler = GumbelKNNSampler.paper(
            resolve_similarity(name, 5, out_channels=width), **options
        )
        if state is not None:
            sampler.load_state_dict(state)
        return sampler, torch.optim.SGD(sampler.parameters(), lr=0.05)

    def step(sampler, optimizer, seed):
        graph = sampler(x, generator=seeded(seed))
        optimizer.zero_grad()
        graph.edge_weight.square().sum().backward()
        optimizer.step()
        return graph

    trained = make()
    for seed in range(6):
        expected = step(*trained, seed)
        state = copy.deepcopy(trained[0].state_dict())
        if seed == 2:
            resumed = make(state)
        elif seed > 2:
            graph = step(*resumed, seed)
            assert torch.equal(graph.edge_index, expected.edge_index)
            assert torch.equal(graph.edge_weight, expected.edge_weight)


@pytest.mark.parametrize(
    ('x', 'options', 'text'),
    [
        (torch.eye(1), {'loop': False}, 'has no candidate'),
        (torch.eye(2), {'loop': False}, 'has one candidate'),
        ((torch.eye(3)[:1], torch.eye(3)), {}, 'has one candidate'),
    ],
)
def test_too_few_candidates_to_learn_from_warn(x, options, text):
    width = (x[0] if isinstance(x, tuple) else x).size(1)
    sampler = GumbelKNNSampler.paper(CosineSimilarity(width), **options)
    with pytest.warns(UserWarning, match=f'each target {text}'):
        sampler(x)
    sampler.eval()(x)


@pytest.mark.parametrize('form', FORMS)
@pytest.mark.parametrize('eval_k', ['all', 4])
def test_the_method_changes_no_evaluation(form, eval_k):
    (x, kwargs), dense = inputs(form), []
    for method in METHODS:
        torch.manual_seed(3)
        graph = make_sampler(method, eval_k=eval_k).eval()(x, **kwargs)
        dense.append(to_matrix(*graph, N, N))
    for matrix in dense[1:]:
        torch.testing.assert_close(dense[0], matrix)


@pytest.mark.parametrize('is_training', [True, False])
@pytest.mark.parametrize('eval_k', ['all', 4])
@pytest.mark.parametrize(
    ('conv', 'options'),
    [
        (LatentGraphConv, {}),
        (LatentGraphConv, {'null_score': 0.0}),
        (SensorGraphConv, {'num_sensors': N}),
        (TransitionGraphConv, {'num_nodes': N, 'num_transition_nodes': 9}),
    ],
)
def test_a_layer_returns_the_graph_of_its_sum(conv, options, eval_k, is_training):
    torch.manual_seed(4)
    x = torch.randn(N, 6)
    layer = conv(6, 5, eval_k=eval_k, **options).train(is_training)
    seeds = (seeded(5) for _ in range(3))
    expected = layer(x, generator=next(seeds))
    out, graph = layer(x, generator=next(seeds), return_graph=True)
    torch.testing.assert_close(out, expected)
    shown = layer.graph(x, generator=next(seeds))
    torch.testing.assert_close(tuple(graph), tuple(shown))


def test_evaluation_over_few_neighbours_has_gradients():
    x = torch.randn(12, 3, dtype=torch.double, requires_grad=True)
    h = torch.randn(12, 2, dtype=torch.double, requires_grad=True)
    sampler = GumbelKNNSampler.paper(CosineSimilarity(3), scale=4.0, eval_k=3).double()
    assert torch.autograd.gradcheck(sampler.eval().propagate, (x, h))


def test_a_graph_of_too_many_pairs_is_summed_and_not_listed():
    sampler = GumbelKNNSampler.paper(CosineSimilarity(2)).eval()
    x = torch.randn(8193, 2)
    with pytest.raises(ValueError, match=r"'eval_k' must be a number.*8193 x 8193"):
        sampler(x)
    sampler.eval_k = 2
    assert sampler(x).edge_index.shape == (2, 2 * 8193)


@pytest.mark.filterwarnings('ignore::torch_geometric_gsl.SampledEvaluationWarning')
@pytest.mark.parametrize('form', ['all', 'pair', 'batch', 'rows'])
@pytest.mark.parametrize(
    'options', [{}, {'null_score': 0.0}, {'loop': False}, {'eval_k': 4}], ids=str
)
def test_a_sampled_evaluation_lists_what_it_sums(form, options):
    torch.manual_seed(1)
    x, h, kwargs = torch.randn(1100, 5), torch.randn(1100, 3), {}
    if form == 'pair':
        x = (x, torch.randn(7, 5))
    elif form == 'batch':
        kwargs = {'batch': torch.arange(1100) // 1090}
    elif form == 'rows':
        kwargs = {'rows': (30, 50)}
    budget = Budget(eval_pairs=1)
    sampler = GumbelKNNSampler.paper(
        CosineSimilarity(5), scale=3.0, budget=budget, **options
    ).eval()
    graph = sampler(x, **kwargs)
    size = 7 if form == 'pair' else 1100
    total = weighted_sum(h, *graph, size)[slice(*kwargs.get('rows', (0, size)))]
    out = sampler.propagate(x, h, **kwargs)
    torch.testing.assert_close(out, total)
    out, shown = sampler.propagate(x, h, **kwargs, return_graph=True)
    torch.testing.assert_close(out, total)
    assert torch.equal(shown.edge_index, graph.edge_index)
    limit = options.get('eval_k', 1024)
    assert int(graph.edge_index[1].bincount().max()) <= limit


def test_evaluation_is_exact_where_a_sample_would_hold_all():
    # Fewer pairs are allowed than there are, but warnings are errors here.
    sampler = make(budget=Budget(eval_pairs=1000), tau=0.5).eval()
    x, h = normal(500, 6), normal(500, 5, seed=4)
    weight = torch.softmax(sampler.similarity(x).detach() / 0.5, dim=1)
    torch.testing.assert_close(sampler.propagate(x, h).detach(), weight @ h)


def test_a_listed_sample_warns():
    sampler = GumbelKNNSampler.paper(
        CosineSimilarity(2), budget=Budget(eval_pairs=1)
    ).eval()
    with pytest.warns(SampledEvaluationWarning, match="1024 sources.*'eval_pairs'"):
        sampler(torch.randn(1100, 2))


@pytest.mark.parametrize('is_training', [True, False])
def test_a_network_returns_the_graphs_of_its_layers(is_training):
    torch.manual_seed(6)
    x, model = torch.randn(N, 6), GSLNet(6, 8, 2, 3, k=3, eval_k=4)
    model.train(is_training)
    draws = []
    for module in model.modules():
        if isinstance(module, GumbelKNNSampler):
            module.register_draw_hook(lambda *_: draws.append(1))
    seeds = (seeded(5) for _ in range(3))
    expected = model(x, generator=next(seeds))
    count = len(draws)
    out, graphs = model(x, generator=next(seeds), return_graph=True)
    torch.testing.assert_close(out, expected)
    # One draw each: none is repeated to be seen.
    assert len(graphs) == count
    assert len(draws) == 2 * count
    shown = model.graphs(x, generator=next(seeds))
    torch.testing.assert_close([tuple(g) for g in shown], [tuple(g) for g in graphs])
    graphs[0].edge_weight.square().sum().backward()  # It reaches the similarity.
    similarity = model.convs[0].sampler.similarity
    assert any(p.grad.any() for p in similarity.parameters())
