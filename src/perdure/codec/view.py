"""Stored bytes as plain JSON for people: command line, HTTP, pages.

One way only: a tuple and a list look the same here. No class is looked up and nothing is rebuilt,
so this may be used on any data, in any process. The result is strict JSON: no NaN.
"""

from __future__ import annotations

from datetime import datetime, time
from typing import Any

import msgspec

from perdure.codec.base import ENVELOPE, Chain, Codec
from perdure.codec.tagged.lift import Lifting, Unreadable
from perdure.codec.tagged.lower import TAG

__all__ = ["view"]

_decode = msgspec.json.Decoder().decode
_ARRAYS = frozenset({"tuple", "set", "frozenset"})
_RECORDS = frozenset({"dataclass", "struct", "namedtuple", "model"})
_TEXTS = frozenset({"str", "int"})


def view(data: bytes, codec: Codec | None = None) -> Any:
    """Return what stored bytes hold, made of what plain JSON has.

    Args:
        data: Stored bytes.
        codec: The codec they were stored with; needed where it transforms bytes.

    Returns:
        The value, or a text in angle brackets that says why it cannot be shown.

    Raises:
        CodecError: A transform could not be undone.
    """
    if isinstance(codec, Chain):
        data = codec.unwrap(data)
    if data[:1] == bytes((ENVELOPE,)):
        return f"<{len(data):,} bytes that are not JSON>"
    try:
        return _shown(_decode(data))
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        return f"<damaged: {error}>"


def _shown(node: Any) -> Any:
    if type(node) is list:
        return [_shown(item) for item in node]
    if type(node) is not dict:
        return node
    tag = node.get(TAG)
    if not isinstance(tag, str):
        return {name: _shown(item) for name, item in node.items()}
    held = node.get("v")
    if tag in _ARRAYS and type(held) is list:
        return [_shown(item) for item in held]
    if tag in _RECORDS and type(held) is dict:
        return {name: _shown(item) for name, item in held.items()}
    if tag == "enum" and type(held) is dict:
        return _shown(held.get("name", held.get("value")))
    if tag == "dict" and type(held) is list:
        return _pairs(held)
    if tag in _TEXTS:
        return _exotic(node)
    return _scalar(node)


def _pairs(held: list[Any]) -> Any:
    pairs = [(_shown(pair[0]), _shown(pair[1])) for pair in held if type(pair) is list and len(pair) == 2]
    return {key if isinstance(key, str) else msgspec.json.encode(key).decode(): item for key, item in pairs}


def _exotic(node: dict[str, Any]) -> Any:
    """Show a text with lone surrogates or an integer of thousands of digits."""
    try:
        value = Lifting().lift(dict(node))
    except Unreadable:
        return "<damaged>"
    return hex(value) if isinstance(value, int) else value.encode("utf-8", "backslashreplace").decode()


def _scalar(node: dict[str, Any]) -> Any:
    """Show a date, a number, bytes: all of them are stored as text already."""
    text = node.get("v")
    if type(text) is not str:
        return _shown(text)
    if node.get("z") == 0:
        return f"{text}Z"
    if isinstance(node.get("z"), str):
        return f"{text} {node['z']}"
    if node.get("z") is not None:
        try:
            value = Lifting().lift(dict(node))
        except Unreadable:
            return text
        return value.isoformat() if isinstance(value, datetime | time) else text
    return text
