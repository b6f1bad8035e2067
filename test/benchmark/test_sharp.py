import json
from pathlib import Path

import pytest
import sharp
import sharp_agreement
import sharp_table
from embeddings import load
from sharp import Problem, main, make_similarity, measure
from sharp_agreement import check
from sharp_table import growth, markdown, shown, summarize

from torch_geometric_gsl.ops.pair_scores import PairScores

REQUEST = {
    'workload': 'clustered-1000',
    'seed': 0,
    'similarities': ['cosine'],
    'repeats': 2,
}


@pytest.fixture(autouse=True)
def _memory(monkeypatch):
    """Measuring it changes how the process allocates from then on."""
    monkeypatch.setattr(sharp, 'peak_memory', lambda step, warm_up: 1.0)


def problem(scale, name='cosine'):
    x, is_learned = load('clustered-1000', seed=0)
    return Problem(x, is_learned, name, scale)


def test_a_step_reaches_all_that_learns():
    found = {}
    own = problem(10.0, 'neural bell')
    leaves = {'h': own.h, 'x': own.x, **dict(own.sampler.named_parameters())}
    for name, leaf in leaves.items():
        leaf.register_hook(lambda grad, name=name: found.update({name: grad}))
    own.step('race', 'forward')()
    assert not found
    own.step('race', 'step')()
    assert found.keys() == leaves.keys()
    assert all(grad.abs().sum() > 0 for grad in found.values())
    assert all(leaf.grad is None for leaf in leaves.values())


def test_agreement_sees_a_mistake(monkeypatch):
    x, similarity = load('clustered-1000', seed=0)[0], make_similarity('bell', 32)
    assert check(x, similarity, 10.0, seed=0)['agrees']
    own = PairScores.rows
    monkeypatch.setattr(PairScores, 'rows', lambda *args: 0.9 * own(*args))
    assert not check(x, similarity, 10.0, seed=0)['agrees']


@pytest.mark.slow
def test_measure():
    rows = measure(REQUEST | {'scales': [1.0, 10.0], 'limit': 1e9})
    assert [row['scale'] for row in rows] == [1, 10]
    for row in rows:
        assert row['agrees']
        assert {'race', 'stream', 'dense'} <= row['methods'].keys()
        for part in row['methods'].values():
            assert [len(part[task]) for task in sharp.TASKS] == [2, 2]
            assert part['memory_mb'] == 1.0
        # A race that 'auto' takes is measured once.
        assert ('auto' in row['methods']) == (row['plan']['method'] != 'race')
        assert row['is_fastest'] in (True, False)
        assert row['gather_fraction'] > 0


def test_beyond_the_limit_a_step_is_predicted():
    (row,) = measure(REQUEST | {'scales': [1.0], 'limit': 1e-9})
    methods = row['methods']
    for name in ('race', 'stream'):
        assert methods[name]['skipped'].startswith('a step takes about')
        assert methods[name]['predicted'] > 0
        assert 'step' not in methods[name]
    assert 'is_fastest' not in row
    assert '~' in markdown([row])


def table_row(scale=10.0, num_nodes=1000, plan='race', **seconds):
    return {
        'workload': f'clustered-{num_nodes}',
        'num_nodes': num_nodes,
        'channels': 32,
        'similarity': 'bell',
        'scale': scale,
        'z': 0.5,
        'agrees': True,
        'plan': {'method': plan},
        'gathered_rows': 4e6,
        'gather_rate': 1e7,
        'methods': {
            name: {'step': [value] * 3} if value > 0 else {'predicted': -value}
            for name, value in seconds.items()
        },
    }


@pytest.mark.parametrize(
    ('plan', 'seconds', 'fastest', 'is_fastest'),
    [
        ('race', {'race': 2.0, 'stream': 3.0}, 'race', True),
        ('race', {'race': 2.0, 'stream': -3.0}, 'race', True),
        ('race', {'race': 2.0, 'stream': -1.0}, 'stream', False),
        ('race', {'race': 2.0, 'stream': 1.9}, 'stream', True),
        ('race', {'race': 2.0, 'stream': 1.7}, 'stream', False),
        ('stream', {'auto': 3.5, 'race': 4.0, 'stream': 3.0}, 'stream', True),
        ('stream', {'auto': 3.0, 'race': 2.0, 'stream': 3.0}, 'race', False),
        ('dense', {'auto': 3.0, 'race': 4.0, 'dense': 3.0}, 'dense', True),
    ],
)
def test_summary(plan, seconds, fastest, is_fastest):
    row = summarize(table_row(plan=plan, **seconds))
    assert (row['fastest'], row['is_fastest']) == (fastest, is_fastest)
    assert row['gather_fraction'] == pytest.approx(0.4 / seconds['race'])
    if 'stream' in seconds:
        own = seconds['race' if plan == 'race' else 'auto']
        assert row['stream_ratio'] == pytest.approx(abs(seconds['stream']) / own)


def test_tables():
    rows = [
        summarize(table_row(num_nodes=size, race=size / 1e4, stream=-float(size)))
        for size in (100_000, 1_000_000)
    ]
    assert [entry['ratio'] for entry in growth(rows)] == [10]
    lines = markdown(rows).splitlines()
    assert lines[2].count('|') == lines[0].count('|') == 17
    assert '| 10 | 10 | ~100,000 | - | 10,000 | yes |' in lines[2]
    assert lines[-2:] == [
        "'auto' took the fastest method in 2 of 2 rows.",
        'Growth of clustered, bell, scale 10: 10.0-fold',
    ]
    assert shown(rows)[0][:2] == ['workload', 'similarity']
    assert [row[3:6] for row in shown(rows)[1:]] == [
        ['race', '-', '10'],
        ['race', '-', '100'],
    ]


def test_the_table_of_the_documentation(monkeypatch, capsys):
    root = Path(sharp_table.__file__).parents[1]
    paths = [str(p) for p in sorted(root.glob('benchmark/results/sharp*.json'))]
    chosen = '--csv --scales 1 5 10 40 --similarities bell cosine'
    monkeypatch.setattr('sys.argv', ['sharp_table.py', *paths, *chosen.split()])
    sharp_table.main()
    table = root / 'docs' / '_tables' / 'benchmarks_sharp.csv'
    assert capsys.readouterr().out == table.read_text(encoding='utf-8')


@pytest.mark.parametrize('agrees', [True, False])
def test_main(agrees, monkeypatch, tmp_path, capsys):
    if not agrees:
        monkeypatch.setattr(sharp_agreement, 'STANDARD_ERRORS', -1.0)
    monkeypatch.setattr(sharp, 'ask', lambda function, request: (function(request), 0))
    path = tmp_path / 'sharp.json'
    args = f'--workloads noise-1000 --scales 1 --similarities bell --out {path}'.split()
    if agrees:
        main(args)
    else:
        with pytest.raises(SystemExit, match='1'):
            main(args)
    (row,) = json.loads(path.read_text())['rows']
    assert row['agrees'] is agrees
    assert ('methods' in row) is agrees
    assert ('DISAGREES' in capsys.readouterr().out) is not agrees
