"""The worked example of `CONTRIBUTING.md` runs, and is what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from torch_geometric_gsl import Similarity
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
