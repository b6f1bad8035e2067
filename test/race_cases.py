"""Races in all forms, which kernels are compared with their definition in.

The random numbers are equal bit by bit; scores may differ in their last bits, by which
one decision in ten million differs, of about 100,000 that are drawn here under fixed
seeds.
"""

import itertools
import random
from typing import NamedTuple
from unittest import mock

import torch
from oracles import seeded
from responses import RESPONSES, comparison_of
from torch import Tensor

from torch_geometric_gsl.ops import race
from torch_geometric_gsl.ops.clusters import group
from torch_geometric_gsl.ops.edges import Candidates
from torch_geometric_gsl.ops.envelope import Envelope, Head, find_nearest, make_envelope
from torch_geometric_gsl.ops.noise import draw_seed
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.relax import DrawOptions
from torch_geometric_gsl.ops.scores import unit_rows

SIZES = {
    'n': (1, 7, 33),
    'num_sources': (1, 5, 130),
    'm': (1, 3, 6, 33),
    'k': (1, 2, 5),
    'num_proposals': (1, 8, 22, 37),
    'num_arrivals': (1, 4, 5, 20),
    'scale': (1.0, 3.0, 8.0),
}
KNOWN = [name for name, row in RESPONSES.items() if row.cls.formula]
# All sources, a range of them or a list; or all under better bounds.
SETS = ('all', 'range', 'list', 'clusters', 'head', 'head and clusters')


class Case(NamedTuple):
    response: str = 'identity'
    sets: str = 'all'
    excluded: bool = False
    n: int = 7
    num_sources: int = 130
    m: int = 6
    k: int = 5
    num_proposals: int = 22
    num_arrivals: int = 4
    scale: float = 1.0
    layout: str = 'contiguous'
    tile: int = 2**14
    min_arrivals: int | None = None
    replace: bool = True

    def __str__(self):
        return '-'.join(map(str, self))


def _grid():
    """Every response with every kind of candidates, in sizes that go round."""
    pick, cases = random.Random(1), []
    for response, sets in itertools.product(KNOWN, SETS):
        for excluded in (False,) if sets == 'list' else (False, True):
            size = {name: pick.choice(sizes) for name, sizes in SIZES.items()}
            # Another one than the excluded source must be left.
            size['num_sources'] = max(1 + int(excluded), size['num_sources'])
            cases.append(Case(response, sets, excluded, **size))
    return cases


CASES = [
    *_grid(),
    Case(),
    *(Case(sets=sets, excluded=True, tile=1024) for sets in SETS if sets != 'list'),
    # More channels than a tile holds, and many arrivals.
    *(Case(response, m=70, n=3) for response in ('identity', 'heat_kernel')),
    Case(n=9, k=2, num_proposals=200, num_arrivals=17),
    # Long races: some end by arrivals, some at the last of several rounds.
    *(
        Case(response, sets, n=4, num_sources=3000, k=2, scale=6.0)
        for response in ('identity', 'gaussian')
        for sets in ('all', 'range', 'head', 'clusters')
    ),
    Case('heat_kernel', 'head and clusters', True, num_sources=400, scale=20.0),
    # Hardly any proposal is accepted: what is lacking is drawn from all candidates.
    *(Case(sets=sets, n=33, num_proposals=8, scale=12.0) for sets in SETS),
    Case('difference', scale=0.5),
    Case('heat_kernel', layout='strided'),
    Case('gaussian', layout='expanded', n=33),
    Case('heat_kernel', layout='expanded'),
    *(Case(sets=sets, layout='learned', scale=5.0) for sets in ('all', 'clusters')),
    # Every proposal is the only source that is left.
    Case(excluded=True, num_sources=2, n=2),
    Case('gaussian', 'range', True, num_sources=2, n=2),
    Case('gaussian', 'clusters', True, num_sources=2, n=2),
    # Races that may end with a round, with less than all arrivals.
    *(
        Case(
            sets=sets,
            n=33,
            k=2,
            num_proposals=num_proposals,
            scale=scale,
            min_arrivals=min_arrivals,
        )
        for sets in ('all', 'list')
        for num_proposals, scale in ((8, 1.0), (17, 3.0), (37, 6.0))
        for min_arrivals in (1, 3)
    ),
    # Many blocks of targets.
    Case('gaussian', 'head and clusters', n=33, layout='blocks'),
    Case(n=0),
]


def make(case, dtype=torch.float32):
    torch.manual_seed(CASES.index(case))
    dst = unit_rows(torch.randn(case.n, case.m).to(dtype))
    src = unit_rows(torch.randn(case.num_sources, case.m).to(dtype))
    row = RESPONSES[case.response]
    params = [torch.rand(case.n).to(dtype) + 0.1 for _ in row.params]
    if case.response == 'mixture':
        params[0] /= 1.1  # A share.
    if case.layout == 'strided':
        src = src.repeat_interleave(2, dim=1)[:, ::2]
        dst = dst.t().contiguous().t()
    elif case.layout == 'expanded':
        params = [torch.tensor(0.4, dtype=dtype).expand(case.n) for _ in params]
    candidates, excluded = _candidates(case), torch.arange(case.n) % case.num_sources
    if candidates is not None:
        excluded = candidates.start + (torch.rand(case.n) * candidates.size).long()
    scale = torch.tensor(case.scale) if case.layout == 'learned' else case.scale
    pairs = PairScores(
        dst,
        src,
        row.cls(*params),
        comparison_of(case.response),
        scale,
        upper=scale * (2.0 if case.response == 'difference' else 1.0),
        excluded=excluded if case.excluded else None,
        candidates=candidates,
    )
    options = DrawOptions(case.k, 0.5, case.num_arrivals, replace=case.replace)
    return pairs, options, _envelope(case, pairs)


def _candidates(case):
    if case.sets not in ('range', 'list'):
        return None
    least, end = 1 + int(case.excluded), case.num_sources - int(case.excluded)
    start = torch.randint(0, end, (case.n,))
    size = least + (torch.rand(case.n) * (end - start)).long()
    listed = torch.randperm(case.num_sources) if case.sets == 'list' else None
    return Candidates(start, size, listed)


def _envelope(case, pairs):
    """Bound the scores by random clusters, and lists of near or of random sources."""
    if case.sets in ('all', 'range', 'list'):
        return Envelope()
    clusters = head = None
    if 'clusters' in case.sets:
        clusters = group(torch.randint(9, (case.num_sources,)))
    if 'head' in case.sets:
        size = min(7, case.num_sources - 1)
        if pairs.response.monotonic and size > 0:
            head = find_nearest(pairs, size)
        else:
            drawn = torch.rand(case.n, case.num_sources).argsort(1)[:, : max(1, size)]
            end = torch.full((case.n,), 9.0, dtype=pairs.dst.dtype)
            low = -end if pairs.comparison == 'dot' else 0 * end
            head = Head(drawn.sort(dim=1).values, low, end)
    return make_envelope(pairs, clusters, head)


def _moved(x, device):
    """Move the tensors of a tuple, and of tuples inside it, to a device."""
    if isinstance(x, Tensor):
        return x.to(device)
    if isinstance(x, tuple):
        fields = [_moved(field, device) for field in x]
        return type(x)(*fields) if hasattr(x, '_fields') else tuple(fields)
    return x


def run(case, kernel=None, device='cpu', dtype=torch.float32):
    """Run a race by a kernel or, without, by its definition; seeds are a CPU's."""
    pairs, options, envelope = _moved(make(case, dtype), device)
    budget = 2000 if case.layout == 'blocks' else 2**25
    seed = draw_seed(torch.device('cpu'), seeded(1000 + CASES.index(case))).to(device)
    with (
        mock.patch.object(race, 'find_kernel', return_value=kernel),
        mock.patch.object(race, 'draw_seed', return_value=seed),
    ):
        arrivals, _ = race.race_arrivals(
            pairs._replace(memory=budget),
            options,
            case.num_proposals,
            envelope,
            min_arrivals=case.min_arrivals,
        )
    return _moved(arrivals, 'cpu')


def compare(case, result, expected, atol=1e-5):
    """Assert that a race has the arrivals of another one."""
    num_races = case.k if case.replace else 1
    assert result.source.shape == (case.n, num_races, case.num_arrivals)
    assert result.source.dtype == torch.long
    assert torch.equal(result.source, expected.source)
    assert torch.equal(result.noise.isneginf(), expected.noise.isneginf())
    # As types and shapes; equal infinite numbers are close.
    torch.testing.assert_close(result.noise, expected.noise, rtol=0, atol=atol)
    torch.testing.assert_close(result.horizon, expected.horizon, rtol=0, atol=atol)
