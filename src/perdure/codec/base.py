r"""The seam between values and stored bytes: codecs, transforms, and the chain of them.

A `Codec` turns a value into bytes, a `Transform` turns bytes into other bytes (compressed,
encrypted). `Chain` is one codec followed by any number of transforms, and is a codec itself.

Stored bytes say what was done to them. JSON text stands as it is: it never begins with a zero
byte. Everything else begins with the envelope ``b"\x00" + mark``, one byte that belongs to one
codec or transform for ever; envelopes nest.

    {"cents": 1999}                    JSON
    \x00 z  <compressed>               zstd, holding JSON
    \x00 p  <tag> <pickle>             pickle

To add one, add a file ``codec/<name>.py`` with a function ``open_codec(**options)`` that returns
a `Codec` or a `Transform`; `open_chain` finds it by name. A mark in stored data never
loads anything: only what the chain was opened with can read.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, runtime_checkable

from perdure.errors import CodecError, UsageError

__all__ = ["ENVELOPE", "Chain", "Codec", "Transform", "mark_of", "open_chain"]

ENVELOPE: Final = 0
"""First byte of everything that is not JSON text."""

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,30}")
_MOST_ENVELOPES: Final = 4


@runtime_checkable
class Codec(Protocol):
    """Values to bytes and back, exactly."""

    @property
    def name(self) -> str:
        """Its name in settings."""
        ...

    def encode(self, value: Any, annotation: Any = Any) -> bytes:
        """Return the bytes for a value; equal values of builtins give equal bytes.

        Args:
            value: What to store.
            annotation: What the code says about it. Needed only for classes that cannot be found
                by their name.

        Raises:
            CodecError: `decode` could not return exactly this value; names path and type.
        """
        ...

    def decode(self, data: bytes, annotation: Any = Any) -> Any:
        """Return the value that was stored.

        Args:
            data: What `encode` returned, or foreign JSON.
            annotation: Supplies classes, and turns plain JSON into what it asks for where it can.

        Raises:
            CodecError: The bytes are damaged, of an unknown kind, or name a class that is not
                here or must not be used.
        """
        ...


@runtime_checkable
class Transform(Protocol):
    """Bytes to other bytes and back."""

    @property
    def name(self) -> str:
        """Its name in settings."""
        ...

    @property
    def mark(self) -> int:
        """Its byte in the envelope."""
        ...

    def wrap(self, data: bytes) -> bytes | None:
        """Return the transformed bytes without envelope, or None to leave them as they are."""
        ...

    def unwrap(self, body: bytes, *, max_bytes: int | None) -> bytes:
        """Return what was wrapped.

        Raises:
            CodecError: The bytes are damaged, or hold more than ``max_bytes``.
        """
        ...


def mark_of(data: bytes) -> int | None:
    """Return the mark of an envelope, or None for JSON text."""
    return data[1] if len(data) > 1 and data[0] == ENVELOPE else None


class Chain:
    """One codec, then transforms in the order given; reads what any of them wrote.

    Args:
        codec: Turns values into bytes.
        transforms: Applied to the bytes in this order; undone by what each payload says.
        max_bytes: The most one value may take, before transforms; None for no limit.
    """

    def __init__(self, codec: Codec, transforms: Sequence[Transform] = (), *, max_bytes: int | None = None) -> None:
        self.codec = codec
        self.transforms: tuple[Transform, ...] = tuple(transforms)
        self.max_bytes = max_bytes
        self._by_mark = {transform.mark: transform for transform in transforms}
        if len(self._by_mark) != len(self.transforms):
            raise UsageError("a codec chain has one transform twice")
        if not transforms and max_bytes is None:
            # Nothing to add to what the codec does: spare every value a call.
            self.encode = codec.encode  # type: ignore[method-assign]
            self.decode = codec.decode  # type: ignore[method-assign]

    @property
    def name(self) -> str:
        """The names of all its parts, ``json+zstd``."""
        return "+".join((self.codec.name, *(transform.name for transform in self.transforms)))

    def encode(self, value: Any, annotation: Any = Any) -> bytes:
        """See `Codec.encode`; a value over ``max_bytes`` is refused as well."""
        data = self.codec.encode(value, annotation)
        if self.max_bytes is not None and len(data) > self.max_bytes:
            raise CodecError(
                f"value takes {len(data):,} bytes, over the limit of {self.max_bytes:,}",
                type_name=type(value).__name__,
                hint="store the data elsewhere and return where it is, or raise max_bytes",
            )
        for transform in self.transforms:
            wrapped = transform.wrap(data)
            if wrapped is not None:
                data = bytes((ENVELOPE, transform.mark)) + wrapped
        return data

    def decode(self, data: bytes, annotation: Any = Any) -> Any:
        """See `Codec.decode`."""
        if self.transforms and data and data[0] == ENVELOPE:
            data = self.unwrap(data)
        return self.codec.decode(data, annotation)

    def unwrap(self, data: bytes) -> bytes:
        """Return the bytes the codec made, with all transforms undone.

        Raises:
            CodecError: A transform failed, or there are more envelopes than this chain makes.
        """
        for _ in range(_MOST_ENVELOPES):
            transform = self._by_mark.get(mark_of(data) or 0)
            if transform is None:
                return data
            data = transform.unwrap(data[2:], max_bytes=self.max_bytes)
        raise CodecError("stored bytes have too many envelopes", hint="run `perdure verify`")


def open_chain(
    names: Sequence[str] = ("json",),
    options: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    max_bytes: int | None = None,
) -> Chain:
    """Return the chain of the codecs named: first what encodes values, then transforms.

    Args:
        names: File names in ``perdure/codec``. They come from settings, never from stored data.
        options: Keyword arguments for each name's ``open_codec``.
        max_bytes: See `Chain`.

    Raises:
        UsageError: There is no such codec, its library is not installed, or its place is wrong.
    """
    parts = [_open(name, (options or {}).get(name, {})) for name in names]
    if not parts or not isinstance(parts[0], Codec):
        raise UsageError(f"codecs {list(names)}: the first must encode values", hint="use 'json'")
    transforms = [part for part in parts[1:] if isinstance(part, Transform)]
    if len(transforms) != len(parts) - 1:
        raise UsageError(f"codecs {list(names)}: only the first may encode values")
    return Chain(parts[0], transforms, max_bytes=max_bytes)


def _open(name: str, options: Mapping[str, Any]) -> Codec | Transform:
    where = f"{__package__}.{name}"
    if not _NAME.fullmatch(name):
        raise UsageError(f"there is no codec {name!r}")
    try:
        module = importlib.import_module(where)
    except ModuleNotFoundError as error:
        if error.name == where:
            raise UsageError(f"there is no codec {name!r}") from error
        raise UsageError(
            f"codec {name!r} needs a library that is not installed ({error.name})",
            hint=f"pip install 'perdure[{name}]'",
        ) from error
    if not hasattr(module, "open_codec"):
        raise UsageError(f"there is no codec {name!r}")
    opened: Codec | Transform = module.open_codec(**options)
    return opened
