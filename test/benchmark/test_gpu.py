import json
import os
import subprocess
import sys
from pathlib import Path

import gpu
import gpu_checks
import gpu_tables
import gpu_times
import pytest
import torch
from gpu_frame import Part

ROOT = Path(gpu.__file__).resolve().parents[1]
KEYS = {'command', 'seed', 'git_commit', 'torch', 'triton', 'card', 'checks', 'times'}
# Blocks the libraries that a bare machine lacks, then runs the script.
BARE = """
import runpy, sys
OPTIONAL = ('torch_scatter', 'torch_sparse', 'sklearn', 'pandas', 'scipy', 'pytest')
sys.modules |= dict.fromkeys(OPTIONAL)
sys.path.insert(0, 'benchmark')
sys.argv[0] = 'benchmark/gpu.py'
runpy.run_path(sys.argv[0], run_name='__main__')
"""


def run(tmp_path, *args):
    path = tmp_path / 'gpu.json'
    gpu.main(['--small', '--device', 'cpu', '--out', str(path), *args])
    return json.loads(path.read_text())


def use(monkeypatch, checks, times=()):
    monkeypatch.setattr(gpu_checks, 'parts', lambda setup: checks)
    monkeypatch.setattr(gpu_times, 'parts', lambda setup: times)


@pytest.mark.slow
def test_a_bare_machine(tmp_path):
    path = tmp_path / 'gpu.json'
    args = ['--small', '--device', 'cpu', '--out', str(path)]
    environment = {'TORCH_COMPILE_DISABLE': '1', 'OMP_NUM_THREADS': '1'}
    done = subprocess.run(
        [sys.executable, '-c', BARE, *args],
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if k != 'PYTHONPATH'} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(path.read_text())
    assert set(found) >= KEYS
    assert found['checks']['law']['p'] > gpu_checks.ERROR_RATE
    assert len(found['checks']) > 50
    step = found['times']['1500 rows: sharp step']
    assert step['min'] <= step['median'] <= step['max']
    assert step['ratio'] > 0
    assert step['bytes_per_second'] == step['bytes'] / step['median']
    assert step['share_of_copy'] > 0
    epoch = found['times']['1500 rows, table epoch: PyTorch']
    assert epoch['steps'] == 12
    assert epoch['ratio'] > 0
    assert epoch['share_of_product'] > 0


def test_a_broken_kernel_is_found(tmp_path, monkeypatch, capsys):
    # Twice the weight of what is drawn, on the device alone.
    setup = gpu.Setup(torch.device('cpu'), True, 0)
    checks = list(gpu_checks.parts(setup))[:2]
    broken = gpu_checks.outputs

    def doubled(sampler, x, mask):
        is_ours = sampler.budget.memory != 2**18
        return [(1 + is_ours) * out for out in broken(sampler, x, mask)]

    monkeypatch.setattr(gpu_checks, 'outputs', doubled)
    use(monkeypatch, checks)
    with pytest.raises(SystemExit, match='1'):
        run(tmp_path)
    first, second = json.loads((tmp_path / 'gpu.json').read_text())['checks'].values()
    assert 'targets have other neighbours' in first['error']
    assert 'Traceback' in first['traceback']
    assert second['status'] == 'passed'  # The next one runs.
    assert '1 failed\n  race: linear' in capsys.readouterr().out


def test_a_broken_sum_over_a_pool_is_found(monkeypatch):
    setup = gpu.Setup(torch.device('cpu'), True, 0)
    check, *others = gpu_tables.checks(setup)
    assert max(check.run(setup)['differences']) < gpu_tables.RTOL
    assert others[0].run(setup)['status'] == 'skipped'  # A CPU draws by a generator.
    exact = gpu_tables.pool.pool_sum
    monkeypatch.setattr(
        gpu_tables.pool, 'pool_sum', lambda *args, **options: 2 * exact(*args)
    )
    with pytest.raises(AssertionError, match='relative difference'):
        check.run(setup)


def test_the_rest_runs_in_a_new_process(tmp_path, monkeypatch):
    path, calls = tmp_path / 'gpu.json', []
    use(monkeypatch, [Part('lost', lambda setup: 1 / 0), Part('next', lambda s: {})])
    monkeypatch.setattr(gpu, 'is_lost', lambda device: True)

    def execute(program, argv):
        calls.append(argv)
        assert json.loads(path.read_text())['checks']['lost']['status'] == 'failed'
        raise KeyboardInterrupt

    monkeypatch.setattr(gpu.os, 'execv', execute)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path)
    assert calls[0][-1] == '--resume'
    with pytest.raises(SystemExit, match='1'):
        run(tmp_path, '--resume')
    found = json.loads(path.read_text())['checks']
    assert [part['status'] for part in found.values()] == ['failed', 'passed']
