"""The network of several types of nodes: its layers, its target, its new rows."""

import pytest
import torch
from hetero import BATCH, EDGES, HAS, HIDDEN, IN_DOC, NEAR, OF, OUT, SIZE, K, make_net
from hetero import NET_IN as IN
from hetero import NET_X as X
from sampling import normal

from torch_geometric_gsl import HeteroGSLNet

Y = torch.arange(12) % OUT


def test_export():
    class Outer(torch.nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, doc, word, author):
            return self.model({'doc': doc, 'word': word, 'author': author})

    model, x = make_net().eval(), tuple(X[t] for t in ('doc', 'word', 'author'))
    program = torch.export.export(Outer(model), x).module()
    torch.testing.assert_close(program(*x), model(X))


def test_labels_need_a_target():
    model = make_net(None)
    for call in (
        lambda: model.loss(X, Y),
        lambda: model.predict(X),
        lambda: model.score(X, Y),
    ):
        text = r"'target' must be the type of the labelled nodes \(got None\)"
        with pytest.raises(ValueError, match=text):
            call()


def draw_given(name):
    """Options of a net, and what its call is given, of all rows and of some."""
    rows = torch.tensor([3, 5, 11] if name == 'batch' else [3, 3, 11])
    options, alone, edges = {}, {}, {}
    if name == 'rows':
        options = {'z_channels': 2}
        alone['z_dict'] = {t: normal(SIZE[t], 2, seed=len(t)) for t in IN}
    elif name == 'batch':
        alone['batch_dict'] = BATCH
    elif name == 'edges':
        source, target = EDGES[IN_DOC]
        own = [source[target == row] for row in rows]
        index = [torch.full_like(s, i) for i, s in enumerate(own)]
        new = torch.stack([torch.cat(own), torch.cat(index)])
        edges['edge_index_dict'] = EDGES, {IN_DOC: new}
    elif name == 'mixed':
        options = {'relations': {IN_DOC: {'z_channels': -1}, NEAR: {}, HAS: {}, OF: {}}}
    joined = {k: (v, {'doc': v['doc'][rows]}) for k, v in alone.items()} | edges
    return rows, options, alone | {k: v[0] for k, v in edges.items()}, joined


@pytest.mark.parametrize('num_layers', [1, 3])
@pytest.mark.parametrize('name', ['plain', 'rows', 'batch', 'edges', 'mixed'])
def test_new_rows(name, num_layers):
    rows, options, alone, joined = draw_given(name)
    model = make_net(num_layers=num_layers, method='dense', loop=True, **options).eval()
    expected = model(X, **alone)[rows]
    new = {'doc': X['doc'][rows]}
    found = model((X, new), **joined)
    torch.testing.assert_close(found, expected)
    graphs = model.graphs((X, new), **joined)
    assert len(graphs) == num_layers
    for graph in graphs:
        assert int(graph[NEAR].edge_index[1].max()) == 2
    classes = model.predict((X, new), **joined)
    assert torch.equal(classes, expected.argmax(dim=1))
    every = make_net(None, num_layers, method='dense', loop=True, **options).eval()
    if name == 'plain':
        words = {'word': X['word'][:2]}
        found = every((X, words))
        torch.testing.assert_close(found, {'word': every(X)['word'][:2]})


@pytest.mark.parametrize('width', [None, -1])
def test_new_rows_whose_type_is_no_source(width):
    sizes = {'doc': 6, 'word': 6}, HIDDEN, 1, OUT
    model = HeteroGSLNet(*sizes, [HAS], 'word', z_channels=width, k=K).double().eval()
    expected = model({'doc': X['doc'], 'word': X['word']})
    found = model(({'doc': X['doc']}, {'word': X['word'][2:4]}))
    torch.testing.assert_close(found, expected[2:4])
