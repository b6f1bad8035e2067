"""Graphs in data objects, batches and data sets; what belongs to an edge."""

import copy

import numpy as np
import pytest
import torch
import torch_geometric.transforms as T
from torch_geometric.data import Batch, Data, InMemoryDataset

from torch_geometric_gsl.transforms import (
    SampledLatentGraph,
    SimilarityKNNGraph,
)

OBSERVED = {'observed_edge_index', 'observed_edge_attr', 'observed_edge_weight'}


def assert_same(data, expected):
    assert set(data.keys()) == set(expected.keys())
    for key, value in data.to_dict().items():
        if isinstance(value, torch.Tensor):
            torch.testing.assert_close(value, expected[key], msg=key)
        else:
            assert value == expected[key], key


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
    sparse = T.ToSparseTensor()(examples[0])
    out = transform(sparse)
    assert 'adj_t' not in out
    assert out.observed_adj_t is sparse.adj_t


def test_data_sets_equal_single_graphs(transform, examples, tmp_path):
    singles = [transform(data) for data in examples]
    early = stored(tmp_path / 'early.pt', singles)
    late = stored(tmp_path / 'late.pt', examples, transform)
    for made in (early, late):
        for single, data in zip(singles, made, strict=True):
            assert_same(single, data)
    # What spoke about the edges of a batch moves along with them.
    observed = Batch.from_data_list(examples, follow_batch=['edge_attr'])
    batch = transform(observed)
    assert_is_graph(batch)
    for key in ('edge_index', 'edge_attr', 'edge_attr_batch', 'edge_attr_ptr'):
        assert torch.equal(batch[f'observed_{key}'], observed[key])


@pytest.mark.parametrize('loop', [False, True])
@pytest.mark.parametrize(
    ('cls', 'kwargs'),
    [
        (SimilarityKNNGraph, {'force_undirected': True}),
        (SampledLatentGraph, {'seed': 2, 'scale': 1.0}),
        (SampledLatentGraph, {'seed': 2, 'scale': 1.0, 'replace': False}),
    ],
)
def test_graphs_of_few_nodes(cls, kwargs, loop, graph_of):
    sizes = (0, 1, 2, 5, 9, 0)
    examples = [Data(x=torch.randn(n, 4)) for n in sizes]
    transform = cls(5, loop=loop, **kwargs)
    batch = transform(Batch.from_data_list(examples))
    for i, (n, data) in enumerate(zip(sizes, examples, strict=True)):
        out = transform(data)
        assert_is_graph(out)
        assert torch.equal(graph_of(batch, i)[0], out.edge_index)
        k = min(5, n - 1 + loop)
        if k > 0:
            assert out.num_edges >= n * k
            assert_same(out, cls(k, loop=loop, clamp=False, **kwargs)(data))
        else:
            assert (out.num_nodes, out.num_edges) == (n, 0)


@pytest.mark.parametrize('cls', [SimilarityKNNGraph, SampledLatentGraph])
def test_graphs_of_few_nodes_raise_without_clamp(cls):
    transform = cls(5, loop=False, clamp=False)
    text = r"'k' must not exceed the number of candidates{} \(got k=5 for {} cand"
    for n in (1, 5):
        data = Data(x=torch.randn(n, 4))
        with pytest.raises(ValueError, match=text.format('', n - 1)):
            transform(data)
        big = Data(x=torch.randn(6, 4))
        with pytest.raises(ValueError, match=text.format(' of graph 1', n - 1)):
            transform(Batch.from_data_list([big, data]))
    assert transform(Data(x=torch.randn(0, 4))).num_edges == 0


def test_batch_vectors(graph_of):
    data = Data(x=torch.randn(4, 2), batch=torch.tensor([0, 1, 0, 1]))
    with pytest.raises(ValueError, match=r"'data\.batch' must be sorted"):
        SimilarityKNNGraph(k=1)(data)
    nothing = Data(x=torch.empty(0, 3), batch=torch.empty(0, dtype=torch.long))
    out = SimilarityKNNGraph()(nothing)
    assert (out.edge_index.shape, out.edge_weight.shape) == ((2, 0), (0,))
    # Features that a batch itself is given.
    edges = torch.empty(2, 0, dtype=torch.long)
    batch = Batch.from_data_list([Data(edge_index=edges, num_nodes=n) for n in (4, 5)])
    batch.x = torch.randn(9, 3)
    out = SimilarityKNNGraph(k=2)(batch)
    alone = SimilarityKNNGraph(k=2)(Data(x=batch.x[4:]))
    assert torch.equal(graph_of(out, 1)[0], alone.edge_index)


def test_a_second_graph_replaces_the_first(examples):
    data = SimilarityKNNGraph(k=2)(examples[0])
    data.edge_attr = torch.randn(data.num_edges, 1)
    out = SampledLatentGraph(k=3)(data)
    assert 'edge_attr' not in out
    assert torch.equal(out.observed_edge_index, examples[0].edge_index)
    assert torch.equal(out.observed_edge_attr, examples[0].edge_attr)


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
        # Two labels of two graphs, and two edges.
        (
            Batch.from_data_list(
                [make(3, n, y=torch.zeros(1), edge_norm=torch.zeros(n)) for n in (0, 2)]
            ),
            {'edge_norm'},
        ),
        (
            Batch.from_data_list([make(3, n, kind=torch.zeros(n)) for n in (0, 3)]),
            {'kind'},
        ),
    ],
)
def test_what_belongs_to_the_edges(data, expected):
    out = SimilarityKNNGraph(k=2)(data)
    moved = {key for key in out.keys() if key.startswith('observed_')}  # noqa: SIM118
    assert moved == {f'observed_{key}' for key in expected | {'edge_index'}}


def test_nothing_but_the_seed_is_random(transform, examples):
    """No transform draws from the global generator, or changes it."""
    weights = []
    for seed in range(2):
        torch.manual_seed(seed)
        state = torch.get_rng_state()
        weights.append(transform(Batch.from_data_list(examples)).edge_weight)
        assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(*weights)
