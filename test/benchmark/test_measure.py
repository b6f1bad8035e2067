import math
from types import SimpleNamespace

import measure
import pytest
from measure import interleave


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes on only when it is told to."""
    now = [0.0]

    def wait(seconds):
        now[0] += seconds

    monkeypatch.setattr(measure, 'time', SimpleNamespace(perf_counter=lambda: now[0]))
    return wait


def test_the_first_round_is_not_counted(clock):
    waits = iter([1.0, 2.0, 3.0, 4.0])
    found = interleave({'a': lambda: clock(next(waits))}, 3, limit=math.inf)
    assert found == {'a': [2.0, 3.0, 4.0]}


def test_each_round_starts_one_step_later():
    calls = []
    steps = {name: lambda name=name: calls.append(name) for name in 'abc'}
    found = interleave(steps, 3, limit=math.inf)
    assert ''.join(calls) == 'abcbcacababc'
    assert [len(seconds) for seconds in found.values()] == [3, 3, 3]


@pytest.mark.parametrize(
    ('limit', 'rounds'), [(0.0, 3), (7.9, 3), (8.0, 4), (10.0, 5), (1e9, 7)]
)
def test_the_limit_leaves_three_rounds(limit, rounds, clock):
    # Two seconds a round, the one that is not counted included.
    found = interleave(dict.fromkeys('ab', lambda: clock(1.0)), 7, limit)
    assert found == {'a': [1.0] * rounds, 'b': [1.0] * rounds}
    assert interleave({}, 7, limit) == {}
