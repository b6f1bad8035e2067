"""What is refused before the layer of a relation is called."""

import pytest
import torch
from hetero import (
    BATCH,
    IN,
    IN_DOC,
    NEAR,
    OUT,
    SIZE,
    make,
    rows,
    single,
)
from sampling import normal

X = rows()
NEW = {'word': X['word'][:2], 'doc': X['doc'][:3]}
HALF = {t: (BATCH[t], BATCH[t][: len(NEW[t])] if t in NEW else None) for t in IN}


@pytest.mark.parametrize(
    ('options', 'edges', 'available'),
    [
        ({}, False, None),
        ({'loop': False}, False, 11),
        ({'loop': False}, True, None),
        ({'loop': False, 'observed': 'prior'}, True, 11),
    ],
)
def test_candidates_are_counted(options, edges, available):
    options = {'replace': available is None, **options}
    conv = make([NEAR], k=12, similarity='linear', **options)
    x, every = {'doc': X['doc']}, torch.arange(12)
    pairs = torch.cartesian_prod(every, every).t()
    given = {NEAR: pairs} if edges else None
    if available is None:
        assert conv(x, given)['doc'].shape == (12, OUT)
    else:
        text = (
            r"'k' must not exceed the number of candidates of relation "
            rf"\('doc', 'near', 'doc'\) \(got k=12 for {available} candidates\)"
        )
        with pytest.raises(ValueError, match=text):
            conv(x, given)
    # New rows are no sources, and have none to leave out; none need no candidates.
    for count in (3, 0):
        out = conv({'doc': X['doc'][:count]}, context_dict=x)['doc']
        assert out.shape == (count, OUT)


def test_check_context():
    conv = make()
    conv.check_context(X)
    for bad, error, text in (
        ({'word': None}, ValueError, r"' must hold the rows of 'word' \(got those of"),
        ({'word': X['doc']}, ValueError, r"\['word'\]' must have 5 channels \(got 6\)"),
        ({'doc': X['doc'] / 0}, ValueError, r"\['doc'\]' contains NaN or infinite"),
        ({'doc': single(X)['doc']}, TypeError, r"\['doc'\]' has torch.float32 but"),
    ):
        context = {t: value for t, value in (X | bad).items() if value is not None}
        with pytest.raises(error, match=r"'context_dict" + text):
            conv.check_context(context)


@pytest.mark.parametrize(
    ('missing', 'text'),
    [
        ({'doc': (None, HALF['doc'][1])}, r"of 'doc' in 'context_dict' \(got those of"),
        ({'doc': (BATCH['doc'], None)}, r"of 'doc' in 'x_dict' \(got those of \['word"),
        ({'author': None}, r"of 'author' in 'context_dict' \(got those of \['doc', 'w"),
        (
            {'doc': None, 'author': None, 'word': (BATCH['word'], None)},
            r"of 'doc' in 'context_dict' \(got those of \['word'\]\)",
        ),
    ],
)
def test_graph_ids_of_new_rows_that_are_missing(missing, text):
    conv = make(similarity='linear').eval()
    assert conv(NEW, None, None, HALF, context_dict=X)['word'].shape == (2, OUT)
    for call in (conv, conv.graphs, conv.plan):
        with pytest.raises(ValueError, match=r"'batch_dict' must have the .*" + text):
            call(NEW, None, None, HALF | missing, context_dict=X)
    # A type that has no new rows has no ids of them, and one that sends nothing none.
    only = {'doc': (BATCH['doc'], None), 'word': (None, HALF['word'][1])}
    given = {'word': NEW['word']}, None, None, only
    assert conv(*given, context_dict=X)['word'].shape == (2, OUT)


EDGES = torch.zeros(2, 1, dtype=torch.long)


BAD_CALLS = [
    ({'x_dict': X['doc']}, TypeError, r"'x_dict' must be a dict \(got Tensor\)"),
    (
        {'x_dict': X | {'page': X['doc']}},
        ValueError,
        r"'x_dict' must be a dict of \['word', 'doc', 'author'\] \(got 'page'\)",
    ),
    (
        {'x_dict': {'doc': X['doc'], 'word': X['word']}},
        ValueError,
        r"'x_dict' must hold the rows of 'author' \(got those of \['doc', 'word'\]\)",
    ),
    (
        {'x_dict': X | {'word': X['doc']}},
        ValueError,
        r"'x_dict\['word'\]' must have 5 channels \(got 6\)",
    ),
    (
        {'x_dict': X | {'word': X['word'].float()}},
        TypeError,
        r"'x_dict\['word'\]' has torch.float32 but the parameters have torch.float64",
    ),
    (
        {'x_dict': X | {'word': X['word'] / 0}},
        ValueError,
        r"'x_dict\['word'\]' contains NaN or infinite values",
    ),
    (
        {'edge_index_dict': {('doc', 'by', 'author'): EDGES}},
        ValueError,
        r"'edge_index_dict' must be a dict of .* \(got \('doc', 'by', 'author'\)\)",
    ),
    (
        {'edge_index_dict': {IN_DOC: EDGES + 10}},
        ValueError,
        r"'edge_index_dict\[\('word', 'in', 'doc'\)\]' has sources outside 0..8",
    ),
    (
        {'batch_dict': BATCH | {'page': BATCH['doc']}},
        ValueError,
        r"'batch_dict' must be a dict of .* \(got 'page'\)",
    ),
    (
        {'batch_dict': {'doc': BATCH['doc']}},
        ValueError,
        r"'batch_dict' must have the graph ids of 'author' \(got those of \['doc'\]\)",
    ),
    (
        {'batch_dict': BATCH | {'word': BATCH['word'].flip(0)}},
        ValueError,
        r"'batch_dict\['word'\]' must be sorted \(got 0 after 1\)",
    ),
    (
        {'batch_dict': BATCH | {'word': BATCH['doc']}},
        ValueError,
        r"'batch_dict\['word'\]' must have one entry per node \(got 12 for 9 nodes\)",
    ),
    (
        {'embedding_dict': X},
        ValueError,
        r"'embedding_dict' has no meaning without compare='embedding'",
    ),
    (
        {'context_dict': X},
        ValueError,
        r"'x_dict' must be a dict of \['doc', 'word'\] \(got 'author'\)",
    ),
    (
        {'x_dict': {'doc': X['doc']}, 'context_dict': {'doc': X['doc']}},
        ValueError,
        r"'context_dict' must hold the rows of 'word' \(got those of \['doc'\]\)",
    ),
    (
        {'x_dict': {'doc': X['doc']}, 'context_dict': X, 'batch_dict': BATCH},
        TypeError,
        r"'batch_dict\['doc'\]' must be a pair with a 'context'",
    ),
    (
        {'x_dict': {'doc': X['doc']}, 'context_dict': X | {'word': X['doc']}},
        ValueError,
        r"'context_dict\['word'\]' must have 5 channels \(got 6\)",
    ),
    ({'generator': 3}, TypeError, r"'generator' must be a torch.Generator \(got int\)"),
]


@pytest.mark.parametrize(('given', 'error', 'text'), BAD_CALLS)
def test_bad_calls(given, error, text):
    conv = make()
    given = {'x_dict': dict(reversed(X.items()))} | given
    with pytest.raises(error, match=text):
        conv(**given)


def test_an_embedding_that_is_missing():
    conv = make(compare='embedding', embedding_channels=2)
    text = r"'embedding_dict' must hold the rows of 'word' \(got those of \['doc'\]\)"
    with pytest.raises(ValueError, match=text):
        conv(X, embedding_dict={'doc': normal(12, 2)})


@pytest.mark.parametrize(
    ('bad', 'error', 'text'),
    [
        (normal(12, 3), ValueError, r'must have 2 channels \(got 3\)'),
        (normal(9, 2), ValueError, r'one row per node \(got 9 for 12 nodes\)'),
        (normal(12, 2).float(), TypeError, r'torch.float32 but the parameters have'),
        (normal(12, 2) / 0, ValueError, r'contains NaN or infinite values'),
        ('rows', TypeError, r'must be a torch.Tensor \(got str\)'),
    ],
)
def test_an_embedding_that_is_wrong(bad, error, text):
    conv = make(compare='embedding', embedding_channels=2)
    given = {t: normal(SIZE[t], 2) for t in IN}
    assert conv(X, embedding_dict=given)['doc'].shape == (12, OUT)
    with pytest.raises(error, match=r"'embedding_dict\['doc'\]' .*" + text):
        conv(X, embedding_dict=given | {'doc': bad})
