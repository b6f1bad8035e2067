"""The worked example of `CONTRIBUTING.md` runs, and is what it says."""

import re
from pathlib import Path

import torch

from torch_geometric_gsl import GumbelKNNSampler
from torch_geometric_gsl.ops import scores

PAGE = Path(__file__).resolve().parents[1] / 'CONTRIBUTING.md'


def test_a_similarity_of_ones_own(monkeypatch):
    names = {}
    formula, module = re.findall(
        r'```python\n(.*?)```', PAGE.read_text(encoding='utf-8'), re.DOTALL
    )
    exec(formula, names)
    monkeypatch.setattr(scores, 'student', names['student'], raising=False)
    exec(module, names)
    student, x = names['StudentSimilarity'], torch.randn(2000, 3)
    assert str(student(3, v=0.5)) == 'StudentSimilarity(3, v=0.5)'
    z = torch.nn.functional.normalize(x[:7])
    expected = 1 / (1 + torch.cdist(z, z).square() / 0.5)
    torch.testing.assert_close(student(3, v=0.5)(x[:7]), expected)
    sampler = GumbelKNNSampler(student(3, 8), k=5)
    assert sampler.plan(x).method == 'race'
    sampler(x).edge_weight.square().sum().backward()
    (parameter,) = sampler.parameters()
    assert bool(parameter.grad.any())
