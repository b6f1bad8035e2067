"""The comparison of a device with the CPU, which must see what differs."""

import copy
import json
from types import SimpleNamespace

import gpu
import pytest
import torch

CPU = torch.device('cpu')


@pytest.mark.parametrize('method', gpu.METHODS)
def test_a_method_equals_itself(method):
    for form in ('all', 'pair', 'batch'):
        differences = gpu.check_method(CPU, method, 'mixture', form, 30)
        assert differences['different_targets'] == 0
        assert max(differences['errors']) == 0


@pytest.mark.parametrize('is_learned', [False, True])
def test_another_sampler_is_seen(monkeypatch, is_learned):
    def perturbed(sampler):
        sampler = copy.deepcopy(sampler)
        if is_learned:
            sampler.similarity.w_b.data.mul_(1.5)
        else:
            sampler.k = 2
        return sampler

    monkeypatch.setattr(gpu, 'copy', SimpleNamespace(deepcopy=perturbed))
    with pytest.raises(AssertionError, match='have other neighbours'):
        gpu.check_method(CPU, 'race', 'neural_gaussian', 'all', 30)


def test_another_gradient_is_seen():
    graph, out, grad = torch.eye(3), torch.ones(3, 2), torch.ones(3)
    gpu.compare([graph, out, grad], [graph, out, grad])
    with pytest.raises(AssertionError, match='errors of sum and gradients'):
        gpu.compare([graph, out, grad], [graph, out, 1.01 * grad])


def test_a_failed_check_is_recorded(monkeypatch, tmp_path):
    def fail():
        raise RuntimeError('no kernel image')

    checks = [('good', lambda: {'errors': [0.0]}), ('bad', fail)]
    monkeypatch.setattr(gpu, 'checks', lambda device, is_small: checks)
    out = tmp_path / 'gpu.json'
    monkeypatch.setattr('sys.argv', ['gpu.py', '--device', 'cpu', '--out', str(out)])
    assert gpu.main() == 1
    results = json.loads(out.read_text())['checks']
    assert results['good'] == {'errors': [0.0]}
    assert 'no kernel image' in results['bad']['failed'][-1]
