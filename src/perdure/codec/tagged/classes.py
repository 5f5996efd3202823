"""Names of classes, and the one way from a stored name back to a class.

A stored name is looked up, never imported: first among the classes an annotation hands in,
then in modules that are already imported, reading their dictionaries directly so that neither a
module's ``__getattr__`` nor a lazy loader nor a descriptor can run.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

__all__ = ["NONE_HANDED", "Handed", "find_imported", "name_of", "type_name"]


def name_of(cls: type) -> str:
    """Return the stored name of a class, ``module:qualified.name``."""
    return f"{cls.__module__}:{cls.__qualname__}"


def type_name(cls: type) -> str:
    """Return the name of a class as messages show it."""
    if cls.__module__ == "builtins":
        return cls.__qualname__
    return f"{cls.__module__}.{cls.__qualname__}"


def find_imported(name: str) -> type | None:
    """Return the class a stored name means, if its module is imported already."""
    module_name, _, path = name.partition(":")
    module = sys.modules.get(module_name)
    if not issubclass(type(module), ModuleType):
        return None
    # object.__getattribute__: a lazily loaded module imports itself on ordinary access.
    names: dict[str, Any] = object.__getattribute__(module, "__dict__")
    found = names.get(path)
    if found is None and "." in path:
        found = _nested(names, path)
    return found if issubclass(type(found), type) else None


def _nested(names: Mapping[str, Any], path: str) -> Any:
    first, *rest = path.split(".")
    found = names.get(first)
    for part in rest:
        if not issubclass(type(found), type):
            return None
        found = type.__dict__["__dict__"].__get__(found).get(part)
    return found


class Handed:
    """The classes an annotation names, itself or through fields of its classes."""

    __slots__ = ("_by_name", "_by_path")

    def __init__(self, classes: set[type]) -> None:
        self._by_name: dict[str, type] = {}
        self._by_path: dict[str, type | None] = {}
        for cls in classes:
            self._by_name[name_of(cls)] = cls
            path = cls.__qualname__
            # Two classes of one name: the path alone no longer tells which is meant.
            self._by_path[path] = None if path in self._by_path else cls

    def __contains__(self, cls: type) -> bool:
        return self._by_name.get(name_of(cls)) is cls

    def find(self, name: str) -> type | None:
        """Return the class for a stored name, handed in or else already imported.

        A handed-in class is also found when only its module's name differs: the file may have
        been run as ``__main__``, or moved since.
        """
        found = self._by_name.get(name)
        if found is None and (found := find_imported(name)) is None:
            found = self._by_path.get(name.partition(":")[2])
        return found


NONE_HANDED = Handed(set())
"""What an absent annotation hands in."""
