"""What has not arrived by a time arrives as if the race began then."""

import torch
from oracles import check_law, matrix_pairs

from torch_geometric_gsl.ops.candidates import Candidates
from torch_geometric_gsl.ops.noise import race_states
from torch_geometric_gsl.ops.scan import scan_arrivals

RUNS = 20_000
SCORE = torch.tensor([0.3, -1.0, 1.2, 0.0, 0.5], dtype=torch.float64)


def scan(pairs, arrived=-1, num_arrivals=1, horizon=0.7, **options):
    n = pairs.dst.size(0)
    state = race_states(torch.tensor(3), 0, n)
    late = torch.full((n,), horizon, dtype=torch.float64).log()
    listed = torch.full((n, 1), arrived)
    return scan_arrivals(pairs, state, 4, late, listed, num_arrivals, **options)


def test_the_law_of_the_next_arrival():
    # Source 2 has arrived, source 4 is excluded.
    pairs = matrix_pairs(SCORE.expand(RUNS, 5))
    pairs = pairs._replace(excluded=torch.full((RUNS,), 4))
    source, log_time = scan(pairs, arrived=2)
    rate = SCORE[[0, 1, 3]].exp()
    counts = source.flatten().bincount(minlength=5)
    assert counts[[2, 4]].tolist() == [0, 0]
    check_law(counts[[0, 1, 3]].tolist(), (rate / rate.sum()).tolist())
    # Exp(1), in ten parts of equal probability.
    wait = (log_time.exp().flatten() - 0.7) * rate.sum()
    part = (10 * (1 - (-wait).exp())).long().clamp(0, 9)
    check_law(part.bincount(minlength=10).tolist(), [0.1] * 10)


def test_arrivals_stand_in_their_order_and_end():
    pairs = matrix_pairs(SCORE.expand(6, 5))
    source, log_time = scan(pairs, arrived=0, num_arrivals=7)
    assert all(sorted(row[:4].tolist()) == [1, 2, 3, 4] for row in source)
    assert (log_time.diff(dim=1)[:, :3] > 0).all()
    assert log_time[:, :4].isfinite().all()
    assert (log_time[:, 4:] == torch.inf).all()


def test_given_candidates_and_any_budget():
    sets = Candidates(
        torch.tensor([0, 1]), torch.tensor([1, 3]), torch.tensor([4, 0, 2, 3])
    )
    pairs = matrix_pairs(SCORE.expand(2, 5))._replace(candidates=sets)
    source, log_time = scan(pairs, num_arrivals=3)
    assert (source[0, 0], sorted(source[1].tolist())) == (4, [0, 2, 3])
    assert (log_time == torch.inf).tolist() == [[False, True, True], [False] * 3]
    again = scan(pairs, num_arrivals=3, memory_budget=1)
    assert all(map(torch.equal, again, (source, log_time)))
