import pytest
import torch
from oracles import seeded

from torch_geometric_gsl.ops.distances import edge_distances, pair_distances
from torch_geometric_gsl.ops.neighbours import Neighbours

N, D, E = 9, 5, 40


def problem(dtype=torch.float64):
    """Features with zeros, empty rows and equal rows; edges with repetitions."""
    x = torch.randn(N, D, dtype=dtype)
    x = x.masked_fill(torch.rand(N, D) < 0.4, 0)
    x[3], x[5] = 0, x[4]
    edge_index = torch.randint(N, (2, E))
    edge_index[:, :3] = torch.tensor([[4, 3, 2], [5, 0, 2]])
    return x, edge_index


def loop(x, edge_index):
    return torch.tensor(
        [
            sum((float(x[i, c]) - float(x[j, c])) ** 2 for c in range(x.size(1)))
            for j, i in edge_index.t().tolist()
        ],
        dtype=torch.float64,
    )


@pytest.mark.parametrize('is_sparse', [False, True])
@pytest.mark.parametrize('budget', [1, 700, 2**25])
def test_value(is_sparse, budget):
    x, edge_index = problem()
    given = x.to_sparse_csr() if is_sparse else x
    found = edge_distances(given, edge_index, memory_budget=budget)
    torch.testing.assert_close(found, loop(x, edge_index))
    assert float(found[0]) < 1e-15


@pytest.mark.parametrize('budget', [1, 700, 2**25])
def test_gradient(budget):
    x, edge_index = problem()
    assert torch.autograd.gradcheck(
        lambda x: edge_distances(x, edge_index[:, :7], memory_budget=budget),
        x.requires_grad_(),
    )


@pytest.mark.parametrize('is_sparse', [False, True])
def test_no_edges(is_sparse):
    x, edge_index = problem()
    x = x.to_sparse_csr() if is_sparse else x
    assert edge_distances(x, edge_index[:, :0]).shape == (0,)
    nothing = torch.zeros(2, 4, dtype=torch.double)
    nothing = nothing.to_sparse_csr() if is_sparse else nothing
    found = edge_distances(nothing, torch.tensor([[0, 1], [1, 1]]))
    assert found.tolist() == [0, 0]


@pytest.mark.parametrize('is_sparse', [False, True])
@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float32])
def test_dtypes(is_sparse, dtype):
    x, edge_index = problem(torch.float32)
    x = x.to(dtype)
    found = edge_distances(x.to_sparse_csr() if is_sparse else x, edge_index)
    assert found.dtype == torch.float32
    expected = loop(x.double(), edge_index).float()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_near_nodes_keep_their_distance_and_its_gradient():
    # In float32 the squares of the rows have no digit left for the difference.
    x = torch.tensor([[1e5, 9e5], [1e5 + 0.25, 9e5]], requires_grad=True)
    distance = edge_distances(x, torch.tensor([[0], [1]]))
    assert distance.tolist() == [0.0625]
    sparse = torch.tensor([[1000.0, 0.0], [1000.25, 0.0]]).to_sparse_csr()
    assert edge_distances(sparse, torch.tensor([[0], [1]])).tolist() == [0.0625]
    distance.sum().backward()
    assert x.grad.tolist() == [[-0.5, 0.0], [0.5, 0.0]]


@pytest.mark.parametrize('form', ['table', 'list'])
@pytest.mark.parametrize('budget', [1, 700, 2**25])
def test_distances_of_neighbours(form, budget):
    source, offsets = torch.randint(6, (4, 3), generator=seeded(1)), None
    if form == 'list':
        source, offsets = source.flatten(), torch.arange(5) * 3
    neighbours = Neighbours(source, 6, offsets, memory_budget=budget)
    dst, src = torch.randn(2, 6, 5, dtype=torch.double).requires_grad_().unbind()
    dst = dst[:4]
    edges = torch.stack([neighbours.source.flatten(), neighbours.target]).long()
    both = torch.cat([src, dst])
    expected = loop(both.detach(), edges + torch.tensor([[0], [6]]))
    out = pair_distances(dst, src, neighbours)
    assert out.shape == neighbours.source.shape
    torch.testing.assert_close(out.flatten(), expected)
    function = lambda dst, src: pair_distances(dst, src, neighbours)  # noqa: E731
    assert torch.autograd.gradcheck(function, (dst, src))


@pytest.mark.parametrize('is_sparse', [False, True])
def test_memory(is_sparse, meter):
    x = torch.zeros(50, 1000, dtype=torch.double)
    x[:, 7] = torch.arange(50.0)
    edge_index = torch.randint(50, (2, 2000))
    given = x.to_sparse_csr() if is_sparse else x
    with meter() as measured:
        edge_distances(given, edge_index, memory_budget=2**17)
    assert measured.largest <= x.numel()  # Not 2,000 edges times 1,000 channels.
