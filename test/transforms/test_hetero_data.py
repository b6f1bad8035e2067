"""The transforms on nodes of several types, and what PyG does with their graphs."""

import copy

import pytest
import torch
from hetero import Stack
from oracles import seeded
from torch_geometric.data import Data, HeteroData

import torch_geometric_gsl as gsl
from torch_geometric_gsl.transforms import (
    FreezeLatentGraph,
    SampledLatentGraph,
    SimilarityKNNGraph,
)

IN_DOC, NEAR = ('word', 'in', 'doc'), ('doc', 'near', 'doc')
HAS, WROTE = ('doc', 'has', 'word'), ('author', 'wrote', 'doc')
RELATIONS = [IN_DOC, NEAR, HAS]


def draw(docs=12, words=9, edges=20):
    data = HeteroData()
    data['doc'].x = torch.randn(docs, 4)
    data['word'].x = torch.randn(words, 4)
    data['doc'].y = torch.arange(docs) % 3
    data['author'].pos = torch.randn(5, 2)
    for source, name, target in (IN_DOC, WROTE):
        sizes = [data[end].num_nodes for end in (source, target)]
        pairs = [torch.randint(max(size, 1), (edges,)) for size in sizes]
        data[source, name, target].edge_index = torch.stack(pairs)
    data[IN_DOC].edge_attr = torch.randn(edges, 2)
    data[IN_DOC].edge_label = torch.zeros(edges)
    data[IN_DOC].name = 'a name'
    return data


def net():
    torch.manual_seed(5)
    layer = gsl.HeteroLatentGraphConv(4, 8, RELATIONS, eval_k=3)
    return Stack(layer, gsl.HeteroLatentGraphConv(8, 3, [IN_DOC, NEAR], eval_k=3))


TRANSFORMS = {
    'knn': lambda: SimilarityKNNGraph(k=3, edge_types=RELATIONS),
    'sampled': lambda: SampledLatentGraph(k=3, seed=12, edge_types=RELATIONS),
    'frozen': lambda: FreezeLatentGraph(net()),
}


@pytest.fixture(params=TRANSFORMS)
def transform(request):
    return TRANSFORMS[request.param]()


def test_stores_each_graph(transform):
    data = draw()
    before = copy.copy(data)
    out = transform(data)
    assert out.validate()
    for source, name, target in RELATIONS:
        store = out[source, name, target]
        code = store.edge_index[1] * out[source].num_nodes + store.edge_index[0]
        assert bool((code.diff() > 0).all())  # By target, then source, no duplicates.
        assert store.edge_weight.shape == code.shape
        assert store.edge_index[1].unique().numel() == out[target].num_nodes
    # What was there is kept under another name, and labels and the rest as they are.
    store = out[IN_DOC]
    assert torch.equal(store.observed_edge_index, before[IN_DOC].edge_index)
    assert torch.equal(store.observed_edge_attr, before[IN_DOC].edge_attr)
    assert 'edge_attr' not in store
    assert store.edge_label is before[IN_DOC].edge_label
    assert store.name == 'a name'
    assert out[WROTE].edge_index is before[WROTE].edge_index
    assert set(data.edge_types) == {IN_DOC, WROTE}  # The input stays as it was.
    again = transform(out)
    assert torch.equal(again[IN_DOC].observed_edge_index, before[IN_DOC].edge_index)


def test_the_most_similar_sources():
    data = draw()
    out = SimilarityKNNGraph(k=2, edge_types=[IN_DOC])(data)
    unit = [torch.nn.functional.normalize(data[t].x) for t in ('doc', 'word')]
    cosine = unit[0] @ unit[1].t()
    source = cosine.topk(2).indices
    target = torch.arange(12).repeat_interleave(2)
    edges = set(zip(source.flatten().tolist(), target.tolist(), strict=True))
    assert set(map(tuple, out[IN_DOC].edge_index.t().tolist())) == edges
    weight = cosine[out[IN_DOC].edge_index[1], out[IN_DOC].edge_index[0]]
    torch.testing.assert_close(out[IN_DOC].edge_weight, weight)
    # Between nodes of one type it is the graph of those alone.
    alone = SimilarityKNNGraph(k=2)(Data(x=data['doc'].x))
    near = SimilarityKNNGraph(k=2, edge_types=[NEAR])(data)[NEAR]
    assert torch.equal(near.edge_index, alone.edge_index)
    assert torch.equal(near.edge_weight, alone.edge_weight)


def test_a_sampled_graph():
    data = draw()
    out = SampledLatentGraph(k=3, scale=2.0, seed=4, edge_types=[IN_DOC])(data)
    sampler = gsl.GumbelKNNSampler(gsl.LinearSimilarity(4), 3, scale=2.0)
    pair = data['word'].x, data['doc'].x
    expected = sampler(pair, generator=seeded(4)).prune()
    assert torch.equal(out[IN_DOC].edge_index, expected.edge_index)
    torch.testing.assert_close(out[IN_DOC].edge_weight, expected.edge_weight)


def test_a_frozen_graph():
    data, model = draw(), net()
    x = {t: data[t].x for t in ('doc', 'word')}
    layers = model.eval().graphs(x)
    model.train()
    for layer in (0, 1, -1):
        out = FreezeLatentGraph(model, layer=layer)(data)
        for relation, graph in layers[layer].items():
            assert torch.equal(out[relation].edge_index, graph.edge_index)
            assert not out[relation].edge_weight.requires_grad
    assert model.training
    with pytest.raises(ValueError, match=r"'layer' must be one of the .* \(got 2\)"):
        FreezeLatentGraph(model, layer=2)(data)
    few = FreezeLatentGraph(model, k=1)(data)
    assert few[HAS].edge_index[1].tolist() == list(range(9))
    none = FreezeLatentGraph(model, threshold=1.0)(data)
    assert none[HAS].edge_index.shape == (2, 0)
    conv = gsl.HeteroLatentGraphConv(4, 8, RELATIONS, eval_k=2)
    assert FreezeLatentGraph(conv)(data)[NEAR].edge_index.shape == (2, 24)


@pytest.mark.parametrize('layer', [0, 1, -1])
def test_relations_that_a_layer_lacks(layer):
    # Layer by layer: three relations, two of them, one; none reaches from e.
    relations = [('a', 'to', 'b'), ('b', 'to', 'c'), ('c', 'to', 'd'), ('d', 'to', 'e')]
    reaching = relations[:3], relations[1:3], relations[2:3]  # d, layer by layer

    def make(k):
        convs = (gsl.HeteroLatentGraphConv(4, 4, types, k=k) for types in reaching)
        return Stack(*convs).eval()

    model = make(k=2)
    data = HeteroData()
    for name in 'abcde':
        data[name].x = torch.randn(6, 4)
    layers = model.graphs({name: data[name].x for name in 'abcd'})
    assert [len(graphs) for graphs in layers] == [3, 2, 1]
    for observed in (data, FreezeLatentGraph(make(k=3))(data)):
        out = FreezeLatentGraph(model, layer=layer)(observed)
        assert out.edge_types == relations[:3]
        for last, relation in zip((0, 1, 2), relations[:3], strict=True):
            graph = layers[min(last, layer % 3)][relation]
            assert torch.equal(out[relation].edge_index, graph.edge_index)
            assert torch.equal(out[relation].edge_weight, graph.edge_weight)


def test_a_frozen_graph_of_given_candidates():
    data = draw()
    out = FreezeLatentGraph(net(), use_edge_index=True)(data)
    candidates = set(map(tuple, data[IN_DOC].edge_index.t().tolist()))
    assert set(map(tuple, out[IN_DOC].edge_index.t().tolist())) <= candidates
    assert out[NEAR].edge_index.shape == (2, 36)
    del data[IN_DOC]
    text = r"'data' must hold candidates of a relation .* \(got \[\('author', 'wrote'"
    with pytest.raises(ValueError, match=text):
        FreezeLatentGraph(net(), use_edge_index=True)(data)


def test_few_nodes():
    data = draw(2, 1, 1)
    for name in ('knn', 'frozen'):
        out = TRANSFORMS[name]()(data)
        assert out[IN_DOC].edge_index.tolist() == [[0, 0], [0, 1]]
    text = r"'k' must not .* of \('word', 'in', 'doc'\) \(got k=3 for 1 candidates\)"
    with pytest.raises(ValueError, match=text):
        SimilarityKNNGraph(k=3, edge_types=[IN_DOC], clamp=False)(data)
    empty = SimilarityKNNGraph(k=3, edge_types=RELATIONS)(draw(3, 0, 0))
    assert empty[IN_DOC].edge_index.shape == (2, 0)
    assert empty[HAS].edge_index.shape == (2, 0)


def test_bad_options():
    for bad, error, text in (
        ('doc', TypeError, r"'edge_types' must be a list of edge types \(got str"),
        ([], ValueError, "'edge_types' must hold at least one edge type"),
        ([('a', 'b')], ValueError, r"'edge_types' must hold .* \(source, name, target"),
    ):
        for cls in (SimilarityKNNGraph, SampledLatentGraph):
            with pytest.raises(error, match=text):
                cls(edge_types=bad)
    text = r"'force_undirected' is not supported for edges between two types"
    with pytest.raises(ValueError, match=text):
        SimilarityKNNGraph(edge_types=[IN_DOC], force_undirected=True)
    undirected = SimilarityKNNGraph(k=2, edge_types=[NEAR], force_undirected=True)
    assert undirected(draw())[NEAR].edge_index.size(1) > 24
    assert str(undirected).endswith("edge_types=[('doc', 'near', 'doc')])")


@pytest.mark.parametrize('name', ['knn', 'sampled'])
@pytest.mark.parametrize('node_type', ['doc', 'word'])
def test_graph_ids_of_one_type_alone(node_type, name):
    data = draw()
    data[node_type].batch = torch.arange(data[node_type].num_nodes) // 6
    text = r"the graph ids 'batch' of both ends of \('word', 'in', 'doc'\), or"
    with pytest.raises(ValueError, match=text):
        TRANSFORMS[name]()(data)
    # Other types than those that an edge type joins need none.
    out = SimilarityKNNGraph(k=3, edge_types=[(node_type, 'near', node_type)])(data)
    assert out[node_type, 'near', node_type].edge_index[1].unique().numel() > 6


def test_bad_data():
    knn = SimilarityKNNGraph(edge_types=RELATIONS)
    for transform in (knn, FreezeLatentGraph(net())):
        text = r"'data' must be a torch_geometric.data.HeteroData .*\(got Data\)"
        with pytest.raises(TypeError, match=text):
            transform(Data(x=torch.randn(9, 4)))
    with pytest.raises(TypeError, match=r"or 'edge_types' must be given \(got Hetero"):
        SimilarityKNNGraph()(draw())
    with pytest.raises(TypeError, match=r'must be a homogeneous .* \(got HeteroData'):
        FreezeLatentGraph(gsl.GSLNet(4, 8, 2, 3))(draw())
    data = draw()
    with pytest.raises(ValueError, match=r"nodes of type 'page' \(got \['doc', 'word"):
        SimilarityKNNGraph(edge_types=[('page', 'in', 'doc')])(data)
    with pytest.raises(ValueError, match=r"'data\['author'\].x' must hold node feat"):
        SimilarityKNNGraph(edge_types=[('author', 'in', 'doc')])(data)
    data['word'].x = torch.randn(9, 5)
    text = r"'data\['doc'\].x' must have 5 channels \(got 4\)"
    with pytest.raises(ValueError, match=text):
        SimilarityKNNGraph(k=2, edge_types=[IN_DOC])(data)
    del data['word'].x
    with pytest.raises(ValueError, match=r"'data\['word'\].x' must hold node feat"):
        FreezeLatentGraph(net())(data)
