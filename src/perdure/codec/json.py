"""The default codec: JSON text, with tags for what plain JSON lacks (see `tagged`).

This is on the path of every step. A value of plain JSON types is recognised at C speed and
handed to msgspec as it is; reading it needs no walk either, because text without ``"$"`` in it
has no tag.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from perdure.codec.base import ENVELOPE, mark_of
from perdure.codec.tagged.annotation import plan_of
from perdure.codec.tagged.classes import NONE_HANDED, Handed
from perdure.codec.tagged.lift import Lifting, Unreadable
from perdure.codec.tagged.lower import PLAIN, TAG, Lowering, Refused
from perdure.errors import CodecError

__all__ = ["JsonCodec", "open_codec"]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_NULL: Final = b"null"
_MARKER: Final = b'"$"'
"""Looked for with `find`: ``in`` asks first whether it is a number, and drops the error that this makes."""


class JsonCodec:
    """Exact JSON; see `Codec` for the contract."""

    name = "json"

    def encode(self, value: Any, annotation: Any = Any) -> bytes:
        """Return the JSON text for a value; see `Codec.encode`."""
        cls = type(value)
        if cls is dict:
            plain = _is_plain(value)
        elif cls is list:
            plain = PLAIN.issuperset(map(type, value))
        else:
            plain = cls in PLAIN
        if plain:
            try:
                return _encode(value)
            except (UnicodeEncodeError, ValueError):
                pass  # A lone surrogate, or a number of thousands of digits.
        return _encode_other(value, annotation)

    def decode(self, data: bytes, annotation: Any = Any) -> Any:
        """Return the value of a JSON text; see `Codec.decode`."""
        try:
            value = _decode(data)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise _not_json(data, error) from error
        if annotation is Any:
            return _lift(value, NONE_HANDED) if data.find(_MARKER) >= 0 else value
        plan = plan_of(annotation)
        if data.find(_MARKER) >= 0:
            value = _lift(value, plan.handed)
        return value if plan.idle else plan.adapt(value)


def _is_plain(value: dict[Any, Any]) -> bool:
    """Whether a dict is JSON as it is. A loop: dicts are small, and most of the two sets of types is their making."""
    for key, item in value.items():
        if type(key) is not str or type(item) not in PLAIN:
            return False
    return TAG not in value


def open_codec() -> JsonCodec:
    """Return the codec; it has no options."""
    return JsonCodec()


def _encode_other(value: Any, annotation: Any) -> bytes:
    handed = NONE_HANDED if annotation is Any else plan_of(annotation).handed
    try:
        try:
            data = _encode(Lowering(handed).lower(value))
            if data.find(_NULL) < 0:
                return data
            # A None, most likely; but a float that is not finite would look the same.
        except (UnicodeEncodeError, ValueError):
            pass
        return _encode(Lowering(handed, careful=True).lower(value))
    except Refused as refused:
        raise CodecError(
            _with_reason(f"cannot store {refused.type_name}{refused.place}", refused.reason),
            path=refused.path,
            type_name=refused.type_name,
            reason=refused.reason,
        ) from refused.__cause__
    except RecursionError:
        raise CodecError(f"cannot store {type(value).__name__}: it is nested too deeply or contains itself") from None


def _lift(tree: Any, handed: Handed) -> Any:
    try:
        return Lifting(handed).lift(tree)
    except Unreadable as unreadable:
        raise CodecError(
            f"cannot read the stored value at {unreadable.path}: {unreadable.reason}",
            path=unreadable.path,
            type_name=unreadable.type_name,
            reason=unreadable.reason,
        ) from unreadable.__cause__
    except RecursionError:
        raise CodecError("cannot read the stored value: it is nested too deeply") from None


def _not_json(data: bytes, error: Exception) -> CodecError:
    mark = mark_of(data)
    if mark is not None and data[0] == ENVELOPE:
        return CodecError(
            f"stored bytes are of kind {chr(mark)!r}, which this codec cannot read",
            hint="open the engine with the codecs they were written with",
        )
    return CodecError(f"stored bytes are not JSON: {error}", hint="run `perdure verify`")


def _with_reason(text: str, reason: str) -> str:
    return f"{text}: {reason}" if reason else text
