"""The layer of several types of nodes, against samplers that are called one by one."""

import copy

import pytest
import torch
from hetero import (
    IN,
    IN_DOC,
    NEAR,
    OF,
    OUT,
    RELATIONS,
    SIZE,
    TAU,
    K,
    make,
    rows,
    single,
)
from oracles import check_gradients, seeded, to_matrix
from sampling import normal

from torch_geometric_gsl import (
    CosineSimilarity,
    GumbelKNNSampler,
    HeteroLatentGraphConv,
    LatentGraphConv,
    LinearSimilarity,
    NeuralGaussianSimilarity,
)

AGGREGATIONS = {
    'sum': lambda parts: sum(parts),
    'mean': lambda parts: sum(parts) / len(parts),
    'min': lambda parts: torch.stack(parts).amin(dim=0),
    'max': lambda parts: torch.stack(parts).amax(dim=0),
    'cat': lambda parts: torch.cat(parts, dim=1),
    None: lambda parts: torch.stack(parts, dim=1),
}


def plain_graph(conv, relation, x, generator, training):
    """Draw the graph of one relation by a sampler of its own, and its messages."""
    source, _, target = relation
    own = conv.convs[relation]
    similarity = NeuralGaussianSimilarity(OUT).double()
    similarity.load_state_dict(own.sampler.similarity.state_dict())
    sampler = GumbelKNNSampler(similarity, K, TAU, method='dense').train(training)
    messages = x[source] @ own.lin.weight.t()
    pair = messages
    if source != target:
        pair = messages, x[target] @ own.lin_dst.weight.t()
    graph = sampler(pair, generator=generator)
    return to_matrix(*graph, len(x[target]), len(x[source])), messages


@pytest.mark.parametrize('aggr', AGGREGATIONS)
@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('flags', [(True, True), (False, False)])
def test_a_loop_over_the_relations(flags, training, aggr):
    root_weight, bias = flags
    options = {'root_weight': root_weight, 'bias': bias, 'method': 'dense'}
    conv = make(aggr=aggr, **options).train(training)
    x, generator = rows(), seeded(7)
    parts = {}
    for relation in RELATIONS:
        matrix, messages = plain_graph(conv, relation, x, generator, training)
        parts.setdefault(relation[2], []).append(matrix @ messages)
    found = conv(x, generator=seeded(7))
    assert list(found) == ['doc', 'word']  # Nothing leads to authors.
    for target, own in parts.items():
        expected = AGGREGATIONS[aggr](own)
        if root_weight:
            root = x[target] @ conv.roots[target].weight.t()
            expected = expected + (root.unsqueeze(1) if aggr is None else root)
        if bias:
            expected = expected + conv.biases[target]
        torch.testing.assert_close(found[target], expected)


def test_graphs_are_those_of_the_forward_pass():
    conv, x = make(hard=True), rows()
    graphs = conv.graphs(x, generator=seeded(7))
    assert list(graphs) == RELATIONS
    total = {'doc': 0, 'word': 0}
    for relation, (edge_index, weight) in graphs.items():
        source, _, target = relation
        matrix = to_matrix(edge_index, weight, SIZE[target], SIZE[source])
        torch.testing.assert_close(matrix.sum(dim=1), torch.ones(SIZE[target]).double())
        own = conv.convs[relation]
        total[target] = total[target] + matrix @ (x[source] @ own.lin.weight.t())
    found = conv(x, generator=seeded(7))
    for target, out in total.items():
        root = x[target] @ conv.roots[target].weight.t() + conv.biases[target]
        torch.testing.assert_close(found[target], out + root)


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize(
    'options',
    [
        {},
        {'similarity': 'linear', 'scale': 3.0, 'loop': False, 'replace': False},
        {'z_channels': -1, 'train_scale': True, 'null_score': 0.0},
        {'observed': 'prior'},
    ],
)
def test_one_type_and_one_relation(options, training):
    torch.manual_seed(1)
    plain = LatentGraphConv(6, OUT, k=K, **options).double().train(training)
    torch.nn.init.normal_(plain.bias)
    relation = ('doc', 'near', 'doc')
    conv = HeteroLatentGraphConv(6, OUT, [relation], k=K, **options).double()
    conv.train(training)
    own = conv.convs[relation]
    same = {'lin': own.lin, 'lin_root': conv.roots['doc'], 'sampler': own.sampler}
    for name, part in same.items():
        part.load_state_dict(getattr(plain, name).state_dict())
    if plain.prior is not None:
        own.prior.load_state_dict(plain.prior.state_dict())
    conv.biases['doc'].data.copy_(plain.bias)
    assert sum(p.numel() for p in conv.parameters()) == sum(
        p.numel() for p in plain.parameters()
    )

    x, edges = rows()['doc'], torch.randint(12, (2, 60), generator=seeded())
    edges = edges if plain.prior is not None else None
    given = ({'doc': x}, None if edges is None else {relation: edges})
    one = plain(x, edges, generator=seeded(3))
    other = conv(*given, generator=seeded(3))['doc']
    assert torch.equal(one, other)
    graph = plain.graph(x, edges, generator=seeded(3))
    found = conv.graphs(*given, generator=seeded(3))[relation]
    assert torch.equal(graph.edge_index, found.edge_index)
    assert torch.equal(graph.edge_weight, found.edge_weight)
    one.square().sum().backward()
    other.square().sum().backward()
    for name, part in same.items():
        for a, b in zip(
            getattr(plain, name).parameters(), part.parameters(), strict=True
        ):
            torch.testing.assert_close(a.grad, b.grad)
    torch.testing.assert_close(plain.bias.grad, conv.biases['doc'].grad)


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize(
    'options',
    [
        {'train_scale': True, 'null_score': 0.0},
        {'z_channels': 2},
        {'observed': 'prior', 'aggr': 'mean'},
    ],
)
def test_gradients_reach_every_parameter(options, training):
    conv, x = make(**options).train(training), rows()
    given = {}
    if 'z_channels' in options:
        given['z_dict'] = {t: normal(SIZE[t], 2) for t in IN}
    if 'observed' in options:
        edges = torch.arange(7)
        given['edge_index_dict'] = {r: torch.stack([edges, edges]) for r in RELATIONS}
    for value in x.values():
        value.requires_grad_()
    out = conv(x, **given)
    sum(value.square().sum() for value in out.values()).backward()
    check_gradients(conv)
    assert all(bool(value.grad.ne(0).any()) for value in x.values())
    for relation, own in conv.convs.items():
        # What is not compared is not projected: it would have no gradient.
        is_projected = relation != NEAR and 'z_channels' not in options
        assert (own.lin_dst is not None) == is_projected


def test_permutations_within_types():
    conv, x = make().eval(), rows()
    order = {t: torch.randperm(SIZE[t], generator=seeded(len(t))) for t in IN}
    out = conv(x)
    moved = conv({t: x[t][order[t]] for t in IN})
    for target, value in out.items():
        torch.testing.assert_close(moved[target], value[order[target]])


def test_options_of_relations():
    trained = LinearSimilarity(OUT)
    relations = {
        IN_DOC: {'similarity': trained, 'k': 2, 'hard': True},
        NEAR: {'z_channels': -1, 'tau': 0.1, 'null_score': 0.0},
        OF: {},
    }
    options = {'similarity_kwargs': {'c_scale': 0.3}, 'scale': 2.0, 'loop': False}
    conv = HeteroLatentGraphConv(IN, OUT, relations, k=4, **options)
    samplers = {relation: own.sampler for relation, own in conv.convs.items()}
    assert [samplers[r].k for r in relations] == [2, 4, 4]
    assert [samplers[r].tau for r in relations] == [0.25, 0.1, 0.25]
    assert [samplers[r].hard for r in relations] == [True, False, False]
    assert [samplers[r].null_score is None for r in relations] == [True, False, True]
    assert {s.scale for s in samplers.values()} == {2.0}
    assert samplers[IN_DOC].similarity is trained
    assert samplers[NEAR].similarity.in_channels == IN['doc']
    assert samplers[OF].similarity.c_scale == 0.3
    assert samplers[OF].similarity is not samplers[NEAR].similarity
    # What is of the similarity goes with it, and stays where it is the same.
    relations = {IN_DOC: {'similarity': 'cosine'}, OF: {'similarity': 'linear'}}
    options = {'similarity': 'linear', 'similarity_kwargs': {'feature_weights': True}}
    named = HeteroLatentGraphConv(IN, OUT, relations, **options)
    other, same = (own.sampler.similarity for own in named.convs.values())
    assert isinstance(other, CosineSimilarity)
    assert same.feature_weight is not None
    # A similarity of the layer that is a module is one for all.
    shared = HeteroLatentGraphConv(IN, OUT, [IN_DOC, OF], LinearSimilarity(OUT))
    one, other = (own.sampler.similarity for own in shared.convs.values())
    assert one is other
    mixed = HeteroLatentGraphConv(
        IN,
        OUT,
        {IN_DOC: {}, OF: {'z_channels': None}},
        z_channels=2,
    )
    x = single(rows())
    words = {t: torch.randn(SIZE[t], 2) for t in ('doc', 'word')}
    assert mixed(x, z_dict=words)['doc'].shape == (12, OUT)


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('dtype', [torch.float32, torch.bfloat16])
def test_dtypes(dtype, training):
    conv = make(method='dense').to(dtype).train(training)
    out = conv({t: value.to(dtype) for t, value in rows().items()})
    assert {value.dtype for value in out.values()} == {dtype}
    exact = make(method='dense').eval()(rows())
    if not training and dtype == torch.float32:
        for target, value in exact.items():
            torch.testing.assert_close(
                out[target].double(), value, rtol=1e-4, atol=1e-5
            )


def test_seeds():
    conv, x = make(), rows()
    one, same, other = (conv(x, generator=seeded(seed)) for seed in (1, 1, 2))
    assert torch.equal(one['doc'], same['doc'])
    assert not torch.equal(one['doc'], other['doc'])


def test_state_dict_and_reset():
    conv, x = make().eval(), rows()
    twin = make()
    twin.reset_parameters()
    assert not torch.equal(twin.eval()(x)['doc'], conv(x)['doc'])
    twin.load_state_dict(conv.state_dict())
    torch.testing.assert_close(twin(x), conv(x), rtol=0, atol=0)
    assert 'convs.:word|in|doc.lin_dst.weight' in conv.state_dict()
    again = copy.deepcopy(conv)
    again.reset_parameters()
    for bias in again.biases.values():
        assert not bias.any()
    for name, value in again.named_parameters():
        assert name.startswith('biases') or not torch.equal(
            value, conv.get_parameter(name)
        )


def test_names_that_modules_cannot_have():
    relation = ('a.b', 'keys', 'items')
    conv = HeteroLatentGraphConv(3, OUT, [relation])
    x = {'a.b': torch.randn(6, 3), 'items': torch.randn(5, 3)}
    assert conv(x)['items'].shape == (5, OUT)
    assert list(conv.graphs(x)) == [relation]


def test_repr():
    conv = HeteroLatentGraphConv({'word': 8, 'doc': 16}, 32, [IN_DOC], aggr=None)
    assert str(conv) == (
        "HeteroLatentGraphConv({'word': 8, 'doc': 16}, 32, "
        "relations=[('word', 'in', 'doc')], aggr=None)"
    )


NAMES = ['type', 'forward', 'a.b', 'a b', 'T', 'a%2Eb']


@pytest.mark.parametrize('name', [*NAMES, 'a|b', ':', '__dict__', 'a___b'])
def test_any_name_of_a_type(name):
    torch.manual_seed(0)
    others = [other for other in NAMES if other != name]
    relations = [(name, other, 'item') for other in others]
    relations += [('item', 'of', name), ('item', 'b', name)]
    conv = HeteroLatentGraphConv({name: 4, 'item': 3}, 2, relations, k=2)
    assert len({conv.convs[relation] for relation in relations}) == len(relations)
    x = {name: torch.randn(9, 4), 'item': torch.randn(8, 3)}
    assert conv.eval()(x).keys() == {name, 'item'}
    twin = HeteroLatentGraphConv({name: 4, 'item': 3}, 2, relations, k=2).eval()
    twin.load_state_dict(conv.state_dict())
    for kind, out in conv(x).items():
        assert torch.equal(twin(x)[kind], out)
