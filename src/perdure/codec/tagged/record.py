"""Instances of user classes as named fields, and back without running their constructors.

One `Record` per class knows how to take an instance apart and put one together. The kinds are
dataclass, NamedTuple, msgspec Struct, pydantic model and Enum; a class of any other kind has no
record and cannot be stored. All state is kept: fields, attributes set besides them, pydantic's
private and extra attributes. Left out are only values of ``cached_property``, which come back by
themselves.

A class may have gained fields with defaults since a value was stored, or lost fields; both
are read. Any other difference is a `CodecError`.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import sys
from collections.abc import Callable, Mapping
from operator import attrgetter
from types import MemberDescriptorType
from typing import Any, ClassVar, Final, cast

import msgspec

from perdure.codec.tagged.classes import name_of

__all__ = ["Record", "Unfit", "kind_of", "record_of"]

_REPORTED_BY_TYPING = frozenset({"__orig_class__"})


class Unfit(Exception):
    """Internal: this class or instance cannot be stored or built; the text says why."""


class Record:
    """How instances of one class are taken apart and put together.

    Attributes:
        cls: The class.
        name: Its stored name.
        runs_code: Whether `build` runs code of the class. Such a class must be handed in by an
            annotation; a name in stored data is not enough.
    """

    kind: ClassVar[str]
    runs_code = False

    def __init__(self, cls: type) -> None:
        self.cls = cls
        self.name: str = name_of(cls)

    def take(self, value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the fields of an instance and the state it has besides them."""
        raise NotImplementedError

    def build(self, fields: dict[str, Any], extra: Mapping[str, Any]) -> Any:
        """Return an instance with exactly this state.

        Raises:
            Unfit: A field without default is missing.
        """
        raise NotImplementedError


class _Dataclass(Record):
    kind = "dataclass"

    def __init__(self, cls: type) -> None:
        super().__init__(cls)
        try:
            object.__new__(cls)
        except TypeError as error:
            raise Unfit("its base class keeps state that cannot be seen") from error
        self._fields = dataclasses.fields(cls)
        self._names = tuple(field.name for field in self._fields)
        self._name_set = frozenset(self._names)
        for name in self._names:
            _refuse_property(cls, name)
        self._get_all = _getter(self._names)
        self._slots = _other_slots(cls, self._names)
        # Without slots for fields, all of the state is the __dict__.
        self._in_dict = not any(
            isinstance(base.__dict__.get(name), MemberDescriptorType) for base in cls.__mro__ for name in self._names
        )
        self._cached = _cached_properties(cls)

    def take(self, value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        try:
            fields = dict(zip(self._names, self._get_all(value), strict=True))
        except AttributeError:  # A field that __init__ leaves unset.
            fields = {n: getattr(value, n) for n in self._names if hasattr(value, n)}
        attributes = getattr(value, "__dict__", None)
        if not self._slots and (attributes is None or attributes.keys() <= fields.keys()):
            return fields, {}
        extra = {
            name: item for name, item in (attributes or {}).items() if name not in fields and name not in self._cached
        }
        extra.update((n, getattr(value, n)) for n in self._slots if hasattr(value, n))
        return fields, extra

    def build(self, fields: dict[str, Any], extra: Mapping[str, Any]) -> Any:
        value: Any = object.__new__(self.cls)
        if self._in_dict and not extra and fields.keys() == self._name_set:
            value.__dict__.update(fields)
            return value
        # object.__setattr__: frozen classes, and no code of the class.
        assign = object.__setattr__
        for field in self._fields:
            name = field.name
            if name in fields:
                assign(value, name, fields[name])
            elif field.default_factory is not dataclasses.MISSING:
                assign(value, name, field.default_factory())
            elif field.default is not dataclasses.MISSING:
                assign(value, name, field.default)
            elif field.init:
                raise Unfit(f"field {name!r} is not in the stored value and has no default")
        for name, item in extra.items():
            assign(value, name, item)
        return value


class _NamedTuple(Record):
    kind = "namedtuple"

    def __init__(self, cls: type) -> None:
        super().__init__(cls)
        self._names: tuple[str, ...] = cls._fields  # type: ignore[attr-defined]
        self._defaults: dict[str, Any] = getattr(cls, "_field_defaults", {})

    def take(self, value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return dict(zip(self._names, value, strict=True)), dict(getattr(value, "__dict__", {}))

    def build(self, fields: dict[str, Any], extra: Mapping[str, Any]) -> Any:
        items = []
        for name in self._names:
            if name in fields:
                items.append(fields[name])
            elif name in self._defaults:
                items.append(self._defaults[name])
            else:
                raise Unfit(f"field {name!r} is not in the stored value and has no default")
        value: Any = tuple.__new__(self.cls, items)
        for name, item in extra.items():
            object.__setattr__(value, name, item)
        return value


class _Struct(Record):
    kind = "struct"

    def __init__(self, cls: type) -> None:
        super().__init__(cls)
        self._names: tuple[str, ...] = cls.__struct_fields__  # type: ignore[attr-defined]
        self._get_all = _getter(self._names)
        # A Struct cannot be made without its constructor, which calls __post_init__.
        self.runs_code = hasattr(cls, "__post_init__")

    def take(self, value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        fields = dict(zip(self._names, self._get_all(value), strict=True))
        return fields, dict(getattr(value, "__dict__", {}))

    def build(self, fields: dict[str, Any], extra: Mapping[str, Any]) -> Any:
        known = {name: fields[name] for name in self._names if name in fields}
        try:
            value = self.cls(**known)
        except TypeError as error:
            raise Unfit(str(error)) from error
        assign = msgspec.structs.force_setattr
        if self.runs_code:  # Undo what __post_init__ did to values that had been through it.
            for name, item in known.items():
                assign(value, name, item)
        if extra:
            value.__dict__.update(extra)
        return value


class _Model(Record):
    kind = "model"

    def __init__(self, cls: type) -> None:
        super().__init__(cls)
        self._cached = _cached_properties(cls)
        self._fields: Mapping[str, Any] = cls.__pydantic_fields__  # type: ignore[attr-defined]

    def take(self, value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        state = {n: item for n, item in value.__dict__.items() if n not in self._cached}
        extra: dict[str, Any] = {"set": sorted(value.__pydantic_fields_set__)}
        if value.__pydantic_extra__ is not None:
            extra["extra"] = value.__pydantic_extra__
        if value.__pydantic_private__ is not None:
            extra["private"] = value.__pydantic_private__
        return state, extra

    def build(self, fields: dict[str, Any], extra: Mapping[str, Any]) -> Any:
        state = {}
        for name, field in self._fields.items():
            if name in fields:
                state[name] = fields[name]
            elif field.is_required():
                raise Unfit(f"field {name!r} is not in the stored value and has no default")
            else:
                state[name] = field.get_default(call_default_factory=True)
        value: Any = object.__new__(self.cls)
        assign = object.__setattr__
        assign(value, "__dict__", state)
        assign(value, "__pydantic_fields_set__", set(extra.get("set", state)))
        assign(value, "__pydantic_extra__", extra.get("extra"))
        assign(value, "__pydantic_private__", extra.get("private"))
        return value


class _Enum(Record):
    kind = "enum"

    def take(self, value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        if issubclass(self.cls, enum.Flag):
            # A combination of flags is no member; its number is all there is to it.
            return {"value": value._value_}, {}
        name = value._name_
        if self._members().get(name) is not value:
            raise Unfit(f"{name} is not a named member")
        return {"name": name}, {}

    def build(self, fields: dict[str, Any], extra: Mapping[str, Any]) -> Any:  # noqa: ARG002 - an Enum has none
        if issubclass(self.cls, enum.Flag):
            number = fields.get("value")
            if type(number) is not int:
                raise Unfit("the stored value of a flag is not an integer")
            try:
                return self.cls(number)
            except ValueError as error:
                raise Unfit(str(error)) from error
        name = fields.get("name")
        if not isinstance(name, str) or name not in self._members():
            raise Unfit(f"it has no member {name!r}")
        return self._members()[name]

    def _members(self) -> Mapping[str, Any]:
        return cast("type[enum.Enum]", self.cls).__members__


def kind_of(cls: type) -> type[Record] | None:
    """Return the kind of record a class is, or None if it cannot be stored."""
    if issubclass(cls, enum.Enum):
        return _Enum
    if issubclass(cls, msgspec.Struct):
        return _Struct
    if dataclasses.is_dataclass(cls):
        return _Dataclass
    if issubclass(cls, tuple):
        names = getattr(cls, "_fields", None)
        fit = isinstance(names, tuple) and all(isinstance(name, str) for name in names)
        return _NamedTuple if fit else None
    # A model's base can only come from a module that is imported already.
    pydantic = sys.modules.get("pydantic.main")
    base = None if pydantic is None else pydantic.__dict__.get("BaseModel")
    return _Model if base is not None and issubclass(cls, base) else None


# Bounded: classes come and go with versions of workflow code.
_MOST_RECORDS: Final = 4096
_records: dict[type, Record] = {}


def record_of(cls: type) -> Record | None:
    """Return the record of a class, or None if it is of no kind that can be stored.

    Raises:
        Unfit: It is of such a kind, but not storable.
    """
    found = _records.get(cls)
    if found is None:
        kind = kind_of(cls)
        if kind is None:
            return None
        if len(_records) >= _MOST_RECORDS:
            _records.clear()
        found = _records[cls] = kind(cls)
    return found


def _getter(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that reads all names at once; `attrgetter` of one gives no tuple."""
    if len(names) > 1:
        return cast("Callable[[Any], tuple[Any, ...]]", attrgetter(*names))
    return lambda value: tuple(getattr(value, name) for name in names)


def _refuse_property(cls: type, name: str) -> None:
    for base in cls.__mro__:
        found = base.__dict__.get(name)
        if found is None:
            continue
        if hasattr(type(found), "__set__") and not isinstance(found, MemberDescriptorType):
            raise Unfit(f"its field {name!r} is a property")
        return


def _other_slots(cls: type, fields: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(
        name
        for base in cls.__mro__
        for name, found in base.__dict__.items()
        if isinstance(found, MemberDescriptorType) and name not in fields
    )


def _cached_properties(cls: type) -> frozenset[str]:
    cached = {
        name
        for base in cls.__mro__
        for name, found in base.__dict__.items()
        if isinstance(found, functools.cached_property)
    }
    return _REPORTED_BY_TYPING | cached
