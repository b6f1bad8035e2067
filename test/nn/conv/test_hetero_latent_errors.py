"""What the layer of several types refuses: options, calls, and compared rows."""

import pytest
import torch
from hetero import (
    BATCH,
    HAS,
    NEAR,
    OF,
    OUT,
    SIZE,
    make,
    rows,
)
from sampling import normal

from torch_geometric_gsl import HeteroLatentGraphConv

X = rows()
Z = {t: normal(size, 2, seed=len(t)) for t, size in SIZE.items()}
NEW, NEW_IDS = ({t: d[t][:3] for t in ('doc', 'word')} for d in (X, BATCH))
BOTH, IDS, WEIGHTS = (X, NEW), (BATCH, NEW_IDS), {NEAR: torch.ones(3).double()}


@pytest.mark.parametrize(
    ('options', 'edges', 'available'),
    [
        ({}, False, None),
        ({'loop': False}, False, 11),
        ({'loop': False}, True, None),
    ],
)
def test_candidates_are_counted(options, edges, available):
    options = {'replace': available is None, **options}
    conv = make([NEAR], k=12, similarity='linear', **options)
    x, every = {'doc': X['doc']}, torch.arange(12)
    edge_index = {NEAR: torch.cartesian_prod(every, every).t()} if edges else None
    if available is None:
        assert conv(x, edge_index)['doc'].shape == (12, OUT)
    else:
        text = rf"'k' must not exceed .* \(got k=12 for {available} candidates\)"
        with pytest.raises(ValueError, match=text):
            conv(x, edge_index)
    # New rows are no sources, and have none to leave out; none need no candidates.
    for count in (3, 0):
        assert conv((x, {'doc': X['doc'][:count]}))['doc'].shape == (count, OUT)


def without(values, name):
    return {t: value for t, value in values.items() if t != name}


PAIR = {'x_dict': BOTH}
NO_DOC = BATCH, without(NEW_IDS, 'doc')
NO_AUTHOR = without(BATCH, 'author'), NEW_IDS
EDGE, UNKNOWN = torch.zeros(2, 1, dtype=torch.long), ('doc', 'by', 'author')
BAD_TYPES = r"' must be a dict of \['word', 'doc', 'author'\] \(got 'page'\)"
BAD_CALLS = [
    ({'x_dict': X['doc']}, TypeError, r"'x_dict' must be a dict, .* \(got Tensor\)"),
    ({'x_dict': None}, TypeError, r"'x_dict' must be a dict, .* \(got NoneType\)"),
    ({'x_dict': (X, None)}, TypeError, r"'x_dict' must be a dict, .*got NoneType"),
    ({'x_dict': X | {'page': X['doc']}}, ValueError, r"'x_dict" + BAD_TYPES),
    ({'x_dict': without(X, 'author')}, ValueError, "'x_dict' .* entry for 'author'"),
    ({'x_dict': X | {'word': X['word'][0]}}, ValueError, r"word'\]' must have shape"),
    ({'edge_index_dict': {UNKNOWN: EDGE}}, ValueError, r"\(got \('doc', 'by', 'autho"),
    ({'edge_index_dict': [EDGE]}, TypeError, "'edge_index_dict' must be a dict, such"),
    ({'edge_weight_dict': {UNKNOWN: EDGE}}, ValueError, "'edge_weight_dict' must be a"),
    ({'edge_weight_dict': WEIGHTS}, ValueError, "'edge_weight' needs 'edge_index'"),
    ({'batch_dict': BATCH | {'page': EDGE}}, ValueError, r"'batch_dict" + BAD_TYPES),
    ({'batch_dict': without(BATCH, 'author')}, ValueError, 'for .author. .*word.]'),
    ({'batch_dict': IDS}, TypeError, "'batch_dict' must be a dict like 'x_dict'"),
    ({'x_dict': (X, X)}, ValueError, r"a dict of \['doc', 'word'\] \(got 'author'\)"),
    ({'x_dict': (X, X['doc'])}, TypeError, r"'x_dict' must be a dict, .*got Tensor"),
    ({'x_dict': (X, NEW, NEW)}, ValueError, r'a pair .* \(got 3 tensors\)'),
    ({'x_dict': (without(X, 'word'), NEW)}, ValueError, "'x_dict' .* for 'word' "),
    ({'x_dict': (X, {'doc': X['word']})}, ValueError, r"\['doc'\]' must have 6 chan"),
    (PAIR | {'batch_dict': BATCH}, TypeError, r'be a pair of dicts .* \(got a dict\)'),
    (PAIR | {'batch_dict': NO_DOC}, ValueError, r"entry for 'doc' \(got \['word'\]\)"),
    (PAIR | {'batch_dict': NO_AUTHOR}, ValueError, "'batch_dict' .* for 'author'"),
]


@pytest.mark.parametrize(('kwargs', 'error', 'text'), BAD_CALLS)
def test_bad_calls(kwargs, error, text):
    conv = make()
    for call in (conv, conv.graphs):
        with pytest.raises(error, match=text):
            call(**{'x_dict': X, **kwargs})


def test_compared_rows_that_are_missing():
    conv, z = make(z_channels=2), without(Z, 'word')
    text = r"'z_dict' must have an entry for 'word' \(got \['doc', 'author'\]\)"
    with pytest.raises(ValueError, match=text):
        conv(X, z_dict=z)
    with pytest.raises(ValueError, match=text):
        conv(BOTH, z_dict=(z, {t: Z[t][:3] for t in NEW}))
    text = r"'z' is required unless 'x' has z_channels=2 .*\(got 5\)"
    with pytest.raises(ValueError, match=text):
        conv(X)


def test_edges_that_cannot_act():
    """Those of a relation whose targets no call gives, or which has no sources."""
    conv, edges = make(), {HAS: torch.tensor([[3], [1]])}
    text = r"'edge_index_dict' must be a dict of .* \(got \('doc', 'has', 'word'\)\)"
    with pytest.raises(ValueError, match=text):
        conv((X, {'doc': X['doc'][:3]}), edges)
    conv(rows(author=0), {OF: EDGE[:, :0]})
    with pytest.raises(ValueError, match="'edge_index' must be empty where there are"):
        conv(rows(author=0), {OF: EDGE})


@pytest.mark.parametrize('name', ['root_weight', 'out_channels', 'aggr'])
def test_options_of_all_relations(name):
    relations = {HAS: {name: 3}}
    text = rf"'{name}' is an option of all relations \(got one of \('doc', 'has'"
    with pytest.raises(TypeError, match=text):
        HeteroLatentGraphConv(5, 8, relations)


@pytest.mark.parametrize(
    ('options', 'text'),
    [
        ({'generator': 3}, "'generator' must be a torch.Generator"),
        ({'edge_weight_dict': {HAS: torch.ones(2).double()}}, "needs 'edge_index'"),
    ],
)
def test_types_without_nodes_are_checked_as_others(options, text):
    conv = make([HAS], similarity='linear')
    x = {'doc': X['doc'][:0], 'word': X['word']}
    with pytest.raises((TypeError, ValueError), match=text):
        conv(x, **options)
