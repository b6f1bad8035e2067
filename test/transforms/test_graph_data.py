import copy

import numpy as np
import pytest
import torch
import torch_geometric.transforms as T
from torch_geometric.data import Batch, Data, InMemoryDataset

from torch_geometric_gsl.transforms import (
    DropObservedGraph,
    SampledLatentGraph,
    SimilarityKNNGraph,
)
from torch_geometric_gsl.transforms._graph_data import graph_keys

OBSERVED = {'observed_edge_index', 'observed_edge_attr', 'observed_edge_weight'}


def assert_same(one, other):
    assert set(one.keys()) == set(other.keys())
    for key, value in one.to_dict().items():
        if isinstance(value, torch.Tensor):
            # Matrix products of a batch may be rounded in another way.
            torch.testing.assert_close(value, other[key], msg=key)
        else:
            assert value == other[key], key


def assert_is_graph(data):
    assert data.validate()
    assert data.edge_index.dtype == torch.long
    assert data.edge_weight.shape == (data.edge_index.size(1),)
    assert not data.edge_weight.requires_grad
    code = data.edge_index[1] * data.num_nodes + data.edge_index[0]
    assert bool((code.diff() > 0).all())  # By target, then source, no duplicates.


def stored(path, examples, transform=None):
    InMemoryDataset.save(examples, path)
    dataset = InMemoryDataset(transform=transform)
    dataset.load(path)
    return dataset


def test_keeps_all_other_attributes(transform, examples):
    data = examples[0]
    data.name = 'a name'
    data.edge_label_index = torch.zeros(2, 10, dtype=torch.long)
    data.edge_label = torch.zeros(10)
    data.vector = torch.randn(1, 3)
    before = copy.copy(data)
    out = transform(data)
    assert_is_graph(out)
    assert set(out.keys()) == (set(before.keys()) - {'edge_attr'}) | OBSERVED
    for key in ('x', 'y', 'mask', 'name', 'edge_label_index', 'edge_label', 'vector'):
        assert out[key] is before[key]
    for key in ('edge_index', 'edge_attr', 'edge_weight'):
        assert out[f'observed_{key}'] is before[key]
    assert_same(data, before)  # The input is not changed in place.
    out = transform(Data(x=data.x))
    assert_is_graph(out)
    assert set(out.keys()) == {'x', 'edge_index', 'edge_weight'}


def test_batches_and_data_sets_equal_single_graphs(transform, examples, tmp_path):
    given = Batch.from_data_list(examples)
    batch = transform(given)
    assert_is_graph(batch)
    source, target = batch.edge_index
    assert torch.equal(batch.batch[source], batch.batch[target])
    singles = [transform(data) for data in examples]
    early = stored(tmp_path / 'early.pt', singles)
    late = stored(tmp_path / 'late.pt', examples, transform)
    for made in (batch.to_data_list(), early, late):
        for one, other in zip(singles, made, strict=True):
            assert_same(one, other)
    assert_same(singles[2], batch[2])
    assert_same(Batch.from_data_list(singles), batch)
    assert torch.equal(batch.observed_edge_index, given.edge_index)
    # The batch that came is left alone.
    for one, other in zip(examples, given.to_data_list(), strict=True):
        assert_same(one, other)
    # A vector of graph ids serves as well.
    out = transform(Data(x=given.x, batch=given.batch))
    assert torch.equal(out.edge_index, batch.edge_index)
    assert torch.equal(out.edge_weight, batch.edge_weight)


@pytest.mark.parametrize('loop', [False, True])
@pytest.mark.parametrize(
    ('cls', 'kwargs'),
    [
        (SimilarityKNNGraph, {}),
        (SimilarityKNNGraph, {'force_undirected': True}),
        (SampledLatentGraph, {'seed': 2}),
        (SampledLatentGraph, {'seed': 2, 'replace': False}),
    ],
)
def test_graphs_of_few_nodes_in_a_data_set(cls, kwargs, loop, tmp_path):
    sizes = (0, 1, 2, 5, 6, 9, 0)
    examples = [Data(x=torch.randn(n, 4)) for n in sizes]
    transform = cls(5, loop=loop, **kwargs)
    singles = [transform(data) for data in examples]
    for n, out in zip(sizes, singles, strict=True):
        assert_is_graph(out)
        k = min(5, n - 1 + loop)
        if k > 0:
            assert out.num_edges >= n * k
            assert_same(out, cls(k, loop=loop, clamp=False, **kwargs)(Data(x=out.x)))
        else:
            assert (out.num_nodes, out.num_edges) == (n, 0)
    batch = transform(Batch.from_data_list(examples))
    late = stored(tmp_path / 'data.pt', examples, transform)
    for made in (batch.to_data_list(), late):
        for one, other in zip(singles, made, strict=True):
            assert_same(one, other)


def test_features_set_on_a_batch():
    nothing = torch.empty(2, 0, dtype=torch.long)
    examples = [Data(edge_index=nothing, num_nodes=n) for n in (4, 5)]
    batch = Batch.from_data_list(examples)
    batch.x = torch.randn(9, 3)
    out = SimilarityKNNGraph(k=2)(batch)
    alone = SimilarityKNNGraph(k=2)(Data(x=batch.x[4:]))
    assert torch.equal(out[1].edge_index, alone.edge_index)


def test_compose(examples):
    data = SimilarityKNNGraph(k=2)(examples[0])
    data.edge_attr = torch.randn(data.num_edges, 1)
    # A second graph replaces the first, and keeps the observed one.
    out = SampledLatentGraph(k=3)(data)
    assert 'edge_attr' not in out
    assert torch.equal(out.observed_edge_index, examples[0].edge_index)
    assert torch.equal(out.observed_edge_attr, examples[0].edge_attr)
    steps = [DropObservedGraph(), SimilarityKNNGraph(k=2), T.ToUndirected()]
    out = T.Compose(steps)(examples[0])
    assert out.is_undirected()
    assert not OBSERVED & set(out.keys())


def test_adj_t_round_trip(transform, examples):
    pytest.importorskip('torch_sparse')
    data = T.ToSparseTensor()(examples[0])
    assert 'adj_t' in data
    out = transform(data)
    assert 'adj_t' not in out
    assert out.observed_adj_t.nnz() == 10
    batch = transform(Batch.from_data_list([data, data]))
    assert batch.observed_adj_t.sizes() == [12, 12]
    assert batch[1].observed_adj_t.sizes() == [6, 6]


def test_follow_batch_moves_along(transform, examples):
    batch = Batch.from_data_list(examples, follow_batch=['edge_attr'])
    out = transform(batch)
    assert torch.equal(out.observed_edge_attr_batch, batch.edge_attr_batch)
    assert torch.equal(out.observed_edge_attr_ptr, batch.edge_attr_ptr)
    assert 'edge_attr_batch' not in out


def make(num_nodes, num_edges, **kwargs):
    edge_index = torch.zeros(2, num_edges, dtype=torch.long)
    return Data(x=torch.randn(num_nodes, 2), edge_index=edge_index, **kwargs)


@pytest.mark.parametrize(
    ('data', 'expected'),
    [
        # As many entries as edges: belongs to them, whatever the name and type.
        (make(3, 5, y=torch.zeros(5)), {'y'}),
        (make(3, 5, y=torch.zeros(1, 5)), set()),
        (make(3, 5, norm=np.zeros(5)), {'norm'}),
        (make(3, 5, words=['a'] * 5), {'words'}),
        (make(3, 5, negative_index=torch.zeros(2, 5)), {'negative_index'}),
        (make(3, 5, edge_norm=torch.zeros(4)), set()),
        (make(3, 5, scalar=torch.tensor(5)), set()),
        # As many edges as nodes: the name decides.
        (make(5, 5, y=torch.zeros(5), edge_norm=torch.zeros(5)), {'edge_norm'}),
        # A single edge: a label of the graph is none of the edge.
        (make(3, 1, y=torch.zeros(1), edge_norm=torch.zeros(1)), {'edge_norm'}),
        # Weights are replaced, and therefore kept, even if they do not fit.
        (make(3, 5, edge_weight=torch.zeros(2)), {'edge_weight'}),
        (make(3, 5, pos=torch.zeros(5, 2)), set()),
    ],
)
def test_what_belongs_to_the_edges(data, expected):
    assert set(graph_keys(data)) == expected | {'edge_index'}


def test_what_belongs_to_the_edges_of_a_batch():
    # Two labels of two graphs, and two edges: 1 + 1 is not 0 + 2.
    first, second = make(3, 0, y=torch.zeros(1)), make(3, 2, y=torch.zeros(1))
    assert graph_keys(Batch.from_data_list([first, second])) == ['edge_index']
    first.kind, second.kind = torch.zeros(0), torch.zeros(2)
    keys = graph_keys(Batch.from_data_list([first, second]))
    assert keys == ['edge_index', 'kind']


def test_nothing_but_the_seed_is_random(transform, examples):
    """No transform draws from the global generator, or changes it."""
    found = []
    for seed in range(2):
        torch.manual_seed(seed)
        state = torch.get_rng_state()
        graphs = [transform(copy.copy(data)) for data in examples]
        assert torch.equal(torch.get_rng_state(), state)
        found.append([(g.edge_index, g.edge_weight) for g in graphs])
    for first, second in zip(*found, strict=True):
        assert all(map(torch.equal, first, second))
