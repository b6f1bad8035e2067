import pytest
from report import Row, bound, growth, make_rows, markdown

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


def part(implementation, seconds, **kwargs):
    return {
        'variant': 'full',
        'task': STEP,
        'implementation': implementation,
        'seconds': seconds,
        'agrees': True,
        'agreement': 'eval 1e-06',
        **kwargs,
    }


def test_markdown():
    timed = {
        'num_nodes': 2000,
        'rows': [
            part('race', [0.1, 0.2, 0.4]),
            part('dense', [0.3, 0.4, 2.0], agreement='the definition'),
            part('stream', None, agrees=False, agreement='eval 3e-01'),
            part('nodeformer-4', None, skipped='it is large'),
            part('race', [2_000.0], variant='T'),
        ],
    }
    key = ('full', STEP)
    memory = {(*key, 'race'): 10.0, (*key, 'dense'): 25.0, ('T', STEP, 'race'): None}
    rows = make_rows('words-2000', 'race', timed, memory)
    growths = growth([row('words-1000', 'race', 1.0), row('words-3000', 'race', 9.0)])
    bounds = [
        bound('words-2000', TIMED, rows),
        bound('words-3000', TIMED | {'bound': {}}, rows),
    ]
    lines = markdown(rows, growths, bounds).splitlines()
    assert lines[0].count('|') == lines[1].count('---') + 1 == 12
    name = '| words-2000 | forward+backward'
    assert lines[2:] == [
        f'{name} | race | 0.2 | 0.15 to 0.3 | 1 | 0.333 | 10 | 1 | 0.4 | eval 1e-06 |',
        f'{name} | dense | 0.4 | 0.35 to 1.2 | 3 | 1 | 25 | 2.5 | 1 | the definition |',
        f'{name} | stream | - | - | - | - | - | - | - | DISAGREES: eval 3e-01 |',
        f'{name} -T | race | 2,000 | 2,000 to 2,000 | 1 | - | - | - | - | eval 1e-06 |',
        '',
        'Growth of words race forward+backward: n^2.00 over [1000, 3000]',
        '',
        'Memory, words-2000: copy 8.0 GB/s, gather 300.0 million rows/s; a step '
        'gathers 4 GB: 0.5 s as a copy (250 % of the measured time), 0.75 s as sums '
        'over random rows (375 %)',
        '',
        'Memory, words-3000: copy 8.0 GB/s, gather 300.0 million rows/s; no race, no '
        'bound',
        '',
        'Skipped:',
        '',
        '- words-2000, forward+backward, nodeformer-4: it is large',
    ]
