import json
import math

import laws
import pytest
import torch
from laws import (
    ERROR_RATE,
    Comparison,
    Setting,
    bonferroni_bound,
    compare,
    main,
    run_setting,
    verdict,
)
from scipy import stats

REPEATS = 20
SHORT = ['--repeats', '20', '--similarities', 'linear', '--tau', '0.5', '--scale', '1']


@pytest.fixture
def found(monkeypatch):
    """The z-scores of each setting in place of those of a run."""
    z = {'loss': [1.0], 'entropy': [1.0], 'gradient': [0, -1.0]}

    def run(setting, repeats, seed):
        parts = {name: Comparison(values, values) for name, values in z.items()}
        numbers = {'num_sources': 2, 'num_targets': 1, 'variance_ratio': 1.0}
        return setting._asdict() | numbers | parts

    monkeypatch.setattr(laws, 'run_setting', run)
    return z


@pytest.mark.parametrize(
    ('name', 'values', 'is_failure'),
    [
        ('loss', [1.0], False),
        ('loss', [-99.0], True),
        ('gradient', [0.0, 99.0], True),
        ('gradient', [0.0, math.nan], True),
        ('gradient', [0.0, math.inf], True),
        ('entropy', [99.0], False),
        ('entropy_stream', [99.0], True),
    ],
)
def test_exit_status(name, values, is_failure, found, tmp_path, capsys):
    found[name] = values
    args = [*SHORT, '--out', str(tmp_path / 'laws.json')]
    if is_failure:
        with pytest.raises(SystemExit, match='1'):
            main(args)
    else:
        main(args)
    # What was measured is kept in any case: one row relaxed and one hard.
    rows = json.loads((tmp_path / 'laws.json').read_text())['rows']
    plain = [value if math.isfinite(value) else None for value in values]
    assert [row[name]['z'] for row in rows] == [plain, plain]
    assert '| linear | 0.5 | 1 | relaxed | 2 | 1 |' in capsys.readouterr().out


@pytest.mark.parametrize('hard', [False, True])
def test_run_setting(hard):
    torch.manual_seed(1)  # It takes seeds of its own.
    row = run_setting(Setting('neural_gaussian', 0.25, 1.0, hard), 20, seed=0)
    names = {name for name, part in row.items() if isinstance(part, Comparison)}
    scalars = {'similarity_mean', 'largest', 'entropy', 'entropy_stream'}
    assert names == {'loss', 'gradient'} | (set() if hard else scalars)
    assert row['num_sources'] > row['num_targets'] > 0
    # Once in a million runs of a correct race an entry is as large; the seed is fixed.
    assert max(row[name].largest for name in ('loss', 'gradient')) < 8


def row(**z):
    found = {
        name: Comparison(values, [0.0] * len(values)) for name, values in z.items()
    }
    return found | {'similarity': 'linear', 'variance_ratio': 1.5}


@pytest.mark.parametrize('degrees', [18, 98, 1998])
@pytest.mark.parametrize('count', [1, 100, 5000])
def test_bonferroni_bound_is_students_quantile(count, degrees):
    exact = stats.t(degrees).isf(ERROR_RATE / count / 2)
    # What the first order leaves out is of the second, and positive.
    assert 0 < 1 - bonferroni_bound(count, degrees) / exact < 35 / degrees**2


def test_compare():
    dense = torch.tensor([[1.0, 4], [3, 4], [5, 7]], dtype=torch.float64)
    race = torch.tensor([[4.0, 1], [6, 2]], dtype=torch.float64)
    found = compare(dense, race)
    errors = [math.sqrt(4 / 3 + 2 / 2), math.sqrt(3 / 3 + 0.5 / 2)]
    assert found.z == pytest.approx([2 / errors[0], -3.5 / errors[1]])
    assert found.difference == pytest.approx([2 / 3, -3.5 / 5])
    assert found.largest == pytest.approx(3.5 / errors[1])
    assert found.rms == pytest.approx(math.hypot(*found.z) / math.sqrt(2))


@pytest.mark.parametrize(
    ('dense', 'race', 'z'),
    [
        (0.0, 0.0, 0.0),
        (2.5, 2.5, 0.0),
        (0.0, 1.0, math.inf),
        (2.0, 1.0, -math.inf),
        (math.nan, 0.0, math.nan),
        (0.0, math.nan, math.nan),
    ],
)
def test_constants(dense, race, z):
    found = compare(*(torch.full((3, 1), value) for value in (dense, race)))
    assert found.z == pytest.approx([z], nan_ok=True)


def test_verdict():
    bound = bonferroni_bound(5, 2 * (REPEATS // 2 - 1))
    below, over = bound - 1e-9, bound + 1e-9
    rows = [row(loss=[below, 0.0], entropy=[-over]), row(loss=[-below, 0.1])]
    found, above, text = verdict(rows, REPEATS)
    assert found == bound
    assert above == {'entropy'}
    lines = text.splitlines()
    assert f'5 two-sided comparisons with {REPEATS} graphs' in lines[0]
    assert lines[1:] == [
        f'- loss: all below the bound (of 4; largest |z| {bound:.2f})',
        f'- entropy: 1 ABOVE THE BOUND, as documented (of 1; largest |z| {bound:.2f})',
        '- gradient variance ratio: 1.500 on average',
    ]


@pytest.mark.parametrize('value', [1e3, -1e3, math.inf, math.nan])
def test_what_exceeds_the_bound(value):
    _, above, text = verdict([row(loss=[0.0], gradient=[0.0, value])], REPEATS)
    assert above == {'gradient'}
    assert '- gradient: 1 ABOVE THE BOUND (of 2; largest' in text
