"""New rows in a network of several types, whose context passes the layers."""

import pytest
import torch
from hetero import (
    BATCH,
    EDGES,
    HAS,
    HIDDEN,
    IN_DOC,
    NEAR,
    OF,
    OUT,
    SIZE,
    K,
    make_net,
)
from hetero import NET_IN as IN
from hetero import NET_X as X
from sampling import normal

from torch_geometric_gsl import HeteroGSLNet


def draw_given(name):
    """Options of a net, and what its call is given, of all rows and of some."""
    rows = torch.tensor([3, 3, 11])
    alone, joined, options = {}, {}, {}
    if name == 'embedding':
        options = {'compare': 'embedding', 'embedding_channels': 2}
        embedding = {t: normal(SIZE[t], 2, seed=len(t)) for t in IN}
        alone['embedding_dict'] = embedding
        joined['embedding_dict'] = {
            t: (e, e[rows] if t == 'doc' else None) for t, e in embedding.items()
        }
    elif name == 'batch':
        rows = torch.tensor([3, 5, 11])
        alone['batch_dict'] = BATCH
        joined['batch_dict'] = {
            t: (b, b[rows] if t == 'doc' else None) for t, b in BATCH.items()
        }
    elif name == 'edges':
        alone['edge_index_dict'] = EDGES
        source, target = EDGES[IN_DOC]
        own = [source[target == row] for row in rows]
        index = [torch.full_like(s, i) for i, s in enumerate(own)]
        new = torch.stack([torch.cat(own), torch.cat(index)])
        joined['edge_index_dict'] = {IN_DOC: (EDGES[IN_DOC], new)}
    elif name == 'mixed':
        options = {
            'relations': {IN_DOC: {'compare': 'input'}, NEAR: {}, HAS: {}, OF: {}}
        }
    return rows, options, alone, joined


@pytest.mark.parametrize('num_layers', [1, 3])
@pytest.mark.parametrize('name', ['plain', 'embedding', 'batch', 'edges', 'mixed'])
def test_new_rows(name, num_layers):
    rows, options, alone, joined = draw_given(name)
    model = make_net(num_layers=num_layers, method='dense', **options).eval()
    expected = model(X, **alone)[rows]
    new = {'doc': X['doc'][rows]}
    found = model(new, context_dict=X, **joined)
    torch.testing.assert_close(found, expected)
    graphs = model.graphs(new, context_dict=X, **joined)
    assert len(graphs) == num_layers
    for graph in graphs:
        assert int(graph[NEAR].edge_index[1].max()) == 2
    classes = model.predict(new, context_dict=X, **joined)
    assert torch.equal(classes, expected.argmax(dim=1))
    every = make_net(None, num_layers, method='dense', **options).eval()
    if name == 'plain':
        words = {'word': X['word'][:2]}
        found = every(words, context_dict=X)
        torch.testing.assert_close(found, {'word': every(X)['word'][:2]})


@pytest.mark.parametrize('compare', ['projected', 'input'])
def test_new_rows_whose_type_is_no_source(compare):
    sizes = {'doc': 6, 'word': 6}, HIDDEN, 1, OUT
    model = HeteroGSLNet(*sizes, [HAS], 'word', compare=compare, k=K).double().eval()
    expected = model({'doc': X['doc'], 'word': X['word']})
    found = model({'word': X['word'][2:4]}, context_dict={'doc': X['doc']})
    torch.testing.assert_close(found, expected[2:4])


def test_a_context_that_is_short():
    model, new = make_net(), {'doc': X['doc'][:2]}
    for bad, text in (
        ({'word': None}, r"' must hold the rows of 'word' \(got those of \['doc', 'au"),
        ({'word': X['author']}, r"\['word'\]' must have 6 channels \(got 3\)"),
        ({'word': X['word'] / 0}, r"\['word'\]' contains NaN or infinite values"),
    ):
        context = {t: value for t, value in (X | bad).items() if value is not None}
        with pytest.raises(ValueError, match="'context_dict" + text):
            model(new, context_dict=context)
