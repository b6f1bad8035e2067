"""Generators of a graph, and the products of sparse rows that they need."""

import math

import pytest
import torch
from oracles import inner, seeded, to_matrix, unit

from torch_geometric_gsl.baselines._generators import (
    GENERATORS,
    sparse_pair_dots,
    symmetric_graph,
)
from torch_geometric_gsl.ops.neighbours import Neighbours, pair_dots
from torch_geometric_gsl.typing import SampledGraph, is_sorted_by_target

N, IN, K = 8, 5, 3
BUDGETS = pytest.mark.parametrize('memory_budget', [1, 200, 2**25])
KINDS = pytest.mark.parametrize('kind', GENERATORS)
LAYOUTS = pytest.mark.parametrize('layout', ['dense', 'sparse'])


def features(layout='dense'):
    """Positive and absent words; no two similarities are equal."""
    x = torch.rand(N, IN, generator=seeded(), dtype=torch.double) + 0.1
    x = x * (torch.rand(N, IN, generator=seeded(1)) < 0.7)
    return x if layout == 'dense' else x.to_sparse_csr()


def build(kind, act='tanh'):
    generator = GENERATORS[kind](IN, act).double()
    generator.reset_parameters()
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in generator.parameters():
            parameter += 0.4 * torch.randn_like(parameter)
    return generator


def embed(generator, x, name):
    """What the generator compares, a node at a time."""
    act = {'tanh': math.tanh, 'relu': lambda value: max(value, 0.0)}[name]
    state = {name: value.tolist() for name, value in generator.state_dict().items()}
    rows = []
    for row in x.tolist():
        if 'weight' in state:
            first, second = state['weight']
            row = [act(a * b) for a, b in zip(row, first, strict=True)]
            rows.append([a * b for a, b in zip(row, second, strict=True)])
            continue
        for name in ('first', 'second'):
            lines = zip(state[f'{name}.weight'], state[f'{name}.bias'], strict=True)
            row = [inner(row, w) + b for w, b in lines]
            row = [act(a) for a in row] if name == 'first' else row
        rows.append(row)
    return rows


@LAYOUTS
@KINDS
@pytest.mark.parametrize('act', ['tanh', 'relu'])
@torch.no_grad()
def test_similarities_against_loops(kind, layout, act):
    generator, x = build(kind, act), features()
    rows = [unit(row) for row in embed(generator, x, act)]
    expected = torch.zeros(N, N, dtype=torch.double)
    for i, u in enumerate(rows):
        cosine = [inner(u, v) for v in rows]
        for j in sorted(range(N), key=lambda j: -cosine[j])[:K]:
            expected[i, j] = cosine[j]
    graph = generator.similarities(features(layout), K, None)
    # Targets ascend, with as many sources each.
    assert graph.edge_index[1].tolist() == [i for i in range(N) for _ in range(K)]
    torch.testing.assert_close(to_matrix(*graph, N, N), expected)


@LAYOUTS
@KINDS
def test_no_edge_joins_two_graphs(kind, layout):
    batch = torch.tensor([0, 0, 1, 1, 1, 1, 1, 2])
    found = build(kind).similarities(features(layout), K, batch)
    source, target = found.edge_index
    assert torch.equal(batch[source], batch[target])
    # A graph of fewer nodes than neighbours has edges of all its pairs.
    assert torch.bincount(target).tolist() == [2, 2, 3, 3, 3, 3, 3, 1]


@LAYOUTS
@KINDS
def test_gradients_of_the_similarities(kind, layout):
    generator, x = build(kind), features(layout)
    x = x.requires_grad_() if layout == 'dense' else x
    inputs = (*generator.parameters(), *((x,) if layout == 'dense' else ()))

    def weights(*_):
        return generator.similarities(x, K, None).edge_weight

    # The numeric gradient moves the parameters themselves.
    assert torch.autograd.gradcheck(weights, inputs, fast_mode=True)


def test_symmetric_graph_by_hand():
    # Node 0 hears of 1, both of themselves; what is negative is no edge.
    edge_index = torch.tensor([[0, 1, 0, 1, 2], [0, 0, 1, 1, 1]])
    weight = torch.tensor([3.0, 2.0, -1.0, 5.0, -4.0], dtype=torch.double)
    graph = symmetric_graph(SampledGraph(edge_index, weight), 3)
    # Halves of sums: 3, 1 and 5; degrees 4 and 6. Node 2 has none.
    root = 24**-0.5
    expected = torch.tensor([[3 / 4, root, 0], [root, 5 / 6, 0], [0, 0, 0]]).double()
    torch.testing.assert_close(to_matrix(*graph, 3, 3), expected, rtol=1e-6, atol=0)
    assert is_sorted_by_target(graph.edge_index)
    assert torch.unique(graph.edge_index, dim=1).shape == graph.edge_index.shape


def rows(n=9, width=6, seed=0):
    """Rows of some zeros, the third of zeros alone, two of them equal."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, width, generator=generator, dtype=torch.float64)
    x = x * (torch.rand(n, width, generator=generator) < 0.5)
    x[2] = 0
    x[4] = x[3]
    return x


def places_of(x):
    csr = x.to_sparse_csr()
    return Neighbours(csr.col_indices(), x.size(1), csr.crow_indices())


def lists(n=9):
    """Lists of different lengths, one of them empty, with a row twice in one list."""
    sizes = torch.tensor([3, 0, 2, 4, 1, 2, 2, 3, 1])
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), sizes.cumsum(0)])
    source = torch.arange(int(sizes.sum())).mul(5).remainder(n)
    source[:2] = source[0]
    return Neighbours(source, n, offsets)


@BUDGETS
def test_sparse_products_against_a_plain_loop(memory_budget):
    x, neighbours = rows(), lists()
    value = x.to_sparse_csr().values()
    out = sparse_pair_dots(value, places_of(x), neighbours, memory_budget=memory_budget)
    pairs = zip(neighbours.target.tolist(), neighbours.source.tolist(), strict=True)
    expected = [
        sum(a * b for a, b in zip(x[i].tolist(), x[j].tolist(), strict=True))
        for i, j in pairs
    ]
    torch.testing.assert_close(out, torch.tensor(expected, dtype=torch.float64))


@BUDGETS
def test_gradient_of_sparse_products(memory_budget):
    x, neighbours, places = rows(), lists(), places_of(rows())
    value = x.to_sparse_csr().values().clone().requires_grad_()
    # That of the dense product, at the places of the entries.
    dense = x.clone().requires_grad_()
    weight = torch.randn(neighbours.source.numel(), dtype=torch.float64)
    (pair_dots(dense, dense, neighbours) * weight).sum().backward()
    out = sparse_pair_dots(value, places, neighbours, memory_budget=memory_budget)
    (out * weight).sum().backward()
    torch.testing.assert_close(value.grad, dense.grad[x != 0])


def test_entries_of_one_place_add_up():
    # Not coalesced: the first row holds 1 + 2 in its second column.
    places = Neighbours(
        torch.tensor([1, 1, 1]), num_sources=2, offsets=torch.tensor([0, 2, 3])
    )
    value = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)
    every = Neighbours(torch.tensor([[0, 1], [0, 1]]), num_sources=2)
    assert sparse_pair_dots(value, places, every).tolist() == [9, 12, 12, 16]
