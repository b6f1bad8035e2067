"""Candidates, batches and bad input, through the sampler that is asked for them."""

import pytest
import torch
from oracles import seeded, to_matrix
from sampling import limits, make, normal

from torch_geometric_gsl.nn.sampler import Budget
from torch_geometric_gsl.typing import SampledGraph

# The first makes one list of the pairs of all graphs, the second visits graph by
# graph and row by row.
BUDGETS = [2**25, 1]
OPTIONS = [
    {},
    {'loop': False},
    {'hard': True},
    {'replace': False},
    {'replace': False, 'loop': False},
]


def one_by_one(sampler, pair, ids):
    generator, edges, weights = seeded(1), [], []
    for graph in range(1 + int(torch.cat(ids).max())):
        nodes = [(batch == graph).nonzero().view(-1) for batch in ids]
        rows = (pair[0][nodes[0]], pair[1][nodes[1]])
        x = rows[0] if pair[0] is pair[1] else rows
        edge_index, edge_weight = sampler(x, generator=generator)
        row, col = edge_index
        edges.append(torch.stack([nodes[0][row], nodes[1][col]]))
        weights.append(edge_weight)
    return SampledGraph(torch.cat(edges, dim=1), torch.cat(weights))


def assert_equal_graphs(graph, expected):
    assert torch.equal(graph.edge_index, expected.edge_index)
    torch.testing.assert_close(graph.edge_weight, expected.edge_weight)


# Nodes of each graph; ids without nodes are graphs without nodes.
SIZES = [([4, 0, 6], None), ([0, 5], None), ([4, 5, 3], [3, 0, 5])]


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('budget', BUDGETS)
@pytest.mark.parametrize('options', OPTIONS)
@pytest.mark.parametrize('method', ['dense', 'stream'])
@pytest.mark.parametrize(('sources', 'targets'), SIZES)
def test_batch_equals_graphs_one_by_one(
    sources, targets, method, options, budget, training
):
    batch = torch.arange(len(sources)).repeat_interleave(torch.tensor(sources))
    x, ids = normal(sum(sources), 6), (batch, batch)
    kwargs, pair = {'batch': batch}, (x, x)
    if targets is not None:
        batch_dst = torch.arange(len(targets)).repeat_interleave(torch.tensor(targets))
        ids = kwargs['batch'] = (batch, batch_dst)
        x = pair = (x, normal(sum(targets), 6, seed=4))
    # Everything is kept: a list of pairs draws all of them, blocks the first arrivals.
    limited = limits(method, options, memory=budget, arrivals=16)
    sampler = make(method=method, budget=limited, **options).train(training)
    graph = sampler(x, **kwargs, generator=seeded(1))
    assert_equal_graphs(graph, one_by_one(sampler, pair, ids))
    assert torch.equal(ids[0][graph.edge_index[0]], ids[1][graph.edge_index[1]])


@pytest.mark.parametrize('training', [True, False])
def test_sums_where_only_one_graph_has_targets(training):
    # The messages of the other graph's sources reach nobody.
    pair, h = (normal(200, 6), normal(90, 6, seed=4)), normal(200, 2, seed=5)
    ids = torch.arange(200) // 100, torch.zeros(90).long()
    sampler = make(method='stream').train(training)
    edge_index, weight = sampler(pair, batch=ids, generator=seeded(1))
    expected = to_matrix(edge_index, weight, 90, 200) @ h
    out = sampler.propagate(pair, h, batch=ids, generator=seeded(1))
    torch.testing.assert_close(out, expected)


# Unsorted, with a duplicate; targets 2 and 5 have no candidates.
EDGES = torch.tensor(
    [[4, 0, 1, 3, 2, 5, 1, 4, 0, 2, 0, 3, 5], [0, 0, 0, 0, 1, 1, 1, 3, 3, 3, 4, 4, 0]]
)[:, [7, 0, 3, 3, 11, 2, 9, 1, 4, 6, 8, 5, 10, 12]]


def candidates(target, loop=True):
    pairs = set(zip(*EDGES.tolist(), strict=True))
    return sorted(j for j, i in pairs if i == target and (loop or j != i))


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('hard', [True, False])
@pytest.mark.parametrize('loop', [True, False])
@pytest.mark.parametrize('method', ['dense', 'auto'])
def test_given_candidates(method, loop, hard, training):
    options = {'loop': loop, 'hard': hard, 'k': 2, 'eval_k': 2}
    sampler = make(method=method, **options).train(training)
    edge_index, weight = sampler(normal(6, 6), EDGES)
    key = edge_index[1] * 6 + edge_index[0]
    assert bool((key[1:] > key[:-1]).all())
    for i in range(6):
        sources = edge_index[0, edge_index[1] == i].tolist()
        allowed = candidates(i, loop)
        assert set(sources) <= set(allowed)
        if training:  # Fewer than `num_arrivals`: all of them.
            assert sources == allowed
        else:
            assert len(sources) == min(2, len(allowed))
        total = float(weight.detach()[edge_index[1] == i].sum())
        assert total == pytest.approx(1.0 if allowed else 0.0)


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('options', OPTIONS)
@pytest.mark.parametrize('method', ['dense', 'auto'])
def test_all_pairs_as_candidates(method, options, training):
    sampler = make(
        method=method, budget=limits(method, options, arrivals=6), **options
    ).train(training)
    x = normal(6, 6)
    everything = torch.cartesian_prod(torch.arange(6), torch.arange(6)).t()
    graph = sampler(x, everything, generator=seeded(1))
    no_loops = everything[:, everything[0] != everything[1]]
    if options.get('loop', True) or not training:
        assert_equal_graphs(graph, sampler(x, generator=seeded(1)))
    if not options.get('loop', True):  # Loops are as if they were not given.
        assert_equal_graphs(graph, sampler(x, no_loops, generator=seeded(1)))


@pytest.mark.parametrize('training', [True, False])
def test_batch_and_given_candidates(training):
    batch = torch.tensor([0, 0, 0, 1, 1, 1])
    inside = EDGES[:, batch[EDGES[0]] == batch[EDGES[1]]]
    sampler, x = make(k=2).train(training), normal(6, 6)
    graph = sampler(x, inside, batch=batch, generator=seeded(1))
    assert_equal_graphs(graph, sampler(x, inside, generator=seeded(1)))


X = normal(6, 6)


@pytest.mark.parametrize('budget', BUDGETS)
def test_too_few_candidates(budget):
    sampler = make(k=6, loop=False, replace=False, budget=Budget(memory=budget))
    with pytest.raises(ValueError, match=r'\(got k=6 for 5 candidates\)'):
        sampler(X)
    sampler = make(replace=False, budget=Budget(memory=budget))
    with pytest.raises(ValueError, match=r'of graph 1 \(got k=3 for 2 candidates\)'):
        sampler(X, batch=torch.tensor([0, 0, 0, 0, 1, 1]))
    with pytest.raises(ValueError, match=r'\(got k=3, but target 2 has 0\)'):
        sampler(X, EDGES)


@pytest.mark.parametrize('is_training', [True, False])
@pytest.mark.parametrize('method', ['auto', 'dense', 'stream', 'race', 'pool'])
@pytest.mark.parametrize('num_rows', [1, 2, 4])
@pytest.mark.filterwarnings('ignore:each target has')
def test_few_candidates_are_drawn_repeatedly(num_rows, method, is_training):
    x, adjacency = X[:num_rows], 1 - torch.eye(num_rows, dtype=torch.double)
    forms = [{}, {'batch': torch.zeros(num_rows, dtype=torch.long)}]
    if method not in ('stream', 'pool') or not is_training:
        forms.append({'edge_index': adjacency.nonzero().t().flip(0)})
    for form in forms:
        sampler = make(k=6, loop=False, method=method).train(is_training)
        graph = sampler(x, **form)
        total = x.new_zeros(num_rows).index_add(0, graph.edge_index[1], graph[1])
        torch.testing.assert_close(total, x.new_full((num_rows,), float(num_rows > 1)))
        assert bool((graph.edge_index[0] != graph.edge_index[1]).all())
        if not is_training:  # All others are neighbours.
            assert graph.edge_index.size(1) == num_rows * (num_rows - 1)
        out = sampler.propagate(x, x, **form)
        assert out.shape == x.shape
        assert bool(out.isfinite().all())
