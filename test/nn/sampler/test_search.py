"""Evaluation that other libraries search for, against the exact one."""

import pytest
import torch
from oracles import seeded

from torch_geometric_gsl import (
    Budget,
    CosineSimilarity,
    DistanceSimilarity,
    GaussianSimilarity,
    GSLNet,
    GumbelKNNSampler,
    LinearSimilarity,
    SampledEvaluationWarning,
)
from torch_geometric_gsl.ops import knn_backends

N, IN, K = 400, 6, 9
SEARCHES = ['faiss', 'pynndescent']


def draw(size=N, seed=0):
    return torch.randn(size, IN, generator=seeded(seed))


def make(search='exact', similarity=None, **options):
    similarity = DistanceSimilarity(IN) if similarity is None else similarity
    options = {'eval_k': K, 'loop': False, 'budget': Budget(search=search), **options}
    return GumbelKNNSampler.paper(similarity, **options).eval()


@pytest.fixture
def fake(monkeypatch):
    """A library that finds the exact neighbours but those that a test changes."""

    def use(change=lambda found: found):
        def search(ranks, k, backend):
            plain = ranks._replace(excluded=None)
            return change(plain.best(k)[1])

        monkeypatch.setattr(knn_backends, 'find_spec', lambda name: name)
        monkeypatch.setattr(knn_backends, '_faiss', search)

    return use


INPUTS = {
    'tensor': (lambda: draw(), {}),
    'pair': (lambda: (draw(), draw(150, seed=1)), {}),
    'batch': (lambda: draw(), {'batch': torch.arange(N) // 250}),
    'rows': (lambda: draw(), {'rows': (30, 90)}),
    'given candidates': (lambda: draw(), {'edge_index': torch.randint(N, (2, 900))}),
}


@pytest.mark.parametrize('null_score', [None, -1.0])
@pytest.mark.parametrize('form', INPUTS)
@pytest.mark.parametrize('name', ['distance', 'linear', 'cosine'])
def test_faiss_finds_the_exact_graph(name, form, null_score):
    pytest.importorskip('faiss')
    torch.manual_seed(3)
    similarity = {
        'distance': lambda: DistanceSimilarity(IN),
        'linear': lambda: LinearSimilarity(IN, 4),
        'cosine': lambda: CosineSimilarity(IN, heads=2),
    }[name]()
    rows, options = INPUTS[form]
    x, h = rows(), draw(seed=5)
    exact, other = (
        make(search, similarity, null_score=null_score) for search in ('exact', 'faiss')
    )
    # Warnings are errors here: the recall is 1.
    expected, found = exact(x, **options), other(x, **options)
    assert torch.equal(found.edge_index, expected.edge_index)
    torch.testing.assert_close(found.edge_weight, expected.edge_weight)
    sums = [sampler.propagate(x, h, **options) for sampler in (exact, other)]
    torch.testing.assert_close(*sums)


def test_what_is_missed_is_told(fake):
    def miss(found):  # The nearest but one, which a far node takes the place of.
        found = found.clone()
        found[:, 1] = (found[:, 0] + 200) % N
        return found

    fake(miss)
    text = r'share of 0\.8\d* of the 9 heaviest sources, measured on 5\d targets'
    with pytest.warns(SampledEvaluationWarning, match=text):
        graph = make('faiss')(draw())
    assert graph.edge_index.size(1) > 0.99 * N * K
    assert not bool((graph.edge_index[0] == graph.edge_index[1]).any())


def test_fewer_neighbours_are_fewer_edges(fake):
    def drop(found):
        found = found.clone()
        found[::2, 3:] = -1
        found[0] = -1
        return found

    fake(drop)
    sampler = make('faiss', LinearSimilarity(IN, 4))
    with pytest.warns(SampledEvaluationWarning, match="search='exact' of the budget"):
        graph = sampler(draw())
    count = graph.edge_index[1].bincount(minlength=N)
    assert count[:3].tolist() == [0, K, 2]
    total = torch.zeros(N).index_add(0, graph.edge_index[1], graph.edge_weight)
    torch.testing.assert_close(total[1:], torch.ones(N - 1))
    graph.edge_weight.square().sum().backward()
    assert bool(sampler.similarity.lin.weight.grad.isfinite().all())


def test_duplicates_are_as_good_as_each_other(fake):
    fake(lambda found: found.flip(1) if found.size(1) == N else found)
    x = draw(N // 20).repeat(20, 1)
    assert make('faiss')(x).edge_index.size(1) == N * K


@pytest.mark.parametrize('search', SEARCHES)
def test_what_libraries_cannot_search(search, fake, monkeypatch):
    fake()
    sampler = make(search, GaussianSimilarity(IN))
    with pytest.raises(ValueError, match=r"'search' must be 'exact'.*\(got Gaussian\)"):
        sampler(draw())
    if search == 'faiss':
        sampler = make(search, LinearSimilarity(IN))
        with pytest.raises(ValueError, match=r"'search'.*faiss has no sparse index"):
            sampler(draw().to_sparse_csr())
        sampler = make(search, eval_k=2050)
        with pytest.raises(ValueError, match=r"'eval_k' must.*got 2050"):
            sampler(draw(2100))
    monkeypatch.setattr(knn_backends, 'find_spec', lambda name: None)
    with pytest.raises(ImportError, match=f"search='{search}' needs the library"):
        make(search)


def test_a_model_in_a_file(fake, tmp_path):
    fake()
    budget = Budget(search='faiss')
    torch.manual_seed(0)
    model = GSLNet(IN, 8, 2, 2, similarity='distance', eval_k=K, budget=budget).eval()
    expected = model(draw())
    model.save(tmp_path / 'model.pt')
    again = GSLNet.load(tmp_path / 'model.pt').eval()
    kept = {conv.sampler.budget for conv in again.modules() if hasattr(conv, 'sampler')}
    assert kept == {budget}
    torch.testing.assert_close(again(draw()), expected)
    exact = GSLNet(IN, 8, 2, 2, similarity='distance', eval_k=K).eval()
    # The option is none of the parameters.
    exact.load_state_dict(model.state_dict())
    torch.testing.assert_close(exact(draw()), expected)
