"""What an annotation means for a stored value.

A `Plan` holds what one annotation needs, worked out once: the classes it hands in, so that their
instances can be stored and read even where the class cannot be found by name; and whether plain
JSON, as it comes from a command line or over HTTP, has to be turned into something else. A value
that already fits is left alone: ``Sequence[int]`` keeps a tuple a tuple, and ``float`` keeps ``1``
an integer.
"""

from __future__ import annotations

import types
from collections.abc import Collection, Iterable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NewType,
    Union,
    get_args,
    get_origin,
    is_typeddict,
)

import msgspec

from perdure.codec.tagged.classes import NONE_HANDED, Handed
from perdure.codec.tagged.hints import hints_of
from perdure.codec.tagged.record import kind_of

__all__ = ["Plan", "convert", "fits", "plan_of"]

_PLAIN: Final = frozenset({Any, object, None, type(None), str, int, float, bool, list, dict})
_ARRAYS: Final = frozenset({list, Sequence, MutableSequence, Collection, Iterable})
_OBJECTS: Final = frozenset({dict, Mapping, MutableMapping})
_MOST_PLANS: Final = 4096


class Plan:
    """What one annotation means.

    Attributes:
        annotation: The annotation.
        handed: The classes it names, itself or through fields of its classes.
        idle: Whether `adapt` returns every value as it is.
    """

    __slots__ = ("_cls", "_members", "annotation", "handed", "idle")

    def __init__(self, annotation: Any) -> None:
        self.annotation: Any = annotation
        found: set[type] = set()
        _collect(annotation, found)
        self.handed: Handed = Handed(found) if found else NONE_HANDED
        bare = _bare(annotation)
        self._cls = bare if isinstance(bare, type) and get_origin(bare) is None else None
        members = hints_of(bare) if is_typeddict(bare) else {}
        self._members = {name: Plan(hint) for name, hint in members.items()}
        self.idle: bool = all(map(_is_plain, members.values())) if members else _is_plain(bare)

    def adapt(self, value: Any) -> Any:
        """Return the value as the annotation wants it, or as it is where that cannot be done.

        A stored value is exact already, so an annotation that does not match it is the
        annotation's mistake and never a reason to lose the value.
        """
        if self.idle or type(value) is self._cls:
            return value
        if self._members and type(value) is dict:
            for name, plan in self._members.items():
                if name in value and not plan.idle:
                    value[name] = plan.adapt(value[name])
            return value
        if fits(value, self.annotation):
            return value
        try:
            return convert(value, self.annotation)
        except Exception:  # noqa: BLE001 - validators are user code
            return value


# By identity first: many annotations are slow to hash and some cannot be. Each entry keeps its
# annotation alive, so that an identity is not used twice.
_by_identity: dict[int, tuple[Any, Plan]] = {}
_by_value: dict[Any, Plan] = {}


def plan_of(annotation: Any) -> Plan:
    """Return the plan for an annotation."""
    entry = _by_identity.get(id(annotation))
    if entry is not None:
        return entry[1]
    if len(_by_identity) >= _MOST_PLANS:  # Annotations made on the fly.
        _by_identity.clear()
        _by_value.clear()
    try:
        plan = _by_value.get(annotation) or _by_value.setdefault(annotation, Plan(annotation))
    except TypeError:  # Unhashable.
        plan = Plan(annotation)
    _by_identity[id(annotation)] = (annotation, plan)
    return plan


def _collect(annotation: Any, found: set[type]) -> None:
    annotation = _bare(annotation)
    if get_origin(annotation) is not Literal:
        for argument in get_args(annotation):
            _collect(argument, found)
    cls = annotation if isinstance(annotation, type) else get_origin(annotation)
    if not isinstance(cls, type) or cls in found:
        return
    if kind_of(cls) is not None:
        found.add(cls)
    elif not is_typeddict(cls):
        return
    for hint in hints_of(cls).values():
        _collect(hint, found)


def _bare(annotation: Any) -> Any:
    """Return an annotation without the wrappers that do not change which values fit."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif isinstance(annotation, NewType):
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":  # ``type X = ...`` of Python 3.12.
            annotation = annotation.__value__
        else:
            return annotation


def _is_plain(annotation: Any) -> bool:
    """Tell whether JSON that does not fit the annotation cannot be made to fit either."""
    annotation = _bare(annotation)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is None:
        # What is no class is unknown: a type variable, a name that could not be resolved.
        return not isinstance(annotation, type) or annotation in _PLAIN
    if origin is Literal:
        return True
    if origin in (Union, types.UnionType) or origin in _ARRAYS:
        return all(_is_plain(argument) for argument in arguments)
    if origin in _OBJECTS:
        key, item = (*arguments, Any, Any)[:2]
        return _bare(key) in (str, Any, object) and _is_plain(item)
    return False


def fits(value: Any, annotation: Any) -> bool:
    """Tell whether a value is what an annotation describes; unknown annotations fit anything.

    Instances of user classes are not looked into.
    """
    annotation = _bare(annotation)
    if annotation is None:
        return value is None
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is None:
        return not isinstance(annotation, type) or _fits_class(value, annotation)
    if origin in (Union, types.UnionType):
        return any(fits(value, argument) for argument in arguments)
    if origin is Literal:
        return any(value == item and type(value) is type(item) for item in arguments)
    if not isinstance(origin, type):
        return True
    return _fits_class(value, origin) and _items_fit(value, origin, arguments)


def _fits_class(value: Any, cls: type) -> bool:
    if is_typeddict(cls):
        if not isinstance(value, dict):
            return False
        hints = hints_of(cls)
        return all(fits(item, hints[name]) for name, item in value.items() if name in hints)
    if cls is float or cls is complex:  # PEP 484: an int will do.
        return isinstance(value, (int, float, cls))
    try:
        return isinstance(value, cls)
    except TypeError:  # A protocol that cannot be checked.
        return True


def _items_fit(value: Any, origin: type, arguments: tuple[Any, ...]) -> bool:
    if isinstance(value, Mapping) and issubclass(origin, Mapping):
        key, item = (*arguments, Any, Any)[:2]
        return all(fits(k, key) and fits(v, item) for k, v in value.items())
    if origin is tuple and arguments and arguments[-1] is not Ellipsis:
        return len(value) == len(arguments) and all(map(fits, value, arguments))
    if isinstance(value, (list, tuple, set, frozenset)) and arguments:
        return all(fits(item, arguments[0]) for item in value)
    return True


def convert(value: Any, annotation: Any) -> Any:
    """Return plain JSON as the annotation wants it.

    Raises:
        msgspec.ValidationError: It is something else; the text names the place.
        TypeError: The annotation is one that JSON cannot be checked against.
        Exception: A validator of a user class raised it.
    """
    try:
        return msgspec.convert(value, annotation, strict=True, str_keys=True, dec_hook=_convert_model)
    except TypeError:
        # Unions of classes are more than msgspec takes: the first member that will do.
        bare = _bare(annotation)
        if get_origin(bare) not in (Union, types.UnionType):
            raise
    failed: Exception | None = None
    for member in get_args(bare):
        try:
            return value if fits(value, member) else convert(value, member)
        except Exception as error:  # noqa: BLE001 - validators are user code
            failed = failed or error
    raise failed or TypeError(f"nothing can be made into {annotation!r}")


def _convert_model(cls: Any, value: Any) -> Any:
    """Convert to a class that msgspec does not know: a pydantic model, or no class for JSON."""
    if isinstance(cls, type) and isinstance(value, cls):
        return value
    validate = getattr(cls, "model_validate", None)
    if validate is None:
        raise TypeError(f"{cls!r} cannot be made from JSON")
    return validate(value)
