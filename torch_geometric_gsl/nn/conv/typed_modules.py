"""Modules and parameters by type of node or edge, whatever a type is called."""

from __future__ import annotations

from typing import Any

from torch_geometric.nn.module_dict import ModuleDict
from torch_geometric.nn.parameter_dict import ParameterDict

# A name within a module must not be that of an attribute, nor hold a dot.
_ESCAPES = {'%': '%25', '.': '%2E', '|': '%7C'}


class _TypedNames:
    """Keep each type under a name that no other type and no attribute has.

    PyG's own classes let types such as "training" clash with attributes, and "a.b" with
    "a#b".
    """

    def __init__(self, items: dict[Any, Any]) -> None:
        super().__init__()
        for key, value in items.items():
            self[key] = value  # type: ignore[index]

    @classmethod
    def to_internal_key(cls, key: str | tuple[str, ...]) -> str:
        parts = key if isinstance(key, tuple) else (key,)
        return ':' + '|'.join(''.join(_ESCAPES.get(c, c) for c in p) for p in parts)

    @classmethod
    def to_external_key(cls, key: str) -> str | tuple[str, ...]:
        parts = key[1:].split('|')
        for character, escape in reversed(_ESCAPES.items()):
            parts = [part.replace(escape, character) for part in parts]
        return tuple(parts) if len(parts) > 1 else parts[0]


class TypedModules(_TypedNames, ModuleDict):
    """Modules by type."""


class TypedParameters(_TypedNames, ParameterDict):
    """Parameters by type."""

    def values(self) -> list[Any]:
        return [self[key] for key in self.keys()]

    def items(self) -> list[tuple[Any, Any]]:
        return [(key, self[key]) for key in self.keys()]
