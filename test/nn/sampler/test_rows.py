"""Drawing for some targets only: they get what a call for all targets gives them."""

import pytest
import torch
from torch.testing import assert_close

from torch_geometric_gsl import (
    Budget,
    GumbelKNNSampler,
    LinearSimilarity,
    NeuralGaussianSimilarity,
)
from torch_geometric_gsl.nn.similarity.resolver import resolve_similarity

N = 300
OPTIONS = {
    'dense': {'method': 'dense'},
    'race': {'method': 'race'},
    'stream': {'method': 'stream'},
    'pool': {'method': 'pool', 'scale': 12.0},
    'auto': {},
    'sharp race': {'method': 'race', 'scale': 12.0},
    'sharp stream': {'method': 'stream', 'scale': 12.0},
    'hard': {'method': 'race', 'hard': True},
    'no tail': {'method': 'stream', 'budget': Budget(tail=0)},
    'distinct': {'method': 'race', 'replace': False},
    'distinct, dense': {'method': 'dense', 'replace': False},
    'null': {'method': 'race', 'null_score': 0.0},
    'null, pool': {'method': 'pool', 'null_score': 0.0, 'hard': True},
    'null, dense': {'method': 'dense', 'null_score': 0.0},
    'no loops': {'method': 'race', 'loop': False, 'scale': 8.0},
    'no loops, dense': {'method': 'dense', 'loop': False},
}
# Between groups that share a tail and inside them, none, the last ones, and all.
ROWS = [(0, 37), (37, 160), (160, 160), (299, 300), (300, 300), (0, 300)]


@pytest.fixture(params=OPTIONS)
def options(request):
    return OPTIONS[request.param]


@pytest.fixture(params=['neural bell', 'cosine'])
def sampler(request, options):
    torch.manual_seed(0)
    similarity = (
        NeuralGaussianSimilarity(8, bias=True)
        if request.param == 'neural bell'
        else LinearSimilarity(8)
    )
    return GumbelKNNSampler.paper(similarity.double(), k=3, **options).double()


def features():
    generator = torch.Generator().manual_seed(1)
    x, h = torch.randn(2, N, 8, dtype=torch.double, generator=generator)
    return x.requires_grad_(), h.requires_grad_()


def seeded():
    return torch.Generator().manual_seed(2)


@pytest.mark.parametrize('training', [True, False])
def test_targets_get_the_edges_of_a_call_for_all(sampler, training):
    sampler.train(training)
    x, _ = features()
    graph = sampler(x, generator=seeded())
    for rows in ROWS:
        block = sampler(x, rows=rows, generator=seeded())
        keep = (graph.edge_index[1] >= rows[0]) & (graph.edge_index[1] < rows[1])
        assert torch.equal(block.edge_index, graph.edge_index[:, keep])
        assert_close(block.edge_weight, graph.edge_weight[keep])


@pytest.mark.parametrize('training', [True, False])
def test_blocks_give_the_sums_and_gradients_of_a_call_for_all(sampler, training):
    sampler.train(training)
    x, h = features()
    out = sampler.propagate(x, h, generator=seeded())
    target = torch.randn_like(out)
    parameters = [x, h, *sampler.parameters()]
    expected = torch.autograd.grad((out * target).sum(), parameters, allow_unused=True)
    gradients = [torch.zeros_like(p) for p in parameters]
    for start, stop in [*ROWS[:3], (160, 299), (299, 300)]:
        block = sampler.propagate(x, h, rows=(start, stop), generator=seeded())
        assert_close(block, out[start:stop])
        loss = (block * target[start:stop]).sum()
        block_gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        for total, gradient in zip(gradients, block_gradients, strict=True):
            total += 0 if gradient is None else gradient
    for total, gradient in zip(gradients, expected, strict=True):
        assert_close(total, torch.zeros_like(total) if gradient is None else gradient)


def test_what_is_drawn_next_does_not_depend_on_rows(sampler):
    x, h = features()
    ends = []
    for rows in [None, *ROWS]:
        generator = seeded()
        sampler.propagate(x, h, rows=rows, generator=generator)
        ends.append(generator.get_state())
    assert all(torch.equal(end, ends[0]) for end in ends)


def test_tails_that_are_proposed_by_clusters():
    generator = torch.Generator().manual_seed(3)
    centre = torch.randn(20, 8, generator=generator)
    x = centre.repeat(100, 1) + 0.1 * torch.randn(2000, 8, generator=generator)
    sampler = GumbelKNNSampler.paper(
        NeuralGaussianSimilarity(8), scale=8.0, method='race'
    )
    assert 'clusters' in sampler.plan(x).reason
    assert sampler.plan(x).num_tail > 0
    graph = sampler(x, generator=seeded())
    block = sampler(x, rows=(700, 1100), generator=seeded())
    keep = (graph.edge_index[1] >= 700) & (graph.edge_index[1] < 1100)
    assert torch.equal(block.edge_index, graph.edge_index[:, keep])
    assert_close(block.edge_weight, graph.edge_weight[keep])


def test_pairs_and_estimates():
    x, h = (v.detach().float() for v in features())
    budget = Budget(eval_pairs=1200 * N)  # A sample of all sources.
    sampler = GumbelKNNSampler.paper(LinearSimilarity(8), budget=budget).eval()
    pair = x.repeat(8, 1), x
    messages = h.repeat(8, 1)
    with pytest.warns(UserWarning, match='are estimated'):
        sums = sampler.propagate(pair, messages)
    with pytest.warns(UserWarning, match='are estimated from 1200 sources'):
        block = sampler.propagate(pair, messages, rows=(10, 20))
    assert_close(block, sums[10:20])


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('is_pair', [True, False])
def test_rows_of_other_processes_are_gathered(sampler, is_pair, training):
    sampler.train(training)
    src, dst = (v.detach() for v in features())
    h = src[:, :5]
    x = (src, dst) if is_pair else src
    out = sampler.propagate(x, h, generator=seeded())
    for start, stop in ROWS:

        def gather(rows, start=start, stop=stop):
            full = (dst if is_pair else src)[:, : rows.size(1)]
            return torch.cat([full[:start], rows, full[stop:]])

        block = slice(start, stop)
        args = ((src, dst[block]), h) if is_pair else (src[block], h[block])
        options = {'rows': (start, stop), 'gather': gather, 'generator': seeded()}
        assert_close(sampler.propagate(*args, **options), out[block])


def test_a_function_that_gathers_needs_the_range_of_rows():
    sampler = GumbelKNNSampler(LinearSimilarity(8))
    x = torch.randn(N, 8)
    with pytest.raises(ValueError, match=r"'gather' needs 'rows' \(got None\)"):
        sampler.propagate(x, x, gather=lambda rows: rows)


@pytest.mark.parametrize('similarity', ['distance', 'linear', 'mixture'])
def test_equal_rows_have_the_neighbours_of_a_call_for_all(similarity):
    x = torch.randn(350, 8, generator=torch.Generator().manual_seed(0)).repeat(2, 1)
    sampler = GumbelKNNSampler(resolve_similarity(similarity, 8), eval_k=4).eval()
    (source, target), _ = sampler(x)
    edges, _ = sampler(x, rows=(0, 37))
    assert torch.equal(edges[0], source[target < 37])


@torch.no_grad()  # Else a call in training mode warns.
def test_no_candidates():
    sampler = GumbelKNNSampler(LinearSimilarity(8), k=2, loop=False)
    x = torch.randn(6, 8)
    for training in (True, False):
        sampler.train(training)
        pair = x[:0], x
        out = sampler.propagate(pair, x[:0], rows=(2, 5))
        assert_close(out, torch.zeros(3, 8))
        out, graph = sampler.propagate(pair, x[:0], rows=(2, 5), return_graph=True)
        assert out.shape == (3, 8)
        assert graph.edge_index.size(1) == 0
        assert sampler.propagate(x[:1], x[:1], rows=(0, 0)).shape == (0, 8)


@pytest.mark.parametrize(
    ('rows', 'error', 'text'),
    [
        ((0, 7), ValueError, "'x' must hold the targets 0 to 7 of 'rows' .got 5 rows"),
        ((0, 11), ValueError, "'rows' must lie between 0 and the number of targets"),
        ('ab', TypeError, "'rows' must be a pair of integers"),
    ],
)
@pytest.mark.parametrize('is_pair', [True, False])
def test_gathered_rows_are_those_of_the_range(is_pair, rows, error, text):
    sampler = GumbelKNNSampler(LinearSimilarity(8), k=2)
    x = torch.randn(10, 8)
    features = (x, x[:5]) if is_pair else x[:5]
    with pytest.raises(error, match=text):
        sampler.propagate(
            features,
            x if is_pair else x[:5],
            rows=rows,
            gather=lambda part: torch.cat([part, part]),
        )
