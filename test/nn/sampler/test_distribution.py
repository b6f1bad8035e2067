import warnings

import pytest
import torch
from oracles import seeded

from torch_geometric_gsl import Budget, LinearSimilarity
from torch_geometric_gsl.diagnostics import UniformSamplingWarning
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.similarity import UniformSimilarity
from torch_geometric_gsl.nn.similarity.resolver import SIMILARITIES, resolve_similarity

N, SCALE = 12, 2.5
BATCH = torch.tensor([0] * 5 + [3] * 6 + [4])
X = torch.randn(N, 6, generator=seeded(0))
PAIR = X, torch.randn(7, 6, generator=seeded(1))
# Unsorted and with a repetition; some targets have no candidates.
EDGES = torch.tensor([[3, 0, 5, 1, 0, 2, 2], [2, 0, 0, 2, 0, 5, 2]])
EVERY = torch.ones(N, N, dtype=torch.bool)
ADJ = torch.zeros(N, N, dtype=torch.bool).index_put((EDGES[1], EDGES[0]), EVERY[0, 0])
FORMS = {
    'all': (X, {}, EVERY),
    'batch': (X, {'batch': BATCH}, BATCH.unsqueeze(1) == BATCH),
    'edge_index': (X, {'edge_index': EDGES}, ADJ),
    'pair': (PAIR, {}, torch.ones(7, N, dtype=torch.bool)),
}


@pytest.mark.parametrize('budget', [2**25, 1])
@pytest.mark.parametrize('loop', [True, False])
@pytest.mark.parametrize('form', FORMS)
@pytest.mark.parametrize('name', [*SIMILARITIES, 'uniform'])
def test_softmax_of_the_scores(name, form, loop, budget):
    x, kwargs, is_candidate = FORMS[form]
    similarity = resolve_similarity(name, 6)
    sampler = GumbelKNNSampler.paper(
        similarity, k=1, scale=SCALE, loop=loop, budget=Budget(memory=budget)
    )
    if not loop and form != 'pair':
        is_candidate = is_candidate & ~torch.eye(N, dtype=torch.bool)
    score = SCALE * similarity.double()(_double(x)).detach()
    weight = score.exp() * is_candidate
    total = weight.sum(dim=1, keepdim=True)
    entropy = torch.special.entr(weight / total.clamp_min(1e-300)).sum(dim=1)
    for precision, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        sampler.to(precision)
        distribution = sampler.distribution(_double(x, precision), **kwargs)
        assert distribution.candidates.tolist() == is_candidate.sum(dim=1).tolist()
        assert distribution.entropy.dtype == torch.float64
        close = {'rtol': tolerance, 'atol': tolerance}
        torch.testing.assert_close(distribution.entropy, entropy, **close)
        expected = entropy.exp() * is_candidate.any(dim=1)
        torch.testing.assert_close(distribution.effective, expected, **close)
        assert not distribution.entropy.requires_grad


def _double(x, dtype=torch.float64):
    return tuple(rows.to(dtype) for rows in x) if isinstance(x, tuple) else x.to(dtype)


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('method', ['auto', 'dense', 'race', 'stream', 'pool'])
def test_the_method_and_the_mode_do_not_matter(method, training):
    similarity, state = resolve_similarity('linear', 6), torch.get_rng_state()
    expected = GumbelKNNSampler.paper(similarity, k=1).distribution(X, batch=BATCH)
    sampler = GumbelKNNSampler.paper(similarity, k=1, method=method).train(training)
    torch.testing.assert_close(sampler.distribution(X, batch=BATCH), expected)
    assert torch.equal(torch.get_rng_state(), state)  # Nothing is drawn.


def test_hooks_see_the_inputs_of_each_draw():
    sampler = GumbelKNNSampler.paper(resolve_similarity('linear', 6), k=1)
    seen = []
    handle = sampler.register_draw_hook(lambda *args: seen.append(args))
    counter = sampler.register_draw_hook(lambda *args: seen.append(len(args)))
    batches = BATCH, BATCH[:7]
    sampler(X, EDGES)
    sampler.eval().propagate(PAIR, X, batch=batches)
    assert seen[1::2] == [5, 5]  # In the order of their registration.
    expected = [
        (sampler, X, EDGES, None, None),
        (sampler, PAIR, None, None, batches),
    ]
    for args, inputs in zip(seen[::2], expected, strict=True):
        assert all(a is b for a, b in zip(args, inputs, strict=True))
    sampler.plan(X)
    sampler.distribution(X)
    assert len(seen) == 4  # Neither of these draws.
    handle.remove()
    counter.remove()
    sampler(X)
    assert len(seen) == 4


def test_hooks_come_before_the_draw():
    def refuse(*_):
        raise KeyError('refused')

    sampler = GumbelKNNSampler.paper(resolve_similarity('linear', 6), k=1)
    sampler.register_draw_hook(refuse)
    state = torch.get_rng_state()
    for call in (sampler, lambda x: sampler.propagate(x, x)):
        with pytest.raises(KeyError, match='refused'):
            call(X)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_sampler_that_trains_on_nearly_uniform_draws_warns_once():
    x = torch.randn(80, 16, generator=seeded())
    flat, sharp = (
        GumbelKNNSampler(LinearSimilarity(16), scale=scale) for scale in (1.5, 30.0)
    )
    UniformSamplingWarning.reset()
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        for _ in range(210):
            sharp(x)
        for _ in range(210):
            flat.eval()(x)
        for _ in range(199):
            flat.train()(x)
    with pytest.warns(UniformSamplingWarning, match=r'are 9[0-7]\.\d % \(a sampler'):
        flat(x)
    fresh = GumbelKNNSampler(LinearSimilarity(16), scale=1.5)
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        for _ in range(210):
            fresh(x)


def test_draws_that_are_uniform_warn_at_once():
    x = torch.randn(80, 16, generator=seeded())
    UniformSamplingWarning.reset()
    with pytest.warns(UniformSamplingWarning, match=r'are (100|99)\.\d % \(a sampler'):
        GumbelKNNSampler(LinearSimilarity(16), scale=0.1)(x)
    # A fixed scale stays as it is.
    UniformSamplingWarning.reset()
    with pytest.warns(UniformSamplingWarning, match=r'are 9[0-7]\.\d % \(a sampler'):
        GumbelKNNSampler.paper(LinearSimilarity(16), scale=1.5)(x)
    UniformSamplingWarning.reset()
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        GumbelKNNSampler(LinearSimilarity(16))(x)
        GumbelKNNSampler(UniformSimilarity(16))(x)
    UniformSamplingWarning.reset()
