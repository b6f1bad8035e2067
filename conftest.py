from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch

# Where its library is missing, its doctests cannot be looked for.
collect_ignore = [] if find_spec('yacs') else ['torch_geometric_gsl/graphgym.py']


@pytest.fixture(autouse=True)
def _doctest_names(doctest_namespace: dict[str, object]) -> None:
    """Examples in docstrings take torch as imported, and draw the same numbers."""
    doctest_namespace['torch'] = torch
    torch.manual_seed(0)
