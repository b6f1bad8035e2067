import json
import math

import laws
import pytest
from laws import (
    ERROR_RATE,
    Comparison,
    bonferroni_bound,
    main,
    verdict,
)
from scipy import stats

REPEATS = 20
SHORT = ['--repeats', '20', '--similarities', 'linear', '--tau', '0.5', '--scale', '1']


@pytest.fixture
def scores(monkeypatch):
    """The z-scores of each setting in place of those of a run."""
    z = {'loss': [1.0], 'entropy': [1.0], 'gradient': [0, -1.0]}

    def run(setting, repeats, seed):
        comparisons = {name: Comparison(values, values) for name, values in z.items()}
        numbers = {'num_sources': 2, 'num_targets': 1, 'variance_ratio': 1.0}
        return setting._asdict() | numbers | comparisons

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
def test_exit_status(name, values, is_failure, scores, tmp_path, capsys):
    scores[name] = values
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


def row(**z):
    comparisons = {
        name: Comparison(values, [0.0] * len(values)) for name, values in z.items()
    }
    return comparisons | {'similarity': 'linear', 'variance_ratio': 1.5}


@pytest.mark.parametrize('degrees', [18, 98, 1998])
@pytest.mark.parametrize('count', [1, 100, 5000])
def test_bonferroni_bound_is_students_quantile(count, degrees):
    exact = stats.t(degrees).isf(ERROR_RATE / count / 2)
    # What the first order leaves out is of the second, and positive.
    assert 0 < 1 - bonferroni_bound(count, degrees) / exact < 35 / degrees**2


@pytest.mark.parametrize('value', [1e3, -1e3, math.inf, math.nan])
def test_what_exceeds_the_bound(value):
    _, above, text = verdict([row(loss=[0.0], gradient=[0.0, value])], REPEATS)
    assert above == {'gradient'}
    assert '- gradient: 1 ABOVE THE BOUND (of 2; largest' in text
