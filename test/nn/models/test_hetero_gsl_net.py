"""The network of several types of nodes: its layers, its target, its new rows."""

import copy

import pytest
import torch
from oracles import check_gradients, seeded
from sampling import normal
from torch.nn import functional as F

from torch_geometric_gsl import GSLNet, HeteroGSLNet

IN, HIDDEN, OUT, K = {'doc': 6, 'word': 6, 'author': 3}, 8, 4, 3
SIZE = {'doc': 12, 'word': 9, 'author': 7}
IN_DOC = ('word', 'in', 'doc')
NEAR = ('doc', 'near', 'doc')
HAS = ('doc', 'has', 'word')
WROTE = ('author', 'wrote', 'doc')
RELATIONS = [IN_DOC, NEAR, HAS, WROTE]
X = {t: normal(SIZE[t], IN[t], seed=len(t)) for t in IN}
Y = torch.arange(12) % OUT
BATCH = {name: torch.arange(size) * 2 // size for name, size in SIZE.items()}
EDGES = {IN_DOC: torch.stack([torch.arange(36) % 9, torch.arange(36) % 12])}


def make(target='doc', num_layers=2, relations=RELATIONS, out=OUT, **options):
    torch.manual_seed(5)
    sizes = IN, HIDDEN, num_layers, out
    model = HeteroGSLNet(*sizes, relations, target, **{'k': K, **options})
    return model.double()


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('target', ['doc', 'word', None])
def test_layer_by_layer(target, training):
    model = make(target, num_layers=3, dropout=0.3, act='relu').train(training)
    generator = seeded(7)
    torch.manual_seed(2)
    x = X
    for number, conv in enumerate(model.convs):
        out = conv({t: x[t] for t in conv.node_types}, generator=generator)
        if number < 2:
            out = {t: F.dropout(v.relu(), 0.3, training) for t, v in out.items()}
        x = X | out  # Authors enter every layer as they came.
    torch.manual_seed(2)
    found = model(X, generator=seeded(7))
    if target is None:
        assert list(found) == ['doc', 'word']
    expected = x[target] if target else {t: x[t] for t in ('doc', 'word')}
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_relations_that_reach_the_target():
    model = make('word', num_layers=3)
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
    near = make('word', num_layers=1).eval()
    assert near.convs[0].relations == [HAS]
    assert torch.equal(near({'doc': X['doc'], 'word': X['word']}), near(X))
    assert [list(conv.relations) for conv in make(None).convs] == [RELATIONS] * 2


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize(
    'options',
    [
        {},
        {'compare': 'input', 'scale': 'learned'},
        {'compare': 'embedding', 'embedding_channels': 2},
        {'observed': 'prior', 'null': True},
    ],
)
def test_one_type_and_one_relation(options, training):
    plain = GSLNet(6, HIDDEN, 2, OUT, k=K, dropout=0.0, **options).double()
    model = HeteroGSLNet(
        6, HIDDEN, 2, OUT, [NEAR], 'doc', k=K, dropout=0.0, **options
    ).double()
    for one, other in zip(plain.convs, model.convs, strict=True):
        torch.nn.init.normal_(one.bias)
        state = {k: v for k, v in one.state_dict().items() if 'root' not in k}
        del state['bias']
        other.convs[NEAR].load_state_dict(state)
        other.roots['doc'].load_state_dict(one.lin_root.state_dict())
        other.biases['doc'].data.copy_(one.bias)
    plain.train(training)
    model.train(training)
    given, typed = {}, {}
    if 'embedding_channels' in options:
        given['embedding'] = normal(12, 2)
        typed['embedding_dict'] = {'doc': given['embedding']}
    if 'observed' in options:
        given['edge_index'] = torch.randint(12, (2, 40), generator=seeded())
        typed['edge_index_dict'] = {NEAR: given['edge_index']}
    x = {'doc': X['doc']}
    one = plain(x['doc'], **given, generator=seeded(3))
    other = model(x, **typed, generator=seeded(3))
    assert torch.equal(one, other)
    graphs = model.graphs(x, **typed, generator=seeded(3))
    for graph, found in zip(
        plain.graphs(x['doc'], **given, generator=seeded(3)), graphs, strict=True
    ):
        assert torch.equal(graph.edge_index, found[NEAR].edge_index)
        assert torch.equal(graph.edge_weight, found[NEAR].edge_weight)
    assert model.score(x, Y, **typed) == plain.score(x['doc'], Y, **given)


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
            'relations': {IN_DOC: {'compare': 'input'}, NEAR: {}, HAS: {}, WROTE: {}}
        }
    return rows, options, alone, joined


@pytest.mark.parametrize('num_layers', [1, 3])
@pytest.mark.parametrize('name', ['plain', 'embedding', 'batch', 'edges', 'mixed'])
def test_new_rows(name, num_layers):
    rows, options, alone, joined = draw_given(name)
    model = make(num_layers=num_layers, method='dense', **options).eval()
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
    every = make(None, num_layers, method='dense', **options).eval()
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
    model, new = make(), {'doc': X['doc'][:2]}
    for bad, text in (
        ({'word': None}, r"' must hold the rows of 'word' \(got those of \['doc', 'au"),
        ({'word': X['author']}, r"\['word'\]' must have 6 channels \(got 3\)"),
        ({'word': X['word'] / 0}, r"\['word'\]' contains NaN or infinite values"),
    ):
        context = {t: value for t, value in (X | bad).items() if value is not None}
        with pytest.raises(ValueError, match="'context_dict" + text):
            model(new, context_dict=context)


def test_the_input_is_compared_in_every_layer():
    relations = {NEAR: {}, IN_DOC: {}, HAS: {'compare': 'projected'}}
    options = {'compare': 'input', 'similarity': 'linear', 'scale': 'learned'}
    sizes = {'doc': 6, 'word': 6}
    model = HeteroGSLNet(sizes, HIDDEN, 3, OUT, relations, 'doc', k=K, **options)
    first, second, third = model.convs
    assert first.convs[NEAR].sampler is second.convs[NEAR].sampler
    assert second.convs[NEAR].sampler is third.convs[NEAR].sampler
    assert first.convs[HAS].sampler is not second.convs[HAS].sampler
    x = {t: X[t].float() for t in sizes}
    one, other, _ = model.eval().graphs(x)
    assert torch.equal(one[IN_DOC].edge_index, other[IN_DOC].edge_index)
    model.train().loss(x, Y).backward()
    check_gradients(model)


@pytest.mark.parametrize(
    ('task', 'out', 'y', 'metric'),
    [
        ('classification', 4, Y, 'accuracy'),
        ('regression', 2, normal(12, 2), 'r2'),
        ('binary', 1, Y % 2, 'accuracy'),
        ('multilabel', 3, (normal(12, 3) > 0).double(), 'micro_f1'),
    ],
)
def test_tasks(task, out, y, metric):
    model = make(out=out, task=task)
    mask = torch.arange(12) < 7
    model.loss(X, y, mask).backward()
    if out > 1:  # Unit rows of width 1 are signs, through which nothing passes.
        check_gradients(model)
    prediction = model.predict(X)
    assert len(prediction) == 12
    assert list(model.score(X, y, mask)) == [metric]
    if task == 'classification':
        model.eval()
        out = model(X)
        assert torch.equal(prediction, out.argmax(dim=1))
        expected = F.cross_entropy(out[mask], y[mask])
        torch.testing.assert_close(model.loss(X, y, mask), expected)
        hits = (prediction == y)[~mask].double().mean()
        assert model.score(X, y, ~mask)['accuracy'] == pytest.approx(float(hits))


def test_it_learns_what_only_the_other_type_knows():
    # A document tells nothing but which word it is about, and the word its class.
    torch.manual_seed(0)
    words, about = torch.eye(8), torch.arange(80) % 8
    classes = torch.tensor([0, 1, 1, 0, 1, 0, 0, 1])
    x = {'word': torch.cat([words, classes.view(-1, 1)], 1), 'doc': words[about]}
    relations = [('word', 'in', 'doc')]
    options = {'similarity': 'linear', 'scale': 10.0, 'root_weight': False}
    sizes = {'word': 9, 'doc': 8}
    model = HeteroGSLNet(sizes, 16, 1, 2, relations, 'doc', k=2, **options)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    y = classes[about]
    before = model.score(x, y)['accuracy']
    for _ in range(60):
        optimizer.zero_grad()
        model.loss(x, y).backward()
        optimizer.step()
    assert model.score(x, y)['accuracy'] == 1.0
    assert before < 1.0


def test_batches_keep_graphs_apart():
    model = make(method='dense', similarity='linear', scale=5.0).eval()
    together = model(X, batch_dict=BATCH)
    for part in range(2):
        alone = model({t: X[t][BATCH[t] == part] for t in IN})
        torch.testing.assert_close(together[BATCH['doc'] == part], alone)


def test_permutations_within_types():
    model = make().eval()
    order = {t: torch.randperm(SIZE[t], generator=seeded(len(t))) for t in IN}
    found = model({t: X[t][order[t]] for t in IN})
    torch.testing.assert_close(found, model(X)[order['doc']])


def test_lazy_sizes_and_float32():
    model = HeteroGSLNet(-1, HIDDEN, 2, OUT, RELATIONS, 'doc', k=K)
    x = {t: value.float() for t, value in X.items()}
    assert model(x).dtype == torch.float32
    assert model.convs[1].convs[WROTE].lin.weight.shape == (OUT, 3)


@pytest.mark.parametrize('training', [True, False])
def test_types_without_nodes(training):
    model = make().train(training)
    assert model(X | {'author': X['author'][:0]}).shape == (12, OUT)
    assert model(X | {'doc': X['doc'][:0]}).shape == (0, OUT)


def test_export():
    class Outer(torch.nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, doc, word, author):
            return self.model({'doc': doc, 'word': word, 'author': author})

    model, x = make().eval(), tuple(X[t] for t in ('doc', 'word', 'author'))
    program = torch.export.export(Outer(model), x).module()
    torch.testing.assert_close(program(*x), model(X))


def test_autocast():
    model, x = make().float().eval(), {t: value.float() for t, value in X.items()}
    expected = model(x)
    with torch.autocast('cpu', torch.bfloat16):
        found = model(x)
    torch.testing.assert_close(found.float(), expected, rtol=0.1, atol=0.1)
    found.float().sum().backward()


def test_state_dict_and_reset():
    model = make().eval()
    twin = copy.deepcopy(model)
    twin.reset_parameters()
    assert not torch.equal(twin(X), model(X))
    twin.load_state_dict(model.state_dict())
    assert torch.equal(twin(X), model(X))


def test_repr():
    assert str(HeteroGSLNet({'doc': 4}, 8, 2, 1, [NEAR], 'doc', task='binary')) == (
        "HeteroGSLNet({'doc': 4}, 8, num_layers=2, out_channels=1, "
        "relations=[('doc', 'near', 'doc')], target='doc', task='binary')"
    )
    assert str(HeteroGSLNet(4, 8, 1, 3, [NEAR])).endswith('target=None)')


BAD_OPTIONS = [
    ({'target': 'author'}, ValueError, r"'target' must be one of .* \(got 'author'\)"),
    ({'relations': []}, ValueError, r"'relations' must hold an edge type"),
    ({'aggr': 'cat'}, ValueError, r"'aggr' must be one of .* \(got 'cat'\)"),
    ({'aggr': None}, ValueError, r"'aggr' must be one of .* \(got None\)"),
    ({'compare': 'x'}, ValueError, r"'compare' must be one of .* \(got 'x'\)"),
    ({'dropout': 1.0}, ValueError, r"'dropout' must lie in \[0, 1\) \(got 1.0\)"),
    ({'num_layers': 0}, ValueError, r"'num_layers' must be at least 1 \(got 0\)"),
    ({'task': 'binary'}, ValueError, r"'out_channels' must be 1 .* \(got 4\)"),
    ({'width': 3}, ValueError, r"'options' must be one of .* \(got 'width'\)"),
    (
        {'in_channels': {'doc': 6}},
        ValueError,
        r"'in_channels' must tell of 'word' \(got none\)",
    ),
    (
        {'compare': 'input'},
        ValueError,
        r"'in_channels' must be known and equal .* \(got 3 and 6 of \('author', 'wro",
    ),
    (
        {
            'relations': {NEAR: {'compare': 'input'}, HAS: {'compare': 'embedding'}},
            'in_channels': 6,
        },
        ValueError,
        r"'compare' must not be 'input' for some relations and 'embedding' for others",
    ),
]


@pytest.mark.parametrize(('given', 'error', 'text'), BAD_OPTIONS)
def test_bad_options(given, error, text):
    sizes = {'in_channels': IN, 'hidden_channels': 8, 'num_layers': 2}
    rest = {'out_channels': OUT, 'relations': RELATIONS, 'target': 'doc'}
    with pytest.raises(error, match=text):
        HeteroGSLNet(**(sizes | rest | given))


BAD_CALLS = [
    ({'x_dict': X['doc']}, TypeError, r"'x_dict' must be a dict \(got Tensor\)"),
    ({'x_dict': {'doc': X['doc']}}, ValueError, r"'x_dict' must hold the rows of 'wor"),
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
        {'x_dict': {'doc': X['doc']}, 'context_dict': X, 'edge_index_dict': EDGES},
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
        make()(**given)


def test_labels_need_a_target():
    model = make(None)
    for call in (
        lambda: model.loss(X, Y),
        lambda: model.predict(X),
        lambda: model.score(X, Y),
    ):
        text = r"'target' must be the type of nodes that labels belong to \(got None\)"
        with pytest.raises(ValueError, match=text):
            call()
