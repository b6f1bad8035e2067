"""The worked example of `CONTRIBUTING.md` runs, and is what it says."""

import re
from pathlib import Path

import pytest

from torch_geometric_gsl.ops import scores

PAGE = Path(__file__).resolve().parents[1] / 'CONTRIBUTING.md'


@pytest.fixture
def student(monkeypatch):
    names = {}
    formula, module = re.findall(
        r'```python\n(.*?)```', PAGE.read_text(encoding='utf-8'), re.DOTALL
    )
    exec(formula, names)
    monkeypatch.setattr(scores, 'student', names['student'], raising=False)
    exec(module, names)
    found = names['StudentSimilarity']
    return found
