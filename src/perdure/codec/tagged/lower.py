"""From a Python value to a tree of what plain JSON can hold.

Every value is told by its exact type: a subclass of ``int`` is not an ``int`` here. A container
that is plain already is returned itself, not copied; the check runs at C speed (`issuperset` over
``map(type, ...)``), which is what makes the common small result cheap.

Three exotic values are not looked for on that path, because finding them would cost every string
and number a call. The JSON encoder stops at lone surrogates and at integers of thousands of digits,
and writes ``null`` for a float that is not finite; the caller, who sees that, lowers again with
``careful=True``.
"""

from __future__ import annotations

import datetime as dt
import math
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from perdure.codec.tagged.classes import NONE_HANDED, Handed, type_name
from perdure.codec.tagged.record import Record, Unfit, record_of

__all__ = ["MAX_DEPTH", "PLAIN", "PLAIN_OR_FLOAT", "TAG", "Lowering", "Refused"]

TAG: Final = "$"
MAX_DEPTH: Final = 100
"""Containers within containers. Deeper is most often a value that contains itself."""

PLAIN: Final = frozenset({str, int, bool, type(None)})
"""Types whose every value JSON keeps, but for strings and integers ``careful`` looks for."""

PLAIN_OR_FLOAT: Final = PLAIN | {float}
"""The same, with floats: one that is not finite is written as ``null``."""

_CAREFUL: Final = frozenset({bool, type(None)})
_STR: Final = frozenset({str})
_LONGEST_DECIMAL_BITS: Final = 2048  # About 617 digits; the interpreter's limit is never below 640.

_encode = msgspec.json.Encoder().encode


class Refused(Exception):
    """Internal: a value cannot be stored; ``parts`` collects its path from the inside out."""

    def __init__(self, cls: type, reason: str = "") -> None:
        super().__init__(reason)
        self.type_name: str = type_name(cls)
        self.reason = reason
        self.parts: list[str] = []

    @property
    def path(self) -> str:
        """Where the value is, from ``$``."""
        return "$" + "".join(reversed(self.parts))

    @property
    def place(self) -> str:
        """The same for people: nothing where the value itself is meant."""
        return f" at {self.path}" if self.parts else ""


class Lowering:
    """One walk over one value."""

    __slots__ = ("_depth", "_handed", "_plain")

    def __init__(self, handed: Handed = NONE_HANDED, *, careful: bool = False) -> None:
        self._handed = handed
        self._plain = _CAREFUL if careful else PLAIN_OR_FLOAT
        self._depth = 0

    def lower(self, value: Any) -> Any:
        """Return the tree for a value.

        Raises:
            Refused: It cannot be read back exactly.
        """
        cls = type(value)
        if cls in self._plain:
            return value
        lower = _LOWER.get(cls)
        return lower(self, value) if lower is not None else self._record(value)

    def _too_deep(self, value: Any) -> Refused:
        return Refused(type(value), f"nested deeper than {MAX_DEPTH}, or it contains itself")

    def _list(self, value: list[Any]) -> list[Any]:
        return value if self._plain.issuperset(map(type, value)) else self._items(value)

    def _items(self, value: Any) -> list[Any]:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._too_deep(value)
        plain = self._plain
        items: list[Any] = []
        try:
            for item in value:
                # Written out, not a call of `lower`: this loop is most of the cost of encoding.
                cls = type(item)
                if cls not in plain:
                    lower = _LOWER.get(cls)
                    item = self._record(item) if lower is None else lower(self, item)  # noqa: PLW2901
                items.append(item)
        except Refused as refused:
            refused.parts.append(f"[{len(items)}]")
            raise
        self._depth -= 1
        return items

    def _dict(self, value: dict[Any, Any]) -> dict[str, Any]:
        if not _STR.issuperset(map(type, value)) or TAG in value:
            return self._pairs(value)
        plain = self._plain
        if plain is _CAREFUL and any(map(_has_surrogate, value)):
            return self._pairs(value)
        if plain.issuperset(map(type, value.values())):
            return value
        return self._members(value)

    def _members(self, value: Mapping[str, Any], *, attributes: bool = False) -> dict[str, Any]:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._too_deep(value)
        plain = self._plain
        members = {}
        name = ""
        try:
            for name, item in value.items():
                cls = type(item)
                if cls not in plain:
                    lower = _LOWER.get(cls)
                    item = self._record(item) if lower is None else lower(self, item)  # noqa: PLW2901
                members[name] = item
        except Refused as refused:
            refused.parts.append(f".{name}" if attributes else f"[{_shown(name)}]")
            raise
        self._depth -= 1
        return members

    def _pairs(self, value: dict[Any, Any]) -> dict[str, Any]:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._too_deep(value)
        pairs = []
        key = None
        try:
            for key, item in value.items():
                pairs.append([self.lower(key), self.lower(item)])
        except Refused as refused:
            refused.parts.append(f"[{_shown(key)}]")
            raise
        self._depth -= 1
        return {TAG: "dict", "v": pairs}

    def _tuple(self, value: tuple[Any, ...]) -> dict[str, Any]:
        return {TAG: "tuple", "v": self._items(value)}

    def _set(self, value: set[Any] | frozenset[Any]) -> dict[str, Any]:
        # Sorted: one set always gives the same bytes, whatever the hash seed of the process.
        return {TAG: type(value).__name__, "v": sorted(self._items(value), key=_encode)}

    def _str(self, value: str) -> Any:
        """Only reached when careful."""
        if _has_surrogate(value):
            return {TAG: "str", "v": _base64(value.encode("utf-8", "surrogatepass"))}
        return value

    def _int(self, value: int) -> Any:
        """Only reached when careful."""
        if value.bit_length() > _LONGEST_DECIMAL_BITS:
            return {TAG: "int", "v": hex(value)}
        return value

    def _float(self, value: float) -> Any:
        """Only reached when careful."""
        return value if math.isfinite(value) else {TAG: "float", "v": repr(value)}

    def _record(self, value: Any) -> dict[str, Any]:
        cls = type(value)
        try:
            record, fields, extra = self._taken(value)
        except Unfit as unfit:
            raise Refused(cls, str(unfit)) from None
        except RecursionError:
            raise
        except Exception as error:  # A __getattr__ of the class.
            raise Refused(cls, f"reading its fields raised {error!r}") from error
        if not self._plain.issuperset(map(type, fields.values())):
            fields = self._members(fields, attributes=True)
        node = {TAG: record.kind, "t": record.name, "v": fields}
        if extra:
            node["x"] = self._members(extra, attributes=True)
        return node

    def _taken(self, value: Any) -> tuple[Record, dict[str, Any], dict[str, Any]]:
        record = record_of(type(value))
        if record is None:
            raise Unfit(_why_not(value))
        self._check_class(record)
        return record, *record.take(value)

    def _check_class(self, record: Record) -> None:
        cls = record.cls
        if record.runs_code and cls not in self._handed:
            raise Unfit("its __post_init__ would run on reading; annotate the place with the class")
        if self._handed.find(record.name) is not cls:
            raise Unfit(
                "its class cannot be found by its name; define it at the top of a module or annotate the place with it"
            )


def _date(_: Lowering, value: dt.date) -> dict[str, Any]:
    return {TAG: "date", "v": value.isoformat()}


def _datetime(_: Lowering, value: dt.datetime) -> dict[str, Any]:
    return _zoned("datetime", value)


def _time(_: Lowering, value: dt.time) -> dict[str, Any]:
    return _zoned("time", value)


def _timedelta(_: Lowering, value: dt.timedelta) -> dict[str, Any]:
    return {TAG: "timedelta", "v": [value.days, value.seconds, value.microseconds]}


def _zoned(tag: str, value: dt.datetime | dt.time) -> dict[str, Any]:
    zone = value.tzinfo
    node: dict[str, Any]
    if zone is None:
        node = {TAG: tag, "v": value.isoformat()}
    else:
        node = {TAG: tag, "v": value.replace(tzinfo=None).isoformat(), "z": _zone(zone)}
    if value.fold:
        node["fold"] = 1
    return node


def _zone(zone: dt.tzinfo) -> Any:
    if zone is dt.UTC:
        return 0
    cls = type(zone)
    if cls is dt.timezone:
        offset = zone.utcoffset(None)
        assert offset is not None  # noqa: S101 - a fixed zone has an offset
        seconds = [offset.days * 86400 + offset.seconds, offset.microseconds]
        name = zone.tzname(None)
        # A name that the offset implies need not be stored.
        return seconds if name == dt.timezone(offset).tzname(None) else [*seconds, name]
    if cls is ZoneInfo and isinstance(zone, ZoneInfo):
        key = zone.key
        if key is None:
            raise Refused(cls, "a time zone without a name")
        return key
    if cls.__module__.startswith("pydantic_core.") and cls.__name__ == "TzInfo":
        # What pydantic parses "+02:00" to. A fixed offset: equal to `timezone` in every respect.
        offset = zone.utcoffset(None)
        assert offset is not None  # noqa: S101 - a fixed zone has an offset
        return [offset.days * 86400 + offset.seconds, offset.microseconds, None]
    raise Refused(cls, "use zoneinfo.ZoneInfo or datetime.timezone")


def _bytes(_: Lowering, value: bytes | bytearray) -> dict[str, Any]:
    return {TAG: type(value).__name__, "v": _base64(value)}


def _decimal(_: Lowering, value: Decimal) -> dict[str, Any]:
    return {TAG: "decimal", "v": str(value)}


def _uuid(_: Lowering, value: UUID) -> dict[str, Any]:
    return {TAG: "uuid", "v": str(value)}


def _base64(value: bytes | bytearray) -> str:
    return b64encode(value).decode("ascii")


def _has_surrogate(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return True
    return False


def _shown(key: Any) -> str:
    try:
        return repr(key)[:80]
    except Exception:  # noqa: BLE001 - user code; a message must not fail
        return f"<{type_name(type(key))}>"


def _why_not(value: Any) -> str:
    if isinstance(value, type):
        return "classes are not values"
    if isinstance(value, BaseException):
        return "raise it instead of returning it"
    if isinstance(value, Awaitable):
        return "it was never awaited; write `await` before the call that made it"
    for base in (str, int, float, bool, list, dict, tuple, set, frozenset, bytes, dt.date):
        if isinstance(value, base):
            return f"a subclass of {base.__name__} would come back as {base.__name__}"
    return ""


_LOWER: Mapping[type, Callable[[Lowering, Any], Any]] = MappingProxyType(
    {
        list: Lowering._list,  # noqa: SLF001 - the table is part of the class
        dict: Lowering._dict,  # noqa: SLF001
        tuple: Lowering._tuple,  # noqa: SLF001
        set: Lowering._set,  # noqa: SLF001
        frozenset: Lowering._set,  # noqa: SLF001
        str: Lowering._str,  # noqa: SLF001
        int: Lowering._int,  # noqa: SLF001
        float: Lowering._float,  # noqa: SLF001
        bytes: _bytes,
        bytearray: _bytes,
        Decimal: _decimal,
        UUID: _uuid,
        dt.datetime: _datetime,
        dt.date: _date,
        dt.time: _time,
        dt.timedelta: _timedelta,
    }
)
