"""A stack of layers over relations: what each layer has, and what it is called with."""

import pytest
import torch
from hetero import EDGES, HAS, HIDDEN, IN_DOC, NEAR, OUT, RELATIONS, SIZE, make_net
from hetero import NET_IN as IN
from hetero import NET_X as X
from oracles import seeded
from sampling import normal
from torch.nn import functional as F

INPUT, GIVEN = {'z_channels': -1}, {'z_channels': 2}
Z = {t: normal(size, 2, seed=len(t)) for t, size in SIZE.items()}
NEW = {'doc': X['doc'][:5], 'word': X['word'][:3]}
NEW_Z = {t: Z[t][: len(x)] for t, x in NEW.items()}


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('is_pair', [False, True])
@pytest.mark.parametrize('target', ['doc', 'word', None])
@pytest.mark.parametrize('options', [{}, GIVEN])
def test_layer_by_layer(options, target, is_pair, training):
    options = {'dropout': 0.3, 'act': 'relu', **options}
    model = make_net(target, num_layers=3, **options).train(training)
    new = NEW if target is None else {target: NEW[target]}
    given, own = {}, {}
    if 'z_channels' in options:
        given['z_dict'] = (Z, {t: NEW_Z[t] for t in new}) if is_pair else Z
        own['z_dict'] = Z
    torch.manual_seed(2)
    src, dst, expected = X, new if is_pair else X, []
    for number, conv in enumerate(model.convs):
        known = {t: src[t] for t in conv.node_types}
        rows = (known, dst) if is_pair else {t: dst[t] for t in conv.node_types}
        # The sources pass a layer before the new rows do.
        parts = [(known, own), (rows, given)] if is_pair and number < 2 else []
        outs = []
        for x, args in parts or [(rows, given)]:
            kept = {
                name: tuple(pick_types(end, conv.node_types) for end in value)
                if isinstance(value, tuple)
                else pick_types(value, conv.node_types)
                for name, value in args.items()
            }
            out, graphs = conv(x, **kept, return_graph=True)
            if number < 2:
                out = {t: F.dropout(v.relu(), 0.3, training) for t, v in out.items()}
            outs.append(out)
        expected.append(graphs)
        src = src | outs[0]  # Authors enter every layer as they came.
        dst = dst | outs[-1]
    # The source is the global generator, or another one in the same state.
    torch.manual_seed(2)
    x = (X, new) if is_pair else X
    found, graphs = model(x, **given, return_graph=True)
    again = model(x, **given, generator=seeded(2))
    torch.testing.assert_close(again, found)
    if target is None:
        assert list(found) == ['doc', 'word']
    last = dst[target] if target else {t: dst[t] for t in ('doc', 'word')}
    torch.testing.assert_close(found, last)
    shown = model.graphs(x, **given, generator=seeded(2))
    assert len(shown) == 3
    for graph in (graphs, shown):
        torch.testing.assert_close(graph, expected)


def pick_types(values, types):
    return {t: value for t, value in values.items() if t in types}


def test_relations_that_reach_the_target():
    model = make_net('word', num_layers=3)
    assert [conv.relations for conv in model.convs] == [RELATIONS, RELATIONS, [HAS]]
    # No relation leads to authors, who keep their width.
    assert model.convs[1].in_channels == {'doc': HIDDEN, 'word': HIDDEN, 'author': 3}
    # Authors are too far away to be heard; their rows change nothing.
    near = make_net('word', num_layers=1).eval()
    assert near.convs[0].relations == [HAS]
    assert torch.equal(near({'doc': X['doc'], 'word': X['word']}), near(X))
    assert [list(conv.relations) for conv in make_net(None).convs] == [RELATIONS] * 2


def test_a_layer_has_the_relations_that_are_heard_after_it():
    # From authors to documents it is two steps, over words.
    about = ('author', 'about', 'word')
    relations = [about, IN_DOC, ('doc', 'by', 'author')]
    model = make_net('doc', num_layers=3, relations=relations)
    heard = [relations, [about, IN_DOC], [IN_DOC]]
    assert [conv.relations for conv in model.convs] == heard
    # All types are targets here, so that all have hidden widths after one layer.
    assert [conv.in_channels for conv in model.convs] == [
        IN,
        dict.fromkeys(IN, HIDDEN),
        {'word': HIDDEN, 'doc': HIDDEN},
    ]
    assert [conv.out_channels for conv in model.convs] == [HIDDEN, HIDDEN, OUT]
    assert [list(graphs) for graphs in model.graphs(X)] == heard


@pytest.mark.parametrize(
    ('common', 'own', 'is_shared'),
    [
        ({}, {}, False),
        (INPUT, {}, True),
        (GIVEN, {}, True),
        ({}, INPUT, True),
        ({}, GIVEN, True),
        (INPUT, {'z_channels': None}, False),
    ],
)
def test_layers_that_compare_the_same_rows_have_one_sampler(common, own, is_shared):
    model = make_net(num_layers=3, relations={NEAR: own, IN_DOC: {}}, **common)
    samplers = {conv.convs[NEAR].sampler for conv in model.convs}
    assert len(samplers) == (1 if is_shared else 3)
    if is_shared:  # The width of the input is that of all layers.
        width = 2 if GIVEN in (common, own) else 6
        assert {conv.convs[NEAR].z_channels for conv in model.convs} == {width}
    others = {conv.convs[IN_DOC].sampler for conv in model.convs}
    assert not samplers & others  # Each relation has its own.


NEW_DOC = {'doc': NEW['doc']}
PAIR, BY = {'x_dict': (X, NEW_DOC)}, ('doc', 'by', 'author')
BAD_CALLS = [
    ({'x_dict': NEW_DOC}, ValueError, r"'x_dict' must have an entry for 'word' \(got"),
    ({'x_dict': X | {'page': X['doc']}}, ValueError, r"'x_dict' must .* 'page'\)"),
    (
        {'edge_index_dict': {BY: X}},
        ValueError,
        r"'edge_index_dict' must be .* \('doc', ",
    ),
    ({'x_dict': (X, X)}, ValueError, r"'x_dict' must be a dict of \['doc'\] \(got 'wo"),
    ({'x_dict': (X, {})}, ValueError, r"have an entry for 'doc' \(got \[\]\)"),
    (
        PAIR | {'edge_index_dict': EDGES},
        TypeError,
        "_dict' must be a pair of dicts like",
    ),
    (
        PAIR | {'edge_index_dict': ({}, EDGES)},
        ValueError,
        r'has targets outside 0\.\.4',
    ),
]


@pytest.mark.parametrize(('given', 'error', 'text'), BAD_CALLS)
def test_bad_calls(given, error, text):
    with pytest.raises(error, match=text):
        make_net()(**{'x_dict': X, **given})


def test_edges_of_a_relation_that_takes_no_part():
    model, edges = make_net('word', num_layers=1), torch.tensor([[0], [0]])
    model(X, {HAS: edges})
    text = r"'edge_index_dict' must be a dict of \[\('doc', 'has', 'word'\)\] \(got \("
    for given in (edges, edges + 99):
        with pytest.raises(ValueError, match=text):
            model(X, {HAS: edges, IN_DOC: given})
    text = r"'edge_index_dict' must be a dict of .* \(got \('doc', 'has', 'word'\)\)"
    with pytest.raises(ValueError, match=text):
        make_net()((X, NEW_DOC), ({}, {HAS: edges}))
