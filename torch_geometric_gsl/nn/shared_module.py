"""Modules that several others use and one registers, their twins and modes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import MethodType, SimpleNamespace
from typing import Any

import torch
from torch_geometric.nn.dense.linear import is_uninitialized_parameter


class SharedModule:
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


def share_module(module: Any, name: str, lender: Any) -> None:
    """Use the submodule of another module, which alone registers it."""
    while name not in lender._modules:
        lender = lender._lenders[name]
    if lender is not module:
        module._modules.pop(name, None)
        # In a dict, which PyTorch does not register.
        module._lenders = {**vars(module).get('_lenders', {}), name: lender}


def all_modules(
    model: torch.nn.Module, prefix: str = '', memo: set[torch.nn.Module] | None = None
) -> dict[str, torch.nn.Module]:
    """Return the submodules of a model by name, then those that others register."""
    memo = set() if memo is None else memo
    modules = dict(model.named_modules(memo, prefix))
    for path, module in [*modules.items()]:
        for name in vars(module).get('_lenders', ()):
            shared = getattr(module, name)
            if shared not in memo:
                modules |= all_modules(shared, f'{path}.{name}'.lstrip('.'), memo)
    return modules


@contextmanager
def keep_state(*arguments: Any) -> Iterator[None]:
    """Restore the state of modules passed to a constructor, after it has reset all
    parameters.
    """
    modules = [
        module
        for module in arguments
        if isinstance(module, torch.nn.Module)
        # Lazy parameters have no state yet.
        and not any(map(is_uninitialized_parameter, module.parameters()))
    ]
    states = [
        {name: value.clone() for name, value in module.state_dict().items()}
        for module in modules
    ]
    yield
    for module, state in zip(modules, states, strict=True):
        module.load_state_dict(state)


def twin_of(module: torch.nn.Module) -> Any:
    """Copy a module and its submodules, but share all else that they hold.

    Attributes that are set on the twin are its own, so that threads may share the
    module: parameters and buffers remain those of the module.
    """
    modules = all_modules(module).values()
    twins = {id(submodule): object.__new__(type(submodule)) for submodule in modules}
    for submodule in modules:
        state = {
            name: _replaced(value, twins) for name, value in vars(submodule).items()
        }
        # The modules that lend a submodule may lie outside.
        for name in vars(submodule).get('_lenders', ()):
            lender = SimpleNamespace(**{name: twins[id(getattr(submodule, name))]})
            state['_lenders'] = state['_lenders'] | {name: lender}
        # A compiled call is that of the submodule itself.
        state.pop('_compiled_call_impl', None)
        vars(twins[id(submodule)]).update(state)
    return twins[id(module)]


@contextmanager
def evaluation(module: torch.nn.Module, *, always_copy: bool = False) -> Iterator[Any]:
    """Yield a module in evaluation mode, and compute without gradients inside.

    A module of which a part is in training mode is left as it is, so that threads may
    share it: its twin has the same parameters, buffers and caches. With
    :obj:`always_copy` the caller may also set options of the twin.
    """
    submodules = all_modules(module).values()
    modes = [submodule.training for submodule in submodules]
    parameters = [p for each in submodules for p in each._parameters.values()]
    # The first call of lazy modules changes them, not only their parameters.
    is_lazy = any(map(is_uninitialized_parameter, parameters))
    try:
        if is_lazy:
            for submodule in submodules:
                submodule.training = False
        elif always_copy or any(modes):
            module = twin_of(module)
            for submodule in all_modules(module).values():
                vars(submodule)['training'] = False
        with torch.no_grad():
            yield module
    finally:
        for submodule, mode in zip(submodules, modes, strict=True) if is_lazy else ():
            submodule.training = mode


def _replaced(value: Any, twins: dict[int, Any]) -> Any:
    """Replace a module, or those in a container or of a bound function, by twins."""
    if id(value) in twins:
        return twins[id(value)]
    if isinstance(value, MethodType) and id(value.__self__) in twins:
        return MethodType(value.__func__, twins[id(value.__self__)])
    if type(value) is partial:
        args = _replaced(value.args, twins)
        return partial(_replaced(value.func, twins), *args, **value.keywords)
    if type(value) not in (dict, OrderedDict, list, tuple):
        return value
    items = value.values() if isinstance(value, dict) else value
    if not any(id(item) in twins for item in items):
        return value
    replaced = [twins.get(id(item), item) for item in items]
    if isinstance(value, dict):
        return type(value)(zip(value, replaced, strict=True))
    return type(value)(replaced)
