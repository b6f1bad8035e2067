"""The layer of several types of nodes, against samplers that are called one by one:
batches, candidates, new rows, no rows.
"""

import pytest
import torch
from hetero import (
    BATCH,
    HAS,
    IN,
    IN_DOC,
    NEAR,
    OF,
    OUT,
    RELATIONS,
    SIZE,
    make,
    rows,
    single,
)
from oracles import seeded
from sampling import normal
from torch_geometric.nn import HeteroConv

from torch_geometric_gsl import HeteroLatentGraphConv, LinearSimilarity

X = rows()
Z = {t: normal(size, 2, seed=len(t)) for t, size in SIZE.items()}
COMPARED = {'z_channels': 2}
SUBSET = {'doc': torch.tensor([1, 5, 11]), 'word': torch.tensor([0, 8])}
EDGES = {NEAR: torch.tensor([[1, 4, 2], [0, 0, 1]]), HAS: torch.tensor([[3], [1]])}
WEIGHTS = {NEAR: torch.tensor([1.0, 3.0, 2.0]).double()}


def pick(values, rows):
    return {t: values[t][index] for t, index in rows.items()}


NEW = pick(X, SUBSET)
BOTH = X, NEW


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('is_pair', [False, True])
@pytest.mark.parametrize(
    ('options', 'names'),
    [
        ({}, ()),
        ({'loop': False}, ('batch_dict',)),
        ({}, ('edge_index_dict', 'edge_weight_dict')),
        (COMPARED, ('z_dict', 'edge_index_dict', 'edge_weight_dict')),
        (
            {'relations': {NEAR: COMPARED, HAS: {}, IN_DOC: {}}},
            ('z_dict', 'batch_dict'),
        ),
    ],
)
def test_each_relation_is_a_layer_of_its_own(options, names, is_pair, training):
    conv = make(**options).train(training)
    x = {t: value for t, value in X.items() if t in conv.node_types}
    ends = {'x_dict': x, 'batch_dict': BATCH, 'z_dict': Z}
    ends = {name: {t: value[t] for t in x} for name, value in ends.items()}
    if is_pair:
        ends = {name: (value, pick(value, SUBSET)) for name, value in ends.items()}
    every = ends | {'edge_index_dict': EDGES, 'edge_weight_dict': WEIGHTS}
    args = {name: every[name] for name in ('x_dict', *names)}
    result, graphs = conv(**args, generator=seeded(3), return_graph=True)
    assert list(graphs) == conv.relations
    sums, generator = {'doc': 0, 'word': 0}, seeded(3)
    for relation in conv.relations:
        source, _, target = relation
        kwargs = {name: every[name].get(relation) for name in names if 'edge' in name}
        for name in (name for name in args if 'edge' not in name):
            # What is of one type is a pair as well, if new rows are asked about.
            value = args[name]
            src, dst = value if is_pair else (value, value)
            joint = is_pair or source != target
            kwargs[name] = (src[source], dst[target]) if joint else src[source]
        layer = conv.convs[relation]
        if layer.z_channels is None:
            kwargs.pop('z_dict', None)
        kwargs = {name.removesuffix('_dict'): value for name, value in kwargs.items()}
        out, graph = layer(**kwargs, generator=generator, return_graph=True)
        sums[target] = sums[target] + out
        assert torch.equal(graph.edge_index, graphs[relation].edge_index)
        assert torch.equal(graph.edge_weight, graphs[relation].edge_weight)
    rows = BOTH[is_pair]
    for target, out in sums.items():
        root = (
            rows[target] @ conv.root.lins[target].weight.t() + conv.root.biases[target]
        )
        torch.testing.assert_close(result[target], out + root)


def test_new_rows_of_another_type():
    conv = make().eval()
    # Types that are no sources to them need not be there.
    out = conv(({'doc': X['doc']}, {'word': X['word'][:2]}))
    torch.testing.assert_close(out, {'word': conv(X)['word'][:2]})
    ids = {'doc': BATCH['doc']}, {'word': BATCH['word'][:2]}
    out = conv(({'doc': X['doc']}, {'word': X['word'][:2]}), batch_dict=ids)
    torch.testing.assert_close(out, {'word': conv(X, batch_dict=BATCH)['word'][:2]})


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('options', [{}, {'replace': False}, {'method': 'stream'}])
def test_types_without_nodes(options, training):
    conv = make(**options).train(training)
    out = conv(rows(author=0))
    smaller = make([IN_DOC, NEAR, HAS], **options).train(training)
    smaller.load_state_dict(
        {k: v for k, v in conv.state_dict().items() if 'author' not in k}
    )
    if not training:
        torch.testing.assert_close(out, smaller({t: X[t] for t in ('doc', 'word')}))
    graphs = conv.graphs(rows(author=0))
    assert graphs[OF].edge_index.shape == (2, 0)
    assert graphs[OF].edge_weight.shape == (0,)
    # Nor need there be targets, or new rows of a type.
    out = conv(rows(doc=0))
    assert out['doc'].shape == (0, OUT)
    root = X['word'] @ conv.root.lins['word'].weight.t() + conv.root.biases['word']
    torch.testing.assert_close(out['word'], root)
    assert conv.graphs(rows(doc=0))[NEAR].edge_index.shape == (2, 0)
    assert conv((X, {'doc': X['doc'][:0]}))['doc'].shape == (0, OUT)


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_sparse_targets_of_a_type_without_nodes(dtype):
    conv = make([OF], root_weight=False, bias=False).to(dtype)
    x = {t: value.to(dtype) for t, value in rows(author=0).items()}
    del x['word']
    x['doc'] = x['doc'].to_sparse_csr()
    out = conv(x)['doc']
    assert out.layout == torch.strided
    assert torch.equal(out, torch.zeros(12, OUT, dtype=dtype))
    edge_index, weight = conv.graphs(x)[OF]
    assert edge_index.shape == (2, 0)
    assert torch.equal(weight, torch.empty(0, dtype=dtype))


@pytest.mark.parametrize('empty', [None, 'author', 'doc'])
@pytest.mark.parametrize('method', ['forward', 'graphs'])
def test_lazy_sizes(method, empty):
    conv, full = HeteroLatentGraphConv(-1, OUT, RELATIONS), single(X)
    getattr(conv, method)(single(rows(**({empty: 0} if empty else {}))))
    for (source, _, target), layer in zip(RELATIONS, conv.convs.values(), strict=True):
        assert layer.lin.weight.shape == (OUT, IN[source])
        if source != target:
            assert layer.lin_dst.weight.shape == (OUT, IN[target])
        assert all(bool(p.isfinite().all()) for p in layer.parameters())
    assert conv(full)['doc'].shape == (12, OUT)
    assert conv.root.lins['doc'].weight.shape == (OUT, 6)
    HeteroLatentGraphConv(IN, OUT, RELATIONS).load_state_dict(conv.state_dict())
    mixed = HeteroLatentGraphConv(IN | {'word': -1}, OUT, RELATIONS)
    assert mixed(full)['doc'].shape == (12, OUT)
    # A width that a relation has found is that of later calls.
    with pytest.raises(ValueError, match=r'must have 3 channels \(got 4\)'):
        conv(full | {'author': torch.randn(7, 4)})


@pytest.mark.filterwarnings('ignore:There exist node types')  # PyG's own.
@pytest.mark.parametrize('aggr', ['sum', 'mean', 'min', 'max', 'cat', None])
@pytest.mark.parametrize('is_plain', [False, True])
def test_it_is_a_hetero_conv_of_layers(is_plain, aggr):
    options = {'root_weight': False, 'bias': False} if is_plain else {}
    conv, x = make(aggr=aggr, **options).eval(), rows()
    assert isinstance(conv, HeteroConv)
    plain = HeteroConv({relation: conv.convs[relation] for relation in RELATIONS}, aggr)
    expected = plain(x, dict.fromkeys(RELATIONS))
    assert expected.keys() == {'doc', 'word'}  # Nothing leads to authors.
    if not is_plain:
        for target in expected:
            root = x[target] @ conv.root.lins[target].weight.t()
            root = root + conv.root.biases[target]
            expected[target] += root.unsqueeze(1) if aggr is None else root
    torch.testing.assert_close(conv(x), expected)


def test_options_of_relations():
    trained = LinearSimilarity(OUT)
    relations = {
        IN_DOC: {
            'similarity': trained,
            'similarity_kwargs': None,
            'k': 2,
            'hard': True,
        },
        NEAR: {'z_channels': -1, 'tau': 0.1, 'null_score': 0.0},
        OF: {},
    }
    options = {'similarity_kwargs': {'c_scale': 0.3}, 'scale': 2.0, 'loop': False}
    conv = HeteroLatentGraphConv(IN, OUT, relations, k=4, **options)
    samplers = {relation: layer.sampler for relation, layer in conv.convs.items()}
    assert [samplers[r].k for r in relations] == [2, 4, 4]
    assert [samplers[r].tau for r in relations] == [0.5, 0.1, 0.5]
    assert [samplers[r].hard for r in relations] == [True, False, False]
    assert [samplers[r].null_score is None for r in relations] == [True, False, True]
    assert {s.scale for s in samplers.values()} == {2.0}
    assert samplers[IN_DOC].similarity is trained
    assert samplers[NEAR].similarity.in_channels == IN['doc']
    assert samplers[OF].similarity.bell.c_scale == 0.3
    assert samplers[OF].similarity is not samplers[NEAR].similarity
    # A similarity of the layer that is a module is one for all.
    shared = HeteroLatentGraphConv(IN, OUT, [IN_DOC, OF], LinearSimilarity(OUT))
    in_doc, of = (layer.sampler.similarity for layer in shared.convs.values())
    assert in_doc is of
    mixed = HeteroLatentGraphConv(
        IN, OUT, {IN_DOC: {}, OF: {'z_channels': None}}, z_channels=2
    )
    x = single(rows())
    words = {t: torch.randn(SIZE[t], 2) for t in ('doc', 'word')}
    assert mixed(x, z_dict=words)['doc'].shape == (12, OUT)


NAMES = ['type', 'forward', 'training', 'a.b', 'a b', 'T', 'a%2Eb']


@pytest.mark.parametrize('name', [*NAMES, 'a|b', ':', '__dict__', 'a___b'])
def test_any_name_of_a_type(name):
    torch.manual_seed(0)
    relations = [(name, rel, 'item') for rel in NAMES if rel != name]
    relations += [('item', 'of', name), ('item', 'b', name)]
    conv = HeteroLatentGraphConv({name: 4, 'item': 3}, 2, relations, k=2)
    assert len({conv.convs[relation] for relation in relations}) == len(relations)
    x = {name: torch.randn(9, 4), 'item': torch.randn(8, 3)}
    assert conv.eval()(x).keys() == {name, 'item'}
    twin = HeteroLatentGraphConv({name: 4, 'item': 3}, 2, relations, k=2).eval()
    twin.load_state_dict(conv.state_dict())
    for node_type, out in conv(x).items():
        assert torch.equal(twin(x)[node_type], out)


def test_export():
    class Outer(torch.nn.Module):
        def __init__(self, conv):
            super().__init__()
            self.conv = conv

        def forward(self, doc, word, author):
            return self.conv({'doc': doc, 'word': word, 'author': author})

    conv, x = make().eval(), rows()
    args = tuple(x[t] for t in ('doc', 'word', 'author'))
    program = torch.export.export(Outer(conv), args).module()
    torch.testing.assert_close(program(*args), conv(x))
