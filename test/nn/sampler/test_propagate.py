from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from oracles import seeded, to_matrix
from torch import Tensor

from torch_geometric_gsl.nn.sampler import plan as planning
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.similarity.neural_gaussian_similarity import (
    NeuralGaussianSimilarity,
)

N, CHANNELS = 8, 5
BATCH = torch.tensor([0, 0, 0, 2, 2, 2, 2, 2])
# Targets 0 and 5 have no candidates; one pair is given twice.
GIVEN = torch.tensor([[4, 1, 2, 2, 3, 7, 5, 4], [4, 2, 2, 1, 3, 6, 7, 4]])
CASES: dict[str, dict[str, Tensor]] = {
    'all': {},
    'batch': {'batch': BATCH},
    'given': {'edge_index': GIVEN},
}
OPTIONS = [
    {},
    {'loop': False},
    {'hard': True},
    {'replace': False, 'k': 2},
    {'memory_budget': 1},
]


def rand(*size: int, seed: int = 3) -> Tensor:
    return torch.randn(size, generator=seeded(seed), dtype=torch.double)


def make(**kwargs: Any) -> GumbelKNNSampler:
    torch.manual_seed(5)
    kwargs.setdefault('k', 3)
    return GumbelKNNSampler(NeuralGaussianSimilarity(6), **kwargs).double()


def served(*methods: str) -> list[tuple[str, str]]:
    """List the methods and the forms of candidates that they serve."""
    pairs = [(method, case) for method in methods for case in CASES]
    return [pair for pair in pairs if pair != ('stream', 'given')]


def assert_sum_of_graph(
    sampler: GumbelKNNSampler, x: Any, h: Tensor, leaves: list[Tensor], **given: Any
) -> None:
    """Check sums and gradients against those over the graph of the same seed."""
    leaves = [leaf.requires_grad_() for leaf in (h, *leaves)]
    (source, target), weight = sampler(x, **given, generator=seeded(1))
    num_targets = len(x[1]) if isinstance(x, tuple) else len(x)
    dense = to_matrix(torch.stack([source, target]), weight, num_targets, len(h))
    out = sampler.propagate(x, h, **given, generator=seeded(1))
    found = [
        [each, *torch.autograd.grad(each.square().sum(), leaves, retain_graph=True)]
        for each in (out, dense @ h)
    ]
    torch.testing.assert_close(*found)


@pytest.mark.parametrize('options', OPTIONS)
@pytest.mark.parametrize(('method', 'case'), served('dense', 'stream', 'auto'))
def test_training(method: str, options: Any, case: str) -> None:
    given = CASES[case]
    if case == 'given' and not options.get('replace', True):
        options = {**options, 'k': 1}
        given = {'edge_index': torch.stack([torch.arange(N), torch.arange(N)])}
    sampler, x = make(method=method, num_arrivals=3, **options), rand(N, 6)
    assert_sum_of_graph(sampler, x, rand(N, CHANNELS, seed=4), [x], **given)


@pytest.mark.parametrize(
    'options', [{'num_tail': 0}, {'num_tail': 10}, {'tau': 0.75}, {'replace': False}]
)
@pytest.mark.parametrize(('method', 'form'), served('race', 'stream'))
def test_truncated_races(method: str, options: Any, form: str) -> None:
    count = 330
    x, h = rand(count, 6), rand(count, CHANNELS, seed=4)
    given: dict[str, Tensor] = {}
    if form == 'batch':
        given['batch'] = torch.zeros(count, dtype=torch.long)
    elif form == 'given':
        every = torch.arange(count)
        given['edge_index'] = torch.cartesian_prod(every, every).t()
    for budget in (2**25, 1 if form == 'all' else 2**16):
        sampler = make(method=method, loop=False, memory_budget=budget, **options)
        assert sampler.plan(x, **given).method == method
        assert_sum_of_graph(sampler, x, h, [x], **given)


def allowed(case: str, source: int, target: int, loop: bool) -> bool:
    if not loop and source == target:
        return False
    if case == 'batch':
        return bool(BATCH[source] == BATCH[target])
    return case == 'all' or [source, target] in GIVEN.t().tolist()


@pytest.mark.parametrize('case', CASES)
@pytest.mark.parametrize('options', OPTIONS)
@pytest.mark.parametrize('method', ['dense', 'stream'])
def test_evaluation_sums_all_candidates(method: str, options: Any, case: str) -> None:
    if case == 'given':
        options = {name: options[name] for name in options if name != 'replace'}
    sampler = make(method=method, tau=0.4, scale=2.0, **options).eval()
    x, h = rand(N, 6), rand(N, CHANNELS, seed=4)
    state = torch.get_rng_state()
    out = sampler.propagate(x, h, **CASES[case]).detach()
    assert torch.equal(state, torch.get_rng_state())
    phi = sampler.similarity(x).tolist()
    for i in range(N):
        sources = [j for j in range(N) if allowed(case, j, i, sampler.loop)]
        power = [math.exp(2.0 * phi[i][j] / 0.4) for j in sources]
        for channel in range(CHANNELS):
            expected = sum(
                p / sum(power) * float(h[j, channel])
                for p, j in zip(power, sources, strict=True)
            )
            assert float(out[i, channel]) == pytest.approx(expected, abs=1e-12)


def test_evaluation_is_exact_where_a_sample_would_hold_all() -> None:
    # Fewer pairs are allowed than there are, but warnings are errors here.
    sampler = make(max_eval_pairs=1000, tau=0.5).eval()
    x, h = rand(500, 6), rand(500, CHANNELS, seed=4)
    out = sampler.propagate(x, h).detach()
    weight = torch.softmax(sampler.similarity(x).detach() / 0.5, dim=1)
    torch.testing.assert_close(out, weight @ h)


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('method', ['dense', 'stream'])
def test_bipartite(method: str, training: bool) -> None:
    sampler = make(method=method, tau=0.5, k=4, num_arrivals=4).train(training)
    pair = rand(4, 6), rand(7, 6, seed=8)  # All sources are neighbours.
    assert_sum_of_graph(sampler, pair, rand(4, CHANNELS, seed=4), [*pair])


@pytest.mark.parametrize('is_pair', [True, False])
@pytest.mark.parametrize('training', [True, False])
def test_graphs_of_a_batch_that_are_served_in_different_ways(
    training: bool, is_pair: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Many pairs are a stream, few are listed; the middle one has no node.
    monkeypatch.setattr(planning, 'SMALL', 30)
    targets = torch.tensor([4, 9, 0, 8, 5])
    sources = torch.tensor([5, 7, 0, 9, 3]) if is_pair else targets
    ids = [torch.arange(5).repeat_interleave(count) for count in (sources, targets)]
    x = [rand(len(own), 6, seed=len(own)) for own in ids]
    h, leaves = rand(len(x[0]), CHANNELS), x if is_pair else x[:1]
    # A scale of its own: what is chosen for equal options is kept.
    sampler = make(tau=0.5, scale=1.01).train(training)
    args = (tuple(x), tuple(ids)) if is_pair else (x[0], ids[0])
    if training:
        assert_sum_of_graph(sampler, args[0], h, leaves, batch=args[1])
        return
    leaves = [leaf.requires_grad_() for leaf in (h, *leaves)]
    score = 1.01 * sampler.similarity(args[0]) / 0.5
    is_other = ids[1].unsqueeze(1) != ids[0]
    dense = score.masked_fill(is_other, -torch.inf).softmax(dim=1)
    out = sampler.propagate(args[0], h, batch=args[1])
    found = [
        [each, *torch.autograd.grad(each.square().sum(), leaves, retain_graph=True)]
        for each in (out, dense @ h)
    ]
    torch.testing.assert_close(*found)


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('method', ['dense', 'stream'])
def test_nothing_to_sum(method: str, training: bool) -> None:
    sampler = make(method=method).train(training)
    out = sampler.propagate(rand(0, 6), rand(0, CHANNELS))
    assert out.shape == (0, CHANNELS)
    if method == 'dense' or not training:
        none = torch.empty(2, 0, dtype=torch.long)
        out = sampler.propagate(rand(N, 6), rand(N, CHANNELS), none)
        assert torch.equal(out, torch.zeros(N, CHANNELS).double())


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float32])
def test_messages_keep_their_dtype(dtype: torch.dtype, training: bool) -> None:
    sampler = make().train(training)
    x, h = rand(N, 6), rand(N, CHANNELS).to(dtype).requires_grad_()
    out = sampler.propagate(x, h, generator=seeded(1))
    assert out.dtype == dtype
    expected = sampler.propagate(x, h.detach().double(), generator=seeded(1))
    atol = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=atol)
    out.sum().backward()
    assert h.grad is not None
    assert bool(h.grad.isfinite().all())


@pytest.mark.parametrize(
    ('error', 'h', 'match'),
    [
        (TypeError, None, r"'h' must be a torch.Tensor \(got NoneType\)"),
        (ValueError, rand(N), r"'h' must have shape \[8, channels\] \(got \[8\]\)"),
        (ValueError, rand(3, 2), r"'h' must have shape \[8, channels\] \(got \[3, 2"),
        (TypeError, torch.ones(N, 2, dtype=torch.long), "'h' must be floating-point"),
        (ValueError, torch.ones(N, 2, device='meta'), "'h' is on meta but 'x' is on"),
    ],
)
@pytest.mark.parametrize('training', [True, False])
def test_bad_messages(
    error: type[Exception], h: Any, match: str, training: bool
) -> None:
    with pytest.raises(error, match=match):
        make().train(training).propagate(rand(N, 6), h)


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('method', ['auto', 'dense'])
def test_a_long_list_after_targets_without_any(method: str, training: bool) -> None:
    """As long as no block of candidates may be."""
    torch.manual_seed(5)
    x_src, x_dst = torch.randn(300, 4), torch.randn(4, 4)
    source = torch.arange(300)
    edge_index = torch.stack([source, torch.full_like(source, 2)])
    edge_index = torch.cat([edge_index, torch.tensor([[7], [3]])], dim=1)
    graphs, similarity = [], NeuralGaussianSimilarity(4)
    for memory_budget in (2**25, 1):
        args: Any = {'k': 3, 'method': method, 'memory_budget': memory_budget}
        sampler = GumbelKNNSampler(similarity, **args).train(training)
        graph = sampler((x_src, x_dst), edge_index, generator=seeded(1))
        summed = sampler.propagate(
            (x_src, x_dst), x_src, edge_index, generator=seeded(1)
        )
        if training:  # Without noise the sum is that of all candidates.
            expected = to_matrix(*graph, num_targets=4, num_sources=300) @ x_src
            torch.testing.assert_close(summed, expected)
        graphs.append(graph)
    assert graphs[0].edge_index[1].unique().tolist() == [2, 3]
    torch.testing.assert_close(*(graph.edge_weight for graph in graphs))
