import json

import estimate
import pytest
from estimate import agrees, main, measure

from torch_geometric_gsl.nn.sampler import evaluation


@pytest.fixture(autouse=True)
def _memory(monkeypatch):
    """Measuring it changes how the process allocates from then on."""
    monkeypatch.setattr(estimate, 'peak_memory', lambda step, warm_up: 1.0)


def test_measure(monkeypatch):
    drawn = set()

    def spy(h, scorer, tau, count, **kwargs):
        drawn.add(count)
        return own(h, scorer, tau, count, **kwargs)

    own = evaluation.sampled_noise_free_sum
    monkeypatch.setattr(evaluation, 'sampled_noise_free_sum', spy)
    request = {'size': 2000, 'seed': 0, 'repeats': 5}
    rows = measure(request | {'samples': [5000, 1500, 1024, 2000]})
    assert [row['num_sources'] for row in rows] == [1024, 1500, 2000]
    assert drawn == {1024, 1500}
    # As many rounds as asked for, however long they take.
    assert [len(row['seconds']) for row in rows] == [5, 5, 5]
    assert all(map(agrees, rows))


@pytest.mark.parametrize(
    ('actual', 'expected'), [(0.49, False), (0.51, True), (1.9, True), (2.1, False)]
)
def test_agrees(actual, expected):
    assert agrees({'actual_error': 3 * actual, 'announced_error': 3.0}) is expected
    assert agrees({'announced_error': 3.0})  # Without an exact sum nobody knows.


@pytest.mark.parametrize('factor', [1.0, 9.0])
def test_main(factor, monkeypatch, tmp_path, capsys):
    def ask(function, request):
        rows = function(request)
        rows[0]['actual_error'] *= factor
        return rows, 0

    monkeypatch.setattr(estimate, 'ask', ask)
    path = tmp_path / 'estimate.json'
    args = f'--sizes 1500 2000 --samples 1024 1800 --repeats 1 --out {path}'.split()
    if factor == 1:
        main(args)
    else:
        with pytest.raises(SystemExit, match='not of the size of the announced one'):
            main(args)
    content = json.loads(path.read_text())
    counts = [(row['num_nodes'], row['num_sources']) for row in content['rows']]
    assert counts == [(1500, 1024), (1500, 1500)] + [
        (2000, count) for count in (1024, 1800, 2000)
    ]
    table = capsys.readouterr().out.splitlines()[2:7]
    cells = [tuple(line.split(' | ')[:2]) for line in table]
    assert cells[:2] == [('| 1,500', '1,024'), ('| 1,500', 'all')]
    assert cells[2:] == [('| 2,000', n) for n in ('1,024', '1,800', 'all')]
