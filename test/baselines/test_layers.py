"""The graph generators of SLAPS, and the graph that they give."""

import math

import pytest
import torch
from oracles import inner, seeded, to_matrix, unit

from torch_geometric_gsl.baselines.slaps.layers import GENERATORS, symmetric_graph
from torch_geometric_gsl.nn.nearest_neighbours import nearest_neighbours
from torch_geometric_gsl.typing import SampledGraph, is_sorted_by_target

N, IN, K = 8, 5, 3
KINDS = pytest.mark.parametrize('kind', GENERATORS)
LAYOUTS = pytest.mark.parametrize('layout', ['dense', 'sparse'])


def features(layout='dense'):
    """Positive and absent words; no two similarities are equal."""
    x = torch.rand(N, IN, generator=seeded(), dtype=torch.double) + 0.1
    x = x * (torch.rand(N, IN, generator=seeded(1)) < 0.7)
    return x if layout == 'dense' else x.to_sparse_csr()


def build(kind, act='tanh', noise=0.4):
    generator = GENERATORS[kind](IN, act).double()
    generator.reset_parameters()
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in generator.parameters():
            parameter += noise * torch.randn_like(parameter)
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


@KINDS
@torch.no_grad()
def test_they_begin_as_the_identity(kind):
    generator = build(kind, 'relu', noise=0.0)
    assert embed(generator, features(), 'relu') == features().tolist()
    found = generator.similarities(features(), K, None)
    expected = nearest_neighbours(features(), K, loop=True)
    # Weights of nearest neighbours are their cosines.
    torch.testing.assert_close(to_matrix(*found, N, N), to_matrix(*expected, N, N))


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


@torch.no_grad()
def test_symmetric_graph_against_matrices():
    similarities = build('mlp').similarities(features(), K, None)
    a = to_matrix(*similarities, N, N).relu()
    a = (a + a.t()) / 2
    scale = a.sum(dim=1).rsqrt()
    expected = scale.unsqueeze(1) * a * scale
    found = to_matrix(*symmetric_graph(similarities, N), N, N)
    torch.testing.assert_close(found, expected)
