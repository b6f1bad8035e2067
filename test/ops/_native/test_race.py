"""The race in C++ against its definition in torch."""

from unittest import mock

import pytest
import torch
from oracles import seeded
from race_cases import CASES, Case, compare, make, run
from torch import Tensor

from torch_geometric_gsl.ops import race, scores
from torch_geometric_gsl.ops._native import compiled
from torch_geometric_gsl.ops._native.compiled import find_compiler
from torch_geometric_gsl.ops.envelope import Envelope, proposal_rates
from torch_geometric_gsl.ops.race import find_kernel, race_native
from torch_geometric_gsl.ops.race_block import RaceBlock
from torch_geometric_gsl.ops.relax import Arrivals

needs_compiler = pytest.mark.skipif(
    find_compiler() is None, reason='needs a C++ compiler'
)
# One race a target, which looks for other neighbours than it has.
DISTINCT = [
    Case(
        sets=sets,
        excluded=sets != 'list',
        n=33,
        num_arrivals=num_arrivals,
        scale=3.0,
        replace=False,
    )
    for sets in ('all', 'list', 'clusters', 'head and clusters')
    for num_arrivals in (1, 5, 20)
]


@needs_compiler
@pytest.mark.parametrize('case', CASES, ids=str)
def test_equals_the_definition(case):
    compare(case, run(case, race_native), run(case))


@needs_compiler
@pytest.mark.parametrize('case', CASES[::5], ids=str)
def test_equals_the_definition_in_double_precision(case):
    arrivals = run(case, race_native, dtype=torch.float64)
    assert arrivals.noise.dtype == torch.float64
    compare(case, arrivals, run(case, dtype=torch.float64), atol=1e-11)


@needs_compiler
@pytest.mark.parametrize('case', DISTINCT, ids=str)
def test_neighbours_without_replacement(case, monkeypatch):
    monkeypatch.setattr('race_cases.CASES', [*CASES, *DISTINCT])
    arrivals = run(case, race_native)
    compare(case, arrivals, run(case))
    source = arrivals.source[0, 0][arrivals.noise[0, 0] > -torch.inf]
    assert source.unique().numel() == source.numel()


@needs_compiler
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('size', [1, 16, 37])
@pytest.mark.parametrize('sets', ['clusters', 'head', 'head and clusters'])
def test_tails_are_those_of_the_definition(sets, size, dtype):
    case = next(c for c in CASES if c.sets == sets and c.n == 33 and c.num_sources > 40)
    pairs, options, envelope = make(case, dtype)
    options = options._replace(num_tail=size)
    tails = []
    for kernel in (race_native, None):
        with mock.patch.object(race, 'find_kernel', return_value=kernel):
            args = pairs, options, case.num_proposals, envelope
            tails.append(race.race_arrivals(*args, generator=seeded())[1])
    assert tails[0].source.shape == (33, case.k * size)
    assert torch.equal(tails[0].source, tails[1].source)
    assert torch.equal(tails[0].log_share, tails[1].log_share)


@needs_compiler
def test_threads_draw_the_same(monkeypatch):
    monkeypatch.setattr(compiled, '_MIN_THREADED', 1)
    case = CASES[40]
    arrivals = run(case, race_native)
    monkeypatch.setattr(torch, 'get_num_threads', lambda: 3)
    for expected, drawn in zip(arrivals[:3], run(case, race_native)[:3], strict=True):
        assert torch.equal(expected, drawn)


@needs_compiler
def test_scores_outside_their_bounds_raise():
    pairs, options, _ = make(CASES[-2])
    pairs = pairs._replace(upper=0.1)
    text = (
        "'similarity' must lie between its 'bounds' \\(got scores in .* for .*, 0.1\\]"
    )
    with pytest.raises(ValueError, match=text):
        race.race_arrivals(pairs, options, 22, generator=seeded())


def test_outputs_are_written_in_place():
    pairs, options, _ = make(Case())
    source, state = torch.zeros(4, 2, dtype=torch.long).t(), torch.zeros(8)
    rates = proposal_rates(pairs, Envelope(), slice(None))
    drawn = state, Arrivals(source, source, source), state, state
    block = RaceBlock(pairs, options, rates, 0, *drawn, 8, 1, None)
    with pytest.raises(ValueError, match="'outputs' must be contiguous"):
        race_native(block)


def test_what_it_serves(monkeypatch):
    monkeypatch.setattr(compiled, 'load', lambda name: None)
    pairs, _, _ = make(Case())
    assert find_kernel(pairs) is None
    monkeypatch.undo()
    half = pairs._replace(dst=pairs.dst.bfloat16(), src=pairs.src.bfloat16())
    assert find_kernel(half) is None
    bell, _, _ = make(next(case for case in CASES if case.response == 'gaussian'))
    width = bell.response.map(Tensor.double)  # Numbers of another type.
    assert find_kernel(bell._replace(response=width)) is None
    if find_compiler() is not None:
        assert find_kernel(pairs) is race_native
    monkeypatch.setenv('TORCH_COMPILE_DISABLE', '1')
    assert find_kernel(pairs) is None


class Saturating(scores.Identity):
    @staticmethod
    def value(t):
        return 2 * torch.tanh(10 * t)


@needs_compiler
def test_a_subclass_with_another_formula_runs_by_its_definition():
    pairs, options, _ = make(Case())
    pairs = pairs._replace(response=Saturating(), lower=-2.0, upper=2.0)
    assert find_kernel(pairs) is None
    arrivals, _ = race.race_arrivals(pairs, options, 22, generator=seeded())
    with mock.patch.object(compiled, 'load', return_value=None):
        plain, _ = race.race_arrivals(pairs, options, 22, generator=seeded())
    assert torch.equal(arrivals.source, plain.source)


class Shifted(scores.Response):
    monotonic, formula = -1, 'gaussian'

    @staticmethod
    def value(t, a, b, c):
        return a - (t - b).square() / c


def test_a_kernel_has_the_parameters_of_its_formula():
    pairs, _, _ = make(Case())
    ones = pairs.dst.new_ones(pairs.dst.size(0))
    assert find_kernel(pairs._replace(response=Shifted(ones, ones, ones))) is None


@needs_compiler
@pytest.mark.parametrize('side', ['src', 'dst'])
def test_distances_that_are_not_numbers_arrive_nowhere(side):
    case = next(c for c in CASES if c.response == 'heat_kernel' and c.sets == 'all')
    pairs, options, _ = make(case)
    rows = getattr(pairs, side).clone()
    rows[0] = torch.nan
    pairs = pairs._replace(**{side: rows})
    arrivals, _ = race.race_arrivals(pairs, options, 22, generator=seeded())
    with mock.patch.object(compiled, 'load', return_value=None):
        plain, _ = race.race_arrivals(pairs, options, 22, generator=seeded())
    assert torch.equal(arrivals.source, plain.source)
    assert torch.equal(arrivals.noise.isnan(), plain.noise.isnan())


@needs_compiler
def test_indices_of_another_type():
    case = next(c for c in CASES if c.excluded and c.sets == 'all' and c.n == 33)
    pairs, options, _ = make(case)
    arrivals, _ = race.race_arrivals(pairs, options, 22, generator=seeded())
    pairs = pairs._replace(excluded=pairs.excluded.int())
    short, _ = race.race_arrivals(pairs, options, 22, generator=seeded())
    assert torch.equal(arrivals.source, short.source)
