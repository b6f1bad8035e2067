"""Calls of the layer of several types: batches, candidates, new rows, no rows."""

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
    SIZE,
    K,
    make,
    rows,
)
from sampling import normal


@pytest.mark.parametrize('training', [True, False])
def test_batches(training):
    options = {'similarity': 'linear', 'method': 'dense', 'scale': 5.0}
    conv, x = make(**options).train(training), rows()
    graphs = conv.graphs(x, batch_dict=BATCH)
    for (source, _, target), graph in graphs.items():
        ids = BATCH[source][graph.edge_index[0]], BATCH[target][graph.edge_index[1]]
        assert torch.equal(*ids)
    if training:
        return
    together = conv(x, batch_dict=BATCH)
    for part in range(2):
        alone = conv({t: x[t][BATCH[t] == part] for t in IN})
        for target, out in alone.items():
            torch.testing.assert_close(together[target][BATCH[target] == part], out)


def test_candidates_of_one_relation():
    conv, x = make(), rows()
    edges = torch.tensor([[0, 1, 8, 2], [0, 0, 3, 11]])
    graphs = conv.graphs(x, {IN_DOC: edges})
    found = set(map(tuple, graphs[IN_DOC].edge_index.t().tolist()))
    assert found == set(map(tuple, edges.t().tolist()))
    assert graphs[HAS].edge_index[1].unique().numel() == SIZE['word']


@pytest.mark.parametrize(
    'options', [{}, {'compare': 'embedding', 'embedding_channels': 2}]
)
def test_new_rows(options):
    conv, x = make(eval_k=K, **options).eval(), rows()
    given, joined = {}, {}
    chosen = {'doc': torch.tensor([3, 3, 11])}
    if options:
        embedding = {t: normal(SIZE[t], 2) for t in IN}
        given['embedding_dict'] = embedding
        some = {t: e[chosen[t]] if t in chosen else None for t, e in embedding.items()}
        joined['embedding_dict'] = {t: (embedding[t], some[t]) for t in IN}
    expected = conv(x, **given)
    new = {'doc': x['doc'][chosen['doc']]}
    found = conv(new, context_dict=x, **joined)
    assert list(found) == ['doc']
    torch.testing.assert_close(found['doc'], expected['doc'][chosen['doc']])
    graphs = conv.graphs(new, context_dict=x, **joined)
    assert list(graphs) == [IN_DOC, NEAR, OF]
    assert graphs[NEAR].edge_index[1].tolist() == [0] * K + [1] * K + [2] * K
    assert list(conv.plan(new, context_dict=x, **joined)) == [IN_DOC, NEAR, OF]


def test_new_rows_of_another_type():
    conv, x = make().eval(), rows()
    # Types that are no sources to them need not be there.
    found = conv({'word': x['word'][:2]}, context_dict={'doc': x['doc']})
    torch.testing.assert_close(found, {'word': conv(x)['word'][:2]})


def test_new_rows_of_a_batch():
    conv, x = make(similarity='linear', method='dense').eval(), rows()
    expected = conv(x, batch_dict=BATCH)['doc']
    keep = torch.tensor([1, 5, 6, 11])
    pairs = {t: (BATCH[t], BATCH[t][keep] if t == 'doc' else None) for t in IN}
    found = conv({'doc': x['doc'][keep]}, batch_dict=pairs, context_dict=x)['doc']
    torch.testing.assert_close(found, expected[keep])


def test_sparse_features():
    conv, x = make().eval(), rows()
    dense = {t: value * (value > 0) for t, value in x.items()}
    sparse = dense | {'doc': dense['doc'].to_sparse_csr()}
    torch.testing.assert_close(conv(sparse), conv(dense))


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('options', [{}, {'replace': False}, {'method': 'stream'}])
def test_types_without_nodes(options, training):
    conv = make(**options).train(training)
    out = conv(rows(author=0))
    rest = make([IN_DOC, NEAR, HAS], **options).train(training)
    rest.load_state_dict(
        {k: v for k, v in conv.state_dict().items() if 'author' not in k}
    )
    if not training:
        torch.testing.assert_close(out, rest({t: rows()[t] for t in ('doc', 'word')}))
    graphs = conv.graphs(rows(author=0))
    assert graphs[OF].edge_index.shape == (2, 0)
    assert graphs[OF].edge_weight.shape == (0,)
    assert OF not in conv.plan(rows(author=0))
    # Nor need there be targets.
    out = conv(rows(doc=0))
    assert out['doc'].shape == (0, OUT)
    root = rows()['word'] @ conv.roots['word'].weight.t() + conv.biases['word']
    torch.testing.assert_close(out['word'], root)
    assert conv.graphs(rows(doc=0))[NEAR].edge_index.shape == (2, 0)


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
