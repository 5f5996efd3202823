"""Annotations of functions and classes, resolved as far as they can be."""

from __future__ import annotations

import sys
import types
import typing
from typing import Any

__all__ = ["hints_of"]


def hints_of(owner: Any) -> dict[str, Any]:
    """Return the resolved annotations of a function or class; what cannot be resolved is `Any`."""
    try:
        return typing.get_type_hints(owner, include_extras=True)
    except Exception:  # noqa: BLE001 - an annotation may be any expression
        holders = reversed(owner.__mro__) if isinstance(owner, type) else (owner,)
        return {
            name: _resolve(name, annotation, holder)
            for holder in holders
            for name, annotation in getattr(holder, "__annotations__", {}).items()
        }


def _resolve(name: str, annotation: Any, holder: Any) -> Any:
    if isinstance(holder, type):
        module = sys.modules.get(holder.__module__)
        names = dict(vars(module)) if module is not None else {}
    else:
        names = {**getattr(holder, "__globals__", {}), **_closure(holder)}
    probe = types.SimpleNamespace(__annotations__={name: annotation})
    try:
        return typing.get_type_hints(probe, globalns=names, include_extras=True)[name]
    except Exception:  # noqa: BLE001 - an annotation may be any expression
        return Any


def _closure(function: Any) -> dict[str, Any]:
    """Return what a nested function sees of the function around it."""
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    found = {}
    for name, cell in zip(names, getattr(function, "__closure__", None) or (), strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # Not assigned yet.
            continue
    return found
