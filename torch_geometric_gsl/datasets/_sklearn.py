from __future__ import annotations

from importlib import import_module
from typing import Any


def import_sklearn(module: str, user: str) -> Any:
    """Import a module of scikit-learn, which is an optional dependency."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"'{user}' needs scikit-learn: install the extra "
            "'torch_geometric_gsl[datasets]'"
        ) from error
