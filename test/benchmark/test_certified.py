import json

import certified
import pytest
from certified import agrees, main, measure

from torch_geometric_gsl.ops.certified import certified_sum

REQUEST = {
    'workload': 'clustered-1000@0.1',
    'seed': 0,
    'repeats': 2,
    'threads': 1,
    'similarities': ['cosine', 'bell'],
    'scales': [20.0],
}


@pytest.fixture(autouse=True)
def _memory(monkeypatch):
    """Measuring it changes how the process allocates from then on."""
    monkeypatch.setattr(certified, 'peak_memory', lambda step, warm_up: 1.0)
    monkeypatch.setattr(certified_sum, '_FEW', 0)


@pytest.mark.parametrize('is_predicted', [False, True])
def test_measure(is_predicted, monkeypatch):
    if is_predicted:
        monkeypatch.setattr(certified, 'WHOLE_UP_TO', 500)
        monkeypatch.setattr(certified, 'SOME', 100)
    rows = measure(REQUEST)
    assert [row['similarity'] for row in rows] == ['cosine', 'bell']
    for row in rows:
        assert row['is_predicted'] is is_predicted
        assert len(row['seconds']) == 2
        # The sums are not those pair by pair.
        assert 0 < row['error'] <= 1e-3
        assert row['time_ratio'] > 0


@pytest.mark.parametrize('error', [1e-4, 2e-3])
def test_main(error, monkeypatch, tmp_path, capsys):
    def ask(function, request):
        return [row | {'error': error} for row in function(request)], 0

    monkeypatch.setattr(certified, 'ask', ask)
    path = tmp_path / 'certified.json'
    args = f'--workloads clustered-1000@0.1 --scales 20 --repeats 1 --out {path}'
    if agrees({'error': error}):
        main(args.split())
    else:
        with pytest.raises(SystemExit, match='an error exceeds the tolerance'):
            main(args.split())
    content = json.loads(path.read_text())
    assert [row['scale'] for row in content['rows']] == [20.0, 20.0]
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith('| clustered-1000@0.1 | bell | 20 |')
    assert f'{error:.1e}' in lines[3]
