"""A stack of layers over relations: what each layer has, and what it is called with."""

import pytest
import torch
from hetero import (
    BATCH,
    EDGES,
    HAS,
    HIDDEN,
    IN_DOC,
    NEAR,
    OUT,
    RELATIONS,
    K,
    make_net,
)
from hetero import NET_IN as IN
from hetero import NET_X as X
from oracles import check_gradients, seeded, to_matrix
from torch.nn import functional as F

from torch_geometric_gsl import HeteroGSLNet
from torch_geometric_gsl.nn.models.layers import run

INPUT, GIVEN = {'compare': 'input'}, {'compare': 'embedding'}


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('target', ['doc', 'word', None])
def test_layer_by_layer(target, training):
    model = make_net(target, num_layers=3, dropout=0.3, act='relu').train(training)
    torch.manual_seed(2)
    x = X
    for number, conv in enumerate(model.convs):
        out = conv({t: x[t] for t in conv.node_types})
        if number < 2:
            out = {t: F.dropout(v.relu(), 0.3, training) for t, v in out.items()}
        x = X | out  # Authors enter every layer as they came.
    # The source is the global generator, or another one in the same state.
    torch.manual_seed(2)
    found = model(X)
    again = model(X, generator=seeded(2))
    torch.testing.assert_close(again, found, rtol=0, atol=0)
    if target is None:
        assert list(found) == ['doc', 'word']
    expected = x[target] if target else {t: x[t] for t in ('doc', 'word')}
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_relations_that_reach_the_target():
    model = make_net('word', num_layers=3)
    assert [list(conv.relations) for conv in model.convs] == [
        RELATIONS,
        RELATIONS,
        [HAS],
    ]
    widths = [conv.in_channels for conv in model.convs]
    assert widths[0] == IN
    assert widths[1] == {'doc': HIDDEN, 'word': HIDDEN, 'author': 3}
    assert widths[2] == {'doc': HIDDEN, 'word': HIDDEN}
    # Authors are too far away to be heard, and need not even be given.
    near = make_net('word', num_layers=1).eval()
    assert near.convs[0].relations == [HAS]
    assert torch.equal(near({'doc': X['doc'], 'word': X['word']}), near(X))
    assert [list(conv.relations) for conv in make_net(None).convs] == [RELATIONS] * 2


def test_the_input_is_compared_in_every_layer():
    relations = {NEAR: {}, IN_DOC: {}, HAS: {'compare': 'projected'}}
    options = {'compare': 'input', 'similarity': 'linear', 'train_scale': True}
    sizes = {'doc': 6, 'word': 6}
    model = HeteroGSLNet(sizes, HIDDEN, 3, OUT, relations, 'doc', k=K, **options)
    x = {t: X[t].float() for t in sizes}
    one, other, _ = model.eval().graphs(x)
    assert torch.equal(one[IN_DOC].edge_index, other[IN_DOC].edge_index)
    y = torch.arange(12) % OUT
    model.train().loss(x, y).backward()
    check_gradients(model)


def test_a_layer_has_the_relations_that_are_heard_after_it():
    # From authors to documents it is two steps, over words.
    about = ('author', 'about', 'word')
    relations = [about, IN_DOC, ('doc', 'by', 'author')]
    model = make_net('doc', num_layers=3, relations=relations)
    assert [conv.relations for conv in model.convs] == [
        relations,
        [about, IN_DOC],
        [IN_DOC],
    ]
    # All types are targets here, so that all have hidden widths after one layer.
    assert [conv.in_channels for conv in model.convs] == [
        IN,
        dict.fromkeys(IN, HIDDEN),
        {'word': HIDDEN, 'doc': HIDDEN},
    ]
    assert [conv.out_channels for conv in model.convs] == [HIDDEN, HIDDEN, OUT]
    shown = [set(graphs) for graphs in model.graphs(X)]
    assert shown == [{*relations}, {about, IN_DOC}, {IN_DOC}]


def test_options_of_all_layers():
    relations = {NEAR: {'k': 2}, IN_DOC: {}}
    model = make_net(relations=relations, tau=0.1, aggr='mean', observed='prior')
    for conv in model.convs:
        assert conv.aggr == 'mean'
        assert [own.sampler.k for own in conv.convs.values()] == [2, K]
        assert {own.sampler.tau for own in conv.convs.values()} == {0.1}
        assert all(own.prior is not None for own in conv.convs.values())


@pytest.mark.parametrize(
    ('common', 'own', 'is_shared'),
    [
        ({}, {}, False),
        (INPUT, {}, True),
        ({'embedding_channels': 2, **GIVEN}, {}, True),
        ({}, INPUT, True),
        ({}, {'embedding_channels': 2, **GIVEN}, True),
        (INPUT, {'compare': 'projected'}, False),
    ],
)
def test_layers_that_compare_the_same_rows_have_one_sampler(common, own, is_shared):
    model = make_net(num_layers=3, relations={NEAR: own, IN_DOC: {}}, **common)
    samplers = {conv.convs[NEAR].sampler for conv in model.convs}
    assert len(samplers) == (1 if is_shared else 3)
    others = {conv.convs[IN_DOC].sampler for conv in model.convs}
    assert not samplers & others  # Each relation has its own.


def test_sources_that_stay_as_they_are():
    calls = []
    model = make_net(num_layers=3, dropout=0.0, act=None).eval()
    for conv in model.convs:
        conv.register_forward_pre_hook(lambda _, args: calls.append(args[0]))
    model(X)
    assert len(calls) == 3
    assert all(torch.equal(x['author'], X['author']) for x in calls)
    assert [x['word'].shape for x in calls] == [(9, 6), (9, HIDDEN), (9, HIDDEN)]
    # A bad row of theirs is told from the type, in any layer.
    for target in ('doc', None):
        with pytest.raises(ValueError, match=r"'x_dict\['author'\]' contains NaN"):
            make_net(target)(X | {'author': X['author'] / 0})


def test_graphs_leave_out_the_sums_of_the_last_layer():
    model, called = make_net(), []
    for number, conv in enumerate(model.convs):
        conv.register_forward_hook(lambda *_, number=number: called.append(number))
    model.graphs(X)
    assert called == [0]
    called.clear()
    model.graphs({'doc': X['doc'][:2]}, context_dict=X)
    assert called == [0, 0]  # Of the context, and of new rows.


@pytest.mark.parametrize('is_new', [False, True])
def test_graphs_are_those_of_the_forward_pass(is_new):
    options = {'relations': [NEAR, HAS], 'dropout': 0.0, 'act': None}
    model = make_net(None, **options)
    x = {t: X[t] for t in ('doc', 'word')}
    given = {'context_dict': x} if is_new else {}
    rows = {t: value[:5] for t, value in x.items()} if is_new else x
    graphs = model.graphs(rows, **given, generator=seeded(3))
    found = model(rows, **given, generator=seeded(3))
    first, last = model.convs
    generator = seeded(3)
    # The context passes the first layer before the new rows do.
    hidden = new = first(x, generator=generator)
    if is_new:
        new = first(rows, context_dict=x, generator=generator)
    for relation in (NEAR, HAS):
        source, _, target = relation
        sources, targets = hidden[source], new[target]
        sums = to_matrix(*graphs[1][relation], len(targets), len(sources)) @ (
            sources @ last.convs[relation].lin.weight.t()
        )
        root = targets @ last.roots[target].weight.t() + last.biases[target]
        torch.testing.assert_close(found[target], sums + root)


def test_run():
    conv = make_net().convs[0]
    expected = conv(X, batch_dict=BATCH, generator=seeded(1))
    found = run(conv, X, {'batch_dict': BATCH}, seeded(1))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


BAD_OPTIONS = [
    (
        {'compare': 'input'},
        r"'in_channels' must be known and equal for both types with compare='input' "
        r"\(got 3 and 6 of \('author', 'of', 'doc'\)\)",
    ),
    (
        {'compare': 'input', 'in_channels': -1, 'relations': [NEAR]},
        r"'in_channels' must be known and .* \(got -1 and -1 of \('doc', 'near', 'doc'",
    ),
    (
        {'relations': {NEAR: INPUT, HAS: GIVEN}, 'in_channels': 6},
        r"'compare' must not be 'input' for some relations and 'embedding' for others "
        r'\(got both\)',
    ),
    (
        {'compare': 'input', 'embedding_channels': 2, 'in_channels': 6},
        r"'embedding_channels' has no meaning with compare='input' \(got a int\)",
    ),
    (
        {'relations': {NEAR: INPUT | {'embedding_channels': 2}}, 'in_channels': 6},
        r"'embedding_channels' has no meaning with compare='input' \(got a int\)",
    ),
]


@pytest.mark.parametrize(('given', 'text'), BAD_OPTIONS)
def test_bad_options(given, text):
    sizes = {'in_channels': IN, 'hidden_channels': 8, 'num_layers': 2}
    rest = {'out_channels': OUT, 'relations': RELATIONS, 'target': 'doc'}
    with pytest.raises(ValueError, match=text):
        HeteroGSLNet(**(sizes | rest | given))


BAD_CALLS = [
    ({'x_dict': X['doc']}, TypeError, r"'x_dict' must be a dict \(got Tensor\)"),
    (
        {'x_dict': {'doc': X['doc']}},
        ValueError,
        r"'x_dict' must hold the rows of 'wor",
    ),
    (
        {'x_dict': X | {'page': X['doc']}},
        ValueError,
        r"'x_dict' must be a dict of .* \(got 'page'\)",
    ),
    (
        {'edge_index_dict': {('doc', 'by', 'author'): X}},
        ValueError,
        r"'edge_index_dict' must be a dict of .* \(got \('doc', 'by', 'author'\)\)",
    ),
    (
        {'context_dict': X},
        ValueError,
        r"'x_dict' must be a dict of \['doc'\] \(got 'author'\)",
    ),
    (
        {'x_dict': {}, 'context_dict': X},
        ValueError,
        r"'x_dict' must hold the rows of 'doc' \(got those of \[\]\)",
    ),
    (
        {
            'x_dict': {'doc': X['doc']},
            'context_dict': X,
            'edge_index_dict': EDGES,
        },
        TypeError,
        r"'edge_index_dict\[\('word', 'in', 'doc'\)\]' must be a pair with a 'context'",
    ),
    (
        {'embedding_dict': X},
        ValueError,
        r"'embedding_dict' has no meaning without compare='embedding'",
    ),
]


@pytest.mark.parametrize(('given', 'error', 'text'), BAD_CALLS)
def test_bad_calls(given, error, text):
    given = {'x_dict': dict(reversed(X.items()))} | given
    with pytest.raises(error, match=text):
        make_net()(**given)
