"""Relations between types, and what a call gives of sources and targets."""

import pytest
import torch
from hetero import HAS, IN_DOC, NEAR, OF, RELATIONS

from torch_geometric_gsl.nn.conv.typed_inputs import (
    OPTIONS,
    both_ends,
    check_all_given,
    check_keys,
    check_relations,
    check_widths,
    ends_of,
    list_edge_types,
)


def test_options_are_those_of_a_layer_and_its_sampler():
    named = ['similarity', 'k', 'tau', 'scale', 'hard', 'null_score', 'loop']
    assert {*named, 'similarity_kwargs', 'z_channels', 'observed'} <= set(OPTIONS)
    assert len(set(OPTIONS)) == len(OPTIONS)
    # Labels, loops, roots and biases are not those of one relation.
    others = {'add_self_loops', 'root_weight', 'bias', 'aggr', 'label_channels', 'self'}
    assert not others & {*OPTIONS}


def test_what_is_listed():
    assert check_relations(iter(RELATIONS)) == {r: {} for r in RELATIONS}
    given = {HAS: {'k': 2}, NEAR: {}}
    assert list(check_relations(given).items()) == list(given.items())
    assert check_relations(given) is not given
    assert list_edge_types(iter(RELATIONS), 'edges') == RELATIONS
    # Types of edges that join the same types differ by their names.
    assert len(list_edge_types([NEAR, ('doc', 'cites', 'doc')], 'edges')) == 2
    assert ends_of(RELATIONS) == (['word', 'doc', 'author'], ['doc', 'word'])
    assert ends_of({NEAR: {}}) == (['doc'], ['doc'])
    assert check_widths(8, ['doc', 'word']) == {'doc': 8, 'word': 8}
    widths = {'word': -1, 'doc': 6}
    assert check_widths(widths, ['doc', 'word']) == widths
    assert check_widths(widths, ['doc', 'word']) is not widths
    edges = {IN_DOC: 1, OF: 2}
    assert check_keys(edges, iter(RELATIONS), 'edges') == edges
    assert check_keys(edges, RELATIONS, 'edges') is not edges
    assert check_keys(None, [], 'edges') == {}
    check_all_given(edges, [OF], 'edges')


@pytest.mark.parametrize(
    ('given', 'error', 'text'),
    [
        ([], ValueError, r"'edges' must hold an edge type \(got none\)"),
        ('doc', TypeError, r"'edges' must be a list of edge types \(got str\)"),
        (3, TypeError, r"'edges' must be a list of edge types \(got int\)"),
        (None, TypeError, r"'edges' must be a list of edge types \(got NoneType\)"),
        ([('doc', 'word')], ValueError, r"\(source, name, target\) \(got \('doc', 'wo"),
        ([NEAR, list(HAS)], ValueError, r"'edges' must hold .* \(got \['doc', 'has'"),
        ([('doc', '', 'word')], ValueError, r"'edges' must hold .* \(got \('doc', ''"),
        ([('doc', 1, 'word')], ValueError, r"'edges' must hold .* \(got \('doc', 1"),
        ([NEAR, HAS, NEAR], ValueError, r"distinct \(got \('doc', 'near', 'doc'\) tw"),
    ],
)
def test_edge_types_that_are_wrong(given, error, text):
    with pytest.raises(error, match=text):
        list_edge_types(given, 'edges')


def test_both_ends():
    known, x, new = ['doc', 'word'], {'doc': 1, 'word': 2}, {'doc': 3}
    assert both_ends(x, known, 'x_dict', False) == (x, x)
    assert both_ends((x, new), iter(known), 'x_dict', True) == (x, new)
    assert both_ends([x, None], known, 'x_dict', True) == (x, {})
    assert both_ends(None, known, 'z_dict', True) == ({}, {})
    for given, is_pair, error, text in (
        (
            (x, new),
            False,
            TypeError,
            r"'z_dict' must be a dict like 'x_dict' .* a tupl",
        ),
        (
            x,
            True,
            TypeError,
            r"'z_dict' must be a pair of dicts like 'x_dict' \(got a d",
        ),
        (torch.ones(1), False, TypeError, r"'z_dict' must be a dict \(got Tensor\)"),
        ((x, {'page': 1}), True, ValueError, r"a dict of \['doc', 'word'\] .*'page'"),
        ((x, x, x), True, ValueError, r'pair .* \(got 3 tensors\)'),
    ):
        with pytest.raises(error, match=text):
            both_ends(given, iter(known), 'z_dict', is_pair)
