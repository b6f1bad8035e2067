"""Other libraries against the exact lists of this package."""

import pickle
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from oracles import seeded
from torch_geometric.data import Batch, Data
from torch_geometric.nn import ApproxL2KNNIndex, L2KNNIndex, MIPSKNNIndex

from torch_geometric_gsl import (
    CosineSimilarity,
    GaussianSimilarity,
    HeatKernelSimilarity,
    LinearSimilarity,
)
from torch_geometric_gsl.nn.nearest_neighbours import nearest_neighbours
from torch_geometric_gsl.ops import knn_backends
from torch_geometric_gsl.transforms import SimilarityKNNGraph

BACKENDS = ['faiss', 'pynndescent']
#: The share of the exact neighbours that `pynndescent` finds at least, of the rows and
#: with a fixed seed: it is 0.9998 or more of dense and of sparse rows.
RECALL = 0.98
N, IN, K = 2000, 16, 10


@pytest.fixture
def library(request):
    """Skip where a library is missing; some give warnings while they are imported."""
    return pytest.importorskip(request.param)


with_faiss = pytest.mark.parametrize('library', ['faiss'], indirect=True)
with_pynndescent = pytest.mark.parametrize('library', ['pynndescent'], indirect=True)
with_each = pytest.mark.parametrize(
    ('library', 'backend'), [(name, name) for name in BACKENDS], indirect=['library']
)


def features(num_nodes=N, seed=3, num_features=IN):
    return torch.randn(num_nodes, num_features, generator=seeded(seed))


def euclidean(num_features=IN):
    return HeatKernelSimilarity(num_features, normalize=False)


def lists(edge_index, num_nodes):
    found = [set() for _ in range(num_nodes)]
    for source, target in edge_index.t().tolist():
        found[target].add(source)
    return found


def recall(data, exact):
    pairs = zip(
        lists(data.edge_index, exact.num_nodes),
        lists(exact.edge_index, exact.num_nodes),
        strict=True,
    )
    shares = [len(found & wanted) / len(wanted) for found, wanted in pairs]
    return sum(shares) / len(shares)


SIMILARITIES = {
    'linear': lambda: 'linear',
    'heat_kernel': lambda: 'heat_kernel',
    'cosine': lambda: CosineSimilarity(IN, heads=2),
    'projected': lambda: LinearSimilarity(IN, 8),
    'euclidean': euclidean,
}


@with_faiss
@pytest.mark.parametrize('loop', [False, True])
@pytest.mark.parametrize('name', SIMILARITIES)
def test_faiss_is_exact(library, name, loop):
    torch.manual_seed(5)
    similarity, data = SIMILARITIES[name](), Data(x=features(300))
    exact = SimilarityKNNGraph(K, similarity, loop=loop)(data)
    found = SimilarityKNNGraph(K, similarity, loop=loop, backend='faiss')(data)
    # Random rows have no ties; where rounding makes one, the weights are the same.
    assert recall(found, exact) == 1
    assert torch.equal(found.edge_index, exact.edge_index)
    assert torch.equal(found.edge_weight, exact.edge_weight)


@with_faiss
def test_faiss_with_ties_finds_the_same_weights(library):
    x = torch.randint(2, (60, 4), generator=seeded()).float()
    sums = []
    for backend in ('exact', 'faiss'):
        data = SimilarityKNNGraph(5, backend=backend)(Data(x=x))
        assert data.num_edges == 300
        assert not data.has_self_loops()
        rows = data.edge_weight.view(60, 5).sort(dim=1).values
        sums.append(rows)
    torch.testing.assert_close(*sums)


@with_pynndescent
@pytest.mark.parametrize('name', ['linear', 'heat_kernel', 'euclidean'])
def test_recall_of_pynndescent(library, name):
    similarity, data = SIMILARITIES[name](), Data(x=features())
    exact = SimilarityKNNGraph(K, similarity)(data)
    found = SimilarityKNNGraph(K, similarity, backend='pynndescent')(data)
    assert found.num_edges == N * K
    assert not found.has_self_loops()
    assert recall(found, exact) >= RECALL
    again = SimilarityKNNGraph(K, similarity, backend='pynndescent')(data)
    assert torch.equal(again.edge_index, found.edge_index)


@with_pynndescent
def test_recall_of_sparse_rows(library):
    x = torch.relu(features(N, num_features=60) - 1)
    data = Data(x=x.to_sparse_csr())
    exact = SimilarityKNNGraph(K)(data)
    found = SimilarityKNNGraph(K, backend='pynndescent')(data)
    assert recall(found, exact) >= RECALL
    weight = LinearSimilarity(60)(x, found.edge_index)
    torch.testing.assert_close(found.edge_weight, weight)


@with_faiss
def test_an_index_of_one_s_own(library):
    similarity, data = euclidean(), Data(x=features(400))
    exact = SimilarityKNNGraph(K, similarity)(data)
    index = ApproxL2KNNIndex(num_cells=2, num_cells_to_visit=1, bits_per_vector=4)
    transform = SimilarityKNNGraph(K, similarity, backend=index)
    for _ in range(2):  # Each graph gets an index of its own.
        found = transform(data)
        assert 0.6 < recall(found, exact) < 1  # It is 0.67.
        assert index.numel == 0
    narrow = ApproxL2KNNIndex(num_cells=40, num_cells_to_visit=1, bits_per_vector=4)
    found = SimilarityKNNGraph(K, similarity, backend=narrow)(data)
    assert found.num_edges < 400 * K  # Nodes of small cells have fewer neighbours.
    assert int(found.edge_index.min()) >= 0
    flat = SimilarityKNNGraph(K, similarity, backend=L2KNNIndex())(data)
    assert torch.equal(flat.edge_index, exact.edge_index)
    assert 'L2KNNIndex' in repr(SimilarityKNNGraph(K, backend=L2KNNIndex()))


@with_faiss
def test_what_an_index_cannot_do(library):
    data = Data(x=features(50))
    with pytest.raises(ValueError, match='must be a distance index'):
        SimilarityKNNGraph(K, euclidean(), backend=MIPSKNNIndex())(data)
    with pytest.raises(ValueError, match=r'must be an empty index \(got one of 50'):
        SimilarityKNNGraph(K, backend=L2KNNIndex(features(50)))
    with pytest.raises(ValueError, match='faiss has no sparse index'):
        SimilarityKNNGraph(K, backend='faiss')(Data(x=data.x.to_sparse_csr()))
    with pytest.raises(ValueError, match=r"'k' and 'eval_k' must.*2048.*got 2050"):
        SimilarityKNNGraph(2050, backend='faiss')(Data(x=features(2100)))
    # A projection makes rows dense.
    projected = SimilarityKNNGraph(K, LinearSimilarity(IN, 8), backend='faiss')
    assert projected(Data(x=data.x.to_sparse_csr())).num_edges == 500


@with_each
@pytest.mark.filterwarnings('ignore:Failed to correctly find n_neighbors')
def test_batches_and_small_graphs(library, backend):
    sizes = [1, 2, 3, 40, 4, 80]
    examples = [Data(x=features(size, seed=size)) for size in sizes]
    transform = SimilarityKNNGraph(3, backend=backend)
    torch.manual_seed(1)
    batch = transform(Batch.from_data_list(examples))
    for i, (size, one) in enumerate(zip(sizes, examples, strict=True)):
        own = batch.batch[batch.edge_index[1]] == i
        data = Data(x=one.x, edge_index=batch.edge_index[:, own] - batch.ptr[i])
        assert data.num_edges == size * min(3, size - 1)
        assert not data.has_self_loops()
        if size > 1:
            assert recall(data, SimilarityKNNGraph(3)(Data(x=data.x))) > 0.9
    assert transform(Data(x=torch.empty(0, IN))).num_edges == 0
    loops = SimilarityKNNGraph(3, backend=backend, loop=True)(examples[1])
    assert loops.edge_index.tolist() == [[0, 1, 0, 1], [0, 0, 1, 1]]
    assert pickle.loads(pickle.dumps(transform)).backend == backend


@with_each
@pytest.mark.parametrize('dtype', [torch.float64, torch.float16, torch.bfloat16])
def test_types(library, backend, dtype):
    x = features(200).to(dtype)
    exact = SimilarityKNNGraph(3)(Data(x=x))
    found = SimilarityKNNGraph(3, backend=backend)(Data(x=x))
    assert found.edge_weight.dtype == dtype
    assert recall(found, exact) > 0.97


@with_each
def test_nearest_neighbours(library, backend):
    x, batch = features(90), torch.tensor([0] * 40 + [3] * 50)
    for similarity in ('linear', 'heat_kernel'):
        exact = nearest_neighbours(x, 3, batch, similarity=similarity)
        found = nearest_neighbours(x, 3, batch, similarity=similarity, backend=backend)
        pair = [Data(x=x, edge_index=graph.edge_index) for graph in (found, exact)]
        assert recall(*pair) > 0.97
        assert found.edge_weight.sum() == pytest.approx(
            float(exact.edge_weight.sum()), rel=0.02
        )
    assert nearest_neighbours(x, 90, backend=backend).edge_index.size(1) == 90 * 89


@pytest.mark.parametrize('backend', BACKENDS)
def test_similarities_whose_best_are_not_the_nearest(backend, monkeypatch):
    monkeypatch.setattr(knn_backends, 'find_spec', lambda name: name)
    for name in ('gaussian', 'difference'):
        with pytest.raises(ValueError, match=rf"'backend' must be 'exact'.*'{name}'"):
            SimilarityKNNGraph(3, name, backend=backend)
    transform = SimilarityKNNGraph(3, GaussianSimilarity(IN), backend=backend)
    with pytest.raises(ValueError, match='other libraries find the nearest nodes'):
        transform(Data(x=features(20)))


@pytest.mark.parametrize(
    ('backend', 'package'),
    [('faiss', 'faiss-cpu'), ('pynndescent', 'pynndescent'), (L2KNNIndex, 'faiss-cpu')],
)
def test_a_missing_library(backend, package, monkeypatch):
    monkeypatch.setattr(knn_backends, 'find_spec', lambda name: None)
    if not isinstance(backend, str):
        monkeypatch.setitem(sys.modules, 'faiss', sys)  # Not needed by an empty index.
        backend = backend()
    with pytest.raises(ImportError, match=rf"pip install '{package}'"):
        SimilarityKNNGraph(3, backend=backend)
    with pytest.raises(ImportError, match=rf"pip install '{package}'"):
        nearest_neighbours(features(9), 3, backend=backend)


def test_unknown_backends():
    for backend in ('ann', None, L2KNNIndex):
        with pytest.raises(ValueError, match="'backend' must be one of"):
            SimilarityKNNGraph(3, backend=backend)


def test_the_seed_of_a_search_is_fixed(monkeypatch):
    seeds = []

    def search(rows, n_neighbors, random_state, **kwargs):
        seeds.append(random_state)
        found = (np.arange(len(rows))[:, None] + np.arange(n_neighbors)) % len(rows)
        return SimpleNamespace(neighbor_graph=[found])

    monkeypatch.setitem(sys.modules, 'pynndescent', SimpleNamespace(NNDescent=search))
    monkeypatch.setattr(knn_backends, 'find_spec', lambda name: name)
    for seed in range(2):
        torch.manual_seed(seed)
        state = torch.get_rng_state()
        SimilarityKNNGraph(3, backend='pynndescent')(Data(x=features(50)))
        assert torch.equal(torch.get_rng_state(), state)
    assert seeds[0] == seeds[1]


@pytest.mark.parametrize('offset', [1e5, 1e7])
@pytest.mark.parametrize('backend', ['faiss', 'pynndescent'])
def test_cosines_far_from_the_origin(backend, offset):
    pytest.importorskip(backend)
    x = torch.randn(400, 3, generator=seeded()).double() + offset
    exact = SimilarityKNNGraph(5)(Data(x=x)).edge_index
    found = SimilarityKNNGraph(5, backend=backend)(Data(x=x)).edge_index
    pairs = ({*map(tuple, edges.t().tolist())} for edges in (exact, found))
    assert len(set.intersection(*pairs)) >= 0.99 * exact.size(1)


# Of distances, the recalls of a search about the mean were 1, 0.83, 0.77 and 0.04.
@with_faiss
@pytest.mark.parametrize('similarity', ['distance', 'linear'])
@pytest.mark.parametrize('fill', [1e4, 1e10, 1e18, 1e30])
def test_faiss_beside_an_outlier(library, fill, similarity):
    x = features(400, num_features=5).double()
    x[-1, 0] = fill
    exact, found = (
        lists(
            SimilarityKNNGraph(5, similarity, backend=name)(Data(x=x)).edge_index, 400
        )
        for name in ('exact', 'faiss')
    )
    assert found[:-1] == exact[:-1]
