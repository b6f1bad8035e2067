r"""The law of races among sharp scores, under bounds of any kind and age.

Few targets are repeated many times, and each of the repeats has races of its own. The
tests of one function share the error rate alike (Bonferroni): a correct race fails it
for one seed in 10,000. Seeds are fixed.
"""

import itertools
import math

import pytest
import torch
from oracles import ERROR_RATE, law_statistic, plackett_luce, seeded
from responses import OF_USERS, RESPONSES, bounded_pairs
from scipy import stats

from torch_geometric_gsl.ops.aggregate import drawn_graph, drawn_sum
from torch_geometric_gsl.ops.clusters import group, k_means
from torch_geometric_gsl.ops.dense import relaxed_weights
from torch_geometric_gsl.ops.envelope import (
    Head,
    find_nearest,
    make_envelope,
    proposal_rates,
)
from torch_geometric_gsl.ops.race import race_arrivals
from torch_geometric_gsl.ops.relax import DrawOptions, log_tail_mass
from torch_geometric_gsl.ops.scores import unit_rows
from torch_geometric_gsl.ops.tail import (
    default_num_arrivals,
    tail_scores,
    tail_size,
    ungroup,
)

RUNS, TARGETS = 3000, 4
SCALES = [1.0, 5.0, 10.0, 20.0, 40.0]
TAUS = [0.1, 0.25, 0.5, 1.0, 2.0]
ROWS = {**RESPONSES, 'of a user': OF_USERS['of a user']}


@pytest.fixture(autouse=True)
def _eager(monkeypatch):
    monkeypatch.setenv('TORCH_COMPILE_DISABLE', '1')  # It takes longer than the races.


def embeddings(scale, count, drift=0.0):
    """Targets, and sources beside them, opposite to them, between, and anywhere."""
    shape, generator = (count, 5), seeded(3)
    centre, normal = unit_rows(torch.randn(2, 5, generator=generator))
    normal = unit_rows(normal - (normal @ centre) * centre)
    across = 0.5 * centre + 0.75**0.5 * normal
    src = torch.stack([centre, -centre, across, torch.zeros(5)])
    noise = torch.randn(4, *shape, generator=generator) / 5**0.5
    width = torch.tensor([1.0, 1.0, 1.0, scale**0.5]) / scale**0.5
    src = (src.unsqueeze(1) + width.view(4, 1, 1) * noise).flatten(0, 1)
    dst = centre + 0.3 * torch.randn(TARGETS, 5, generator=generator) / 5**0.5
    src += drift * torch.randn(src.shape, generator=generator) / 5**0.5
    return unit_rows(dst), unit_rows(src)


def make_pairs(name, scale, *, variant='', count=6, runs=RUNS, drift=0.0):
    dst, src = embeddings(scale, count, drift)
    src = src[torch.arange(len(src)) % 7] if variant == 'duplicates' else src
    src = src[:1].expand_as(src) if variant == 'all equal' else src
    target = torch.arange(runs) % TARGETS
    # Each target has a bell of its own.
    params = (p * (1 + 0.1 * target / TARGETS) for p in ROWS[name].params)
    pairs = bounded_pairs(name, dst[target], src.contiguous(), scale, params)
    return pairs._replace(
        upper=pairs.upper + (25.0 if variant == 'far too high' else 0.0),
        excluded=5 * target if variant == 'excluded' else None,
    )


def random_head(pairs, size):
    """A list of any sources for each target, and nothing known about the others."""
    count, order = len(pairs.src), torch.rand(TARGETS, len(pairs.src))
    source = order.argsort(dim=1)[torch.arange(len(pairs.dst)) % TARGETS, :size]
    ends = torch.full((2, len(pairs.dst)), 9.0)
    ends[0] = 0.0 if pairs.comparison == 'squared_distance' else -9.0
    assert source.size(1) == min(size, count)
    return Head(source.sort().values, *ends)


def envelope_of(how, name, pairs, scale, **kwargs):
    """Return bounds; stale ones are those of embeddings that have moved since."""
    count = len(pairs.src)
    label = {
        'one cluster': torch.zeros(count).long(),
        'random clusters': torch.arange(count) % 5,
        'a cluster each': torch.arange(count),
        'clusters and lists': torch.arange(count) % 5,
    }.get(how)
    if how == 'one bound':
        return None
    if how == 'stale clusters':
        then = make_pairs(name, scale, drift=0.4, **kwargs)
        return make_envelope(pairs, k_means(then.src, 6))
    if how == 'nearest lists' and pairs.response.monotonic:
        return make_envelope(pairs, None, find_nearest(pairs, min(4, count - 1)))
    size = {'random lists': 5, 'all listed': count, 'nearest lists': 1}.get(how, 4)
    head = random_head(pairs, size) if 'list' in how else None
    return make_envelope(pairs, None if label is None else group(label), head)


ENVELOPES = [
    *('one bound', 'one cluster', 'random clusters', 'a cluster each'),
    *('stale clusters', 'nearest lists', 'random lists', 'all listed'),
    'clusters and lists',
]
# Each response at each scale, with bounds and forms of the sources that go round.
CASES = list(itertools.product(ROWS, SCALES, ENVELOPES))
VARIANTS = ['', 'excluded', 'duplicates', 'far too high', 'all equal']


def every(step):
    """Each of so many cases, of which three in four are left to the nightly run."""
    return [
        pytest.param(i, marks=[] if i % (4 * step) == 0 else pytest.mark.slow)
        for i in range(0, len(CASES), step)
    ]


def raced(index, options, **kwargs):
    """Run the races of a case: scores, bounds, what arrives, and the tail."""
    name, scale, how = CASES[index]
    kwargs = {'variant': VARIANTS[(index + index // 5) % 5], **kwargs}
    pairs = make_pairs(name, scale, **kwargs)
    envelope = envelope_of(how, name, pairs, scale, **kwargs)
    num_proposals = 1 if kwargs['variant'] == 'far too high' else 4
    args = pairs, options, num_proposals, envelope
    return pairs, envelope, *race_arrivals(*args, generator=seeded(index))


def assert_level(level, share):
    """Check that a two-sided test with this share of the error rate accepts."""
    share *= ERROR_RATE / 2
    assert share < level < 1 - share, (level, share)


def check_law(outcomes, laws, share):
    """Check the outcomes [runs] of each target against its law."""
    statistic, freedom = 0.0, 0
    for outcome, law in zip(outcomes, laws, strict=True):
        value, degrees = law_statistic(outcome.bincount(minlength=len(law)), law)
        statistic += value
        freedom += degrees
    if freedom > 0:
        assert_level(stats.chi2.cdf(statistic, freedom), share)


def check_counts(source, score, share):
    """Check the sources [runs] of each target against softmax(score)."""
    laws = score[:TARGETS].double().softmax(1)
    check_law([source[i::TARGETS] for i in range(TARGETS)], laws, share)


def check_times(time, share):
    """Check times against Exp(1): their distribution, mean and variance."""
    count, sides = len(time), 3 * time.size(1) / share
    for times in time.double().unbind(1):
        assert stats.kstest(times, 'expon').pvalue > ERROR_RATE / sides
        assert_level(stats.gamma.cdf(float(times.sum()), count), 1 / sides)
        # The fourth central moment of Exp(1) is 9.
        z = (float(times.var()) - 1) / math.sqrt(8 / count)
        assert_level(stats.norm.cdf(z), 1 / sides)


def not_arrived(value, pairs, arrivals):
    """Set what stands for arrivals, and for excluded sources, to zero."""
    gone = torch.zeros_like(value).scatter(1, arrivals.source[:, 0], 1.0)
    if pairs.excluded is not None:
        gone.scatter_(1, pairs.excluded.unsqueeze(1), 1)
    return value.masked_fill(gone > 0, 0.0)


def by_group(value, tail):
    """Add up what targets that share their sources have: they count as one."""
    group_of = torch.arange(RUNS) // tail.group
    return torch.zeros(int(group_of[-1]) + 1).double().index_add_(0, group_of, value)


def remaining(score, source):
    """The logarithm of what is left to arrive before each of some arrivals."""
    left, log_rates = score.double().clone(), []
    for arrival in source.unbind(1):
        log_rates.append(left.logsumexp(dim=1))
        left.scatter_(1, arrival.unsqueeze(1), -math.inf)
    return torch.stack(log_rates, dim=1)


@pytest.mark.parametrize('index', every(1))
def test_arrivals(index):
    # Of distinct arrivals each is the next of what is left, after a time Exp(1) over
    # its total rate: this is all there is to know about them.
    k = 3
    pairs, _, arrivals, _ = raced(index, DrawOptions(k, 0.5, k, replace=False))
    source, score = arrivals.source[:, 0], pairs.rows()
    assert source.sort(dim=1).values.diff(dim=1).all()
    share = 1 / (2 * len(CASES))
    check_counts(source[:, 0], score, share)
    log_time = -(arrivals.noise[:, 0] + score.gather(1, source)).double()
    gap = log_time.exp().diff(dim=1, prepend=torch.zeros(RUNS, 1))
    check_times(gap * remaining(score, source).exp(), share)
    assert torch.allclose(arrivals.horizon[:, 0].double(), log_time[:, -1], atol=1e-4)


@pytest.mark.parametrize('index', every(2))
def test_first_arrivals_of_hard_draws(index):
    options = DrawOptions(2, 0.5, 4, 3, hard=True)
    pairs, _, arrivals, tail = raced(index, options)
    share, score = 2 / (5 * len(CASES)), pairs.rows()
    times = []
    for source, noise in zip(
        arrivals.source.unbind(1), arrivals.noise.unbind(1), strict=True
    ):
        check_counts(source[:, 0], score, share)
        log_time = -(noise + score.gather(1, source)).double()[:, :1]
        times.append((log_time + remaining(score, source[:, :1])).exp())
        # What has come before is marked, and nothing else is.
        again = (source.unsqueeze(2) == source.unsqueeze(1)).tril(-1).any(dim=2)
        assert torch.equal(again, noise == -math.inf)
    check_times(torch.cat(times, dim=1), share)
    # The weights are those of the first arrivals, a half each.
    (source, target), weight = drawn_graph(pairs, arrivals, tail, options)
    weights = torch.zeros_like(score).index_put((target, source), weight, True)
    expected = torch.zeros_like(score)
    for winner in arrivals.source[:, :, 0].unbind(1):
        expected[torch.arange(RUNS), winner] += 0.5
    assert torch.equal(weights, expected)
    # The two are independent.
    p_value = stats.spearmanr(*torch.cat(times, dim=1).t()).pvalue
    assert p_value > ERROR_RATE * share


@pytest.mark.parametrize('index', range(0, len(CASES), 9))
def test_distinct_draws(index):
    # The law of whole draws, in their order: soft weights fall with it.
    options = DrawOptions(2, 1.0, 2, replace=False)
    pairs, _, arrivals, _ = raced(index, options, count=1, variant='')
    (source, target), weight = drawn_graph(pairs, arrivals, None, options)
    order = torch.stack([target, -weight]).t().tolist()
    order = source[sorted(range(len(order)), key=order.__getitem__)].view(RUNS, 2)
    drawn, laws = [], []
    for i in range(TARGETS):
        outcomes, law = plackett_luce(pairs.rows(slice(i, i + 1))[0].tolist(), 2)
        index_of = {outcome: j for j, outcome in enumerate(outcomes)}
        drawn.append(
            torch.tensor([index_of[tuple(x)] for x in order[i::TARGETS].tolist()])
        )
        laws.append(law)
    check_law(drawn, laws, 9 / len(CASES))


def proposed(pairs, envelope):
    """The logarithm of the share of each source among all proposals."""
    if envelope is None:
        return torch.zeros_like(score := pairs.rows()) - math.log(score.size(1))
    rates = proposal_rates(pairs, envelope, slice(None))
    clusters, head = envelope.clusters, envelope.head
    cluster = clusters.cluster[clusters.source.argsort()]
    bound = rates.bound[:, cluster]
    if head is not None:
        exact = rates.bound[:, clusters.size.numel() :]
        bound = bound.scatter(1, head.source, exact)
    return bound - rates.total.unsqueeze(1)


@pytest.mark.parametrize('index', every(1))
def test_the_tail_is_unbiased(index):
    # Whatever has arrived, the tail adds up to what has not, in the mean. Messages are
    # as large as the bounds, so that no rare one decides.
    size = 6
    pairs, envelope, arrivals, tail = raced(index, DrawOptions(1, 0.5, 3, size))
    late = tail_scores(pairs, tail, arrivals)[:, 0] > -math.inf
    source = ungroup(tail.source, tail.group, RUNS)
    share = tail.log_share.expand(RUNS, 1, size)[:, 0]
    rate = proposed(pairs, envelope).double()
    message = torch.randn(rate.size(1), generator=seeded(1)).double()
    value = (share + rate.gather(1, source)).exp() * message[source]
    expected = not_arrived(rate.exp(), pairs, arrivals) @ message
    error = by_group(value.where(late, 0.0).sum(dim=1) - expected, tail) / tail.group
    deviation = math.hypot(error.std() / math.sqrt(len(error)), 1e-5)
    assert_level(stats.norm.cdf(float(error.mean()) / deviation), 1 / len(CASES))


@pytest.mark.parametrize('index', every(2))
def test_the_variance_of_the_tail_is_bounded(index):
    # One of each part of the rates varies no more than S independent ones.
    size, tau = 6, 0.5
    pairs, envelope, arrivals, tail = raced(index, DrawOptions(1, tau, 3, size))
    source = ungroup(tail.source, tail.group, RUNS)
    mass = log_tail_mass(pairs.rows() + arrivals.horizon, tau).double().exp()
    mass = not_arrived(mass, pairs, arrivals)
    share = tail.log_share.double().expand(RUNS, 1, size)[:, 0].exp()
    error = (share * mass.gather(1, source)).sum(dim=1) - mass.sum(dim=1)
    rate = proposed(pairs, envelope).double().exp().clamp(min=1e-300)
    bound = (mass.square() / rate).sum(dim=1) / size
    excess = (error.square() - bound) / bound.clamp(min=1e-30)
    mean_excess = by_group(excess, tail)
    deviation = math.hypot(mean_excess.std() / math.sqrt(len(mean_excess)), 1e-5)
    z = float(mean_excess.mean()) / deviation
    assert stats.norm.cdf(z) < 1 - ERROR_RATE / len(CASES), z


SUMS = list(itertools.product(enumerate(SCALES), enumerate(TAUS)))


@pytest.mark.parametrize('index', range(len(SUMS)))
def test_sums_and_gradients_are_those_of_the_definition(index):
    # 192 sources, soft draws, and a gradient by each target.
    (i, scale), (j, tau) = SUMS[index]
    name = list(RESPONSES)[(i + j) % 5]
    how = ENVELOPES[4 + (i + 3 * j) % 2] if scale > 5 else ENVELOPES[i + 3 * j % 4]
    num_arrivals, runs = default_num_arrivals(tau), 2000
    pairs = make_pairs(name, scale, count=48, runs=runs)
    envelope = envelope_of(how, name, pairs, scale, count=48, runs=runs)
    count = len(pairs.src)
    options = DrawOptions(2, tau, num_arrivals, tail_size(tau, num_arrivals, count))
    h = torch.cat([pairs.src, torch.randn(count, 1, generator=seeded())], dim=1)
    values = []
    for method in ('race', 'dense'):
        dst = pairs.dst.clone().requires_grad_()
        leaf = pairs._replace(dst=dst)
        if method == 'dense':
            draws = relaxed_weights(leaf.rows(), 2, tau, generator=seeded(index)) @ h
        else:
            drawn = race_arrivals(leaf, options, 8, envelope, generator=seeded(index))
            draws = drawn_sum(h, leaf, *drawn, options)
        factor = torch.linspace(-1, 1, h.size(1))
        (grad,) = torch.autograd.grad((draws @ factor).sum(), dst)
        statistics = draws.detach(), draws.detach().square(), grad / scale
        values.append(torch.cat(statistics, dim=1).double())
    # Each target is compared with itself.
    values = torch.stack(values).view(2, runs // TARGETS, TARGETS, -1)
    error = (values.var(dim=1).sum(dim=0) / values.size(1)).sqrt()
    z = (values[0] - values[1]).mean(dim=0) / error
    share = 1 / len(SUMS) / z.numel()
    for value in z.flatten():
        assert_level(stats.norm.cdf(float(value)), share)
