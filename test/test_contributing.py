"""The worked example of `CONTRIBUTING.md` runs, and is what it says."""

import re
from pathlib import Path

import pytest
import torch
from oracles import seeded

from torch_geometric_gsl import GumbelKNNSampler

PAGE = Path(__file__).resolve().parents[1] / 'CONTRIBUTING.md'


@pytest.fixture(scope='module')
def student():
    names = {}
    (file,) = re.findall(
        r'```python\n(.*?)```', PAGE.read_text(encoding='utf-8'), re.DOTALL
    )
    exec(file, names)
    return names['StudentSimilarity']


def test_its_scores(student):
    x = torch.randn(7, 3)
    assert str(student(3, v=0.5)) == 'StudentSimilarity(3, v=0.5)'
    z = torch.nn.functional.normalize(x)
    expected = 1 / (1 + torch.cdist(z, z).square() / 0.5)
    torch.testing.assert_close(student(3, v=0.5)(x), expected)


@pytest.mark.parametrize('method', ['race', 'stream', 'dense', 'pool', 'auto'])
@pytest.mark.parametrize('scale', [1.0, 10.0])
def test_all_methods_draw_its_neighbours(student, method, scale, monkeypatch):
    monkeypatch.setenv('TORCH_COMPILE_DISABLE', '1')  # It takes longer than the draws.
    x = torch.randn(2000, 3, generator=seeded())
    sampler = GumbelKNNSampler.paper(student(3, 8), k=5, scale=scale, method=method)
    if method == 'auto':
        assert sampler.plan(x).method == 'race'
        # Sharp scores are bounded by clusters, or by lists of the nearest.
        assert ('clusters' in sampler.plan(x).reason) is (scale > 1)
    sampler(x).edge_weight.square().sum().backward()
    (parameter,) = sampler.parameters()
    assert bool(parameter.grad.any())
    out = sampler.eval().propagate(x, x)
    torch.testing.assert_close(
        out, (sampler.similarity(x) * scale / sampler.tau).softmax(1) @ x
    )
