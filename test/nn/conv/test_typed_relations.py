"""Relations between types, and what a call gives of each type."""

import pytest
import torch
from hetero import BATCH, HAS, IN_DOC, NEAR, OF, RELATIONS, rows
from sampling import normal

from torch_geometric_gsl.nn.conv.typed_relations import (
    OPTIONS,
    TypedRows,
    check_all_given,
    check_graph_ids,
    check_keys,
    check_relations,
    check_rows,
    check_widths,
    ends_of,
    list_edge_types,
    own_options,
    split_pairs,
    split_rows,
)

X = rows()
WIDTHS = {t: x.size(1) for t, x in X.items()}
LIKE = torch.empty(1).double()


def test_options_are_those_of_a_layer_and_its_sampler():
    named = ['similarity', 'k', 'tau', 'scale', 'hard', 'null_score', 'loop']
    named += ['similarity_kwargs', 'compare', 'embedding_channels', 'observed']
    assert set(named) <= set(OPTIONS)
    assert len(set(OPTIONS)) == len(OPTIONS)
    for name in ('self', 'add_self_loops', 'root_weight', 'bias', 'aggr'):
        assert name not in OPTIONS


def test_check_relations():
    assert check_relations(iter(RELATIONS)) == {r: {} for r in RELATIONS}
    given = {HAS: {'k': 2}, NEAR: {}}
    found = check_relations(given)
    assert list(found.items()) == list(given.items())
    assert found is not given
    for options, error, text in (
        ('linear', TypeError, r' must be a dict of options \(got str\)'),
        ({'k': 2, 'width': 3}, ValueError, r" must be one of .*'k'.*\(got 'width'\)"),
    ):
        text = r"'relations\[\('doc', 'near', 'doc'\)\]'" + text
        with pytest.raises(error, match=text):
            check_relations({HAS: {}, NEAR: options})
    with pytest.raises(ValueError, match=r"'relations' must hold .* \(got 'doc'\)"):
        check_relations({'doc': {}})


def test_list_edge_types():
    assert list_edge_types(iter(RELATIONS), 'edges') == RELATIONS
    # Types of edges that join the same types differ by their names.
    assert len(list_edge_types([NEAR, ('doc', 'cites', 'doc')], 'edges')) == 2


@pytest.mark.parametrize(
    ('given', 'error', 'text'),
    [
        ([], ValueError, r"'edges' must hold an edge type \(got none\)"),
        ('doc', TypeError, r"'edges' must be a list of edge types \(got str\)"),
        (3, TypeError, r"'edges' must be a list of edge types \(got int\)"),
        (None, TypeError, r"'edges' must be a list of edge types \(got NoneType\)"),
        (
            [('doc', 'word')],
            ValueError,
            r"'edges' must hold edge types \(source, name, target\) \(got \('doc', 'w",
        ),
        ([NEAR, list(HAS)], ValueError, r"'edges' must hold .* \(got \['doc', 'has'"),
        (
            [('doc', '', 'word')],
            ValueError,
            r"'edges' must hold .* \(got \('doc', ''",
        ),
        (
            [('doc', 1, 'word')],
            ValueError,
            r"'edges' must hold .* \(got \('doc', 1",
        ),
        (
            [NEAR, HAS, NEAR],
            ValueError,
            r"'edges' must be distinct \(got \('doc', 'near', 'doc'\) twice\)",
        ),
    ],
)
def test_edge_types_that_are_wrong(given, error, text):
    with pytest.raises(error, match=text):
        list_edge_types(given, 'edges')


COMMON = {
    'similarity': 'linear',
    'similarity_kwargs': {'feature_weights': True},
    'compare': 'embedding',
    'embedding_channels': 2,
    'k': 5,
}


@pytest.mark.parametrize(
    ('own', 'changed'),
    [
        ({}, {}),
        ({'k': 2}, {'k': 2}),
        # Details of an option go with it, and stay where it is the same.
        ({'similarity': 'cosine'}, {'similarity': 'cosine', 'similarity_kwargs': None}),
        ({'similarity': 'linear'}, {}),
        ({'compare': 'input'}, {'compare': 'input', 'embedding_channels': None}),
        (
            {'similarity': 'cosine', 'similarity_kwargs': {'heads': 2}},
            {'similarity': 'cosine', 'similarity_kwargs': {'heads': 2}},
        ),
        ({'embedding_channels': 3}, {'embedding_channels': 3}),
    ],
)
def test_own_options(own, changed):
    before = dict(COMMON), dict(own)
    assert own_options(COMMON, own) == COMMON | changed
    assert before == (COMMON, own)


def test_ends_of():
    assert ends_of(RELATIONS) == (['word', 'doc', 'author'], ['doc', 'word'])
    assert ends_of({NEAR: {}}) == (['doc'], ['doc'])
    assert ends_of([]) == ([], [])


def test_check_widths():
    assert check_widths(8, ['doc', 'word']) == {'doc': 8, 'word': 8}
    given = {'word': -1, 'doc': 6}
    assert check_widths(given, ['doc', 'word']) == given
    assert check_widths(given, ['doc', 'word']) is not given


@pytest.mark.parametrize(
    ('given', 'error', 'text'),
    [
        ({'doc': 6}, ValueError, r"'in_channels' must tell of 'word' \(got none\)"),
        (
            {'doc': 6, 'word': 5, 'page': 2},
            ValueError,
            r"'in_channels' must be a dict of \['doc', 'word'\] \(got 'page'\)",
        ),
        (
            {'doc': 6, 'word': 0},
            ValueError,
            r"'in_channels\['word'\]' must be at least 1 \(got 0\)",
        ),
        (
            2.5,
            TypeError,
            r"'in_channels\['doc'\]' must be an integer \(got float\)",
        ),
    ],
)
def test_widths_that_are_wrong(given, error, text):
    with pytest.raises(error, match=text):
        check_widths(given, ['doc', 'word'])


def test_check_keys():
    assert check_keys(None, [], 'batch_dict') == {}
    given = {IN_DOC: 1, OF: 2}
    assert check_keys(given, iter(RELATIONS), 'edges') == given
    assert check_keys(given, RELATIONS, 'edges') is not given
    with pytest.raises(TypeError, match=r"'edges' must be a dict \(got list\)"):
        check_keys([1], RELATIONS, 'edges')
    text = r"'edges' must be a dict of \['doc', 'word'\] \(got 'page'\)"
    with pytest.raises(ValueError, match=text):
        check_keys({'doc': 1, 'page': 2}, iter(['doc', 'word']), 'edges')


def test_split_pairs():
    given = {'doc': (1, 2), 'word': [None, 3], 'author': (4, None), 'page': None}
    assert split_pairs(given, 'batch_dict') == (
        {'doc': 1, 'author': 4},
        {'doc': 2, 'word': 3},
    )
    for bad, kind in ((LIKE, 'Tensor'), ((1, 2, 3), 'tuple')):
        text = rf"'batch_dict\['doc'\]' must be a pair with a 'context'.* \(got {kind}"
        with pytest.raises(TypeError, match=text):
            split_pairs({'doc': bad}, 'batch_dict')


def test_split_rows():
    new = {'doc': X['doc'][:3]}
    batch = {'doc': (BATCH['doc'], BATCH['doc'][:3]), 'word': (BATCH['word'], None)}
    embedding = {'doc': (1, 2), 'author': (3, None)}
    sources, targets = split_rows(X, new, batch, embedding)
    assert sources.x is X
    assert targets.x is new
    assert sources.batch == {'doc': batch['doc'][0], 'word': batch['word'][0]}
    assert targets.batch == {'doc': batch['doc'][1]}
    assert sources.embedding == {'doc': 1, 'author': 3}
    assert targets.embedding == {'doc': 2}
    with pytest.raises(TypeError, match=r"'embedding_dict\['doc'\]' must be a pair"):
        split_rows(X, new, {}, {'doc': 1})
    with pytest.raises(TypeError, match=r"'batch_dict\['doc'\]' must be a pair"):
        split_rows(X, new, BATCH, {})


def test_check_rows():
    check_rows(TypedRows(X, BATCH, {}), WIDTHS, LIKE, 'x_dict')
    sparse = {t: x.to_sparse_csr() for t, x in X.items()}
    check_rows(TypedRows(sparse, BATCH, {}), WIDTHS, LIKE, 'x_dict')
    # Widths may be unknown, and rows fewer than types.
    check_rows(TypedRows({'doc': X['doc']}, {}, {}), {'doc': -1}, LIKE, 'x_dict')


@pytest.mark.parametrize(
    ('x', 'batch', 'error', 'text'),
    [
        ('rows', None, TypeError, r"'x_dict\['doc'\]' must be a torch.Tensor \(got st"),
        (normal(12), None, ValueError, r"'x_dict\['doc'\]' must have shape .*\[12\]"),
        (
            normal(12, 5),
            None,
            ValueError,
            r"'x_dict\['doc'\]' must have 6 .*\(got 5\)",
        ),
        (X['doc'] / 0, None, ValueError, r"'x_dict\['doc'\]' contains NaN or infinite"),
        (X['doc'].float(), None, TypeError, r"'x_dict\['doc'\]' has torch.float32 but"),
        (
            X['doc'],
            BATCH['word'],
            ValueError,
            r"'batch_dict\['doc'\]' must have one",
        ),
        (X['doc'], 'ids', TypeError, r"'batch_dict\['doc'\]' must be a torch.Tensor"),
    ],
)
def test_rows_that_are_wrong(x, batch, error, text):
    given = {} if batch is None else {'doc': batch}
    with pytest.raises(error, match=text):
        check_rows(TypedRows(X | {'doc': x}, given, {}), WIDTHS, LIKE, 'x_dict')


def test_check_graph_ids():
    typed = TypedRows(X, {'doc': BATCH['doc'], 'word': BATCH['word']}, {})
    check_graph_ids(typed, ['word', 'doc'])
    check_graph_ids(TypedRows(X, {}, {}), [])
    text = (
        r"'batch_dict' must have the graph ids of 'author' in 'x_dict' "
        r"\(got those of \['doc', 'word'\]\)"
    )
    with pytest.raises(ValueError, match=text):
        check_graph_ids(typed, X, " in 'x_dict'")


def test_check_all_given():
    check_all_given(X, ['word', 'doc'], 'x_dict')
    text = r"'x_dict' must hold the rows of 'page' \(got those of \['doc', 'word', 'aut"
    with pytest.raises(ValueError, match=text):
        check_all_given(X, ['word', 'page'], 'x_dict')
