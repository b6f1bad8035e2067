from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def _doctest_names(doctest_namespace: dict[str, object]) -> None:
    """Examples in docstrings take torch as imported, and draw the same numbers."""
    doctest_namespace['torch'] = torch
    torch.manual_seed(0)
