import math
import re
from dataclasses import replace
from typing import ClassVar

import pytest
import torch
from oracles import seeded

import torch_geometric_gsl as gsl
from torch_geometric_gsl import (
    Budget,
    CosineSimilarity,
    DistanceSimilarity,
    GaussianSimilarity,
    GumbelKNNSampler,
    LinearSimilarity,
    SamplingPlan,
    TruncatedRaceWarning,
    UniformSimilarity,
)
from torch_geometric_gsl.nn.sampler import methods, training
from torch_geometric_gsl.nn.sampler import plan as planning
from torch_geometric_gsl.nn.sampler.options import Settings
from torch_geometric_gsl.nn.sampler.plan import SMALL, make_draw
from torch_geometric_gsl.nn.similarity.resolver import resolve_similarity
from torch_geometric_gsl.ops import race
from torch_geometric_gsl.ops.scores import Identity
from torch_geometric_gsl.ops.tail import lost_variance, tail_size

LARGE = (10_000, 10_000)
FEWER = 'not dense: a race proposes only 22 of {} candidates'
ONLY = 'a race needs only 22 proposals per draw'
RACES = f'not stream: {ONLY}; not pool: {ONLY}'
OBSTACLE = (
    'not race: it pays for more than 88 candidates (got {}) with 22 proposals per draw '
    '(scale=1, bounds=(0.0, 1.0))'
)
UNBOUNDED = (-math.inf, math.inf)
NO_BOUND = "'similarity' has no finite upper 'bounds' (got (-inf, inf))"
# 5 draws at a temperature of 0.25 of scores between 0 and 1: (4 + 2 * 2) * e is below
# 22 proposals a draw, four times as many are 88.
SETTINGS = Settings(
    method='auto',
    bounds=(0.0, 1.0),
    scale=1.0,
    k=5,
    tau=0.25,
    hard=False,
    replace=True,
    loop=True,
    budget=Budget(),
    num_nearest=None,
)


class Unbounded(LinearSimilarity):
    bounds: ClassVar[tuple[float, float]] = UNBOUNDED


def choose(size, listed_by=None, expected=None, **options):
    """Return the method of a call, and why; some proposals may be expected."""
    draw = make_draw(SETTINGS._replace(**options), *size, listed_by)
    plan = training.choose(replace(draw, num_expected=expected))
    return plan.method, plan.reason


def test_scores_too_sharp_for_one_bound_are_told():
    method, reason = choose((100, 88), scale=1000.0)
    assert method == 'dense'
    assert reason.startswith(
        'not race: scores are too sharp for one bound (scale=1000, '
    )


def test_a_race_that_looks_at_a_quarter_of_the_candidates():
    assert choose((10**6, 89)) == ('race', f'{FEWER.format(89)}; {RACES}')
    assert choose((10**6, 89), method='race') == ('race', 'as requested')
    few = 'the definition serves 100 x 88 pairs'
    text = f'{OBSTACLE.format(88)}; not stream: {few}; not pool: {few}'
    assert choose((100, 88)) == ('dense', text)
    assert choose((SMALL, 88), expected=22)[0] == 'stream'
    # Distinct neighbours take (2 * 25 + 6 * 5 + 12) * e, or 251 proposals.
    distinct = {'k': 25, 'replace': False}
    assert choose((30, 1005), **distinct, expected=9)[0] == 'race'
    assert choose((30, 1004), **distinct)[0] == 'dense'
    # Targets with few candidates in their lists draw them all.
    assert choose((10**6, 89), 'batch')[0] == 'race'
    assert choose((10**6, 88), 'batch')[0] == 'dense'


@pytest.mark.parametrize('scale', [5.0, 20.0])
@pytest.mark.parametrize('loop', [True, False])
def test_sharp_calls_race_where_that_is_cheaper(loop, scale):
    # Three groups: what is heavy lies in few clusters, next to a target.
    x = 0.1 * torch.randn(3000, 4) + torch.eye(3, 4).repeat(1000, 1)
    sampler = GumbelKNNSampler.paper(CosineSimilarity(4), scale=scale, loop=loop)
    plan = sampler.plan(x)
    assert plan.method == 'race'
    text = r'a race needs [\d.]+ per draw under (\d+ clusters|a head)'
    assert re.search(text, plan.reason)
    assert 4 <= plan.num_proposals < 300
    assert sampler(x).edge_index[1].unique().numel() == 3000


def test_the_text_of_a_plan_rounds():
    plan = SamplingPlan('race', 'as requested', 1234.56, 4, 4, cost=159146.17073142048)
    assert repr(plan) == (
        "SamplingPlan(method='race', reason='as requested', num_proposals=1230, "
        'num_arrivals=4, num_tail=4, caveat=None, cost=159000)'
    )
    assert plan.cost == 159146.17073142048
    text = choose(LARGE, expected=1234.56, scale=9.0)[1]
    assert 'e+' not in text
    assert text.endswith('a race needs 1230 per draw under one bound')


def test_sharp_calls_stream_where_no_bound_serves():
    # Nothing is near anything, and few lie where the bell is high: anywhere.
    pair = torch.randn(3000, 16), torch.randn(1500, 16)
    similarity, options = GaussianSimilarity(16), {'scale': 20.0, 'tau': 1.0}
    sampler = GumbelKNNSampler.paper(similarity, **options)
    plan = sampler.plan(pair)
    assert (plan.method, plan.num_proposals) == ('stream', None)
    text = r'not dense: .*; not race: costs \d+ proposals per target, stream'
    assert re.match(text, plan.reason)
    sampler = GumbelKNNSampler.paper(similarity, method='race', **options)
    plan = sampler.plan(pair)
    # It looks at all candidates at once.
    assert (plan.method, plan.num_proposals) == ('race', 0.0)


@pytest.mark.parametrize(
    ('deviation', 'tau', 'method'),
    [
        *((deviation, 1.0, 'pool') for deviation in (1.0, 3.0)),
        *((0.3, 1.0, 'stream'), (0.3, 2.0, 'dense'), (3.0, 2.0, 'pool')),
    ],
)
def test_calls_draw_by_a_pool_where_few_are_not_negligible(deviation, tau, method):
    x_src, x_dst = (
        deviation * torch.randn(n, 96, generator=seeded(n)) for n in (4096, 512)
    )
    options = {'k': 4, 'tau': tau, 'scale': 1.0}
    sampler = GumbelKNNSampler(DistanceSimilarity(96), **options)
    plan = sampler.plan((x_src, x_dst))
    assert plan.method == method
    assert re.search(r': a pool has [\d.]+ candidates', plan.reason)
    if method == 'pool':
        assert plan[2:6] == (None, None, 0, None)
        assert 'not race: costs at least' in plan.reason or tau > 1
        # Each process plans with the rows of all.
        assert sampler.depends_on_all_targets(512, 4096)


def test_sharp_calls_of_few_rows_draw_by_a_pool():
    x = 3 * torch.randn(300, 16, generator=seeded())
    sampler = GumbelKNNSampler(DistanceSimilarity(16), tau=1.0, scale=1.0)
    assert sampler.plan(x).method == 'pool'
    assert sampler.plan(x[:256]).method == 'dense'
    sampler = GumbelKNNSampler(DistanceSimilarity(16), method='pool', replace=False)
    with pytest.raises(ValueError, match="cannot be 'pool': 'replace' is False"):
        sampler(x)


DISTINCT = {'replace': False, 'method': 'dense'}
PLANS = [
    (300, {}, ('race', f'{FEWER.format(300)}; {RACES}', 22, 4, 4)),
    (
        300,
        {'budget': Budget(tail=0, arrivals=9), 'method': 'race'},
        ('race', 'as requested', 41, 9, 0),
    ),
    (
        500,
        {'replace': False, 'k': 1, 'method': 'race'},
        ('race', 'as requested', 55, 1, 0),
    ),
    (300, {'method': 'pool', 'tau': 9.0}, ('pool', 'as requested', None, None, 0)),
    (300, {'method': 'dense'}, ('dense', 'as requested', None, None, 0)),
    (50, {'method': 'stream'}, ('stream', 'as requested', None, 4, 4)),
    # All candidates are kept, nothing is left for a tail.
    (4, {'method': 'stream', 'k': 2}, ('stream', 'as requested', None, None, 0)),
    (50, DISTINCT, ('dense', 'as requested', None, 5, 0)),
    (5, DISTINCT, ('dense', 'as requested', None, None, 0)),
]


@pytest.mark.parametrize(('n', 'options', 'expected'), PLANS)
def test_numbers(n, options, expected):
    sampler, x = (
        GumbelKNNSampler.paper(GaussianSimilarity(2), **options),
        torch.randn(n, 2),
    )
    state = torch.get_rng_state()
    plan = sampler.plan(x)
    assert plan[:6] == SamplingPlan(*expected)[:6]
    # It says what training does, and draws nothing.
    assert sampler.eval().plan(x) == plan
    assert torch.equal(state, torch.get_rng_state())


def test_a_plan_is_printed_in_words():
    sampler, x = GumbelKNNSampler.paper(GaussianSimilarity(2)), torch.randn(3000, 2)
    method, *lines = str(sampler.plan(x)).splitlines()
    assert method == 'race'
    assert '  4 arrivals and a tail of 4' in lines
    assert any(line.startswith('  not dense: ') for line in lines)
    sampler.method = 'stream'
    assert '  as requested' in str(sampler.plan(x)).splitlines()


def candidates(count, nodes):
    """Return `count` candidates of each of some nodes, in each form."""
    target = torch.arange(nodes).repeat_interleave(count)
    source = torch.arange(count).repeat(nodes)
    batch = torch.arange(nodes // count).repeat_interleave(count)
    return {
        'all': {},
        'batch': {'batch': batch},
        'edge_index': {'edge_index': torch.stack([source, target])},
    }


@pytest.mark.parametrize('count', [50, 300])
@pytest.mark.parametrize('form', ['all', 'batch', 'edge_index'])
@pytest.mark.parametrize('method', ['race', 'stream', 'dense', 'pool'])
def test_a_forced_method_serves_or_raises(method, form, count):
    nodes = count if form == 'all' else 2 * count
    kwargs, x = candidates(count, nodes)[form], torch.randn(nodes, 2)
    sampler = GumbelKNNSampler.paper(GaussianSimilarity(2), method=method)
    text = None
    if method in ('stream', 'pool') and form == 'edge_index':
        text = f"'method' cannot be '{method}': 'edge_index' is given"
    calls = (
        lambda: sampler.plan(x, **kwargs),
        lambda: sampler(x, **kwargs),
        lambda: sampler.propagate(x, x, **kwargs),
    )
    for call in calls:
        if text is None:
            call()
        else:
            with pytest.raises(ValueError, match=re.escape(text)):
                call()
    if text is None:
        assert sampler.plan(x, **kwargs).method == method
    sampler.eval()  # Nothing races without noise: nothing can fail to.
    assert sampler.propagate(x, x, **kwargs).shape == (nodes, 2)
    assert sampler(x, **kwargs).edge_index[1].unique().numel() == nodes
    assert sampler.distribution(x, **kwargs).candidates.tolist() == [count] * nodes


@pytest.mark.parametrize('form', ['batch', 'edge_index'])
def test_a_forced_race_serves_the_smallest(form):
    x, batch = torch.randn(340, 2), torch.tensor([0] * 300 + [1] * 40)
    inside = (batch.unsqueeze(1) == batch).nonzero().t().flip(0)
    kwargs = {'batch': batch} if form == 'batch' else {'edge_index': inside}
    few = {key: value[..., -40:] for key, value in kwargs.items()}
    x_few = x[-40:] if form == 'batch' else x
    raced = 'race', 'as requested', 22, 4, 4, None
    sampler = GumbelKNNSampler.paper(GaussianSimilarity(2), method='race')
    assert sampler.plan(x, **kwargs)[:6] == sampler.plan(x_few, **few)[:6] == raced
    assert sampler(x_few, **few).edge_weight.numel() > 0
    sampler = GumbelKNNSampler.paper(GaussianSimilarity(2))  # Which lists these.
    assert sampler.plan(x, **kwargs)[2:6] == raced[2:]
    plan = sampler.plan(x_few, **few)
    assert plan[:1] + plan[2:6] == ('dense', None, None, 0, None)
    assert OBSTACLE.format(40) in plan.reason


def test_unbounded_similarities_and_given_candidates():
    x, edges = torch.randn(9, 2), torch.randint(9, (2, 20))
    for kwargs in ({'edge_index': edges}, {'batch': torch.zeros(9).long()}, {}):
        with pytest.raises(ValueError, match="cannot be 'race': 'similarity' has no f"):
            GumbelKNNSampler.paper(Unbounded(2), method='race')(x, **kwargs)
        sampler = GumbelKNNSampler.paper(Unbounded(2))
        assert sampler(x, **kwargs).edge_weight.numel() > 0
        assert NO_BOUND in sampler.plan(x, **kwargs).reason
    plan = sampler.plan(torch.randn(300, 2))
    assert plan[:1] + plan[2:6] == ('stream', None, 4, 4, None)
    text = 'not dense: 300 x 300 pairs are more than 65536; '
    text += f'not race: {NO_BOUND}; not pool: costs'
    assert plan.reason.startswith(text)


def test_the_tail_of_a_plan_is_the_tail_that_is_drawn(spy):
    drawn = spy(race, 'draw_tail', lambda tail, *_: tail.source.size(1) // 5)
    expected = tail_size(0.75, 12, 300)
    sampler = GumbelKNNSampler.paper(GaussianSimilarity(2), tau=0.75)
    edge_index = torch.stack([torch.arange(300), torch.zeros(300).long()])
    alone, batch = torch.randn(300, 2), torch.arange(3).repeat_interleave(300)
    for x, kwargs in (
        (alone, {}),
        (alone, {'edge_index': edge_index}),
        (torch.randn(900, 2), {'batch': batch}),
        (torch.randn(900, 2), {'edge_index': edge_index}),
    ):
        plan = sampler.plan(x, **kwargs)
        sampler.propagate(x, x, **kwargs)
        # A graph has its tail whatever else there is in a batch.
        assert plan.num_tail == drawn.pop() == expected


def test_a_target_of_many_candidates_does_not_make_others_race(spy):
    """Each would gather a tail of the size that the largest needs."""
    shapes = spy(race, 'draw_tail', lambda tail, *_: tail.source.shape)
    sizes = torch.tensor([3000] + [300] * 20)
    target = torch.arange(21).repeat_interleave(sizes)
    source = torch.arange(int(sizes.sum())) % 3000
    sampler = GumbelKNNSampler.paper(UniformSimilarity(2), tau=1.0)
    sampler(torch.randn(3000, 2), torch.stack([source, target]))
    size = tail_size(1.0, 16, 3000)
    assert 300 < 4 * size < 3000
    assert shapes == [(1, 5 * size)]


def bipartite_plan(sizes, sampler):
    """Return the plan of graphs of so many sources and targets."""
    counts = [torch.tensor(count) for count in zip(*sizes, strict=True)]
    ids = tuple(torch.arange(len(sizes)).repeat_interleave(count) for count in counts)
    x_src, x_dst = (torch.randn(len(batch), 2) for batch in ids)
    return sampler.plan((x_src, x_dst), batch=ids)


def test_the_plan_is_that_of_the_target_with_the_most_candidates(monkeypatch):
    sampler = GumbelKNNSampler.paper(LinearSimilarity(2), tau=1.0, method='stream')
    plan = bipartite_plan([(10, 2000), (5000, 1000)], sampler)
    size = tail_size(1.0, 16, 5000)
    assert plan[:5] == ('stream', 'as requested', None, 16, size)
    # Few pairs are listed, others are not.
    monkeypatch.setattr(planning, 'SMALL', 60)
    sampler = GumbelKNNSampler.paper(LinearSimilarity(2), scale=1.01)
    plan = bipartite_plan([(30, 2), (10, 9)], sampler)
    assert plan[:1] + plan[2:6] == ('dense', None, None, 0, None)
    plan = bipartite_plan([(30, 9), (10, 2)], sampler)
    assert plan[:1] + plan[2:6] == ('pool', None, None, 0, None)


@pytest.mark.parametrize('tau', [2.0, 3.0, 5.0])
def test_high_temperatures(tau):
    x = torch.randn(3000, 2)
    options = {'k': 1, 'tau': tau}
    auto = GumbelKNNSampler.paper(GaussianSimilarity(2), **options)
    plan = auto.plan(x)
    assert (plan.method, plan.caveat) == ('dense', None)
    assert f'at tau={tau:g} ' in plan.reason
    pair = x, x[:3]
    for method in ('race', 'stream'):
        sampler = GumbelKNNSampler.paper(
            GaussianSimilarity(2), method=method, **options
        )
        plan = sampler.plan(pair)
        assert plan.method == method
        for call in (sampler, lambda x, sampler=sampler: sampler.propagate(x, x[0])):
            with pytest.warns(TruncatedRaceWarning) as seen:
                call(pair)
            assert [str(warning.message) for warning in seen] == [plan.caveat]
        sampler.eval()(pair)  # Nothing is truncated, and warnings are errors.
    # Where the definition would take too long a race serves, and says so.
    draw = make_draw(SETTINGS._replace(tau=tau), 10**6, 3000)
    large = training.choose(replace(draw, num_expected=9.0, num_listed=3000.0))
    assert 'pool: 3000000000 pairs to keep are more than 67108864' in large.reason
    assert large.method == 'race'
    assert large.caveat == plan.caveat


@pytest.mark.parametrize('tau', [2.0, 3.0, 5.0])
@pytest.mark.parametrize('name', ['uniform', 'linear'])
@pytest.mark.filterwarnings('ignore::torch_geometric_gsl.TruncatedRaceWarning')
def test_variance_of_a_sum_beyond_tau_1(name, tau):
    # Equal targets, and scores that are equal or lie between -1 and 1, where a race
    # proposes by clusters: 4,000 sums of 1,200 messages, the default arrivals and tail.
    generator = seeded()
    x = torch.randn(1200, 8, generator=generator)
    pair, h = (x, x[:1].expand(4000, 8)), torch.randn(1200, 64, generator=generator)

    @torch.no_grad()
    def variance(method):
        similarity = resolve_similarity(name, 8)
        sampler = GumbelKNNSampler.paper(similarity, k=1, tau=tau, method=method)
        sums = sampler.propagate(pair, h, generator=seeded(1))
        return float(sums.var(dim=0).mean())

    lost = lost_variance(tau, math.ceil(16 * tau), 1200)
    dense = variance('dense')
    for method in ('race', 'stream'):
        # Four standard errors of the ratio; it was 40 at tau = 5.
        assert variance(method) / dense == pytest.approx(1 - lost, abs=0.15)


@pytest.mark.parametrize('n', [100, 5000])
@pytest.mark.parametrize('tau', [1e-6, 1e-3, 0.02])
@pytest.mark.parametrize('method', ['auto', 'dense', 'race', 'stream', 'pool'])
def test_low_temperatures(method, tau, n):
    # Weights T^(-1 / tau) leave the range of numbers; their ratios do not.
    sampler = GumbelKNNSampler.paper(GaussianSimilarity(4), tau=tau, method=method)
    x = torch.randn(n, 4, generator=seeded())
    if n == 5000 and method in ('dense', 'stream', 'pool'):
        assert sampler.plan(x).caveat is None  # Drawing takes long.
        return
    _, weight = sampler(x, generator=seeded())
    assert weight.isfinite().all()
    assert float(weight.sum()) == pytest.approx(n, rel=1e-4)
    with torch.no_grad():
        assert sampler.eval().propagate(x, x).isfinite().all()


class Saturating(Identity):
    @staticmethod
    def value(t):
        return (3 * t).tanh()


class SaturatingSimilarity(CosineSimilarity):
    bounds = -1.0, 1.0

    def response(self, z):
        return Saturating()


def test_a_race_without_a_kernel_is_dear():
    x = torch.randn(3000, 8)
    similarities = CosineSimilarity(8), SaturatingSimilarity(8)
    plans = [
        GumbelKNNSampler.paper(similarity, scale=6.0, method='race').plan(x)
        for similarity in similarities
    ]
    with_kernel, without = (plan.cost / plan.num_proposals for plan in plans)
    assert without > 2 * with_kernel


def test_the_cost_counts_the_draws_of_all_targets():
    sampler = GumbelKNNSampler.paper(GaussianSimilarity(8))
    costs = []
    for n in (1000, 2000):
        x = torch.randn(n, 8)
        costs.append(sampler.plan(x).cost)
    # A race is linear in the number of targets, beside what a call costs.
    width = 1 + 8 / planning.WIDTH
    race = methods.Race.fixed_cost
    assert (costs[1] - race * width) / (costs[0] - race * width) == pytest.approx(2)
    # All graphs of a batch count, and lists.
    batch = torch.arange(2).repeat_interleave(1000)
    assert sampler.plan(x, batch=batch).cost == pytest.approx(costs[1], rel=0.2)
    edges = torch.randint(2000, (2, 40_000))
    listed = sampler.plan(x, edges).cost
    assert listed == pytest.approx(5 * 40_000 / 4, rel=0.1)


def test_edges_have_no_loops_to_exclude():
    # One candidate more than arrivals: the edges of that one are in the tail.
    x, n = torch.randn(40, 8), 40
    source = (torch.arange(n).unsqueeze(1) + torch.arange(1, 10)) % n
    target = torch.arange(n).unsqueeze(1).expand_as(source)
    edges = torch.stack([source.flatten(), target.flatten()])
    sampler = GumbelKNNSampler(
        CosineSimilarity(8), 1, 5.0, 1.0, method='race', budget=gsl.Budget(arrivals=8)
    )
    plan = sampler.plan(x, edges)
    assert (plan.num_arrivals, plan.num_tail > 0) == (8, True)
    edge_index, _ = sampler(x, edges)
    assert torch.bincount(edge_index[1]).float().mean() > 8.5


class First(methods.Method):
    """Another law: the only neighbour of each target is the first source."""

    name = 'first'
    fixed_cost = 0.0

    def target_cost(self, draw):
        return 0.0

    def graph(self, targets, generator):
        target = torch.arange(targets.pairs.dst.size(0))
        edges = torch.stack([torch.zeros_like(target), target])
        return gsl.SampledGraph(edges, targets.pairs.src.new_ones(len(target)))


def test_a_method_of_another_law(monkeypatch):
    """It draws all targets, and is never replaced by the definition."""
    monkeypatch.setitem(methods.BY_NAME, 'first', First())
    sampler = GumbelKNNSampler(LinearSimilarity(4), k=2)
    vars(sampler)['method'] = 'first'  # The names are those at import.
    x, h = torch.randn(12, 4, generator=seeded()), torch.randn(12, 3)
    assert sampler.plan(x).method == 'first'
    assert torch.equal(sampler.propagate(x, h), h[:1].expand(12, 3))
    assert torch.equal(sampler.propagate(x, h, rows=(5, 9)), h[:1].expand(4, 3))
    batch = torch.tensor([0] * 5 + [1] * 7)
    out = sampler.propagate(x, h, batch=batch)
    assert torch.equal(out, h[batch * 5])
    with pytest.raises(ValueError, match="'method' cannot be 'first': 'edge_index' is"):
        sampler.propagate(x, h, torch.ones(12, 12).nonzero().t())
