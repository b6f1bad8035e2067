"""Parts that several modules use and one of them registers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch


class SharedPart:
    """Attribute that holds a submodule, or refers to that of another module.

    A module that is registered under two names keeps the parameters of
    :func:`torch.func.functional_call`, which restores those of one name only.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, module: Any, owner: type) -> Any:
        if module is None:
            return self
        if self.name in module._modules:
            return module._modules[self.name]
        return getattr(module._lenders[self.name], self.name)


def share_part(module: Any, name: str, lender: Any) -> None:
    """Use the part of another module, which alone registers it."""
    while name not in lender._modules:
        lender = lender._lenders[name]
    if lender is not module:
        module._modules.pop(name, None)
        # In a dict, which PyTorch does not register.
        module._lenders = {**vars(module).get('_lenders', {}), name: lender}


def named_parts(
    model: torch.nn.Module, memo: set[torch.nn.Module] | None = None, prefix: str = ''
) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yield the submodules of a model by name, then those that others register."""
    memo = set() if memo is None else memo
    registered = [*model.named_modules(memo, prefix)]
    yield from registered
    for path, part in registered:
        for name in vars(part).get('_lenders', ()):
            path_of_part = f'{path}.{name}'.lstrip('.')
            yield from named_parts(getattr(part, name), memo, path_of_part)
