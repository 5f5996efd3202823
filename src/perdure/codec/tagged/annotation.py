"""What an annotation means for a stored value.

`handed_in` collects the classes an annotation names, so that a value of such a class can be
stored and read even where the class cannot be found by name. `adapt` turns plain JSON, as it
comes from a command line or over HTTP, into what the annotation asks for. A value that already
fits is left alone: ``Sequence[int]`` keeps a tuple a tuple, and ``float`` keeps ``1`` an integer.
"""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal, NewType, Union, get_args, get_origin, is_typeddict

import msgspec

from perdure.codec.tagged.classes import NONE_HANDED, Handed
from perdure.codec.tagged.record import kind_of

__all__ = ["adapt", "convert", "fits", "handed_in", "hints_of"]


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


def handed_in(annotation: Any) -> Handed:
    """Return the classes an annotation names, itself or through fields of its classes."""
    if annotation is Any:
        return NONE_HANDED
    try:
        return _handed_in(annotation)
    except TypeError:  # Unhashable, such as Annotated[int, []].
        return _collected(annotation)


@lru_cache(maxsize=2048)
def _handed_in(annotation: Any) -> Handed:
    return _collected(annotation)


def _collected(annotation: Any) -> Handed:
    found: set[type] = set()
    _collect(annotation, found)
    return Handed(found) if found else NONE_HANDED


def _collect(annotation: Any, found: set[type]) -> None:
    annotation = _bare(annotation)
    for argument in get_args(annotation):
        if not isinstance(argument, str):  # A member of Literal.
            _collect(argument, found)
    cls = annotation if isinstance(annotation, type) else get_origin(annotation)
    if not isinstance(cls, type) or cls in found:
        return
    if is_typeddict(cls):
        for hint in hints_of(cls).values():
            _collect(hint, found)
    elif kind_of(cls) is not None:
        found.add(cls)
        for hint in hints_of(cls).values():
            _collect(hint, found)


def _bare(annotation: Any) -> Any:
    """Return an annotation without the wrappers that do not change which values fit."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif isinstance(annotation, NewType):
            annotation = annotation.__supertype__
        elif hasattr(annotation, "__value__"):  # ``type X = ...`` of Python 3.12.
            annotation = annotation.__value__
        else:
            return annotation


def fits(value: Any, annotation: Any) -> bool:
    """Tell whether a value is what an annotation describes; unknown annotations fit anything.

    Instances of user classes are not looked into.
    """
    annotation = _bare(annotation)
    if annotation is None:
        return value is None
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return _fits_class(value, annotation)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Union or origin is types.UnionType:
        return any(fits(value, argument) for argument in arguments)
    if origin is Literal:
        return any(value == item and type(value) is type(item) for item in arguments)
    if not isinstance(origin, type):
        return True
    if not isinstance(value, origin):
        return False
    return _items_fit(value, origin, arguments)


def _fits_class(value: Any, cls: type) -> bool:
    if is_typeddict(cls):
        if not isinstance(value, dict):
            return False
        hints = hints_of(cls)
        return all(fits(item, hints[name]) for name, item in value.items() if name in hints)
    if cls is float or cls is complex:  # PEP 484: an int will do.
        return isinstance(value, (int, cls))
    try:
        return isinstance(value, cls)
    except TypeError:  # A protocol that cannot be checked.
        return True


def _items_fit(value: Any, origin: type, arguments: tuple[Any, ...]) -> bool:
    if not arguments:
        return True
    if issubclass(origin, Mapping):
        return len(arguments) != 2 or all(  # noqa: PLR2004 - key and value
            fits(key, arguments[0]) and fits(item, arguments[1]) for key, item in value.items()
        )
    if origin is tuple and arguments[-1] is not Ellipsis:
        return len(value) == len(arguments) and all(map(fits, value, arguments))
    if isinstance(value, (list, tuple, set, frozenset)):
        return all(fits(item, arguments[0]) for item in value)
    return True


def adapt(value: Any, annotation: Any) -> Any:
    """Return the value as the annotation wants it, or as it is where that cannot be done.

    A stored value is exact already, so an annotation that does not match it is the annotation's
    mistake and never a reason to lose the value.
    """
    if annotation is Any or fits(value, annotation):
        return value
    try:
        return convert(value, annotation)
    except Exception:  # noqa: BLE001 - validators are user code
        return value


def convert(value: Any, annotation: Any) -> Any:
    """Return plain JSON as the annotation wants it.

    Raises:
        msgspec.ValidationError: It is something else; the text names the place.
        TypeError: The annotation is one that JSON cannot be checked against.
        Exception: A validator of a user class raised it.
    """
    return msgspec.convert(value, annotation, strict=True, dec_hook=_convert_model)


def _convert_model(cls: Any, value: Any) -> Any:
    """Convert to a class that msgspec does not know: a pydantic model, or no class for JSON."""
    if isinstance(cls, type) and isinstance(value, cls):
        return value
    validate = getattr(cls, "model_validate", None)
    if validate is None:
        raise TypeError(f"{cls!r} cannot be made from JSON")
    return validate(value)
