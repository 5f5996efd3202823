"""Compresses payloads over a kilobyte where that makes them smaller.

Needs Python 3.14 or ``pip install 'perdure[zstd]'``.
"""

from __future__ import annotations

import sys
from typing import Final

from perdure.errors import CodecError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["ZstdTransform", "open_codec"]

_DEFAULT_MOST: Final = 1 << 30
_PIECE: Final = 1 << 20


class ZstdTransform:
    """See `Transform`.

    Args:
        level: 1 (fast) to 19 (small).
        threshold: Payloads of fewer bytes are left alone.
    """

    name = "zstd"
    mark: int = ord("z")

    def __init__(self, *, level: int = 3, threshold: int = 1024) -> None:
        self._level = level
        self._threshold = threshold

    def wrap(self, data: bytes) -> bytes | None:
        """Return the compressed bytes, or None if they would not be smaller."""
        if len(data) < self._threshold:
            return None
        packed = zstd.compress(data, self._level)
        return packed if len(packed) + 2 < len(data) else None

    def unwrap(self, body: bytes, *, max_bytes: int | None) -> bytes:
        """Return the bytes; never more than the limit is unpacked, whatever the frame claims.

        Raises:
            CodecError: The frame is damaged or cut off, or holds more than ``max_bytes`` (1 GiB
                where there is no limit).
        """
        most = _DEFAULT_MOST if max_bytes is None else max_bytes
        unpack = zstd.ZstdDecompressor()
        pieces: list[bytes] = []
        size = 0
        try:
            while not unpack.eof:
                piece = unpack.decompress(b"" if pieces else body, max_length=_PIECE)
                pieces.append(piece)
                size += len(piece)
                if size > most:
                    raise CodecError(
                        f"compressed payload of {len(body):,} bytes holds more than {most:,}",
                        hint="raise max_bytes if that is right",
                    )
                if unpack.needs_input and not unpack.eof:
                    raise CodecError("compressed payload is cut off", hint="run `perdure verify`")
        except zstd.ZstdError as error:
            raise CodecError(f"compressed payload is damaged: {error}", hint="run `perdure verify`") from error
        if unpack.unused_data:
            raise CodecError("compressed payload has a tail", hint="run `perdure verify`")
        return b"".join(pieces)


def open_codec(*, level: int = 3, threshold: int = 1024) -> ZstdTransform:
    """Return the transform; see `ZstdTransform` for the options."""
    return ZstdTransform(level=level, threshold=threshold)
