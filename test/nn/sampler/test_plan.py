from __future__ import annotations

import math
import re
from typing import Any, ClassVar

import pytest
import torch

from torch_geometric_gsl.nn.sampler import _block_sampler, _plan
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.sampler.plan import SMALL, SamplingPlan, choose
from torch_geometric_gsl.nn.similarity.gaussian_similarity import GaussianSimilarity
from torch_geometric_gsl.nn.similarity.linear_similarity import LinearSimilarity
from torch_geometric_gsl.ops.draws import draw_tail
from torch_geometric_gsl.ops.relax import Tail, tail_size
from torch_geometric_gsl.ops.scorer import Law

LAW = Law(5, 0.25, num_arrivals=4)
LARGE = (10_000, 10_000)
BOUNDED = 'the scores are bounded and the candidates many'
FEW = 'the candidates are few: all are listed'


class Unbounded(LinearSimilarity):
    bounds: ClassVar[tuple[float, float]] = (-math.inf, math.inf)


def plan(
    n: int, name: type[LinearSimilarity] = GaussianSimilarity, **kwargs: Any
) -> SamplingPlan:
    return GumbelKNNSampler(name(2), **kwargs).plan(torch.randn(n, 2))


@pytest.mark.parametrize('method', ['dense', 'stream'])
def test_what_is_asked_for(method: str) -> None:
    assert choose(method, GaussianSimilarity(2), LAW, 1.0, LARGE)[0] == method
    assert choose(method, Unbounded(2), LAW, 99.0, (1, 1))[0] == method


def test_race_where_it_looks_at_a_quarter_of_the_candidates() -> None:
    # (4 + 2 * 2) * e is below 22 proposals: four times as many are 88.
    similarity = GaussianSimilarity(2)
    for method in ('auto', 'race'):
        args = method, similarity, LAW, 1.0
        assert choose(*args, (10**6, 89)) == ('race', BOUNDED)
        name, reason = choose(*args, (100, 88))
        assert name == 'dense'
        assert reason == (
            '100 x 88 pairs are few, and 22 proposals a draw (scale=1, bounds=(0.0, '
            '1.0)) need more than 88 candidates (got 88)'
        )


def test_distinct_neighbours_need_many_candidates() -> None:
    # (2 * 25 + 6 * 5 + 12) * e are 251 proposals: four times as many are 1004.
    args = 'auto', GaussianSimilarity(2), Law(25, 0.25, replace=False), 1.0
    assert choose(*args, (10**6, 1005))[0] == 'race'
    assert choose(*args, (10**6, 1004))[0] == 'stream'


def test_where_a_race_cannot_serve() -> None:
    obstacles = {
        "'similarity' (Unbounded(2)) has no finite 'bounds'": (Unbounded(2), 1.0),
        '2.372e+06 proposals a draw (scale=6.3, bounds=(-1.0, 1.0)) need more than '
        '9.49e+06 candidates (got 10000)': (LinearSimilarity(2), 6.3),
    }
    for reason, (similarity, scale) in obstacles.items():
        assert choose('auto', similarity, LAW, scale, LARGE) == ('stream', reason)
        with pytest.raises(ValueError, match=re.escape(f"cannot be 'race': {reason}")):
            choose('race', similarity, LAW, scale, LARGE)
        # Few pairs are all listed: what a race would draw from is known exactly.
        size = (SMALL // 10_000, 10_000)
        assert choose('auto', similarity, LAW, scale, size)[0] == 'dense'
    assert choose('race', similarity, LAW, scale, size)[0] == 'dense'
    # Where there are no bounds, no number of pairs makes it a race.
    with pytest.raises(ValueError, match=r"no finite 'bounds'"):
        choose('race', Unbounded(2), LAW, 1.0, size)
    assert choose('auto', Unbounded(2), LAW, 1.0, (SMALL, 1))[0] == 'dense'
    assert choose('auto', Unbounded(2), LAW, 1.0, (SMALL + 1, 1))[0] == 'stream'


def test_plan_of_a_race() -> None:
    assert plan(300) == SamplingPlan('race', BOUNDED, 22, 4, 4)
    assert plan(300, num_tail=0, num_arrivals=9) == SamplingPlan(
        'race', BOUNDED, 41, 9, 0
    )
    assert plan(500, replace=False) == SamplingPlan('race', BOUNDED, 97, 5, 0)


def test_plan_of_the_definition() -> None:
    found = plan(50)
    assert found == SamplingPlan('dense', found.reason, None, None, 0)
    assert 'pairs are few' in found.reason
    assert plan(300, method='dense') == SamplingPlan(
        'dense', 'as asked for', None, None, 0
    )


def test_plan_of_a_stream() -> None:
    assert plan(50, method='stream') == SamplingPlan(
        'stream', 'as asked for', None, 4, 4
    )
    # All candidates are kept, nothing is left for a tail.
    found = plan(4, method='stream', k=2)
    assert found == SamplingPlan('stream', 'as asked for', None, None, 0)


def test_plan_of_candidates() -> None:
    sampler, x = GumbelKNNSampler(GaussianSimilarity(2)), torch.randn(300, 2)
    few = torch.randint(300, (2, 50))
    assert sampler.plan(x, few) == SamplingPlan('dense', FEW, None, None, 0)
    many = torch.stack([torch.arange(300), torch.zeros(300).long()])
    found = sampler.plan(x, torch.cat([few, many], dim=1))
    assert found == SamplingPlan('race', BOUNDED, 22, 4, 4)
    batch = torch.arange(10).repeat_interleave(30)
    assert sampler.plan(x, batch=batch) == SamplingPlan('dense', FEW, None, None, 0)
    batch = torch.tensor([0] * 10 + [1] * 290)
    assert sampler.plan(x, batch=batch) == SamplingPlan('race', BOUNDED, 22, 4, 4)


def test_the_tail_of_a_plan_is_the_tail_that_is_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn = []

    def spy(*args: Any, **kwargs: Any) -> Tail | None:
        tail = draw_tail(*args, **kwargs)
        drawn.append(0 if tail is None else tail.source.size(1) // 5)
        return tail

    monkeypatch.setattr(_block_sampler, 'draw_tail', spy)
    expected = tail_size(Law(5, 0.75, num_arrivals=12), 300)
    sampler = GumbelKNNSampler(GaussianSimilarity(2), tau=0.75)
    given = torch.stack([torch.arange(300), torch.zeros(300).long()])
    alone, batch = torch.randn(300, 2), torch.arange(20).repeat_interleave(300)
    for x, kwargs in (
        (alone, {}),
        (alone, {'edge_index': given}),
        (torch.randn(6000, 2), {'batch': batch}),
        (torch.randn(6000, 2), {'edge_index': given}),
    ):
        found = sampler.plan(x, **kwargs)
        sampler.propagate(x, x, **kwargs)
        # A graph has its tail whatever else there is in a batch.
        assert found.num_tail == drawn.pop() == expected


def bipartite_plan(
    sizes: list[tuple[int, int]], sampler: GumbelKNNSampler
) -> SamplingPlan:
    """The plan of graphs of so many sources and targets."""
    counts = [torch.tensor(count) for count in zip(*sizes, strict=True)]
    ids = tuple(torch.arange(len(sizes)).repeat_interleave(own) for own in counts)
    x_src, x_dst = (torch.randn(len(own), 2) for own in ids)
    return sampler.plan((x_src, x_dst), batch=ids)


def test_the_plan_is_that_of_the_target_with_the_most_candidates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sampler = GumbelKNNSampler(LinearSimilarity(2), tau=1.0, method='stream')
    found = bipartite_plan([(10, 2000), (5000, 1000)], sampler)
    assert found == SamplingPlan('stream', 'as asked for', None, 16, 512)
    # Few pairs are listed, others are not.
    monkeypatch.setattr(_plan, 'SMALL', 60)
    sampler = GumbelKNNSampler(LinearSimilarity(2))
    found = bipartite_plan([(30, 2), (10, 9)], sampler)
    assert found == SamplingPlan('dense', FEW, None, None, 0)
    found = bipartite_plan([(30, 9), (10, 2)], sampler)
    assert found == SamplingPlan('stream', found.reason, None, 4, 4)


def test_plan_of_distinct_neighbours() -> None:
    for method in ('dense', 'stream'):
        assert plan(50, replace=False, method=method).num_arrivals == 5
        assert plan(5, replace=False, method=method).num_arrivals is None


def test_a_plan_says_what_training_does_and_draws_nothing() -> None:
    sampler, x = GumbelKNNSampler(GaussianSimilarity(2)), torch.randn(300, 2)
    state = torch.get_rng_state()
    expected = sampler.plan(x)
    assert sampler.eval().plan(x) == expected
    assert torch.equal(state, torch.get_rng_state())


def test_unbounded_similarities_and_given_candidates() -> None:
    x, edges = torch.randn(9, 2), torch.randint(9, (2, 20))
    sampler = GumbelKNNSampler(Unbounded(2), method='race')
    with pytest.raises(ValueError, match=r"'method' cannot be 'race': 'similarity'"):
        sampler(x, edges)
    sampler = GumbelKNNSampler(Unbounded(2))
    assert sampler(x, edges).edge_weight.numel() > 0


def test_a_forced_race_needs_bounds_in_training_alone() -> None:
    sampler = GumbelKNNSampler(Unbounded(2), method='race')
    x, batch = torch.randn(90, 2), torch.arange(3).repeat_interleave(30)
    for kwargs in ({}, {'batch': batch}):
        with pytest.raises(ValueError, match=r"'method' cannot be 'race'"):
            sampler.plan(x, **kwargs)
        with pytest.raises(ValueError, match=r"'method' cannot be 'race'"):
            sampler(x, **kwargs)
    sampler.eval()
    assert sampler.propagate(x, x).shape == (90, 2)
    assert sampler.propagate(x, x, batch=batch).shape == (90, 2)


@pytest.mark.parametrize('method', ['dense', 'stream'])
def test_plan_of_candidates_with_a_method(method: str) -> None:
    edges = torch.stack([torch.arange(300), torch.zeros(300, dtype=torch.long)])
    sampler = GumbelKNNSampler(GaussianSimilarity(2), method=method)
    found = sampler.plan(torch.randn(300, 2), edges)
    assert found[:2] == ('dense', 'all are listed')
