import pytest
from report import Row, bound, growth

STEP = 'forward+backward'


def row(workload, implementation, median, **kwargs):
    return Row(
        workload,
        int(workload.rpartition('-')[2]) if '-' in workload else 3327,
        str(kwargs.pop('task', STEP)),
        implementation,
        'race',
        agrees=True,
        median=median,
        **kwargs,
    )


def test_growth():
    rows = [
        row(f'synthetic-{size}', 'race', 1e-3 * size**1.25)
        for size in (100_000, 10_000, 1_000_000)
    ]
    rows += [row(f'words-{size}', 'race', 2.0 * size) for size in (1_000, 3_000)]
    rows += [
        row('words-2000', 'stream', 1.0),  # One size has no slope.
        row('citeseer', 'race', 1.0),  # Real data sets differ in more than size.
        row('words-9000', 'race', 1.0, task='forward'),
    ]
    assert [(entry['family'], entry['implementation']) for entry in growth(rows)] == [
        ('synthetic', 'race'),
        ('words', 'race'),
    ]
    synthetic, words = growth(rows)
    assert synthetic['sizes'] == [10_000, 100_000, 1_000_000]
    assert synthetic['exponent'] == pytest.approx(1.25)
    assert synthetic['ratio'] == pytest.approx(10**1.25)
    assert words['sizes'] == [1_000, 3_000]
    assert words['exponent'] == pytest.approx(1)
    assert 'ratio' not in words


TIMED = {
    'copy_bytes_per_second': 8e9,
    'gather_rows_per_second': 3e8,
    'bound': {'moved_bytes': 4e9, 'gather_seconds': 0.75},
}


def test_bound():
    rows = [
        row('words-2000', 'stream', 9.0),
        row('words-2000', 'race', 7.0, task='forward'),
        row('words-2000', 'race', 2.0),
    ]
    speed = {
        'workload': 'words-2000',
        'copy_gb_per_second': 8.0,
        'gather_million_rows_per_second': 300.0,
    }
    assert bound('words-2000', TIMED, rows) == speed | {
        'moved_gb': 4.0,
        'stream_seconds': 0.5,
        'stream_fraction': 0.25,
        'gather_seconds': 0.75,
        'gather_fraction': 0.375,
    }
    # Without a race, or without its time.
    assert bound('words-2000', TIMED | {'bound': {}}, rows) == speed
    assert bound('words-2000', TIMED, rows[:2]) == speed
