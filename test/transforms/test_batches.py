"""A batch is separated into the transformed examples, with every transform."""

import copy

import numpy as np
import pytest
import torch
import torch_geometric.transforms as T
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.loader import DataLoader

import torch_geometric_gsl as gsl
from torch_geometric_gsl.transforms import (
    FreezeLatentGraph,
    RefineGraph,
    SampledLatentGraph,
    SimilarityKNNGraph,
)

KNN = SimilarityKNNGraph(k=3)
SAMPLED = SampledLatentGraph(k=3, seed=12)
TRANSFORMS = {
    'knn': KNN,
    'undirected': SimilarityKNNGraph(k=2, force_undirected=True),
    'sampled': SAMPLED,
    'frozen': FreezeLatentGraph(gsl.GSLNet(4, 8, 2, 3, k=3).double()),
    'refined': RefineGraph(k=3, prob='prob'),
    'reweighted': RefineGraph(k=0),
    'knn, then sampled': T.Compose([KNN, SAMPLED]),
    'sampled, then refined': T.Compose([SAMPLED, RefineGraph(k=2)]),
}
WORD_IN_DOC, DOC_NEAR_DOC = ('word', 'in', 'doc'), ('doc', 'near', 'doc')
RELATIONS = [WORD_IN_DOC, DOC_NEAR_DOC, ('doc', 'has', 'word')]
TYPED = {
    'knn': SimilarityKNNGraph(k=3, edge_types=RELATIONS),
    'sampled': SampledLatentGraph(k=3, seed=12, edge_types=RELATIONS),
    'frozen': FreezeLatentGraph(
        gsl.HeteroLatentGraphConv(4, 8, RELATIONS, k=3).double()
    ),
}
TYPED['knn, then frozen'] = T.Compose([TYPED['knn'], TYPED['frozen']])
each = pytest.mark.parametrize('name', TRANSFORMS)
each_typed = pytest.mark.parametrize('name', TYPED)
#: The numbers of nodes and edges of the examples of a batch.
SIZES = st.lists(
    st.tuples(st.integers(0, 7), st.integers(0, 9)), min_size=1, max_size=4
)


def edges_between(num_sources, num_targets, num_edges):
    if min(num_sources, num_targets) == 0:
        return torch.empty(2, 0, dtype=torch.long)
    ends = [torch.randint(n, (num_edges,)) for n in (num_sources, num_targets)]
    return torch.stack(ends)


def example(num_nodes, num_edges):
    edge_index = edges_between(num_nodes, num_nodes, num_edges)
    num_edges = edge_index.size(1)
    return Data(
        x=torch.randn(num_nodes, 4, dtype=torch.double),
        prob=torch.rand(num_nodes, 2, dtype=torch.double).softmax(1),
        mask=torch.rand(num_nodes) > 0.5,
        root_index=torch.zeros(1, dtype=torch.long),
        y=torch.tensor([num_nodes]),
        score=0.5,
        name=f'{num_nodes} nodes',
        edge_index=edge_index,
        edge_weight=torch.rand(num_edges, dtype=torch.double),
        edge_attr=torch.randn(num_edges, 2),
        edge_type=torch.randint(3, (num_edges,)),
        edge_norm=np.ones(num_edges),
        edge_words=['a'] * num_edges,
        edge_label=torch.ones(2),
        edge_label_index=edges_between(num_nodes, num_nodes, 2),
    )


def typed_example(num_docs, num_edges):
    data = HeteroData()
    data.title = 'a title'
    data['doc'].x = torch.randn(num_docs, 4, dtype=torch.double)
    data['doc'].y = torch.arange(num_docs)
    data['word'].x = torch.randn(num_edges, 4, dtype=torch.double)
    data['author'].num_nodes = num_docs + 1
    edge_index = edges_between(num_edges, num_docs, num_edges)
    data[WORD_IN_DOC].edge_index = edge_index
    data[WORD_IN_DOC].edge_attr = torch.randn(edge_index.size(1), 2)
    data[WORD_IN_DOC].edge_label = torch.ones(2)
    data[WORD_IN_DOC].name = 'a name'
    edge_index = edges_between(num_docs + 1, num_docs, num_edges)
    data['author', 'wrote', 'doc'].edge_index = edge_index
    return data


def assert_equal(value, expected, key):
    assert type(value) is type(expected), key
    if isinstance(value, torch.Tensor):
        torch.testing.assert_close(value, expected, msg=key)
    elif isinstance(value, np.ndarray):
        np.testing.assert_array_equal(value, expected)
    elif hasattr(value, 'to_dense'):
        assert value.sizes() == expected.sizes()
        assert torch.equal(value.to_dense(), expected.to_dense())
    else:
        assert value == expected, key


def assert_same(examples, expected):
    for example, twin in zip(examples, expected, strict=True):
        assert [s._key for s in example.stores] == [s._key for s in twin.stores]
        for store, twin_store in zip(example.stores, twin.stores, strict=True):
            assert set(store.keys()) == set(twin_store.keys())
            for key, value in twin_store.items():
                # PyG returns numbers as tensors.
                value = torch.tensor([value]) if isinstance(value, float) else value
                assert_equal(store[key], value, key)


def assert_separates(transform, examples, **options):
    batch = transform(Batch.from_data_list(examples, **options))
    assert_same(batch.to_data_list(), [transform(data) for data in examples])
    return batch


@each
@settings(max_examples=25, deadline=None)
@given(sizes=SIZES, seed=st.integers(0, 99))
def test_examples_of_a_batch(name, sizes, seed):
    torch.manual_seed(seed)
    assert_separates(TRANSFORMS[name], [example(*size) for size in sizes])


@each_typed
@settings(max_examples=25, deadline=None)
@given(sizes=SIZES, seed=st.integers(0, 99))
def test_examples_of_several_types(name, sizes, seed):
    torch.manual_seed(seed)
    assert_separates(TYPED[name], [typed_example(*size) for size in sizes])


@pytest.fixture
def sized():
    """Examples of different sizes; some have no edges, or as many as nodes."""
    sizes = ((6, 10), (0, 0), (9, 1), (7, 7), (5, 0), (1, 2))
    return [example(*size) for size in sizes]


@each
def test_every_way_to_reach_an_example(name, sized):
    transform = TRANSFORMS[name]
    follow = ['x', 'edge_index', 'edge_attr', 'y']
    batch = assert_separates(transform, sized, follow_batch=follow)
    expected = [transform(data) for data in sized]
    assert_same([batch[2], batch.get_example(3)], expected[2:4])
    mask = torch.arange(6) > 2
    for index in (slice(1, 3), [4, 0], mask, np.array([5, 1])):
        rows = np.arange(6)[np.asarray(index) if index is mask else index]
        assert_same(batch.index_select(index), [expected[i] for i in rows])
    assert {'x_batch', 'x_ptr', 'y_batch'} <= set(batch.keys())
    assert batch.is_node_attr('x_batch')
    loaded = [transform(few) for few in DataLoader(sized, batch_size=4)]
    assert_same([data for few in loaded for data in few.to_data_list()], expected)


@each
def test_the_batch_that_came_stays_as_it_was(name, sized):
    batch = Batch.from_data_list(sized)
    TRANSFORMS[name](batch)
    assert_same(batch.to_data_list(), sized)


@each
def test_a_batch_without_some_attributes(name, sized):
    excluded = ['edge_attr', 'y', 'edge_label_index', 'edge_type']
    batch = TRANSFORMS[name](Batch.from_data_list(sized, exclude_keys=excluded))
    expected = [TRANSFORMS[name](data) for data in sized]
    for data in expected:
        for key in excluded:
            data[key], data[f'observed_{key}'] = None, None
    assert_same(batch.to_data_list(), expected)


@each_typed
def test_a_typed_batch_in_a_loader(name):
    examples = [typed_example(*size) for size in ((6, 3), (2, 0), (0, 4), (3, 5))]
    expected = [TYPED[name](data) for data in examples]
    loader = DataLoader(examples, 2, follow_batch=['edge_attr', 'x'])
    for batch, pair in zip(loader, (expected[:2], expected[2:]), strict=True):
        slices = copy.deepcopy(batch._slice_dict)
        out = TYPED[name](batch)
        assert_same(out.to_data_list(), pair)
        assert_same([out[1], out.get_example(0)], pair[::-1])
        assert str(batch._slice_dict) == str(slices)  # The input stays as it was.


def test_draws_of_a_batch(sized):
    """Without a seed the examples are parts of what was drawn for the batch."""
    batch = SampledLatentGraph(k=3)(Batch.from_data_list(sized))
    examples = batch.to_data_list()
    shifted = [data.edge_index + batch.ptr[i] for i, data in enumerate(examples)]
    assert torch.equal(torch.cat(shifted, dim=1), batch.edge_index)
    weights = torch.cat([data.edge_weight for data in examples])
    assert torch.equal(weights, batch.edge_weight)
    assert all(data.validate() for data in examples)


@each
def test_edges_with_metadata(name, sized):
    for data in sized:
        size = (data.num_nodes, data.num_nodes)
        data.edge_index = EdgeIndex(data.edge_index, sparse_size=size)
    assert_separates(TRANSFORMS[name], sized)


@pytest.mark.parametrize('name', [n for n in TRANSFORMS if not n.startswith('re')])
@pytest.mark.parametrize('change', [T.ToDense(9), T.ToSparseTensor()])
def test_adjacencies(name, change, sized):
    if isinstance(change, T.ToSparseTensor):
        # PyG does not separate the sparse tensors of PyTorch itself.
        pytest.importorskip('torch_sparse')
    examples = [Data(data.x, data.edge_index, y=data.y) for data in sized]
    for data in examples:
        data.edge_norm = torch.rand(data.num_edges)
    assert_separates(TRANSFORMS[name], [*map(change, examples)])


@pytest.mark.parametrize('attr', ['feat', 'embedding'])
@pytest.mark.parametrize('sparse', [False, True])
def test_features_by_which_pyg_counts_no_nodes(attr, sparse):
    """A batch of them has no graph ids before the transform."""
    values = [torch.randn(n, 4) for n in (5, 0, 3)]
    values = [x.relu().to_sparse_csr() for x in values] if sparse else values
    examples = [Data(**{attr: x}) for x in values]
    transform = SimilarityKNNGraph(k=2, attr=attr)
    batch = transform(Batch.from_data_list(examples))
    assert batch.batch.tolist() == [0] * 5 + [2] * 3
    assert (batch.num_nodes, batch.edge_index.max().item()) == (8, 7)
    if not sparse:
        assert_same(batch.to_data_list(), [transform(data) for data in examples])
    typed = HeteroData({'doc': {attr: torch.randn(4, 2)}})
    transform = SimilarityKNNGraph(2, attr=attr, edge_types=[DOC_NEAR_DOC])
    assert_separates(transform, [typed, typed])


def test_features_of_a_batch_without_graph_ids():
    batch = Batch.from_data_list([Data(label='a'), Data(label='b')])
    batch.x = torch.randn(5, 4)
    text = r"'data.batch' must hold the graph ids of a batch \(got None\)"
    with pytest.raises(ValueError, match=text):
        SimilarityKNNGraph(k=2)(batch)
    typed = Batch.from_data_list([typed_example(3, 2), typed_example(2, 2)])
    typed['page'].x = torch.randn(5, 4)
    text = r"'data\['page'\].batch' must hold the graph ids of a batch"
    with pytest.raises(ValueError, match=text):
        SimilarityKNNGraph(k=2, edge_types=[('page', 'near', 'page')])(typed)


@pytest.mark.parametrize('name', sorted({*TRANSFORMS} - {'refined'}))
def test_graph_ids_without_slices(name, sized):
    batch = Batch.from_data_list(sized)
    data = Data(x=batch.x, edge_index=batch.edge_index, batch=batch.batch)
    out = TRANSFORMS[name](data)
    expected = TRANSFORMS[name](
        Batch.from_data_list([Data(d.x, d.edge_index) for d in sized])
    )
    for key, value in out.to_dict().items():
        assert torch.equal(value, expected[key])
    assert not hasattr(out, '_slice_dict')


def test_a_batch_of_batches():
    inner = [[example(4, 5), example(6, 2)], [example(3, 3)]]
    batches = [Batch.from_data_list(examples) for examples in inner]
    outer = KNN(Batch.from_data_list(batches)).to_data_list()
    for data, batch in zip(outer, map(KNN, batches), strict=True):
        assert torch.equal(data.batch, batch.batch)
        assert torch.equal(data.edge_index, batch.edge_index)


def test_a_batch_after_other_transforms(sized):
    """PyG leaves the slices of edges that it adds and of nodes that it drops."""
    batch = T.AddSelfLoops(attr=None)(Batch.from_data_list(sized))
    graphs = KNN(batch).to_data_list()
    for data, graph in zip(sized, graphs, strict=True):
        assert torch.equal(graph.edge_index, KNN(data).edge_index)
    batch = Batch.from_data_list(sized[:3])
    few = KNN(batch.subgraph(torch.arange(batch.num_nodes) > 2))
    for i, start in ((0, 3), (1, 0), (2, 0)):
        expected = KNN(Data(x=sized[i].x[start:])).edge_index
        edges = few._slice_dict['edge_index'][i : i + 2].tolist()
        local = few.edge_index[:, slice(*edges)] - few._inc_dict['edge_index'][i]
        assert torch.equal(local, expected)


class OfAll(torch.nn.Module):
    """A model that ignores the batch."""

    def graph(self, x, batch=None):
        edge_index = torch.tensor([[len(x) - 1], [0]])
        return edge_index, torch.ones(1)


def test_edges_between_examples(sized):
    batch = Batch.from_data_list(sized)
    text = r"'edge_index' joins two graphs of 'batch' \(got edge \[27, 0\]\)"
    with pytest.raises(ValueError, match=text):
        FreezeLatentGraph(OfAll())(batch)
    batch.edge_index = torch.tensor([[27], [0]])
    batch.edge_weight = torch.ones(1)
    with pytest.raises(ValueError, match=text):
        RefineGraph(k=2)(batch)


def test_what_belongs_to_the_edges_of_each_example():
    """The sums of lengths over a batch decide nothing where those of examples do."""
    sizes = ((3, 5), (5, 3))
    examples = [
        Data(x=torch.randn(n, 4), edge_index=edges_between(n, n, m)) for n, m in sizes
    ]
    for data, (n, m) in zip(examples, sizes, strict=True):
        data.norm = torch.rand(m)
        data.words = ['a'] * m
        data.numbers = np.arange(m)
        data.rank = torch.arange(n)
        # Eight scores in all, as edges and nodes, and four for each graph.
        data.scores = torch.rand(4)
    batch = assert_separates(KNN, examples)
    assert {'rank', 'scores'} <= set(batch.keys())
    assert not {'norm', 'words', 'numbers'} & set(batch.keys())
    # A mesh has as many faces as edges.
    face = torch.tensor([[0, 1], [1, 2], [2, 0]])
    mesh = Data(x=torch.randn(3, 4), face=face, edge_index=face[:2])
    assert_separates(KNN, [mesh, mesh])


def test_follow_batch_of_another_attribute():
    """Its pointers may be as many as the edges."""
    examples = [example(3, 2), example(4, 1)]
    batch = assert_separates(KNN, examples, follow_batch=['x', 'edge_attr'])
    assert batch.x_ptr.tolist() == [0, 3, 7]
    assert batch.observed_edge_attr_ptr.tolist() == [0, 2, 3]


def test_sparse_features_are_not_separated(sized):
    """PyG cannot select rows of sparse CSR tensors, and says so."""
    sparse_batch = Batch.from_data_list(sized)
    sparse_batch.x = sparse_batch.x.to_sparse_csr()
    sparse = [data.clone() for data in sized]
    for data in sparse:
        data.x = data.x.to_sparse_csr()
    for batch in (sparse_batch, Batch.from_data_list(sparse)):
        out = KNN(batch)
        assert torch.equal(out.edge_index, KNN(Batch.from_data_list(sized)).edge_index)
        for unchanged in (batch, out):
            with pytest.raises(NotImplementedError, match='SparseCsr'):
                unchanged.to_data_list()
        del out.x
        pairs = zip(out.to_data_list(), map(KNN, sized), strict=True)
        assert all(torch.equal(a.edge_index, b.edge_index) for a, b in pairs)
