"""Blocks of races: their size, the kernel that serves them, and what they refuse."""

import pytest
import torch
from oracles import matrix_pairs, seeded
from responses import Tanh

from torch_geometric_gsl.ops import race_block as module
from torch_geometric_gsl.ops.clusters import group
from torch_geometric_gsl.ops.envelope import make_envelope
from torch_geometric_gsl.ops.race import race_arrivals
from torch_geometric_gsl.ops.relax import DrawOptions


def scores(n, num_sources, dtype=torch.float64):
    # From -1 to 0, so that about half of the proposals are accepted.
    return -torch.rand(n, num_sources, generator=seeded(1), dtype=dtype)


def test_tails_of_a_block_fit_into_the_budget(monkeypatch):
    seen, plain = [], module.propose

    def propose(kind, word, *args):
        seen.append(tuple(word.shape))
        return plain(kind, word, *args)

    monkeypatch.setattr(module, 'propose', propose)
    pairs = matrix_pairs(scores(9, 150))
    envelope = make_envelope(pairs, group(torch.arange(150) % 3))
    # 64 bytes a source of the tail or a kind, two tails of 100 a row: four rows fit.
    args = pairs, DrawOptions(2, 0.5, 4, num_tail=100), 20, envelope
    _, tail = race_arrivals(*args, memory_budget=4 * 64 * (200 + 3) + 63)
    assert tail.source.shape == (9, 200)
    assert [size for size in seen if size[1] == 100] == [(8, 100), (8, 100), (2, 100)]


@pytest.mark.parametrize(
    ('bounds', 'shown'), [((0.0, 2.0), r'\[0, 2\]'), ((-1.0, 0.5), r'\[-1, 0.5\]')]
)
def test_scores_beyond_their_bounds_raise(bounds, shown):
    lower, upper = bounds
    score = torch.tensor([[-0.25, 0.25, 0.75]]).expand(4, 3)
    pairs = matrix_pairs(score)._replace(lower=lower, upper=upper)
    text = rf"'similarity' must lie between its 'bounds' \(got .* for {shown}\)"
    with pytest.raises(ValueError, match=text):
        race_arrivals(pairs, DrawOptions(3, 0.5, 9), 20, generator=seeded())
    pairs = matrix_pairs(score)._replace(lower=-0.25, upper=0.75)
    race_arrivals(pairs, DrawOptions(3, 0.5, 9), 20, generator=seeded())


@pytest.mark.parametrize(
    ('change', 'is_served'),
    [
        ({}, True),
        ({'options': DrawOptions(2, 0.5, 2, replace=False)}, False),
        ({'dtype': torch.float64}, False),
        ({'response': Tanh()}, False),
    ],
)
def test_the_kernel_serves_what_it_knows(change, is_served, monkeypatch):
    pytest.importorskip('triton')
    from torch_geometric_gsl.ops._triton import race_kernel

    calls = []
    monkeypatch.setattr(module, 'has_triton', lambda device: True)
    monkeypatch.setattr(race_kernel, 'race_kernel', lambda *args: calls.append(args))
    pairs = matrix_pairs(scores(4, 6, change.get('dtype', torch.float32)))
    if 'response' in change:
        pairs = pairs._replace(response=change['response'], upper=1.0, lower=-1.0)
    race_arrivals(pairs, change.get('options', DrawOptions(2, 0.5, 2)), 9)
    assert len(calls) == is_served
