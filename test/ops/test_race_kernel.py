r"""The Triton kernel of the race against its definition in torch.

Triton reads when it is imported whether it interprets kernels, so this file runs itself
in a process of its own, once for all cases. The random numbers are equal bit by bit;
scores may differ in their last bits, by which one decision in ten million differs, of
about 40,000 that are drawn here under fixed seeds.
"""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from torch_geometric_gsl.ops.fused import RESPONSES, FusedScore
from torch_geometric_gsl.ops.noise import draw_seed
from torch_geometric_gsl.ops.race import race_arrivals
from torch_geometric_gsl.ops.relax import Arrivals
from torch_geometric_gsl.ops.scorer import Candidates, Law, Scorer, matrix_scorer
from torch_geometric_gsl.ops.scores import unit_rows

pytestmark = pytest.mark.skipif(
    find_spec('triton') is None, reason='needs Triton (the extra of the tests)'
)

SIZES = {
    'n': (1, 7, 33),
    'num_sources': (1, 5, 130),
    'm': (1, 3, 6, 33),
    'k': (1, 5),
    'proposals': (1, 22, 37),
    'kept': (1, 4, 5),
}
WITH_WIDTH = ('gaussian', 'heat_kernel')


class Case(NamedTuple):
    response: str = 'identity'
    sets: str = 'all'
    excluded: bool = False
    n: int = 7
    num_sources: int = 130
    m: int = 6
    k: int = 5
    proposals: int = 37
    kept: int = 4
    scale: float = 1.0
    layout: str = 'contiguous'
    tile: int = 2**14

    def __str__(self) -> str:
        return '-'.join(map(str, self))


def _grid() -> list[Case]:
    """Every response with every kind of candidates, in sizes that go round."""
    pick, cases = random.Random(1), []
    for response, sets in itertools.product(RESPONSES, ('all', 'range', 'list')):
        for excluded in (False,) if sets == 'list' else (False, True):
            size = {name: pick.choice(sizes) for name, sizes in SIZES.items()}
            # Another one than the excluded source must be left.
            size['num_sources'] = max(1 + int(excluded), size['num_sources'])
            cases.append(Case(response, sets, excluded, **size))
    return cases


CASES = [
    *_grid(),
    Case(),
    Case(tile=1024),
    Case('gaussian', 'range', True, tile=1024),
    # More channels and proposals than a tile holds, and many arrivals.
    *(Case(response, m=70, n=3) for response in ('identity', 'heat_kernel')),
    Case(n=9, k=2, proposals=200, kept=17),
    Case(scale=3.0, n=33),
    Case('difference', scale=0.5),
    Case('heat_kernel', layout='strided'),
    Case('gaussian', layout='expanded', n=33),
    Case('heat_kernel', layout='expanded'),
    # Every proposal is the only source that is left.
    Case(excluded=True, num_sources=2, n=2),
    Case('gaussian', 'range', True, num_sources=2, n=2),
    Case(n=0),
]


def make(case: Case) -> tuple[Scorer, FusedScore, Law]:
    torch.manual_seed(CASES.index(case))
    fused = FusedScore(
        unit_rows(torch.randn(case.n, case.m)),
        unit_rows(torch.randn(case.num_sources, case.m)),
        case.response,
        torch.rand(case.n) if case.response == 'gaussian' else None,
        torch.rand(case.n) + 0.1 if case.response in WITH_WIDTH else None,
        case.scale,
    )
    if case.layout == 'strided':
        src = fused.src.repeat_interleave(2, dim=1)[:, ::2]
        fused = fused._replace(src=src, dst=fused.dst.t().contiguous().t())
    elif case.layout == 'expanded':
        b = None if fused.b is None else torch.tensor(0.3).expand(case.n)
        fused = fused._replace(b=b, c=torch.tensor(0.4).expand(case.n))
    bound = 2.0 if case.response == 'difference' else 1.0
    every = torch.arange(case.num_sources).expand(case.n, -1)
    candidates, excluded = _candidates(case), torch.arange(case.n) % case.num_sources
    if candidates is not None:
        excluded = candidates.start + (torch.rand(case.n) * candidates.size).long()
    scorer = matrix_scorer(fused.score(slice(0, case.n), every))._replace(
        upper=case.scale * bound,
        excluded=excluded if case.excluded else None,
        candidates=candidates,
    )
    return scorer, fused, Law(case.k, 0.5, num_arrivals=case.kept)


def _candidates(case: Case) -> Candidates | None:
    if case.sets == 'all':
        return None
    least, end = 1 + int(case.excluded), case.num_sources - int(case.excluded)
    start = torch.randint(0, end, (case.n,))
    size = least + (torch.rand(case.n) * (end - start)).long()
    listed = torch.randperm(case.num_sources) if case.sets == 'list' else None
    return Candidates(start, size, listed)


def _seed(case: Case) -> torch.Generator:
    return torch.Generator().manual_seed(1000 + CASES.index(case))


def _moved(x: Any, device: str) -> Any:
    """A named tuple with its tensors, and those of tuples inside it, on a device."""
    if isinstance(x, Tensor):
        return x.to(device)
    if isinstance(x, torch.device):
        return torch.device(device)
    if isinstance(x, tuple) and hasattr(x, '_fields'):
        return type(x)(*(_moved(field, device) for field in x))
    return x


def _run_kernel(path: str, device: str) -> None:
    """Runs the kernel for each case; what it refuses becomes a message."""
    from torch_geometric_gsl.ops._triton import race_kernel as module

    found: dict[str, Any] = {}
    for case in CASES:
        module._TILE = case.tile
        seed = draw_seed(torch.device('cpu'), _seed(case)).to(device)
        scorer, fused, law = (_moved(part, device) for part in make(case))
        arrivals = module.race_kernel(scorer, fused, law, case.proposals, seed)
        found[str(case)] = tuple(_moved(arrivals, 'cpu'))
    scorer, fused, law = (_moved(part, device) for part in make(Case()))
    for name, (changed, other, proposals) in {
        'float64': (fused._replace(dst=fused.dst.double()), law, 5),
        'response': (fused._replace(response='tanh'), law, 5),
        'rows': (fused._replace(dst=fused.dst[1:]), law, 5),
        'width': (fused._replace(dst=fused.dst[:, 1:]), law, 5),
        'proposals': (fused, law, 0),
        'replace': (fused, law._replace(replace=False), 5),
    }.items():
        with pytest.raises(ValueError, match='must') as refused:
            module.race_kernel(scorer, changed, other, proposals, seed)
        found[name] = str(refused.value)
    torch.save(found, path)


@pytest.fixture(scope='module')
def found(
    tmp_path_factory: pytest.TempPathFactory, run_alone: Callable[..., None]
) -> dict[str, Any]:
    """What the kernel finds in each case, and what it refuses."""
    path = str(tmp_path_factory.mktemp('kernel') / 'found.pt')
    run_alone(__file__, path, 'cpu', TRITON_INTERPRET='1')
    return dict(torch.load(path))


def _define(case: Case) -> Arrivals:
    scorer, _, law = make(case)
    return race_arrivals(scorer, law, case.proposals, generator=_seed(case))


@pytest.mark.parametrize('case', CASES, ids=str)
def test_equals_the_definition(case: Case, found: dict[str, Any]) -> None:
    _compare(case, found)


@pytest.mark.skipif(not torch.cuda.is_available(), reason='needs a GPU')
def test_equals_the_definition_on_a_gpu(
    tmp_path: Path, run_alone: Callable[..., None]
) -> None:
    path = tmp_path / 'found.pt'
    run_alone(__file__, str(path), 'cuda', TRITON_INTERPRET='0')
    found = torch.load(path)
    for case in CASES:
        _compare(case, found)


def _compare(case: Case, found: dict[str, Any]) -> None:
    expected, result = _define(case), Arrivals(*found[str(case)])
    assert result.source.shape == (case.n, case.k, case.kept)
    assert result.source.dtype == torch.long
    assert torch.equal(result.source, expected.source)
    assert torch.equal(result.noise.isneginf(), expected.noise.isneginf())
    # As types and shapes; equal infinite numbers are close.
    torch.testing.assert_close(result.noise, expected.noise, rtol=0, atol=1e-5)
    torch.testing.assert_close(result.horizon, expected.horizon, rtol=0, atol=1e-5)


def test_cases_meet_what_they_are_for() -> None:
    for name, sizes in SIZES.items():
        assert {getattr(case, name) for case in _grid()} >= set(sizes)
    missing, repeated, before, after = 0, 0, 0, 0
    for case in CASES:
        scorer = make(case)[0]
        source, noise, _ = _define(case)
        missing += int(noise.isneginf().sum())
        again: Tensor = (source.unsqueeze(-1) == source.unsqueeze(-2)).tril(-1)
        repeated += int(again.sum())
        if scorer.excluded is not None:
            side = source - scorer.excluded.view(-1, 1, 1)
            before, after = (
                before + int((side < 0).sum()),
                after + int((side > 0).sum()),
            )
            assert bool(side.all())
    # Races end early, sources arrive twice, and they stand on both sides of a loop.
    assert min(missing, repeated, before, after) > 0


REFUSED = {
    'float64': "'dst' must be of type float32 (got torch.float64)",
    'response': "'response' must be one of",
    **dict.fromkeys(('rows', 'width'), "'fused' must hold the embeddings of (7, 130)"),
    'replace': "'law' must draw with replacement (got replace=False)",
    'proposals': "'proposals' and sources must be between 1 and 2^31 - 1 (got 0",
}


@pytest.mark.parametrize('name', REFUSED)
def test_refuses(name: str, found: dict[str, Any]) -> None:
    assert found[name].startswith(REFUSED[name])


if __name__ == '__main__':
    _run_kernel(*sys.argv[1:])
