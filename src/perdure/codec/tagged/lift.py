"""From a tree of plain JSON back to the Python value it was made from.

The tree may come from anyone who can write to the database. Whatever it holds, lifting it
runs no code that only the tree named: see INV-2 of the package. Anything that lowering would not
have written is refused with its path.
"""

from __future__ import annotations

import datetime as dt
import sys
from base64 import b64decode
from collections.abc import Callable, Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from perdure.codec.tagged.classes import NONE_HANDED, Handed, find_imported
from perdure.codec.tagged.lower import MAX_DEPTH, TAG
from perdure.codec.tagged.record import Record, Unfit, record_of

__all__ = ["Lifting", "Unreadable"]

_MAX_DEPTH = MAX_DEPTH + 2  # Lowering does not count a flat container at the bottom.


class Unreadable(Exception):
    """Internal: a tree does not stand for a value here; ``parts`` is its path, inside out."""

    def __init__(self, reason: str, type_name: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.type_name = type_name
        self.parts: list[str] = []

    @property
    def path(self) -> str:
        """Where in the value, from ``$``."""
        return "$" + "".join(reversed(self.parts))


class Lifting:
    """One walk over one tree, which it uses up: lists and dicts are changed in place."""

    __slots__ = ("_depth", "_handed")

    def __init__(self, handed: Handed = NONE_HANDED) -> None:
        self._handed = handed
        self._depth = 0

    def lift(self, node: Any) -> Any:
        """Return the value of a tree.

        Raises:
            Unreadable: The tree holds an unknown tag, a damaged value, or a class that is not
                here or must not be used.
        """
        cls = type(node)
        if cls is not dict and cls is not list:
            return node
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise Unreadable(f"nested deeper than {MAX_DEPTH}")
        if cls is list:
            self._list(node)
        elif TAG in node:
            node = self._tagged(node)
        else:
            self._members(node)
        self._depth -= 1
        return node

    def _list(self, node: list[Any]) -> list[Any]:
        index = 0
        try:
            for index, item in enumerate(node):
                if type(item) is dict or type(item) is list:
                    node[index] = self.lift(item)
        except Unreadable as unreadable:
            unreadable.parts.append(f"[{index}]")
            raise
        return node

    def _members(self, node: dict[str, Any], *, attributes: bool = False) -> dict[str, Any]:
        name = ""
        try:
            for name, item in node.items():
                if type(item) is dict or type(item) is list:
                    node[name] = self.lift(item)
        except Unreadable as unreadable:
            unreadable.parts.append(f".{name[:80]}" if attributes else f"[{name[:80]!r}]")
            raise
        return node

    def _tagged(self, node: dict[str, Any]) -> Any:
        tag = node[TAG]
        if not isinstance(tag, str):
            raise Unreadable("the stored value is damaged: its tag is not a text")
        lift = _LIFT.get(tag)
        if lift is None:
            raise Unreadable(f"it is stored as {tag!r}, which this release does not know")
        try:
            return lift(self, node)
        except (ValueError, TypeError, KeyError, ArithmeticError, AttributeError) as error:
            raise Unreadable(f"the stored {tag} is damaged: {error!r}") from error

    def _items(self, node: dict[str, Any]) -> list[Any]:
        items = node["v"]
        if type(items) is not list:
            raise Unreadable(f"the stored {node[TAG]} is damaged: it has no items")
        return self._list(items)

    def _tuple(self, node: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(self._items(node))

    def _set(self, node: dict[str, Any]) -> set[Any]:
        return set(self._items(node))

    def _frozenset(self, node: dict[str, Any]) -> frozenset[Any]:
        return frozenset(self._items(node))

    def _dict(self, node: dict[str, Any]) -> dict[Any, Any]:
        return {self.lift(key): self.lift(item) for key, item in node["v"]}

    def _record(self, node: dict[str, Any]) -> Any:
        name = node["t"]
        record = self._find(name, node[TAG])
        fields, extra = node["v"], node.get("x", {})
        if type(fields) is not dict or type(extra) is not dict:
            raise Unreadable(f"the stored {name} is damaged: it has no fields", name)
        self._members(fields, attributes=True)
        self._members(extra, attributes=True)
        try:
            return record.build(fields, extra)
        except Unfit as unfit:
            raise Unreadable(f"{name} here differs from the stored one: {unfit}", name) from None

    def _find(self, name: Any, kind: str) -> Record:
        if not isinstance(name, str):
            raise Unreadable("the stored value is damaged: its class has no name")
        cls = self._handed.find(name)
        if cls is None:
            raise Unreadable(f"its class {name} is not known here; import its module or annotate with it", name)
        try:
            record = record_of(cls)
        except Unfit as unfit:
            raise Unreadable(f"{name} cannot be stored: {unfit}", name) from None
        if record is None or record.kind != kind:
            raise Unreadable(f"{name} is refused: it is not a {kind}", name)
        if record.runs_code and cls not in self._handed:
            raise Unreadable(f"{name} is refused: reading it would run its __post_init__", name)
        return record


def _str(_: Lifting, node: dict[str, Any]) -> str:
    return b64decode(node["v"], validate=True).decode("utf-8", "surrogatepass")


def _int(_: Lifting, node: dict[str, Any]) -> int:
    return int(node["v"], 16)


def _float(_: Lifting, node: dict[str, Any]) -> float:
    return float(node["v"])


def _bytes(_: Lifting, node: dict[str, Any]) -> bytes:
    return b64decode(node["v"], validate=True)


def _bytearray(_: Lifting, node: dict[str, Any]) -> bytearray:
    return bytearray(b64decode(node["v"], validate=True))


def _decimal(_: Lifting, node: dict[str, Any]) -> Decimal:
    return Decimal(node["v"])


def _uuid(_: Lifting, node: dict[str, Any]) -> UUID:
    return UUID(node["v"])


def _date(_: Lifting, node: dict[str, Any]) -> dt.date:
    return dt.date.fromisoformat(node["v"])


def _datetime(_: Lifting, node: dict[str, Any]) -> dt.datetime:
    value = dt.datetime.fromisoformat(node["v"])
    return value if len(node) == 2 else value.replace(tzinfo=_zone(node), fold=_fold(node))


def _time(_: Lifting, node: dict[str, Any]) -> dt.time:
    return dt.time.fromisoformat(node["v"]).replace(tzinfo=_zone(node), fold=_fold(node))


def _timedelta(_: Lifting, node: dict[str, Any]) -> dt.timedelta:
    days, seconds, microseconds = node["v"]
    return dt.timedelta(days, seconds, microseconds)


def _fold(node: dict[str, Any]) -> int:
    return 1 if node.get("fold") else 0


def _zone(node: dict[str, Any]) -> dt.tzinfo | None:
    zone = node.get("z")
    if zone is None:
        return None
    if zone == 0:
        return dt.UTC
    if isinstance(zone, str):
        try:
            return ZoneInfo(zone)
        except (ZoneInfoNotFoundError, OSError) as error:
            raise Unreadable(f"this machine has no time zone {zone!r}; install the tzdata package") from error
    seconds, microseconds, *name = zone
    offset = dt.timedelta(seconds=seconds, microseconds=microseconds)
    if name == [None]:
        return _pydantic_zone(offset)
    return dt.timezone(offset, *name)


def _pydantic_zone(offset: dt.timedelta) -> dt.tzinfo:
    """Return the zone pydantic would have made, or an equal one where it is not imported."""
    cls: Any = find_imported("pydantic_core:TzInfo") if "pydantic_core" in sys.modules else None
    return cls(offset.total_seconds()) if cls is not None else dt.timezone(offset)


_LIFT: Mapping[str, Callable[[Lifting, dict[str, Any]], Any]] = MappingProxyType(
    {
        "tuple": Lifting._tuple,  # noqa: SLF001 - the table is part of the class
        "set": Lifting._set,  # noqa: SLF001
        "frozenset": Lifting._frozenset,  # noqa: SLF001
        "dict": Lifting._dict,  # noqa: SLF001
        "str": _str,
        "int": _int,
        "float": _float,
        "bytes": _bytes,
        "bytearray": _bytearray,
        "decimal": _decimal,
        "uuid": _uuid,
        "date": _date,
        "datetime": _datetime,
        "time": _time,
        "timedelta": _timedelta,
        **dict.fromkeys(
            ("dataclass", "namedtuple", "struct", "model", "enum"),
            Lifting._record,  # noqa: SLF001
        ),
    }
)
