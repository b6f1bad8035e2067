"""The worked example of `CONTRIBUTING.md` runs, and is what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from torch_geometric_gsl import GumbelKNNSampler, Similarity
from torch_geometric_gsl.ops import scores

PAGE = Path(__file__).resolve().parents[1] / 'CONTRIBUTING.md'


@pytest.fixture
def student(monkeypatch: pytest.MonkeyPatch) -> type[Similarity]:
    names: dict[str, Any] = {}
    formula, module = re.findall(
        r'```python\n(.*?)```', PAGE.read_text(encoding='utf-8'), re.DOTALL
    )
    exec(formula, names)
    monkeypatch.setattr(scores, 'student', names['student'], raising=False)
    exec(module, names)
    found: type[Similarity] = names['StudentSimilarity']
    return found


@pytest.mark.skipif(not hasattr(scores, 'Response'), reason='needs the new responses')
def test_a_similarity_of_ones_own(student: type[Similarity]) -> None:
    similarity, x = student(3, v=0.5), torch.randn(2000, 3)
    assert str(similarity) == 'StudentSimilarity(3, v=0.5)'
    z = x[:7].double() / x[:7].double().norm(dim=1, keepdim=True)
    distance = (z.unsqueeze(0) - z.unsqueeze(1)).square().sum(dim=2)
    expected = (1 / (1 + distance / 0.5)).float()
    torch.testing.assert_close(similarity(x[:7]), expected)
    sampler = GumbelKNNSampler(student(3, 8), k=5)
    assert sampler.plan(x).method == 'race'
    sampler(x).edge_weight.square().sum().backward()
    (parameter,) = sampler.parameters()
    assert parameter.grad is not None
    assert float(parameter.grad.abs().max()) > 0
